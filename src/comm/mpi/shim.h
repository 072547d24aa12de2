/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that libzero needs from an MPI, in a form that does not depend on the MPI. Handles
 * and constants differ between MPI libraries, and so does the compiled code. shim.c fills the
 * table: inside libzero for the standard ABI, and in a shim that the command zero-mpi-shim builds
 * on the user's machine for an MPI with its own ABI. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Changes with every change of this file. */
enum { MPI_SHIM_VERSION = 3 };

/* An MPI_Comm or an MPI_Request, which may be a number or a pointer. */
typedef intptr_t mpi_handle;

enum mpi_level { MPI_LEVEL_FUNNELED, MPI_LEVEL_SERIALIZED, MPI_LEVEL_MULTIPLE };

/* Data attached to a communicator. MPI calls `end` when it frees the communicator. */
struct mpi_attached {
  void (*end)(struct mpi_attached *self);
};

struct mpi_group {
  int is_null, is_inter;
  int rank, world;
};

/* Functions that return an int return 0 or an MPI error code. */
struct mpi_functions {
  uint32_t version;

  /* Initializes and finalizes MPI, for calls from any one thread at a time. */
  int (*start)(void);
  int (*finish)(void);
  int (*state)(int *initialized, int *finalized);
  /* Sets `is_main` if this thread initialized MPI. */
  int (*thread)(enum mpi_level *level, int *is_main);
  void (*describe)(int error, char *text, size_t bytes);

  /* Returns the communicator at `place`, which is an MPI_Comm or a Fortran integer, depending on
   * `bytes`. NULL means MPI_COMM_WORLD. Returns 0 if there is none. */
  mpi_handle (*find)(const void *place, size_t bytes);
  int (*group)(mpi_handle comm, struct mpi_group *out);
  /* Makes `comm` return errors. */
  int (*return_errors)(mpi_handle comm);
  /* The same until hand_back. `handler` is the previous error handler. */
  int (*take_over)(mpi_handle comm, mpi_handle *handler);
  int (*hand_back)(mpi_handle comm, mpi_handle handler);
  int (*free)(mpi_handle comm);
  /* `comm` 0 is MPI_COMM_SELF, which MPI_Finalize frees first. */
  int (*attach)(mpi_handle comm, struct mpi_attached *what);
  int (*attached)(mpi_handle comm, struct mpi_attached **what);

  /* These start operations that have ended when `test` says so. Until then MPI uses their
   * arguments. */
  int (*duplicate)(mpi_handle comm, mpi_handle *out, mpi_handle *request);
  int (*all_gather)(const void *send, void *recv, int bytes, mpi_handle comm, mpi_handle *request);
  int (*send)(const void *data, int bytes, int to, int tag, mpi_handle comm, mpi_handle *request);
  int (*receive)(void *data, int bytes, int from, int tag, mpi_handle comm, mpi_handle *request);
  int (*test)(mpi_handle *request, int *done);
  /* Lets MPI make progress on messages that it has not sent yet. */
  int (*progress)(mpi_handle comm);
};

/* The symbol that a shim exports. */
#define MPI_SHIM_SYMBOL "zero_mpi_shim"
typedef const struct mpi_functions *(*mpi_shim_function)(void);

/* SPDX-License-Identifier: Apache-2.0 */
/* What libzero asks of an MPI, in words that are the same for all of them: handles and constants
 * differ from one MPI to the next, and so does what a compiler makes of them. shim.c fills the
 * table: inside libzero for the standard ABI, and on a user's machine, by the command
 * zero-mpi-shim, for an MPI that has an ABI of its own. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Changes with all that stands here. */
enum { MPI_SHIM_VERSION = 3 };

/* An MPI_Comm or an MPI_Request, whether that is a number or a pointer. */
typedef intptr_t mpi_handle;

enum mpi_level { MPI_LEVEL_FUNNELED, MPI_LEVEL_SERIALIZED, MPI_LEVEL_MULTIPLE };

/* Lives as long as the communicator that it is attached to. MPI calls `end` when it frees that. */
struct mpi_attached {
  void (*end)(struct mpi_attached *self);
};

struct mpi_group {
  int is_null, is_inter;
  int rank, world;
};

/* All but those that return something else return 0, or MPI's number of an error. */
struct mpi_functions {
  uint32_t version;

  /* Begins and ends MPI, for calls from any one thread at a time. */
  int (*start)(void);
  int (*finish)(void);
  int (*state)(int *initialized, int *finalized);
  /* `is_main`: this thread is the one that initialized MPI. */
  int (*thread)(enum mpi_level *level, int *is_main);
  void (*describe)(int error, char *text, size_t bytes);

  /* Returns the communicator at `place`, by its size an MPI_Comm or a Fortran integer; NULL is that
   * of all ranks. 0: there is none. */
  mpi_handle (*find)(const void *place, size_t bytes);
  int (*group)(mpi_handle comm, struct mpi_group *out);
  /* Gives `comm` the error handler that returns. */
  int (*return_errors)(mpi_handle comm);
  /* The same for a while: `handler` is the one that `comm` gets back. */
  int (*take_over)(mpi_handle comm, mpi_handle *handler);
  int (*hand_back)(mpi_handle comm, mpi_handle handler);
  int (*free)(mpi_handle comm);
  /* `comm` 0 is the process's own, which MPI frees first of all that it frees at its end. */
  int (*attach)(mpi_handle comm, struct mpi_attached *what);
  int (*attached)(mpi_handle comm, struct mpi_attached **what);

  /* These begin something, which has ended once `test` says so. Until then MPI uses all that they
   * were given. */
  int (*duplicate)(mpi_handle comm, mpi_handle *out, mpi_handle *request);
  int (*all_gather)(const void *send, void *recv, int bytes, mpi_handle comm, mpi_handle *request);
  int (*send)(const void *data, int bytes, int to, int tag, mpi_handle comm, mpi_handle *request);
  int (*receive)(void *data, int bytes, int from, int tag, mpi_handle comm, mpi_handle *request);
  int (*test)(mpi_handle *request, int *done);
  /* Lets MPI go on with what it has not sent yet. */
  int (*progress)(mpi_handle comm);
};

/* What a shim exports. */
#define MPI_SHIM_SYMBOL "zero_mpi_shim"
typedef const struct mpi_functions *(*mpi_shim_function)(void);

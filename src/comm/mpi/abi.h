/* SPDX-License-Identifier: Apache-2.0 */
/* The part of MPI's standard ABI (MPI 5.0, chapter 20) that libzero uses. It is declared here, so
 * that a libzero built without an MPI works with any MPI that a process has loaded.
 * tests/mpi/standard_abi_test.py compares it with a header of that ABI. */
#pragma once

#include <stdint.h>

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef struct MPI_ABI_Status MPI_Status;
typedef int MPI_Fint;
typedef int MPI_Comm_copy_attr_function(MPI_Comm, int, void *, void *, void *, int *);
typedef int MPI_Comm_delete_attr_function(MPI_Comm, int, void *, void *);

#define MPI_COMM_NULL ((MPI_Comm)0x100)
#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_COMM_SELF ((MPI_Comm)0x102)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)
#define MPI_BYTE ((MPI_Datatype)0x247)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_COMM_NULL_COPY_FN ((MPI_Comm_copy_attr_function *)0)

enum {
  MPI_SUCCESS = 0,
  MPI_KEYVAL_INVALID = 0,
  MPI_ANY_SOURCE = -1,
  MPI_ANY_TAG = -2,
  MPI_THREAD_SERIALIZED = 2048,
  MPI_THREAD_MULTIPLE = 4096,
  MPI_MAX_ERROR_STRING = 512,
};

#define MPI_FUNCTIONS(USE)                                                                   \
  USE(int, Comm_create_keyval,                                                               \
      (MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *, int *, void *))       \
  USE(int, Comm_free, (MPI_Comm *))                                                          \
  USE(MPI_Comm, Comm_fromint, (int))                                                         \
  USE(int, Comm_get_attr, (MPI_Comm, int, void *, int *))                                    \
  USE(int, Comm_get_errhandler, (MPI_Comm, MPI_Errhandler *))                                \
  USE(int, Comm_idup, (MPI_Comm, MPI_Comm *, MPI_Request *))                                 \
  USE(int, Comm_rank, (MPI_Comm, int *))                                                     \
  USE(int, Comm_set_attr, (MPI_Comm, int, void *))                                           \
  USE(int, Comm_set_errhandler, (MPI_Comm, MPI_Errhandler))                                  \
  USE(int, Comm_size, (MPI_Comm, int *))                                                     \
  USE(int, Comm_test_inter, (MPI_Comm, int *))                                               \
  USE(int, Errhandler_free, (MPI_Errhandler *))                                              \
  USE(int, Error_string, (int, char *, int *))                                               \
  USE(int, Finalize, (void))                                                                 \
  USE(int, Finalized, (int *))                                                               \
  USE(int, Iallgather,                                                                       \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *)) \
  USE(int, Init_thread, (int *, char ***, int, int *))                                       \
  USE(int, Initialized, (int *))                                                             \
  USE(int, Iprobe, (int, int, MPI_Comm, int *, MPI_Status *))                                \
  USE(int, Irecv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))            \
  USE(int, Isend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))      \
  USE(int, Is_thread_main, (int *))                                                          \
  USE(int, Query_thread, (int *))                                                            \
  USE(int, Test, (MPI_Request *, int *, MPI_Status *))

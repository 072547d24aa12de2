/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MPI_FUNCTIONS
#include <mpi.h>
#endif

#include <string.h>

#include "shim.h"

#define TRY(call)                           \
  do {                                      \
    const int error = (call);               \
    if (error != MPI_SUCCESS) return error; \
  } while (0)

static int key = MPI_KEYVAL_INVALID;

static MPI_Comm comm_of(mpi_handle handle) { return (MPI_Comm)handle; }

static int start(void) {
  int given;
  return MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
}

static int finish(void) { return MPI_Finalize(); }

static int get_state(int *initialized, int *finalized) {
  TRY(MPI_Initialized(initialized));
  return MPI_Finalized(finalized);
}

static int get_thread(enum mpi_level *level, int *is_main) {
  int given;
  TRY(MPI_Query_thread(&given));
  *level = given >= MPI_THREAD_MULTIPLE     ? MPI_LEVEL_MULTIPLE
           : given >= MPI_THREAD_SERIALIZED ? MPI_LEVEL_SERIALIZED
                                            : MPI_LEVEL_FUNNELED;
  return MPI_Is_thread_main(is_main);
}

static void describe(int error, char *text, size_t bytes) {
  char words[MPI_MAX_ERROR_STRING + 1] = "?";
  int length;
  (void)MPI_Error_string(error, words, &length);
  strncpy(text, words, bytes - 1);
  text[bytes - 1] = 0;
}

static mpi_handle find(const void *place, size_t bytes) {
  MPI_Comm comm;
  MPI_Fint fortran;
  if (place == NULL) return (mpi_handle)MPI_COMM_WORLD;
  if (bytes == sizeof comm) {
    memcpy(&comm, place, sizeof comm);
  } else if (bytes == sizeof fortran) {
    memcpy(&fortran, place, sizeof fortran);
    comm = MPI_Comm_f2c(fortran);
  } else {
    return 0;
  }
  return (mpi_handle)comm;
}

static int get_group(mpi_handle comm, struct mpi_group *out) {
  memset(out, 0, sizeof *out);
  out->is_null = comm_of(comm) == MPI_COMM_NULL;
  if (out->is_null) return MPI_SUCCESS;
  TRY(MPI_Comm_test_inter(comm_of(comm), &out->is_inter));
  TRY(MPI_Comm_rank(comm_of(comm), &out->rank));
  return MPI_Comm_size(comm_of(comm), &out->world);
}

static int return_errors(mpi_handle comm) {
  return MPI_Comm_set_errhandler(comm_of(comm), MPI_ERRORS_RETURN);
}

static int take_over(mpi_handle comm, mpi_handle *handler) {
  MPI_Errhandler own;
  TRY(MPI_Comm_get_errhandler(comm_of(comm), &own));
  *handler = (mpi_handle)own;
  return return_errors(comm);
}

static int hand_back(mpi_handle comm, mpi_handle handler) {
  MPI_Errhandler own = (MPI_Errhandler)handler;
  TRY(MPI_Comm_set_errhandler(comm_of(comm), own));
  return MPI_Errhandler_free(&own);
}

static int free_comm(mpi_handle comm) {
  MPI_Comm freed = comm_of(comm);
  return MPI_Comm_free(&freed);
}

static int end_attached(MPI_Comm comm, int of, void *what, void *nothing) {
  struct mpi_attached *const attached = what;
  (void)comm, (void)of, (void)nothing;
  attached->end(attached);
  return MPI_SUCCESS;
}

static int make_key(void) {
  if (key != MPI_KEYVAL_INVALID) return MPI_SUCCESS;
  return MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end_attached, &key, NULL);
}

static MPI_Comm carrier_of(mpi_handle comm) { return comm == 0 ? MPI_COMM_SELF : comm_of(comm); }

static int attach(mpi_handle comm, struct mpi_attached *what) {
  TRY(make_key());
  return MPI_Comm_set_attr(carrier_of(comm), key, what);
}

static int get_attached(mpi_handle comm, struct mpi_attached **what) {
  int found;
  TRY(make_key());
  TRY(MPI_Comm_get_attr(carrier_of(comm), key, what, &found));
  if (!found) *what = NULL;
  return MPI_SUCCESS;
}

static int duplicate(mpi_handle comm, mpi_handle *out, mpi_handle *request) {
  MPI_Request begun;
  /* MPI may set `out` as late as the end of the request. The rest of its bytes are 0. */
  TRY(MPI_Comm_idup(comm_of(comm), (MPI_Comm *)out, &begun));
  *request = (mpi_handle)begun;
  return MPI_SUCCESS;
}

static int all_gather(const void *send, void *recv, int bytes, mpi_handle comm,
                      mpi_handle *request) {
  MPI_Request begun;
  TRY(MPI_Iallgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, comm_of(comm), &begun));
  *request = (mpi_handle)begun;
  return MPI_SUCCESS;
}

static int send(const void *data, int bytes, int to, int tag, mpi_handle comm,
                mpi_handle *request) {
  MPI_Request begun;
  TRY(MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm_of(comm), &begun));
  *request = (mpi_handle)begun;
  return MPI_SUCCESS;
}

static int receive(void *data, int bytes, int from, int tag, mpi_handle comm, mpi_handle *request) {
  MPI_Request begun;
  TRY(MPI_Irecv(data, bytes, MPI_BYTE, from, tag, comm_of(comm), &begun));
  *request = (mpi_handle)begun;
  return MPI_SUCCESS;
}

static int test(mpi_handle *request, int *done) {
  MPI_Request tested = (MPI_Request)*request;
  TRY(MPI_Test(&tested, done, MPI_STATUS_IGNORE));
  *request = (mpi_handle)tested;
  return MPI_SUCCESS;
}

static int progress(mpi_handle comm) {
  int found;
  return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_of(comm), &found, MPI_STATUS_IGNORE);
}

static const struct mpi_functions table = {
    .version = MPI_SHIM_VERSION,
    .start = start,
    .finish = finish,
    .state = get_state,
    .thread = get_thread,
    .describe = describe,
    .find = find,
    .group = get_group,
    .return_errors = return_errors,
    .take_over = take_over,
    .hand_back = hand_back,
    .free = free_comm,
    .attach = attach,
    .attached = get_attached,
    .duplicate = duplicate,
    .all_gather = all_gather,
    .send = send,
    .receive = receive,
    .test = test,
    .progress = progress,
};

#ifndef MPI_FUNCTIONS
const struct mpi_functions *zero_mpi_shim(void) { return &table; }
#endif

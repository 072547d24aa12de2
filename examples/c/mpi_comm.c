/* SPDX-License-Identifier: Apache-2.0 */
/* A custom transport, over MPI: for ranks on several hosts, or an engine with a communicator.
 *
 *     mpirun -n 3 mpi_comm
 *
 * Pitfalls, and how this program handles them:
 *  - MPI forbids overlapping buffers. libzero gathers parameters in place, so `send` may be inside
 *    `recv`, at this rank's position. This program then passes MPI_IN_PLACE.
 *  - Counts are ints. A transfer is about zero_options.bucket_bytes of all ranks together: keep
 *    that below 2 GiB. Larger transfers are refused.
 *  - MPI waits for ever. libzero cannot interrupt it, and libzero's deadlines have no effect here.
 *    So these calls start an operation and test it until a deadline. An operation that has not
 *    ended by then still uses its buffers: the process must end, by MPI_Abort.
 *  - By default an error inside MPI ends all processes. With MPI_ERRORS_RETURN it is a status.
 *  - A separate communicator (MPI_Comm_dup) keeps libzero's messages apart from yours. It is freed
 *    with the comm, its optimizers and its arenas: before MPI_Finalize.
 *  - libzero calls these functions on the thread that is inside the collective call, never on a
 *    thread that it made. If that is the main thread, MPI_THREAD_FUNNELED is enough; otherwise use
 *    MPI_THREAD_SERIALIZED.
 */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zero.h"

struct transport {
  MPI_Comm mpi;
  double deadline_s;
};

static zero_status finish(const struct transport *self, int started, MPI_Request *request) {
  const double end = MPI_Wtime() + self->deadline_s;
  int done = 0;
  if (started != MPI_SUCCESS) return ZERO_ERR_COMM;
  while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
    if (done) return ZERO_OK;
    if (MPI_Wtime() > end) return ZERO_ERR_TIMEOUT;
    sched_yield();
  }
  return ZERO_ERR_COMM;
}

static zero_status all_gather(void *ctx, const void *send, void *recv, size_t bytes, void *stream) {
  const struct transport *self = ctx;
  MPI_Request request;
  int rank;
  (void)stream;
  if (bytes > INT_MAX) return ZERO_ERR_UNSUPPORTED;
  MPI_Comm_rank(self->mpi, &rank);
  if (send == (char *)recv + (size_t)rank * bytes) send = MPI_IN_PLACE;
  return finish(
      self,
      MPI_Iallgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, self->mpi, &request),
      &request);
}

static zero_status exchange(void *ctx, const void *send, void *recv, size_t bytes) {
  return all_gather(ctx, send, recv, bytes, NULL);
}

static zero_status all_to_all(void *ctx, const void *send, void *recv, size_t bytes, void *stream) {
  const struct transport *self = ctx;
  MPI_Request request;
  (void)stream;
  if (bytes > INT_MAX) return ZERO_ERR_UNSUPPORTED;
  return finish(
      self,
      MPI_Ialltoall(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, self->mpi, &request),
      &request);
}

static struct transport *transport_of(MPI_Comm mpi, double deadline_s) {
  struct transport *self = malloc(sizeof *self);
  if (self == NULL) {
    MPI_Comm_free(&mpi);
    return NULL;
  }
  MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
  self->mpi = mpi;
  self->deadline_s = deadline_s;
  return self;
}

static zero_status split(void *ctx, int32_t color, int32_t rank, int32_t world, void **child) {
  const struct transport *self = ctx;
  MPI_Comm mpi;
  (void)world;
  if (MPI_Comm_split(self->mpi, color < 0 ? MPI_UNDEFINED : color, rank, &mpi) != MPI_SUCCESS) {
    return ZERO_ERR_COMM;
  }
  if (color < 0) return ZERO_OK;
  *child = transport_of(mpi, self->deadline_s);
  return *child == NULL ? ZERO_ERR_MEMORY : ZERO_OK;
}

static void release(void *ctx) {
  struct transport *self = ctx;
  MPI_Comm_free(&self->mpi);
  free(self);
}

/* Makes a comm of the ranks of `mpi`, which the caller keeps. Collective over `mpi`. */
static zero_status comm_over_mpi(zero_comm **out, MPI_Comm mpi, double deadline_s) {
  struct transport *ctx;
  zero_comm_functions functions;
  zero_status status;
  MPI_Comm own;
  int rank, world;
  if (MPI_Comm_dup(mpi, &own) != MPI_SUCCESS) return ZERO_ERR_COMM;
  MPI_Comm_rank(own, &rank);
  MPI_Comm_size(own, &world);
  ctx = transport_of(own, deadline_s);
  if (ctx == NULL) return ZERO_ERR_MEMORY;
  ZERO_INIT(functions);
  functions.exchange = exchange;
  functions.all_gather = all_gather;
  functions.all_to_all = all_to_all; /* libzero then sums, with the bits of any other comm */
  functions.split = split;
  functions.free = release;
  status = zero_comm_create_user(out, &functions, ctx, rank, world, NULL);
  if (status < 0) release(ctx);
  return status;
}

/* ---- A training loop, to compare the bits of two comms. */

enum { PARAMS = 2, ROWS = 97, COLUMNS = 33, STEPS = 20 };

static void check(zero_status status, const char *call) {
  if (status >= 0) return;
  fprintf(stderr, "mpi_comm: %s: %s: %s\n", call, zero_status_name(status), zero_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(call) check((call), #call)

static void print_log(void *ctx, int32_t level, const char *message) {
  (void)ctx;
  fprintf(stderr, "libzero: %s: %s\n", level == ZERO_LOG_ERROR ? "error" : "warning", message);
}

/* Each rank pulls the weights towards different numbers, so they move to the mean. The plan gives
 * their layout, so that they travel in place. */
static void train(zero_comm *comm, float weights[ROWS * COLUMNS + ROWS]) {
  const int64_t shapes[PARAMS][2] = {{ROWS, COLUMNS}, {ROWS, 0}};
  const size_t sizes[PARAMS] = {ROWS * COLUMNS, ROWS};
  const int rank = zero_comm_rank(comm);
  int64_t offsets[PARAMS];
  char *values, *grads;
  zero_param params[PARAMS];
  zero_plan plan;
  zero_optim *optim;
  for (int p = 0; p < PARAMS; p++) {
    ZERO_INIT(params[p]);
    params[p].name = p == 0 ? "weight" : "bias";
    params[p].shape = shapes[p];
    params[p].ndim = p == 0 ? 2 : 1;
    params[p].flags = ZERO_PARAM_PADDED;
  }
  ZERO_INIT(plan);
  plan.offsets = offsets;
  CHECK(zero_partition_plan(params, PARAMS, zero_comm_world(comm), NULL, &plan));
  CHECK(zero_arena_alloc(comm, (size_t)plan.arena_bytes, ZERO_MEMORY_PER_RANK, (void **)&values));
  CHECK(zero_arena_alloc(comm, (size_t)plan.arena_bytes, ZERO_MEMORY_PER_RANK, (void **)&grads));
  for (int p = 0; p < PARAMS; p++) {
    params[p].data = values + offsets[p];
    params[p].grad = grads + offsets[p];
  }
  CHECK(zero_create(&optim, comm, NULL));
  CHECK(zero_register_params(optim, NULL, params, PARAMS, NULL));
  CHECK(zero_broadcast_params(optim, 0, NULL));
  for (int step = 0; step < STEPS; step++) {
    for (int p = 0; p < PARAMS; p++) {
      const float *w = params[p].data;
      float *g = params[p].grad;
      for (size_t i = 0; i < sizes[p]; i++) g[i] = w[i] - 1 / (float)(i + 3 * (size_t)rank + 1);
    }
    CHECK(zero_step(optim, NULL));
  }
  for (int p = 0; p < PARAMS; p++) {
    memcpy(weights, params[p].data, sizes[p] * sizeof(float));
    weights += sizes[p];
  }
  CHECK(zero_free(optim));
  CHECK(zero_arena_free(values));
  CHECK(zero_arena_free(grads));
}

int main(int argc, char **argv) {
  static float over_mpi[ROWS * COLUMNS + ROWS], local[ROWS * COLUMNS + ROWS];
  zero_comm *comm;
  int provided, rank, same;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CHECK(zero_set_log_callback(print_log, NULL, ZERO_LOG_WARNING));

  CHECK(comm_over_mpi(&comm, MPI_COMM_WORLD, 1800));
  train(comm, over_mpi);
  printf("rank %d of %d over MPI: weight[0] is %.6f\n", rank, (int)zero_comm_world(comm),
         (double)over_mpi[0]);
  CHECK(zero_comm_free(comm));

  /* Train again between the processes of this host, without MPI. */
  CHECK(zero_comm_create_env(&comm, NULL));
  train(comm, local);
  CHECK(zero_comm_free(comm));
  same = memcmp(over_mpi, local, sizeof local) == 0;
  if (!same || rank == 0) printf("the bits of a local comm: %s\n", same ? "yes" : "no");
  MPI_Finalize();
  return same ? 0 : 1;
}

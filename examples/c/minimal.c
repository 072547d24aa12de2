/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the README as a whole program: every rank pulls one parameter towards its own number,
 * so it ends at the mean of these numbers. Run it alone, or as `zero-run -n 4 minimal run`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "zero.h"

enum { COUNT = 4096 };

static void forward_backward(const float *weights, float *grads, int step, int rank) {
  (void)step;
  for (int i = 0; i < COUNT; i++) grads[i] = weights[i] - (float)(rank + 1);
}

static void check(zero_status status) {
  if (status >= ZERO_OK) return;
  fprintf(stderr, "%s\n", zero_last_error());
  exit(1);
}

/* Prints warnings, for example that a rank has waited for ten seconds, and for which ranks. */
static void print_log(void *ctx, int32_t level, const char *message) {
  (void)ctx;
  fprintf(stderr, "libzero: %s: %s\n", level == ZERO_LOG_ERROR ? "error" : "warning", message);
}

int main(int argc, char **argv) {
  const int steps = 5000;
  const char *directory = argc > 1 ? argv[1] : "minimal-checkpoint";
  const int64_t shape[] = {COUNT};
  const size_t bytes = COUNT * sizeof(float);
  float *weights = NULL, *grads = NULL;
  check(zero_set_log_callback(print_log, NULL, ZERO_LOG_WARNING));

  /* clang-format off */
  zero_comm *comm;   check(zero_comm_create_env(&comm, NULL));  /* torchrun, mpirun, srun, zero-run, or alone */
  zero_optim *optim; check(zero_create(&optim, comm, NULL));    /* AdamW, state split evenly over the ranks   */
  check(zero_arena_alloc(comm, bytes, ZERO_MEMORY_SHARED, (void **)&weights));
  check(zero_arena_alloc(comm, bytes, ZERO_MEMORY_PER_RANK, (void **)&grads));
  zero_param param;  ZERO_INIT(param);
  param.name = "weights"; param.data = weights; param.grad = grads; param.shape = shape; param.ndim = 1;
  check(zero_register_params(optim, NULL, &param, 1, NULL));
  check(zero_broadcast_params(optim, 0, NULL));
  for (int step = 0; step < steps; step++) {
    forward_backward(weights, grads, step, zero_comm_rank(comm));
    check(zero_step(optim, NULL));                              /* reduce, update 1/N, share parameters       */
  }
  zero_save_options save; ZERO_INIT(save);
  save.flags = ZERO_SAVE_REPLACE;                               /* replace an earlier checkpoint              */
  check(zero_state_save(optim, directory, &save));
  /* clang-format on */

  const int rank = zero_comm_rank(comm), world = zero_comm_world(comm);
  printf("rank %d of %d: weights[0] is %.2f, the mean %.2f\n", rank, world, (double)weights[0],
         (1 + world) / 2.0);
  uint64_t sum = 0xcbf29ce484222325; /* FNV-1a: equal if all bits are */
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ ((unsigned char *)weights)[i]) * 0x100000001b3;
  if (rank == 0) printf("checksum=%016llX\n", (unsigned long long)sum);
  check(zero_free(optim));
  check(zero_arena_free(weights));
  check(zero_arena_free(grads));
  check(zero_comm_free(comm));
}

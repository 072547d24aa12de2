/* SPDX-License-Identifier: Apache-2.0 */
/* The fragments of docs/integrate.md and its neighbours that need a host only, as one program: an engine of one rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zero.h"

#include "errors/errors-1.c"
#include "errors/the-log-1.c"

static void expect(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}

/* What the page leaves to the engine. */
static void initialize(char *weights) { ((float *)(void *)weights)[0] = 1; }
static void forward_backward(char *weights, char *grads, int64_t step, int32_t rank) {
  (void)rank;
  ((float *)(void *)grads)[0] = ((float *)(void *)weights)[0] - (float)step;
}
static double schedule(int64_t step) { return 1e-3 / (double)(step + 1); }
static int next_batch(int64_t *batch) { return ++*batch < 3; }
static void report_copies(int64_t bytes) { (void)bytes, expect(0, "nothing is packed"); }
static float *room_for(int64_t param, const char *name) { return (void)param, (void)name, malloc(1 << 24); }
static size_t elements(int64_t param) { return param == 0 ? 4096 * 1024 : 4096; }
static void go_on(void) {}
static void start_over(int32_t rank, int32_t consistent) { (void)rank, (void)consistent, expect(0, "the comm is sound"); }

#include "integrate/the-loop-8.c"

/* bf16 parameters whose gradients are fp32 sums over samples. */
static void half_parameters(zero_comm *comm) {
  uint16_t weights[8] = {0x3f80};
  float grads[8] = {30, 40};
  const int64_t shape[] = {8};
  const double samples = 10;
  double norm;
  float reduced;
  zero_optim *optim;
  zero_param params[1];
  check(zero_create(&optim, comm, NULL));
  ZERO_INIT(*params);
  params->name = "w", params->shape = shape, params->ndim = 1, params->data = weights, params->grad = grads;
#include "integrate/memory-and-registration-2.c"
  check(zero_register_params(optim, NULL, params, 1, NULL));
#include "integrate/the-loop-2.c"
  check(zero_clip_grad_norm(optim, NULL, 0, 100, 2, &norm, NULL));
  expect(norm > 4.9999 && norm < 5.0001, "the norm is of fp32 gradients, divided by the samples");
  check(zero_grad_get(optim, 0, 1, 1, &reduced));
  expect(reduced > 3.9999f && reduced < 4.0001f, "an element is divided by the samples");
  check(zero_step(optim, NULL));
  check(zero_clip_grad_norm(optim, NULL, 0, 100, 2, &norm, NULL));
  expect(norm > 4.9999 && norm < 5.0001, "the divisor stays until it is set again");
  check(zero_free(optim));
}

/* A rule of one's own, and ranks whose inputs end. */
static void custom_and_uneven(zero_comm *comm, int32_t rank) {
  static float memory[16];
  char *weights = (char *)memory, *grads = (char *)(memory + 8);
  const int64_t shape[] = {8};
  int64_t batch = 0;
  double epoch_state = 0, steps;
  zero_optim *optim;
  zero_param param;
  zero_options options;
  ZERO_INIT(options);
  options.uneven_inputs = ZERO_UNEVEN_WORLD;
#include "integrate/the-loop-9.c"
  check(zero_create(&optim, comm, &options));
  ZERO_INIT(param);
  param.name = "w", param.shape = shape, param.ndim = 1, param.data = weights, param.grad = grads;
  check(zero_register_params(optim, NULL, &param, 1, NULL));
#include "integrate/the-loop-7.c"
  expect(last == 0, "the last rank is the only one");
  check(zero_state_get(optim, 0, "step", 0, 1, &steps));
  expect(steps == 2, "two batches are two steps");
  check(zero_free(optim));
}

/* An engine that has one block of memory for parameters and one for gradients. */
static void read_weights(float *weights) { weights[0] = 1; }
static void one_block(zero_comm *comm, int32_t rank) {
  enum { count = 2 };
  const char *const names[count] = {"w", "b"};
  const int64_t sizes[count] = {96, 32};
  const int matrix[count] = {1, 0};
  const size_t total = 128;
  zero_optim *optim;
  zero_param params[count];
  check(zero_create(&optim, comm, NULL));
#include "integrate/one-block-of-memory-1.c"
  check(zero_step(optim, NULL));
  check(zero_free(optim));
  check(zero_arena_free(params_memory));
  check(zero_arena_free(grads_memory));
}

/* A transport of one's own, of one rank. */
static int g_released;
static int engine_all_gather(void *ctx, const void *send, void *recv, size_t bytes) {
  (void)ctx;
  memmove(recv, send, bytes);
  return 1;
}
static int engine_all_to_all(void *ctx, const void *send, void *recv, size_t bytes) {
  return engine_all_gather(ctx, send, recv, bytes);
}
static void engine_release(void *ctx) { (void)ctx, g_released++; }
#include "transport/write-a-transport-1.c"

int main(void) {
  const int64_t steps = 3;
  int64_t tracked = 0;
  const int64_t param = 0;
  begin();
#include "integrate/create-a-comm-on-each-rank-1.c"
#include "integrate/memory-and-registration-1.c"
  {
#include "integrate/the-loop-1.c"
  }
#include "integrate/the-loop-3.c"
#include "integrate/the-loop-4.c"
  check(zero_step(optim, NULL));
#include "integrate/the-loop-5.c"
  expect(result.step == steps + 2, "each step is counted");
  { /* behind the steps before, so that the seal has its buffer from here on */
#include "integrate/the-loop-6.c"
  }
#include "memory/check-that-nothing-is-copied-1.c"
#include "integrate/checkpoints-1.c"
  {
#include "integrate/checkpoints-2.c"
    expect(found, "there is a checkpoint");
  }
  {
    int64_t position = 17;
    snprintf(directory, sizeof directory, "run/with-position");
#include "integrate/checkpoints-3.c"
    expect(bytes == sizeof position && position == 17, "the position comes back");
    snprintf(directory, sizeof directory, "run/behind");
#include "integrate/checkpoints-4.c"
#include "integrate/checkpoints-5.c"
  }
  {
#include "integrate/checkpoints-6.c"
    expect(name_count == 2 && steps > 0, "AdamW has two moments and a step count");
  }
  {
#include "errors/broken-comms-1.c"
  }
  half_parameters(comm);
  custom_and_uneven(comm, rank);
  one_block(comm, rank);
  check(zero_free(optim));
  check(zero_arena_free(weights));
  check(zero_arena_free(grads));
  check(zero_comm_free(comm));

  zero_comm *own = join(NULL, 0, 1);
  check(zero_comm_barrier(own));
  check(zero_comm_free(own));
  expect(g_released == 1, "a transport is released once");
  return 0;
}

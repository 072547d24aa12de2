/* SPDX-License-Identifier: Apache-2.0 */
/* A caller that was compiled when structs of zero.h were shorter, and runs with today's library.
 * The library must not read or write after their ends. check_layout.py compares every field with
 * layout_0_2.json, so the fields that such a caller knows have not moved.
 */
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "zero.h"

/* Bytes after a struct's end that show a write there. */
enum { CANARY = 0xa5, CANARIES = 256 };

static int unharmed(const void* memory) {
  const unsigned char* behind = (const unsigned char*)memory + *(const size_t*)memory;
  for (int i = 0; i < CANARIES; i++) {
    if (behind[i] != CANARY) return 0;
  }
  return 1;
}

/* Returns a zeroed struct of the old size, followed by canaries. */
static void* cut(size_t bytes) {
  void* memory = malloc(bytes + CANARIES);
  memset(memory, CANARY, bytes + CANARIES);
  zero_init_object(memory, bytes);
  CHECK(unharmed(memory));
  return memory;
}

/* The struct before this field was added. */
#define CUT_BEFORE(type, field) cut(offsetof(type, field))

/* Two parameters in an array of old structs, whose stride is the old size. */
static void lifetime(void) {
  enum { STRIDE = offsetof(zero_param, grad_dtype) };
  static const int64_t shape[] = {1000};
  char params[2 * STRIDE];
  float *data = calloc(2000, sizeof *data), *grads = calloc(2000, sizeof *grads);
  zero_comm* comm = NULL;
  zero_optim* optim = NULL;
  zero_comm_options* comm_options = CUT_BEFORE(zero_comm_options, device);
  zero_options* options = CUT_BEFORE(zero_options, master);
  zero_group_options* group = cut(sizeof *group);
  zero_step_options* step = cut(sizeof *step);
  zero_plan* plan = CUT_BEFORE(zero_plan, grad_offsets);
  zero_result* result = CUT_BEFORE(zero_result, loss_scale);
  zero_statistics* stats = CUT_BEFORE(zero_statistics, early_elements);
  zero_failure* failure = cut(sizeof *failure);

  for (int p = 0; p < 2; p++) {
    zero_param param = {.struct_size = STRIDE, .shape = shape, .ndim = 1};
    param.name = p == 0 ? "first" : "second";
    param.data = data + 1000 * p;
    param.grad = grads + 1000 * p;
    memcpy(params + p * STRIDE, &param, STRIDE);
  }
  for (int i = 0; i < 2000; i++) grads[i] = 1;
  const zero_param* old_params = (const zero_param*)(const void*)params;
  CHECK_STATUS(ZERO_OK, zero_partition_plan(old_params, 2, 2, options, plan));
  CHECK(plan->arena_bytes >= 8000 && unharmed(plan));

  CHECK_STATUS(ZERO_OK, zero_comm_create_solo(&comm, comm_options));
  CHECK_STATUS(ZERO_OK, zero_create(&optim, comm, options));
  CHECK_STATUS(ZERO_OK, zero_register_params(optim, group, old_params, 2, NULL));
  CHECK_STATUS(ZERO_OK, zero_step(optim, step));
  CHECK_STATUS(ZERO_OK, zero_step_result(optim, result));
  CHECK(result->step == 1 && result->struct_size == offsetof(zero_result, loss_scale));
  CHECK(unharmed(result));
  CHECK_STATUS(ZERO_OK, zero_stats(optim, stats));
  CHECK(stats->parameter_elements == 2000 && stats->steps == 1 && unharmed(stats));
  CHECK_STATUS(ZERO_OK, zero_comm_failure(comm, failure));
  CHECK(failure->status == 0 && unharmed(failure));
  CHECK(data[0] < 0 && data[1999] == data[0]);
  CHECK_STATUS(ZERO_OK, zero_free(optim));
  CHECK_STATUS(ZERO_OK, zero_comm_free(comm));
  free(comm_options), free(options), free(group), free(step), free(plan), free(result), free(stats);
  free(failure), free(data), free(grads);
}

int main(void) {
  phase("an old program runs", lifetime);
  return finish();
}

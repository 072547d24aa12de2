/* SPDX-License-Identifier: Apache-2.0 */
/* A caller that was compiled with zero.h 0.1.0 and runs with today's library. The structs below are
 * copies that never change: today's begin with them, field by field, and the library neither reads
 * nor writes behind their ends. A release that adds fields adds a file like this one with its own.
 */
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "zero.h"

struct old_comm_options {
  size_t struct_size;
  int64_t timeout_ms;
  int64_t late_ms;
  int64_t rendezvous_ms;
};

struct old_comm_functions {
  size_t struct_size;
  void (*exchange)(void);
  void (*all_gather)(void);
  void (*all_to_all)(void);
  void (*reduce_scatter)(void);
  void (*split)(void);
  void (*free)(void);
};

struct old_failure {
  size_t struct_size;
  zero_status status;
  int32_t rank;
  int64_t step;
  int32_t params_consistent;
  char phase[32];
  char text[512];
};

struct old_options {
  size_t struct_size;
  int32_t optimizer;
  int32_t partition;
  int64_t bucket_bytes;
  double max_grad_norm;
  double grad_norm_type;
  int32_t nonfinite;
  int32_t threads;
  const char *const *names;
  const double *values;
  size_t setting_count;
};

struct old_group_options {
  size_t struct_size;
  const char *const *names;
  const double *values;
  size_t setting_count;
};

struct old_param {
  size_t struct_size;
  const char *name;
  void *data;
  void *grad;
  const int64_t *shape;
  int32_t ndim;
  int32_t dtype;
  int32_t owner;
  int32_t flags;
  int64_t order;
};

struct old_step_options {
  size_t struct_size;
  void *const *grads;
  size_t grad_count;
  int32_t reduce_flags;
  int32_t reserved;
  void *stream;
};

struct old_result {
  size_t struct_size;
  int64_t step;
  int64_t skipped;
  int64_t nonfinite;
  double grad_norm;
  double clip_factor;
  zero_status status;
  int32_t reserved;
};

struct old_save_options {
  size_t struct_size;
  int32_t flags;
  int32_t reserved;
};

struct old_load_options {
  size_t struct_size;
  int32_t flags;
  int32_t reserved;
};

struct old_plan {
  size_t struct_size;
  int64_t *offsets;
  int32_t *owners;
  int64_t *elements;
  int64_t arena_bytes;
  int64_t state_bytes;
};

struct old_statistics {
  size_t struct_size;
  int64_t parameter_elements;
  int64_t owned_elements;
  int64_t state_bytes;
  int64_t staging_bytes;
  int64_t control_bytes;
  int64_t copied_bytes;
  int64_t moved_bytes;
  int64_t steps;
  int64_t skipped;
  int64_t nonfinite_elements;
  double gather_seconds;
  double vote_seconds;
  double apply_seconds;
  double publish_seconds;
  double save_seconds;
  double load_seconds;
};

#define PREFIX(type) \
  _Static_assert(sizeof(struct old_##type) <= sizeof(zero_##type), #type " has shrunk")
#define SAME(type, field)                                                                          \
  _Static_assert(offsetof(struct old_##type, field) == offsetof(zero_##type, field) &&             \
                     sizeof(((struct old_##type *)0)->field) == sizeof(((zero_##type *)0)->field), \
                 #type "." #field " has moved")

PREFIX(comm_options);
SAME(comm_options, struct_size);
SAME(comm_options, timeout_ms);
SAME(comm_options, late_ms);
SAME(comm_options, rendezvous_ms);
PREFIX(comm_functions);
SAME(comm_functions, struct_size);
SAME(comm_functions, exchange);
SAME(comm_functions, all_gather);
SAME(comm_functions, all_to_all);
SAME(comm_functions, reduce_scatter);
SAME(comm_functions, split);
SAME(comm_functions, free);
PREFIX(failure);
SAME(failure, struct_size);
SAME(failure, status);
SAME(failure, rank);
SAME(failure, step);
SAME(failure, params_consistent);
SAME(failure, phase);
SAME(failure, text);
PREFIX(options);
SAME(options, struct_size);
SAME(options, optimizer);
SAME(options, partition);
SAME(options, bucket_bytes);
SAME(options, max_grad_norm);
SAME(options, grad_norm_type);
SAME(options, nonfinite);
SAME(options, threads);
SAME(options, names);
SAME(options, values);
SAME(options, setting_count);
PREFIX(group_options);
SAME(group_options, struct_size);
SAME(group_options, names);
SAME(group_options, values);
SAME(group_options, setting_count);
PREFIX(param);
SAME(param, struct_size);
SAME(param, name);
SAME(param, data);
SAME(param, grad);
SAME(param, shape);
SAME(param, ndim);
SAME(param, dtype);
SAME(param, owner);
SAME(param, flags);
SAME(param, order);
PREFIX(step_options);
SAME(step_options, struct_size);
SAME(step_options, grads);
SAME(step_options, grad_count);
SAME(step_options, reduce_flags);
SAME(step_options, reserved);
SAME(step_options, stream);
PREFIX(result);
SAME(result, struct_size);
SAME(result, step);
SAME(result, skipped);
SAME(result, nonfinite);
SAME(result, grad_norm);
SAME(result, clip_factor);
SAME(result, status);
SAME(result, reserved);
PREFIX(save_options);
SAME(save_options, struct_size);
SAME(save_options, flags);
SAME(save_options, reserved);
PREFIX(load_options);
SAME(load_options, struct_size);
SAME(load_options, flags);
SAME(load_options, reserved);
PREFIX(plan);
SAME(plan, struct_size);
SAME(plan, offsets);
SAME(plan, owners);
SAME(plan, elements);
SAME(plan, arena_bytes);
SAME(plan, state_bytes);
PREFIX(statistics);
SAME(statistics, struct_size);
SAME(statistics, parameter_elements);
SAME(statistics, owned_elements);
SAME(statistics, state_bytes);
SAME(statistics, staging_bytes);
SAME(statistics, control_bytes);
SAME(statistics, copied_bytes);
SAME(statistics, moved_bytes);
SAME(statistics, steps);
SAME(statistics, skipped);
SAME(statistics, nonfinite_elements);
SAME(statistics, gather_seconds);
SAME(statistics, vote_seconds);
SAME(statistics, apply_seconds);
SAME(statistics, publish_seconds);
SAME(statistics, save_seconds);
SAME(statistics, load_seconds);

/* An old struct at the very end of its memory: canaries tell who writes behind it, and sanitizers
 * who reads there. */
enum { CANARY = 0xa5, CANARIES = 256 };

static void *with_canaries(size_t bytes) {
  unsigned char *memory = malloc(bytes + CANARIES);
  memset(memory, CANARY, bytes + CANARIES);
  return memory;
}

static int unharmed(const void *memory, size_t bytes) {
  const unsigned char *behind = (const unsigned char *)memory + bytes;
  for (int i = 0; i < CANARIES; i++) {
    if (behind[i] != CANARY) return 0;
  }
  return 1;
}

/* Zeros and the old size. */
#define INIT(type, name)                                 \
  struct old_##type *name = with_canaries(sizeof *name); \
  ZERO_INIT(*name);                                      \
  CHECK(unharmed(name, sizeof *name))

/* Two parameters in an array of old structs, whose stride is the old size. */
static void lifetime(void) {
  static const int64_t shape[] = {1000};
  struct old_param params[2];
  float *data = calloc(2000, sizeof *data), *grads = calloc(2000, sizeof *grads);
  zero_comm *comm = NULL;
  zero_optim *optim = NULL;
  INIT(comm_options, comm_options);
  INIT(options, options);
  INIT(group_options, group);
  INIT(step_options, step);
  INIT(plan, plan);
  INIT(result, result);
  INIT(statistics, stats);
  INIT(failure, failure);

  for (int p = 0; p < 2; p++) {
    ZERO_INIT(params[p]);
    params[p].name = p == 0 ? "first" : "second";
    params[p].data = data + 1000 * p;
    params[p].grad = grads + 1000 * p;
    params[p].shape = shape;
    params[p].ndim = 1;
  }
  for (int i = 0; i < 2000; i++) grads[i] = 1;
  CHECK_STATUS(ZERO_OK, zero_partition_plan((const zero_param *)params, 2, 2,
                                            (const zero_options *)options, (zero_plan *)plan));
  CHECK(plan->arena_bytes >= 8000 && unharmed(plan, sizeof *plan));

  CHECK_STATUS(ZERO_OK, zero_comm_create_solo(&comm, (const zero_comm_options *)comm_options));
  CHECK_STATUS(ZERO_OK, zero_create(&optim, comm, (const zero_options *)options));
  CHECK_STATUS(ZERO_OK, zero_register_params(optim, (const zero_group_options *)group,
                                             (const zero_param *)params, 2, NULL));
  CHECK_STATUS(ZERO_OK, zero_step(optim, (const zero_step_options *)step));
  CHECK_STATUS(ZERO_OK, zero_step_result(optim, (zero_result *)result));
  CHECK(result->step == 1 && result->struct_size == sizeof *result);
  CHECK(unharmed(result, sizeof *result));
  CHECK_STATUS(ZERO_OK, zero_stats(optim, (zero_statistics *)stats));
  CHECK(stats->parameter_elements == 2000 && stats->steps == 1 && unharmed(stats, sizeof *stats));
  CHECK_STATUS(ZERO_OK, zero_comm_failure(comm, (zero_failure *)failure));
  CHECK(failure->status == 0 && unharmed(failure, sizeof *failure));
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

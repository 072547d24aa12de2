/* SPDX-License-Identifier: Apache-2.0 */
/* A C program that uses only the public header: the life of an optimizer, phase by phase, and the
 * mistakes that a caller can make in each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"
#include "zero.h"

enum { ROWS = 33, COLUMNS = 65, WEIGHTS = ROWS * COLUMNS, BIASES = COLUMNS };

static zero_comm *g_comm;
static zero_optim *g_optim;
static float *g_params, *g_grads;
static char g_directory[64];

static void version(void) {
  CHECK(zero_version() ==
        ZERO_VERSION_MAJOR * 10000 + ZERO_VERSION_MINOR * 100 + ZERO_VERSION_PATCH);
  CHECK(strstr(zero_build_info(), "local") != NULL);
  CHECK(strcmp(zero_status_name(ZERO_OK), "ZERO_OK") == 0);
  CHECK(strcmp(zero_status_name(ZERO_ERR_PEER_DEAD), "ZERO_ERR_PEER_DEAD") == 0);
  CHECK(strcmp(zero_status_name(-98), "unknown status") == 0);
  CHECK(zero_last_error()[0] == '\0');
}

static void comm(void) {
  zero_comm_options options;
  ZERO_INIT(options);
  CHECK(options.struct_size == sizeof options);
  CHECK_STATUS(ZERO_OK, zero_comm_create_solo(&g_comm, &options));
  CHECK(zero_comm_rank(g_comm) == 0 && zero_comm_world(g_comm) == 1);
  CHECK_STATUS(ZERO_OK, zero_comm_barrier(g_comm));

  double number = 2.5;
  CHECK_STATUS(ZERO_OK, zero_comm_all_reduce(g_comm, &number, 1, ZERO_FLOAT64, ZERO_SUM));
  CHECK(number == 2.5);
  CHECK_STATUS(ZERO_OK, zero_comm_broadcast(g_comm, &number, sizeof number, 0));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_broadcast(g_comm, &number, sizeof number, 1));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_all_reduce(g_comm, &number, 1, 9, ZERO_SUM));

  zero_failure failure;
  ZERO_INIT(failure);
  CHECK_STATUS(ZERO_OK, zero_comm_failure(g_comm, &failure));
  CHECK(failure.status == ZERO_OK && failure.rank == -1);
}

/* Returns why this build or machine refuses a comm on a GPU, or NULL if it may have one. */
static const char *why_no_cuda(void) {
  if (strstr(zero_build_info(), "cuda (driver") != NULL) return NULL;
  if (strstr(zero_build_info(), "cuda (no driver)") != NULL) return "no CUDA driver is installed";
  return "built without CUDA";
}

static void devices(void) {
  zero_comm *seat = NULL;
  zero_comm_options options;
  ZERO_INIT(options);
  CHECK(options.device == ZERO_DEVICE_HOST && options.device_ordinal == 0);
  options.device_ordinal = 1;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "on the host it must be 0",
                zero_comm_create_solo(&seat, &options));
  options.device = 2;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "device is 2", zero_comm_create_solo(&seat, &options));
  options.device = ZERO_DEVICE_CUDA;
  options.device_ordinal = -1;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "only zero_comm_create_env takes",
                zero_comm_create_solo(&seat, &options));
  options.device_ordinal = -2;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "device_ordinal is -2", zero_comm_create_solo(&seat, &options));
  options.device_ordinal = 0;
  if (why_no_cuda() != NULL) {
    CHECK_REFUSED(ZERO_ERR_UNSUPPORTED, why_no_cuda(),
                  zero_comm_create_local(&seat, "devices", 0, 1, &options));
    CHECK_REFUSED(ZERO_ERR_UNSUPPORTED, why_no_cuda(), zero_comm_create_solo(&seat, &options));
    CHECK_REFUSED(ZERO_ERR_UNSUPPORTED, why_no_cuda(), zero_comm_create_env(&seat, &options));
    options.device_ordinal = ZERO_ORDINAL_LOCAL_RANK;
    CHECK_REFUSED(ZERO_ERR_UNSUPPORTED, why_no_cuda(), zero_comm_create_env(&seat, &options));
  }
  CHECK(seat == NULL);
}

static void mpi(void) {
  zero_comm *seat = NULL;
  zero_comm_options options;
  ZERO_INIT(options);
  CHECK_REFUSED(ZERO_ERR_UNSUPPORTED, "no MPI is loaded in this process",
                zero_comm_create_mpi(&seat, NULL, 0, NULL));
  options.device = ZERO_DEVICE_CUDA;
  CHECK_REFUSED(ZERO_ERR_UNSUPPORTED, "an mpi comm runs on the host",
                zero_comm_create_mpi(&seat, NULL, 0, &options));
  CHECK(seat == NULL);
}

static void nccl(void) {
  char id[ZERO_NCCL_ID_BYTES] = {0};
  zero_comm *seat = NULL;
  zero_comm_options options;
  ZERO_INIT(options);
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "id", zero_nccl_unique_id(NULL));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "an nccl comm runs on a GPU",
                zero_comm_create_nccl(&seat, id, 0, 1, NULL));
  options.device = ZERO_DEVICE_CUDA;
  options.reduce_ctas = 65;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "reduce_ctas is 65",
                zero_comm_create_nccl(&seat, id, 0, 1, &options));
  options.reduce_ctas = -1;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "reduce_ctas is -1",
                zero_comm_create_nccl(&seat, id, 0, 1, &options));
  options.reduce_ctas = 0; /* the default */
  options.gather_on_kernels = 2;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "gather_on_kernels is 2",
                zero_comm_create_nccl(&seat, id, 0, 1, &options));
  options.gather_on_kernels = 1;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "id", zero_comm_create_nccl(&seat, NULL, 0, 1, &options));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "rank 1 does not exist in a world of 1",
                zero_comm_create_nccl(&seat, id, 1, 1, &options));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "nccl_comm", zero_comm_wrap_nccl(&seat, NULL, NULL));
  if (why_no_cuda() != NULL) {
    CHECK_REFUSED(ZERO_ERR_UNSUPPORTED, why_no_cuda(),
                  zero_comm_create_nccl(&seat, id, 0, 1, &options));
  }
  CHECK(seat == NULL);
}

static void handles(void) {
  zero_comm *closed = NULL, *out = (zero_comm *)&closed;
  CHECK_STATUS(ZERO_OK, zero_comm_create_solo(&closed, NULL));
  CHECK_STATUS(ZERO_OK, zero_comm_free(closed));
  CHECK_STATUS(ZERO_OK, zero_comm_free(NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_free(closed));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_barrier(closed));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_barrier(NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_barrier((zero_comm *)&out));
  CHECK(zero_comm_rank(closed) < 0 && zero_comm_world(NULL) < 0);
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_create_solo(NULL, NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_create_local(&out, "", 0, 1, NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_create_local(&out, "c_api", 2, 2, NULL));
  CHECK(out == (zero_comm *)&closed); /* out-parameters are written only on success */
}

static void arenas(void) {
  void *params = NULL, *grads = NULL;
  CHECK_STATUS(ZERO_OK, zero_arena_alloc(g_comm, (WEIGHTS + BIASES) * sizeof(float),
                                         ZERO_MEMORY_SHARED, &params));
  CHECK_STATUS(ZERO_OK, zero_arena_alloc(g_comm, (WEIGHTS + BIASES) * sizeof(float),
                                         ZERO_MEMORY_PER_RANK, &grads));
  CHECK(params != NULL && (uintptr_t)params % 64 == 0 && (uintptr_t)grads % 64 == 0);
  g_params = params;
  g_grads = grads;
  for (int i = 0; i < WEIGHTS + BIASES; i++) CHECK(g_params[i] == 0 && g_grads[i] == 0);
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_arena_alloc(g_comm, 64, 7, &params));
  CHECK_STATUS(ZERO_OK, zero_arena_free(NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_arena_free(g_params + 1));
}

static void create(void) {
  static const char *const names[] = {"lr", "weight_decay"}, *const unknown[] = {"learning_rate"};
  static const double values[] = {0.125, 0.0}, wrong[] = {-1.0, 0.0};
  zero_options options;
  ZERO_INIT(options);
  options.setting_count = 1;
  options.values = values;
  options.names = unknown;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "learning_rate", zero_create(&g_optim, g_comm, &options));
  options.names = names;
  options.values = wrong;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "lr", zero_create(&g_optim, g_comm, &options));
  options.values = values;
  options.setting_count = 2;
  options.optimizer = 77;
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_create(&g_optim, g_comm, &options));
  options.optimizer = ZERO_OPTIMIZER_SGD;
  CHECK(g_optim == NULL);
  CHECK_STATUS(ZERO_OK, zero_create(&g_optim, g_comm, &options));
}

static void model(zero_param *params) {
  static const int64_t shape[] = {ROWS, COLUMNS};
  ZERO_INIT(params[0]);
  ZERO_INIT(params[1]);
  params[0].name = "weight";
  params[0].data = g_params;
  params[0].grad = g_grads;
  params[0].shape = shape;
  params[0].ndim = 2;
  params[1].name = "bias";
  params[1].data = g_params + WEIGHTS;
  params[1].grad = g_grads + WEIGHTS;
  params[1].shape = shape + 1;
  params[1].ndim = 1;
}

static void add(void) {
  zero_param params[2];
  int32_t group = -1;
  int64_t index = -1;
  model(params);
  params[1].name = "weight";
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "weight",
                zero_register_params(g_optim, NULL, params, 2, &group));
  params[1].name = "bias";
  params[1].data = g_params + WEIGHTS - 1;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "bias", zero_register_params(g_optim, NULL, params, 2, &group));
  params[1].data = g_params + WEIGHTS;
  params[1].dtype = 99;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "bias", zero_register_params(g_optim, NULL, params, 2, &group));
  params[1].dtype = ZERO_FLOAT32;
  CHECK(group == -1);
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_param_index(g_optim, "bias", &index)); /* none was added */
  CHECK_STATUS(ZERO_OK, zero_register_params(g_optim, NULL, params, 2, &group));
  CHECK(group == 0);
  CHECK_STATUS(ZERO_OK, zero_param_index(g_optim, "bias", &index));
  CHECK(index == 1);

  size_t count = 99;
  CHECK_STATUS(ZERO_ERR_STATE, zero_owned_ranges(g_optim, 0, NULL, 0, &count));
  CHECK_STATUS(ZERO_OK, zero_seal(g_optim));
  CHECK_STATUS(ZERO_OK, zero_owned_ranges(g_optim, 0, NULL, 0, &count));
  int64_t *ranges = calloc(count * 3, sizeof *ranges), owned = 0;
  CHECK_STATUS(ZERO_OK, zero_owned_ranges(g_optim, 0, ranges, count, &count));
  for (size_t i = 0; i < count; i++) owned += ranges[3 * i + 2];
  CHECK(owned == WEIGHTS + BIASES);
  free(ranges);
}

static void gradients(float value) {
  for (int i = 0; i < WEIGHTS + BIASES; i++) g_grads[i] = value;
}

static void step(void) {
  zero_result result;
  double norm = 0, lr = 0;
  for (int i = 0; i < WEIGHTS + BIASES; i++) g_params[i] = 1;
  CHECK_STATUS(ZERO_OK, zero_broadcast_params(g_optim, 0, NULL));
  gradients(2);
  CHECK_STATUS(ZERO_OK, zero_step(g_optim, NULL));
  for (int i = 0; i < WEIGHTS + BIASES; i++) CHECK(g_params[i] == 0.75f);

  gradients(2);
  CHECK_STATUS(ZERO_OK, zero_reduce_grads(g_optim, NULL, 0, ZERO_REDUCE_MEAN, NULL));
  CHECK_STATUS(ZERO_ERR_STATE, zero_reduce_grads(g_optim, NULL, 0, ZERO_REDUCE_MEAN, NULL));
  CHECK_STATUS(ZERO_ERR_STATE, zero_state_save(g_optim, g_directory, NULL));
  CHECK_STATUS(ZERO_OK, zero_clip_grad_norm(g_optim, NULL, 0, 1e9, 2, &norm, NULL));
  CHECK(fabs(norm - 2 * sqrt(WEIGHTS + BIASES)) < 1e-9);
  CHECK_STATUS(ZERO_OK, zero_step(g_optim, NULL));
  for (int i = 0; i < WEIGHTS + BIASES; i++) CHECK(g_params[i] == 0.5f);

  CHECK_STATUS(ZERO_OK, zero_group_set(g_optim, ZERO_ALL_GROUPS, "lr", 0.25));
  CHECK_STATUS(ZERO_OK, zero_group_get(g_optim, 0, "lr", &lr));
  CHECK(lr == 0.25);
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_group_set(g_optim, 0, "beta1", 0.5)); /* SGD has none */
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_group_set(g_optim, 1, "lr", 0.5));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_group_set(g_optim, 0, "lr", NAN));
  gradients(2);
  CHECK_STATUS(ZERO_OK, zero_reduce_grads(g_optim, NULL, 0, ZERO_REDUCE_SUM, NULL));
  CHECK_STATUS(ZERO_OK, zero_drop_grads(g_optim));
  gradients(2);
  CHECK_STATUS(ZERO_OK, zero_step(g_optim, NULL));
  for (int i = 0; i < WEIGHTS + BIASES; i++) CHECK(g_params[i] == 0.0f);

  ZERO_INIT(result);
  CHECK_STATUS(ZERO_OK, zero_step_result(g_optim, &result));
  CHECK(result.step == 3 && result.skipped == 0 && result.clip_factor == 1);
}

static void begun_step(void) {
  zero_statistics before, after;
  zero_step_options options;
  ZERO_INIT(before);
  ZERO_INIT(after);
  CHECK_STATUS(ZERO_OK, zero_stats(g_optim, &before));
  ZERO_INIT(options);
  options.reduce_flags = ZERO_REDUCE_ACCUMULATE;
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_step_begin(g_optim, &options));
  CHECK_STATUS(ZERO_OK, zero_step_begin(g_optim, NULL));
  CHECK_REFUSED(ZERO_ERR_STATE, "a step has begun", zero_group_set(g_optim, 0, "lr", 1));
  gradients(0);
  CHECK_STATUS(ZERO_OK, zero_grad_ready(g_optim, 0, g_grads, NULL));
  CHECK_STATUS(ZERO_ERR_STATE, zero_drop_grads(g_optim));
  CHECK_STATUS(ZERO_OK, zero_step(g_optim, NULL));
  CHECK_STATUS(ZERO_OK, zero_param_wait(g_optim, 1, NULL));
  CHECK_STATUS(ZERO_OK, zero_param_wait(g_optim, ZERO_ALL_PARAMS, NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_param_wait(g_optim, 2, NULL));
  CHECK_STATUS(ZERO_OK, zero_stats(g_optim, &after));
  CHECK(after.steps == before.steps + 1 && after.early_updates >= before.early_updates);
}

static void given_gradients(void) {
  void *grads[2] = {NULL, NULL};
  zero_step_options options;
  float bias[BIASES];
  ZERO_INIT(options);
  options.grads = grads;
  options.grad_count = 2;
  CHECK_STATUS(ZERO_ERR_STATE, zero_step(g_optim, &options)); /* no gradient on any rank */
  options.grad_count = 1;
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_step(g_optim, &options));
  for (int i = 0; i < BIASES; i++) bias[i] = -4;
  grads[1] = bias;
  options.grad_count = 2;
  CHECK_STATUS(ZERO_OK, zero_step(g_optim, &options));
  CHECK(g_params[0] == 0 && g_params[WEIGHTS - 1] == 0);
  for (int i = 0; i < BIASES; i++) CHECK(g_params[WEIGHTS + i] == 1);
}

/* SGD with momentum that is set, read and gathered. */
static void single_tensors(void) {
  static float values[WEIGHTS], back[WEIGHTS];
  const char *names[4];
  int32_t dtype = 0;
  size_t count = 9;
  double number = 0;
  for (int i = 0; i < WEIGHTS; i++) values[i] = (float)i;
  CHECK_STATUS(ZERO_OK, zero_state_info(g_optim, 0, &dtype, names, 4, &count));
  CHECK(count == 0 && dtype == ZERO_FLOAT32);
  CHECK_REFUSED(ZERO_ERR_STATE, "has no values yet",
                zero_state_get(g_optim, 0, "momentum_buffer", 0, WEIGHTS, back));
  CHECK_STATUS(ZERO_OK, zero_state_get(g_optim, 0, NULL, 0, WEIGHTS, back));
  CHECK(memcmp(back, g_params, sizeof back) == 0);
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "exp_avg", zero_state_set(g_optim, 0, "exp_avg", 0, 1, values));
  CHECK_STATUS(ZERO_OK, zero_state_set(g_optim, 0, "momentum_buffer", 0, WEIGHTS, values));
  CHECK_STATUS(ZERO_OK, zero_state_info(g_optim, 0, NULL, names, 4, &count));
  CHECK(count == 1 && strcmp(names[0], "momentum_buffer") == 0);
  CHECK_STATUS(ZERO_OK,
               zero_state_gather(g_optim, 0, "momentum_buffer", ZERO_ALL_RANKS, back, WEIGHTS));
  CHECK(memcmp(back, values, sizeof back) == 0);
  CHECK_STATUS(ZERO_OK, zero_state_get(g_optim, ZERO_ALL_PARAMS, "step", 0, 1, &number));
  CHECK(number == 5);
  number = 3;
  CHECK_STATUS(ZERO_OK, zero_state_set(g_optim, 0, "step", 0, 1, &number));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "a single number",
                zero_state_set(g_optim, 0, "step", 0, 2, &number));
  gradients(2);
  CHECK_REFUSED(ZERO_ERR_STATE, "reduced", zero_grad_get(g_optim, 0, 0, 1, back));
  CHECK_STATUS(ZERO_OK, zero_reduce_grads(g_optim, NULL, 0, ZERO_REDUCE_MEAN, NULL));
  CHECK_STATUS(ZERO_OK, zero_grad_get(g_optim, 1, 0, BIASES, back));
  CHECK(back[0] == 2 && back[BIASES - 1] == 2);
  CHECK_STATUS(ZERO_OK, zero_share_params(g_optim, 0, NULL));
  CHECK_STATUS(ZERO_ERR_STATE, zero_grad_get(g_optim, 1, 0, BIASES, back));
}

static float g_mean[3];
static int64_t g_seen;

static void buffers(void) {
  static const int64_t shape[] = {3};
  zero_buffer buffers[2];
  CHECK_REFUSED(ZERO_ERR_STATE, "no buffers", zero_broadcast_buffers(g_optim, 0, NULL));
  for (int i = 0; i < 2; i++) ZERO_INIT(buffers[i]);
  buffers[0].name = "mean";
  buffers[0].data = g_mean;
  buffers[0].shape = shape;
  buffers[0].ndim = 1;
  buffers[1].name = "weight";
  buffers[1].data = &g_seen;
  buffers[1].dtype = ZERO_INT64;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "weight", zero_register_buffers(g_optim, buffers, 2));
  buffers[1].name = "seen";
  CHECK_STATUS(ZERO_OK, zero_register_buffers(g_optim, buffers, 2));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "root 1", zero_broadcast_buffers(g_optim, 1, NULL));
  g_mean[2] = 0.5f;
  g_seen = 12;
  CHECK_STATUS(ZERO_OK, zero_broadcast_buffers(g_optim, 0, NULL));
  CHECK(g_mean[2] == 0.5f && g_seen == 12);
}

static void owners(void) {
  const int32_t owner[] = {0, 0};
  CHECK_STATUS(ZERO_OK, zero_rebalance(g_optim, NULL, 0, NULL));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "ZERO_PARTITION_MANUAL",
                zero_rebalance(g_optim, owner, 2, NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_rebalance(NULL, NULL, 0, NULL));
}

static void join(void) {
  zero_join_options options;
  int32_t last = 7;
  ZERO_INIT(options);
  CHECK(options.grads == NULL && options.grad_count == 0);
  CHECK_REFUSED(ZERO_ERR_STATE, "uneven_inputs", zero_join(g_optim, &options, &last));
  CHECK(last == 7);
}

static void extras(void) {
  const char *names[2];
  int32_t ranks[2];
  size_t count = 7;
  CHECK_STATUS(ZERO_OK, zero_state_extra_set(g_optim, "position", "12345", 5));
  CHECK_STATUS(ZERO_OK, zero_state_extra_set(g_optim, "seed", "abc", 3));
  CHECK_STATUS(ZERO_OK, zero_state_extra_set(g_optim, "seed", NULL, 0));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "0 bytes", zero_state_extra_set(g_optim, "seed", "abc", 0));
  CHECK_STATUS(ZERO_OK, zero_state_extra_list(g_optim, ranks, names, 2, &count));
  CHECK(count == 0);
}

/* Checks the extras of extras() after a load. */
static void loaded_extras(void) {
  const char *names[2];
  int32_t ranks[2];
  char bytes[4] = "";
  size_t count = 0;
  CHECK_STATUS(ZERO_OK, zero_state_extra_list(g_optim, ranks, names, 2, &count));
  CHECK(count == 1 && ranks[0] == 0 && strcmp(names[0], "position") == 0);
  CHECK_STATUS(ZERO_OK, zero_state_extra_get(g_optim, 0, "position", bytes, 3, &count));
  CHECK(count == 5 && strcmp(bytes, "123") == 0);
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "'seed' of rank 0",
                zero_state_extra_get(g_optim, 0, "seed", bytes, 3, &count));
}

static void save(void) {
  CHECK_STATUS(ZERO_OK, zero_state_save(g_optim, g_directory, NULL));
  CHECK_REFUSED(ZERO_ERR_STATE, g_directory, zero_state_save(g_optim, g_directory, NULL));
  zero_save_options options;
  ZERO_INIT(options);
  options.flags = ZERO_SAVE_REPLACE;
  CHECK_STATUS(ZERO_OK, zero_state_save(g_optim, g_directory, &options));
  CHECK_STATUS(ZERO_ERR_CKPT_IO, zero_state_save(g_optim, "/dev/null/checkpoint", NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_state_save(g_optim, NULL, NULL));
}

static void save_behind(void) {
  int32_t done = 7;
  zero_save_options options;
  ZERO_INIT(options);
  options.flags = ZERO_SAVE_REPLACE;
  CHECK_REFUSED(ZERO_ERR_STATE, "no save has begun", zero_state_save_poll(g_optim, &done));
  CHECK_REFUSED(ZERO_ERR_STATE, "no save has begun", zero_state_save_wait(g_optim));
  CHECK(done == 7);
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_state_save_begin(g_optim, NULL, NULL));
  CHECK_REFUSED(ZERO_ERR_STATE, g_directory, zero_state_save_begin(g_optim, g_directory, NULL));
  CHECK_STATUS(ZERO_OK, zero_state_save_begin(g_optim, g_directory, &options));
  CHECK_REFUSED(ZERO_ERR_BUSY, "zero_state_save_wait",
                zero_state_save_begin(g_optim, g_directory, &options));
  CHECK_REFUSED(ZERO_ERR_BUSY, "zero_state_save_wait",
                zero_state_save(g_optim, g_directory, &options));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "done", zero_state_save_poll(g_optim, NULL));
  CHECK_STATUS(ZERO_OK, zero_state_save_poll(g_optim, &done));
  CHECK(done == 0 || done == 1);
  CHECK_STATUS(ZERO_OK, zero_state_save_wait(g_optim));
}

static void load(void) {
  double lr = 0;
  zero_result result;
  for (int i = 0; i < WEIGHTS + BIASES; i++) g_params[i] = 77;
  g_mean[2] = 0;
  g_seen = 0;
  CHECK_STATUS(ZERO_OK, zero_group_set(g_optim, 0, "lr", 0.5));
  CHECK_STATUS(ZERO_ERR_CKPT_INVALID, zero_state_load(g_optim, "/nonexistent/checkpoint", NULL));
  CHECK(g_params[0] == 77 && g_seen == 0);
  CHECK_STATUS(ZERO_OK, zero_state_load(g_optim, g_directory, NULL));
  for (int i = 0; i < WEIGHTS; i++) CHECK(g_params[i] == 0);
  for (int i = WEIGHTS; i < WEIGHTS + BIASES; i++) CHECK(g_params[i] == 1);
  CHECK(g_mean[2] == 0.5f && g_seen == 12);
  CHECK_STATUS(ZERO_OK, zero_group_get(g_optim, 0, "lr", &lr));
  CHECK(lr == 0.25);
  ZERO_INIT(result);
  CHECK(zero_step_result(g_optim, &result) >= 0);
  CHECK(result.step == 5);

  zero_load_options options;
  ZERO_INIT(options);
  options.flags = ZERO_LOAD_KEEP_SETTINGS;
  CHECK_STATUS(ZERO_OK, zero_group_set(g_optim, 0, "lr", 0.5));
  CHECK_STATUS(ZERO_OK, zero_state_load(g_optim, g_directory, &options));
  CHECK_STATUS(ZERO_OK, zero_group_get(g_optim, 0, "lr", &lr));
  CHECK(lr == 0.5);
}

static void folder(void) {
  zero_checkpoint found[2];
  size_t count = 7;
  char parent[sizeof g_directory];
  memcpy(parent, g_directory, sizeof parent);
  *strrchr(parent, '/') = '\0';
  for (int i = 0; i < 2; i++) ZERO_INIT(found[i]);
  CHECK_STATUS(ZERO_OK, zero_state_list(parent, found, 2, &count));
  CHECK(count == 1 && found[0].step == 5 && found[0].world == 1 && found[0].bytes > 4096);
  CHECK(strstr(g_directory, found[0].name) != NULL);
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "keep_last is 0", zero_state_prune(parent, 0, 0, &count));
  CHECK_STATUS(ZERO_OK, zero_state_prune(parent, 1, 0, &count));
  CHECK(count == 0);
}

/* A load into another model lists the differences, and changes nothing. */
static void load_elsewhere(void) {
  zero_optim *other = NULL;
  zero_param params[2];
  float *memory = calloc(WEIGHTS + 2 * BIASES, sizeof(float));
  static const int64_t longer[] = {2 * BIASES};
  model(params);
  params[0].data = memory;
  params[1].data = memory + WEIGHTS;
  params[0].grad = params[1].grad = NULL;
  params[1].shape = longer;
  CHECK_STATUS(ZERO_OK, zero_create(&other, g_comm, NULL));
  CHECK_STATUS(ZERO_OK, zero_register_params(other, NULL, params, 2, NULL));
  CHECK_REFUSED(ZERO_ERR_CKPT_MISMATCH, "bias", zero_state_load(other, g_directory, NULL));
  CHECK_REFUSED(ZERO_ERR_CKPT_MISMATCH, "sgd", zero_state_load(other, g_directory, NULL));
  CHECK_REFUSED(ZERO_ERR_CKPT_MISMATCH, "buffer 'mean'", zero_state_load(other, g_directory, NULL));
  CHECK(memory[WEIGHTS] == 0);
  CHECK_STATUS(ZERO_OK, zero_free(other));
  free(memory);
}

static void freeze(void) {
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "parameter 2", zero_param_set_trainable(g_optim, 2, 0));
  for (int64_t i = 0; i < 2; i++) CHECK_STATUS(ZERO_OK, zero_param_set_trainable(g_optim, i, 0));
  CHECK_REFUSED(ZERO_ERR_STATE, "frozen", zero_step(g_optim, NULL));
  for (int64_t i = 0; i < 2; i++) CHECK_STATUS(ZERO_OK, zero_param_set_trainable(g_optim, i, 1));
}

/* The same as in docs/integrate.md. */
static zero_status signs(void *ctx, const zero_update *u) {
  float *p = u->values, *g = u->gradient, *m = u->slots[0];
  (void)ctx;
  if (u->dtype != ZERO_FLOAT32) {
    snprintf(u->message, u->message_bytes, "only fp32 is written");
    return ZERO_ERR_UNSUPPORTED;
  }
  for (int64_t i = 0; i < u->count; i++) {
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    p[i] -= (float)u->lr * ((m[i] > 0) - (m[i] < 0));
  }
  return ZERO_OK;
}

static void own_rule(void) {
  double wide = 1, wide_grad = 1;
  float single = 1, single_grad = -1;
  const char *slots[] = {"momentum"}, *names[2];
  zero_param params[2];
  zero_custom_optimizer custom;
  zero_options options;
  zero_comm *comm = NULL;
  zero_optim *optim = NULL;
  size_t count = 0;
  CHECK_STATUS(ZERO_OK, zero_comm_create_solo(&comm, NULL));
  ZERO_INIT(custom);
  ZERO_INIT(options);
  custom.name = "signs";
  custom.update = signs;
  custom.slots = slots;
  custom.slot_count = 1;
  options.optimizer = ZERO_OPTIMIZER_CUSTOM;
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "custom is NULL", zero_create(&optim, comm, &options));
  options.custom = &custom;
  CHECK_STATUS(ZERO_OK, zero_create(&optim, comm, &options));
  for (int i = 0; i < 2; i++) ZERO_INIT(params[i]);
  params[0].name = "single";
  params[0].data = &single;
  params[0].grad = &single_grad;
  params[1].name = "wide";
  params[1].dtype = ZERO_FLOAT64;
  params[1].data = &wide;
  params[1].grad = &wide_grad;
  CHECK_STATUS(ZERO_OK, zero_register_params(optim, NULL, params, 2, NULL));
  CHECK_REFUSED(ZERO_ERR_CALLBACK, "only fp32 is written", zero_step(optim, NULL));
  CHECK(single == 1 && wide == 1);
  CHECK_STATUS(ZERO_OK, zero_param_set_trainable(optim, 1, 0));
  CHECK_STATUS(ZERO_OK, zero_step(optim, NULL));
  CHECK(single == 1 + 1e-3f && wide == 1);
  CHECK_STATUS(ZERO_OK, zero_state_info(optim, 0, NULL, names, 2, &count));
  CHECK(count == 1 && strcmp(names[0], "momentum") == 0);
  CHECK_STATUS(ZERO_OK, zero_free(optim));
  CHECK_STATUS(ZERO_OK, zero_comm_free(comm));
}

static void rules(void) {
  zero_rule rule = {.struct_size = sizeof rule};
  int32_t count = 0;
  while (zero_rule_info(count, &rule) == ZERO_OK) count++;
  CHECK(count > ZERO_OPTIMIZER_LARS);
  CHECK_STATUS(ZERO_OK, zero_rule_info(ZERO_OPTIMIZER_ADAMW, &rule));
  CHECK(strcmp(rule.name, "adamw") == 0);
  CHECK(rule.setting_count == 7 && strcmp(rule.setting_names[1], "beta1") == 0);
  CHECK(rule.setting_defaults[1] == 0.9 && strcmp(rule.setting_ranges[1], "in [0, 1)") == 0);
  CHECK(rule.slot_count == 3 && strcmp(rule.slots[2], "max_exp_avg_sq") == 0);
  CHECK(rule.slot_settings[0] == NULL && strcmp(rule.slot_settings[2], "amsgrad") == 0);
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_rule_info(ZERO_OPTIMIZER_CUSTOM, &rule));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_rule_info(-1, &rule));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_rule_info(0, NULL));
  rule.struct_size = 0;
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_rule_info(0, &rule));
}

static void plan(void) {
  zero_param params[2];
  zero_plan out;
  int64_t offsets[2] = {-1, -1}, elements[4] = {0};
  int32_t owners[2] = {-9, -9};
  model(params);
  params[0].name = params[1].name = NULL; /* not read, like data and grad */
  params[0].data = params[1].data = params[0].grad = params[1].grad = NULL;
  ZERO_INIT(out);
  out.offsets = offsets;
  out.owners = owners;
  out.elements = elements;
  CHECK_STATUS(ZERO_OK, zero_partition_plan(params, 2, 4, NULL, &out));
  CHECK(elements[0] + elements[1] + elements[2] + elements[3] == WEIGHTS + BIASES);
  CHECK(offsets[0] % 64 == 0 && offsets[1] % 64 == 0 && offsets[0] != offsets[1]);
  CHECK(out.arena_bytes >= (int64_t)((WEIGHTS + BIASES) * sizeof(float)));
  CHECK(owners[0] == ZERO_OWNER_SPLIT);
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_partition_plan(params, 2, 0, NULL, &out));
}

/* A newer caller has a longer struct, which is accepted while its unknown fields are zero. */
static void longer_structs(void) {
  struct {
    zero_comm_options known;
    int64_t unknown;
  } options;
  zero_comm *seat = NULL;
  memset(&options, 0x5a, sizeof options);
  ZERO_INIT(options);
  CHECK(options.unknown == 0 && options.known.struct_size == sizeof options);
  CHECK_STATUS(ZERO_OK, zero_comm_create_solo(&seat, &options.known));
  CHECK_STATUS(ZERO_OK, zero_comm_free(seat));
  options.unknown = 1;
  seat = NULL;
  CHECK(zero_comm_create_solo(&seat, &options.known) < 0 && seat == NULL);
  options.unknown = 0;
  options.known.struct_size = 0; /* ZERO_INIT was forgotten */
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "struct_size", zero_comm_create_solo(&seat, &options.known));
  options.known.struct_size = 5;
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_comm_create_solo(&seat, &options.known));
}

static void hear(void *ctx, int32_t level, const char *message) {
  (void)level;
  (void)message;
  ++*(int *)ctx;
}

static int32_t no_interrupt(void *ctx) { return ctx != NULL; }

static void log_callback(void) {
  int heard = 0;
  CHECK_STATUS(ZERO_OK, zero_set_log_callback(hear, &heard, ZERO_LOG_INFO));
  CHECK_STATUS(ZERO_OK, zero_set_log_callback(NULL, NULL, 0));
  CHECK_STATUS(ZERO_OK, zero_set_interrupt_callback(no_interrupt, NULL));
  CHECK_STATUS(ZERO_OK, zero_set_interrupt_callback(NULL, NULL));
}

static void statistics(void) {
  zero_statistics stats;
  ZERO_INIT(stats);
  CHECK_STATUS(ZERO_OK, zero_stats(g_optim, &stats));
  CHECK(stats.parameter_elements == WEIGHTS + BIASES && stats.owned_elements == WEIGHTS + BIASES);
  CHECK(stats.steps == 5 && stats.skipped == 0);
}

static void traced(void) {
  char path[192], word[64] = "";
  FILE *file;
  snprintf(path, sizeof path, "%s.trace", g_directory);
  CHECK_REFUSED(ZERO_ERR_STATE, "no trace", zero_trace_stop(g_comm));
  CHECK_REFUSED(ZERO_ERR_ARGUMENT, "directory is NULL", zero_trace_start(g_comm, NULL));
  CHECK_STATUS(ZERO_OK, zero_trace_start(g_comm, path));
  CHECK_REFUSED(ZERO_ERR_STATE, "rank-0.json' is already being written",
                zero_trace_start(g_comm, path));
  CHECK_STATUS(ZERO_OK, zero_comm_barrier(g_comm));
  CHECK_STATUS(ZERO_OK, zero_trace_stop(g_comm));
  snprintf(path, sizeof path, "%s.trace/rank-0.json", g_directory);
  file = fopen(path, "r");
  CHECK(file != NULL && fgets(word, sizeof word, file) != NULL && strcmp(word, "[\n") == 0);
  if (file != NULL) fclose(file);
}

static void aborted(void) {
  zero_failure failure;
  CHECK_STATUS(ZERO_OK, zero_comm_abort(g_comm, "enough"));
  CHECK_REFUSED(ZERO_ERR_ABORTED, "enough", zero_step(g_optim, NULL));
  CHECK_STATUS(ZERO_ERR_ABORTED, zero_comm_barrier(g_comm));
  ZERO_INIT(failure);
  CHECK_STATUS(ZERO_OK, zero_comm_failure(g_comm, &failure));
  CHECK(failure.status == ZERO_ERR_ABORTED && failure.step == 5 && failure.params_consistent == 1);
  CHECK(strstr(failure.text, "enough") != NULL);
}

static void free_in_any_order(void) {
  CHECK_STATUS(ZERO_OK, zero_comm_free(g_comm));
  CHECK_STATUS(ZERO_OK, zero_arena_free(g_params));
  CHECK(g_params[0] == 0); /* the optimizer still uses it for parameters */
  CHECK_STATUS(ZERO_OK, zero_free(g_optim));
  CHECK_STATUS(ZERO_OK, zero_arena_free(g_grads));
  CHECK_STATUS(ZERO_OK, zero_free(NULL));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_free(g_optim));
  CHECK_STATUS(ZERO_ERR_ARGUMENT, zero_arena_free(g_grads));
}

int main(void) {
  char parent[] = "/tmp/zero-c-api-XXXXXX", command[128];
  if (mkdtemp(parent) == NULL) return 1;
  snprintf(g_directory, sizeof g_directory, "%s/step-5", parent);
  phase("version", version);
  phase("comm", comm);
  phase("devices", devices);
  phase("mpi", mpi);
  phase("nccl", nccl);
  phase("handles", handles);
  phase("arenas", arenas);
  phase("create", create);
  phase("register", add);
  phase("step", step);
  phase("begun step", begun_step);
  phase("given gradients", given_gradients);
  phase("single tensors", single_tensors);
  phase("buffers", buffers);
  phase("owners", owners);
  phase("join", join);
  phase("extras", extras);
  phase("save", save);
  phase("save_behind", save_behind);
  phase("load", load);
  phase("loaded extras", loaded_extras);
  phase("folder", folder);
  phase("load elsewhere", load_elsewhere);
  phase("freeze", freeze);
  phase("own rule", own_rule);
  phase("rules", rules);
  phase("plan", plan);
  phase("longer structs", longer_structs);
  phase("log", log_callback);
  phase("statistics", statistics);
  phase("trace", traced);
  phase("abort", aborted);
  phase("free in any order", free_in_any_order);
  snprintf(command, sizeof command, "rm -rf '%s'", parent);
  if (system(command) != 0) return 1;
  return finish();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A character-level language model, trained by any number of ranks with libzero:
 *
 *     zero-run -n 4 char_lm --text LICENSE --steps 300 --save run/a
 *
 * The model embeds the last CONTEXT characters, applies one tanh layer, and predicts the next one
 * by a softmax. The programs in the other languages do the same operations in the same order, so
 * all end with the same bits. --reference trains in one process without libzero, and ends with
 * these bits too. With --device cuda, parameters, gradients and the optimizer are on a GPU, and the
 * model runs on the host.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena_view.h"
#include "zero.h"

enum { CONTEXT = 8, EMBED = 16, INPUT = CONTEXT * EMBED, HIDDEN = 384, SYMBOLS = 256 };
enum { EMBEDDING, W1, B1, W2, B2, PARAMS };

static const struct {
  const char *name;
  int64_t shape[2];
  int32_t ndim;
} kModel[PARAMS] = {
    {"embedding", {SYMBOLS, EMBED}, 2}, {"hidden.weight", {INPUT, HIDDEN}, 2},
    {"hidden.bias", {HIDDEN, 0}, 1},    {"output.weight", {HIDDEN, SYMBOLS}, 2},
    {"output.bias", {SYMBOLS, 0}, 1},
};

static size_t elements(int param) {
  const int64_t *shape = kModel[param].shape;
  return (size_t)(kModel[param].ndim == 2 ? shape[0] * shape[1] : shape[0]);
}

struct settings {
  const char *text, *save, *load, *dump, *reference;
  long steps, batch;
  uint64_t seed;
  double lr;
  int progress;
  int32_t device;
};

static void fail(const char *what, const char *why) {
  fprintf(stderr, "char_lm: %s: %s\n", what, why);
  exit(1);
}

/* Checks the status of every libzero call. */
static void check(zero_status status, const char *call) {
  if (status >= 0) return;
  fprintf(stderr, "char_lm: %s: %s: %s\n", call, zero_status_name(status), zero_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* Prints warnings, for example that the other ranks have waited ten seconds for one rank. */
static void print_log(void *ctx, int32_t level, const char *message) {
  (void)ctx;
  fprintf(stderr, "libzero: %s: %s\n", level == ZERO_LOG_ERROR ? "error" : "warning", message);
}

static void check_copy(const char *why) {
  if (why != NULL) fail("copying between host and GPU", why);
}

static void *allocate(size_t bytes) {
  void *memory = calloc(1, bytes);
  if (memory == NULL) fail("calloc", "out of memory");
  return memory;
}

/* ---- Text and random numbers: a step's examples depend only on (seed, step, example). */

static unsigned char *g_text;
static size_t g_length;

static void read_text(const char *path) {
  FILE *file = fopen(path, "rb");
  long bytes = 0;
  if (file == NULL) fail(path, "cannot be opened");
  if (fseek(file, 0, SEEK_END) != 0 || (bytes = ftell(file)) <= CONTEXT) {
    fail(path, "is too short to train on");
  }
  rewind(file);
  g_length = (size_t)bytes;
  g_text = allocate(g_length);
  if (fread(g_text, 1, g_length, file) != g_length) fail(path, "cannot be read");
  fclose(file);
}

static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static uint64_t draw(uint64_t seed, uint64_t a, uint64_t b) {
  return mix(mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + a) + b);
}

/* Draws weights uniformly in +-1/sqrt(fan in). Biases are zero. */
static void initialize(float *const *params, uint64_t seed) {
  static const int fan_in[PARAMS] = {1, INPUT, 0, HIDDEN, 0};
  for (int p = 0; p < PARAMS; p++) {
    for (size_t i = 0; i < elements(p); i++) {
      const double unit = (double)(draw(seed, (uint64_t)p, i) >> 11) / 9007199254740992.0;
      params[p][i] = fan_in[p] ? (float)((2 * unit - 1) / sqrt(fan_in[p])) : 0.0f;
    }
  }
}

/* ---- The model: forward and backward of one example, whose gradients are added to `grads`. */

/* exp and tanh differ in their last bits between math libraries, so these use only + and *. This
 * is exp for x <= 0: its series at x/1024, squared ten times. */
static double exponential(double x) {
  const double y = x / 1024;
  double e = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6)))));
  for (int i = 0; i < 10; i++) e *= e;
  return x < -100 ? 0 : e;
}

static float hyperbolic_tangent(float x) {
  const double e = exponential(x < 0 ? 2.0 * x : -2.0 * x), value = (1 - e) / (1 + e);
  return (float)(x < 0 ? -value : value);
}

static float dot(const float *a, const float *b, int count) {
  float lanes[8] = {0};
  for (int i = 0; i < count; i += 8) {
    for (int lane = 0; lane < 8; lane++) lanes[lane] += a[i + lane] * b[i + lane];
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static void add_scaled(float *out, const float *in, float scale, int count) {
  for (int i = 0; i < count; i++) out[i] += in[i] * scale;
}

/* Writes the probabilities of the next character to `out`. */
static void forward(float *const *params, const unsigned char *context, float *input, float *hidden,
                    float *out) {
  float largest, total = 0;
  for (int c = 0; c < CONTEXT; c++) {
    memcpy(input + c * EMBED, params[EMBEDDING] + context[c] * EMBED, EMBED * sizeof(float));
  }
  memcpy(hidden, params[B1], HIDDEN * sizeof(float));
  for (int i = 0; i < INPUT; i++) add_scaled(hidden, params[W1] + i * HIDDEN, input[i], HIDDEN);
  for (int h = 0; h < HIDDEN; h++) hidden[h] = hyperbolic_tangent(hidden[h]);
  memcpy(out, params[B2], SYMBOLS * sizeof(float));
  for (int h = 0; h < HIDDEN; h++) add_scaled(out, params[W2] + h * SYMBOLS, hidden[h], SYMBOLS);
  largest = out[0];
  for (int s = 1; s < SYMBOLS; s++) largest = out[s] > largest ? out[s] : largest;
  for (int s = 0; s < SYMBOLS; s++) total += out[s] = (float)exponential(out[s] - largest);
  for (int s = 0; s < SYMBOLS; s++) out[s] /= total;
}

/* Returns the loss of one example, and adds its gradient times `weight` to `grads`. */
static double example(float *const *params, float *const *grads, const unsigned char *context,
                      float weight) {
  float input[INPUT], hidden[HIDDEN], out[SYMBOLS], slope[HIDDEN];
  const int target = context[CONTEXT];
  double loss;
  forward(params, context, input, hidden, out);
  loss = -log((double)out[target] + 1e-30); /* only printed */

  out[target] -= 1; /* now the gradient of the loss by the logits */
  for (int s = 0; s < SYMBOLS; s++) out[s] *= weight;
  add_scaled(grads[B2], out, 1, SYMBOLS);
  for (int h = 0; h < HIDDEN; h++) {
    add_scaled(grads[W2] + h * SYMBOLS, out, hidden[h], SYMBOLS);
    slope[h] = dot(params[W2] + h * SYMBOLS, out, SYMBOLS) * (1 - hidden[h] * hidden[h]);
  }
  add_scaled(grads[B1], slope, 1, HIDDEN);
  for (int i = 0; i < INPUT; i++) {
    add_scaled(grads[W1] + i * HIDDEN, slope, input[i], HIDDEN);
    grads[EMBEDDING][context[i / EMBED] * EMBED + i % EMBED] +=
        dot(params[W1] + i * HIDDEN, slope, HIDDEN);
  }
  return loss;
}

/* Trains on this rank's part of the batch. Gradients are weighted so that their mean over ranks is
 * the mean over the batch, even if `world` does not divide it. Returns the sum of losses divided by
 * the batch size. */
static double forward_backward(const struct settings *set, float *const *params,
                               float *const *grads, long step, int rank, int world) {
  const long first = set->batch * rank / world, end = set->batch * (rank + 1) / world;
  double loss = 0;
  for (int p = 0; p < PARAMS; p++) memset(grads[p], 0, elements(p) * sizeof(float));
  for (long i = first; i < end; i++) {
    const uint64_t chance = draw(set->seed + 1, (uint64_t)step, (uint64_t)i);
    loss += example(params, grads, g_text + chance % (g_length - CONTEXT),
                    (float)world / (float)set->batch);
  }
  return loss / (double)set->batch;
}

static void report(const struct settings *set, long step, double loss) {
  const long every = set->progress ? 1 : (set->steps + 9) / 10;
  if (step % every == 0 || step == set->steps) printf("step=%ld loss=%.4f\n", step, loss);
}

/* FNV-1a over the bytes of all parameters. */
static void print_checksum(float *const *params) {
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (int p = 0; p < PARAMS; p++) {
    const unsigned char *bytes = (const unsigned char *)params[p];
    for (size_t i = 0; i < elements(p) * sizeof(float); i++) {
      sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
  }
  printf("checksum=%016llX\n", (unsigned long long)sum);
}

static void dump(const char *path, float *const *params) {
  FILE *file = path == NULL ? NULL : fopen(path, "wb");
  if (path == NULL) return;
  if (file == NULL) fail(path, "cannot be opened");
  for (int p = 0; p < PARAMS; p++) {
    if (fwrite(params[p], sizeof(float), elements(p), file) != elements(p)) {
      fail(path, "cannot be written");
    }
  }
  if (fclose(file) != 0) fail(path, "cannot be written");
}

/* ---- With libzero: this process is one rank. */

struct rank {
  zero_comm *comm;
  zero_optim *optim;
  float *params[PARAMS], *grads[PARAMS]; /* in the host's views */
  struct arena_view param_view, grad_view;
};

/* Allocates memory, shared by the ranks or one copy per rank, and opens the host's view of it. */
static void allocate_arena(const struct rank *self, const struct settings *set, int64_t bytes,
                           int32_t kind, struct arena_view *view) {
  void *arena;
  CHECK(zero_arena_alloc(self->comm, (size_t)bytes, kind, &arena));
  check_copy(arena_view_open(view, arena, (size_t)bytes, set->device));
}

static void free_arena(struct arena_view *view) {
  arena_view_close(view);
  CHECK(zero_arena_free(view->arena));
}

/* Places parameters and gradients where zero_partition_plan puts them, so that libzero copies
 * nothing. */
static void build(const struct settings *set, struct rank *self) {
  static const char *const names[] = {"lr"};
  zero_comm_options where;
  zero_options options;
  zero_param params[PARAMS];
  zero_plan plan;
  int64_t offsets[PARAMS];

  CHECK(zero_set_log_callback(print_log, NULL, ZERO_LOG_WARNING));
  ZERO_INIT(where);
  where.device = set->device;
  if (set->device == ZERO_DEVICE_CUDA) where.device_ordinal = ZERO_ORDINAL_LOCAL_RANK;
  CHECK(zero_comm_create_env(&self->comm, &where));
  ZERO_INIT(options);
  options.names = names;
  options.values = &set->lr;
  options.setting_count = 1;

  for (int p = 0; p < PARAMS; p++) {
    ZERO_INIT(params[p]);
    params[p].name = kModel[p].name;
    params[p].shape = kModel[p].shape;
    params[p].ndim = kModel[p].ndim;
    params[p].flags = ZERO_PARAM_PADDED;
  }
  ZERO_INIT(plan);
  plan.offsets = offsets;
  CHECK(zero_partition_plan(params, PARAMS, zero_comm_world(self->comm), &options, &plan));
  allocate_arena(self, set, plan.arena_bytes, ZERO_MEMORY_SHARED, &self->param_view);
  allocate_arena(self, set, plan.arena_bytes, ZERO_MEMORY_PER_RANK, &self->grad_view);
  for (int p = 0; p < PARAMS; p++) {
    params[p].data = (char *)self->param_view.arena + offsets[p];
    params[p].grad = (char *)self->grad_view.arena + offsets[p];
    self->params[p] = (float *)(self->param_view.host + offsets[p]);
    self->grads[p] = (float *)(self->grad_view.host + offsets[p]);
  }
  CHECK(zero_create(&self->optim, self->comm, &options));
  CHECK(zero_register_params(self->optim, NULL, params, PARAMS, NULL));
}

static void print_stats(const struct rank *self) {
  zero_statistics stats;
  ZERO_INIT(stats);
  CHECK(zero_stats(self->optim, &stats));
  printf(
      "stats rank=%d world=%d parameters=%lld owned=%lld state_bytes=%lld staging_bytes=%lld "
      "copied_bytes=%lld\n",
      (int)zero_comm_rank(self->comm), (int)zero_comm_world(self->comm),
      (long long)stats.parameter_elements, (long long)stats.owned_elements,
      (long long)stats.state_bytes, (long long)stats.staging_bytes, (long long)stats.copied_bytes);
}

static void train(const struct settings *set) {
  struct rank self;
  zero_result result;
  int rank, world;
  build(set, &self);
  rank = zero_comm_rank(self.comm);
  world = zero_comm_world(self.comm);
  ZERO_INIT(result);
  if (set->load != NULL) {
    CHECK(zero_state_load(self.optim, set->load, NULL));
    CHECK(zero_step_result(self.optim, &result));
    if (rank == 0)
      printf("loaded=%s step=%lld world=%d\n", set->load, (long long)result.step, world);
  } else {
    if (rank == 0) initialize(self.params, set->seed);
    if (rank == 0) check_copy(arena_view_send(&self.param_view));
    CHECK(zero_broadcast_params(self.optim, 0, NULL));
  }

  check_copy(arena_view_fetch(&self.param_view));
  for (long step = (long)result.step + 1; step <= set->steps; step++) {
    double loss = forward_backward(set, self.params, self.grads, step, rank, world);
    check_copy(arena_view_send(&self.grad_view));
    CHECK(zero_step(self.optim, NULL));
    check_copy(arena_view_fetch(&self.param_view));
    CHECK(zero_comm_all_reduce(self.comm, &loss, 1, ZERO_FLOAT64, ZERO_SUM));
    if (rank == 0) report(set, step, loss);
  }

  if (set->save != NULL) {
    zero_save_options options;
    ZERO_INIT(options);
    options.flags = ZERO_SAVE_REPLACE;
    CHECK(zero_state_save(self.optim, set->save, &options));
  }
  if (rank == 0) print_checksum(self.params);
  if (rank == 0) dump(set->dump, self.params);
  print_stats(&self);
  CHECK(zero_comm_barrier(self.comm));
  CHECK(zero_free(self.optim));
  free_arena(&self.param_view);
  free_arena(&self.grad_view);
  CHECK(zero_comm_free(self.comm));
}

/* ---- Without libzero: one process computes all ranks' gradients, sums them in rank order, and
 * updates all parameters by the formulas of AdamW. */

static double power(double base, long exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

static void adamw(float *param, const float *sum, float *exp_avg, float *exp_avg_sq, size_t count,
                  int world, long step, double lr) {
  const double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  const float b1 = (float)beta1, c1 = (float)(1 - beta1), b2 = (float)beta2,
              c2 = (float)(1 - beta2);
  const float step_size = (float)(lr / (1 - power(beta1, step)));
  const float root_scale = (float)(1 / sqrt(1 - power(beta2, step)));
  const float decay = (float)(1 - lr * weight_decay), epsilon = (float)eps;
  const float factor = (float)(1.0 / world);
  for (size_t i = 0; i < count; i++) {
    const float gradient = sum[i] * factor;
    float denominator;
    exp_avg[i] = exp_avg[i] * b1 + gradient * c1;
    exp_avg_sq[i] = exp_avg_sq[i] * b2 + (gradient * c2) * gradient;
    denominator = sqrtf(exp_avg_sq[i]) * root_scale + epsilon;
    param[i] = param[i] * decay - (exp_avg[i] * step_size) / denominator;
  }
}

/* Returns the world of a step. `worlds` is "4", or "4:60,3" for 4 ranks up to step 60, then 3. */
static int world_of(const char *worlds, long step) {
  for (;;) {
    char *end;
    const long world = strtol(worlds, &end, 10);
    const long until = *end == ':' ? strtol(end + 1, &end, 10) : 0;
    if (world < 1 || (*end != '\0' && *end != ','))
      fail("--reference", "is not WORLD[:STEP,WORLD...]");
    if (until == 0 || step <= until || *end == '\0') return (int)world;
    worlds = end + 1;
  }
}

static void train_reference(const struct settings *set) {
  float *params[PARAMS], *grads[PARAMS], *sums[PARAMS], *exp_avg[PARAMS], *exp_avg_sq[PARAMS];
  for (int p = 0; p < PARAMS; p++) {
    params[p] = allocate(elements(p) * sizeof(float));
    grads[p] = allocate(elements(p) * sizeof(float));
    sums[p] = allocate(elements(p) * sizeof(float));
    exp_avg[p] = allocate(elements(p) * sizeof(float));
    exp_avg_sq[p] = allocate(elements(p) * sizeof(float));
  }
  initialize(params, set->seed);
  for (long step = 1; step <= set->steps; step++) {
    const int world = world_of(set->reference, step);
    double loss = forward_backward(set, params, sums, step, 0, world);
    for (int rank = 1; rank < world; rank++) {
      loss += forward_backward(set, params, grads, step, rank, world);
      for (int p = 0; p < PARAMS; p++) {
        for (size_t i = 0; i < elements(p); i++) sums[p][i] += grads[p][i];
      }
    }
    for (int p = 0; p < PARAMS; p++) {
      adamw(params[p], sums[p], exp_avg[p], exp_avg_sq[p], elements(p), world, step, set->lr);
    }
    report(set, step, loss);
  }
  print_checksum(params);
  dump(set->dump, params);
  for (int p = 0; p < PARAMS; p++) {
    free(params[p]), free(grads[p]), free(sums[p]), free(exp_avg[p]), free(exp_avg_sq[p]);
  }
}

static void usage(void) {
  fprintf(
      stderr,
      "usage: char_lm [--text FILE] [--steps N] [--lr X] [--seed N] [--batch N] [--save DIR]\n"
      "               [--load DIR] [--dump FILE] [--reference WORLD[:STEP,WORLD...]] [--progress]\n"
      "               [--device host|cuda]\n"
      "--steps counts those of a loaded checkpoint. --dump writes the final parameters.\n");
  exit(2);
}

static void parse(struct settings *set, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *flag = argv[i], *value;
    if (strcmp(flag, "--progress") == 0) {
      set->progress = 1;
      continue;
    }
    if (i + 1 == argc) usage();
    value = argv[++i];
    if (strcmp(flag, "--text") == 0)
      set->text = value;
    else if (strcmp(flag, "--steps") == 0)
      set->steps = atol(value);
    else if (strcmp(flag, "--lr") == 0)
      set->lr = atof(value);
    else if (strcmp(flag, "--seed") == 0)
      set->seed = strtoull(value, NULL, 10);
    else if (strcmp(flag, "--batch") == 0)
      set->batch = atol(value);
    else if (strcmp(flag, "--save") == 0)
      set->save = value;
    else if (strcmp(flag, "--load") == 0)
      set->load = value;
    else if (strcmp(flag, "--dump") == 0)
      set->dump = value;
    else if (strcmp(flag, "--reference") == 0)
      set->reference = value;
    else if (strcmp(flag, "--device") == 0 && strcmp(value, "cuda") == 0)
      set->device = ZERO_DEVICE_CUDA;
    else if (strcmp(flag, "--device") == 0 && strcmp(value, "host") == 0)
      set->device = ZERO_DEVICE_HOST;
    else
      usage();
  }
  if (set->batch < 1 || set->steps < 0) usage();
}

int main(int argc, char **argv) {
  struct settings set = {"LICENSE", NULL, NULL, NULL, NULL, 200, 192, 1, 2e-3, 0, ZERO_DEVICE_HOST};
  parse(&set, argc, argv);
  setvbuf(stdout, NULL, _IOLBF, 4096);
  read_text(set.text);
  if (set.reference != NULL) {
    train_reference(&set);
  } else {
    train(&set);
  }
  free(g_text);
  return 0;
}

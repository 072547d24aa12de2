/* SPDX-License-Identifier: Apache-2.0 */
/* A classifier in plain C that keeps all parameters in one block of memory, like llm.c, and its
 * gradients and moments in three more blocks of the same layout. With -DWITH_LIBZERO ranks share
 * the batch, and there are no moments. Only the lines inside #ifdef WITH_LIBZERO differ.
 *
 * usage: one_block STEPS FILE. Rank 0 writes the parameters to FILE, in fp32. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef WITH_LIBZERO
#include "zero.h"
#endif

enum { ROWS = 96, INPUTS = 64, HIDDEN = 512, CLASSES = 10, TENSORS = 4 };

static const int64_t kSizes[TENSORS] = {HIDDEN * INPUTS, HIDDEN, CLASSES *HIDDEN, CLASSES};

typedef struct {
  float *weight1, *bias1, *weight2, *bias2;
} Tensors;

static size_t total(void) {
  size_t sum = 0;
  for (int i = 0; i < TENSORS; i++) sum += (size_t)kSizes[i];
  return sum;
}

static void point(Tensors *tensors, float *block) {
  float **each[TENSORS] = {&tensors->weight1, &tensors->bias1, &tensors->weight2, &tensors->bias2};
  for (int i = 0; i < TENSORS; i++) {
    *each[i] = block;
    block += kSizes[i];
  }
}

static float drawn(void) { return (float)rand() / (float)RAND_MAX - 0.5f; }

/* Adds the gradients of the mean loss of `rows` rows to `grads`. */
static void forward_backward(const Tensors *model, const Tensors *grads, const float *inputs,
                             const int *labels, int rows) {
  for (int row = 0; row < rows; row++) {
    const float *input = inputs + row * INPUTS;
    float hidden[HIDDEN], logits[CLASSES], d_hidden[HIDDEN] = {0}, sum = 0;
    for (int i = 0; i < HIDDEN; i++) {
      float value = model->bias1[i];
      for (int j = 0; j < INPUTS; j++) value += model->weight1[i * INPUTS + j] * input[j];
      hidden[i] = tanhf(value);
    }
    for (int i = 0; i < CLASSES; i++) {
      logits[i] = model->bias2[i];
      for (int j = 0; j < HIDDEN; j++) logits[i] += model->weight2[i * HIDDEN + j] * hidden[j];
      sum += expf(logits[i]);
    }
    for (int i = 0; i < CLASSES; i++) {
      const float d = (expf(logits[i]) / sum - (i == labels[row])) / (float)rows;
      grads->bias2[i] += d;
      for (int j = 0; j < HIDDEN; j++) {
        grads->weight2[i * HIDDEN + j] += d * hidden[j];
        d_hidden[j] += d * model->weight2[i * HIDDEN + j];
      }
    }
    for (int i = 0; i < HIDDEN; i++) {
      const float d = d_hidden[i] * (1 - hidden[i] * hidden[i]);
      grads->bias1[i] += d;
      for (int j = 0; j < INPUTS; j++) grads->weight1[i * INPUTS + j] += d * input[j];
    }
  }
}

#ifdef WITH_LIBZERO
static void check(zero_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s\n", zero_last_error());
  exit(1);
}

static zero_optim *registered(zero_comm *comm, float *params, float *grads) {
  static const char *const names[TENSORS] = {"weight1", "bias1", "weight2", "bias2"};
  zero_optim *optim;
  zero_param described[TENSORS];
  check(zero_create(&optim, comm, NULL)); /* AdamW with torch's defaults: lr 1e-3, decay 0.01 */
  for (int i = 0; i < TENSORS; i++) {
    ZERO_INIT(described[i]);
    described[i].name = names[i];
    described[i].shape = &kSizes[i];
    described[i].ndim = 1;
    described[i].data = params;
    described[i].grad = grads;
    params += kSizes[i];
    grads += kSizes[i];
  }
  check(zero_register_params(optim, NULL, described, TENSORS, NULL));
  check(zero_broadcast_params(optim, 0, NULL));
  return optim;
}
#else
/* AdamW by the formula of torch.optim.AdamW. */
static void update(float *params, const float *grads, float *m, float *v, size_t count, int step) {
  const float lr = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, decay = 0.01f;
  const float correction1 = 1 - powf(beta1, (float)step);
  const float correction2 = sqrtf(1 - powf(beta2, (float)step));
  for (size_t i = 0; i < count; i++) {
    m[i] = beta1 * m[i] + (1 - beta1) * grads[i];
    v[i] = beta2 * v[i] + (1 - beta2) * grads[i] * grads[i];
    params[i] -= lr * decay * params[i];
    params[i] -= lr / correction1 * m[i] / (sqrtf(v[i]) / correction2 + eps);
  }
}
#endif

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv) {
  const int steps = argc == 3 ? atoi(argv[1]) : 0;
  if (steps < 1) return 2;
  const size_t count = total();
#ifdef WITH_LIBZERO
  zero_comm *comm;
  check(zero_comm_create_env(&comm, NULL));
  const int rank = zero_comm_rank(comm), world = zero_comm_world(comm);
  float *params, *grads;
  check(zero_arena_alloc(comm, count * sizeof(float), ZERO_MEMORY_SHARED, (void **)&params));
  check(zero_arena_alloc(comm, count * sizeof(float), ZERO_MEMORY_PER_RANK, (void **)&grads));
#else
  const int rank = 0, world = 1;
  float *params = calloc(count, sizeof(float)), *grads = calloc(count, sizeof(float));
  float *m = calloc(count, sizeof(float)), *v = calloc(count, sizeof(float));
#endif
  Tensors model, model_grads;
  point(&model, params);
  point(&model_grads, grads);
  static float inputs[ROWS * INPUTS];
  static int labels[ROWS];
  srand(1);
  for (int i = 0; i < ROWS * INPUTS; i++) inputs[i] = drawn();
  for (int i = 0; i < ROWS; i++) labels[i] = rand() % CLASSES;
  if (rank == 0) {
    for (size_t i = 0; i < count; i++) params[i] = 0.1f * drawn();
  }
#ifdef WITH_LIBZERO
  zero_optim *optim = registered(comm, params, grads);
#endif

  double *seconds = calloc((size_t)steps, sizeof(double));
  const int rows = ROWS / world;
  for (int step = 0; step < steps; step++) {
    memset(grads, 0, count * sizeof(float));
    forward_backward(&model, &model_grads, inputs + rank * rows * INPUTS, labels + rank * rows,
                     rows);
    const double begin = now();
#ifdef WITH_LIBZERO
    check(zero_step(optim, NULL));
#else
    update(params, grads, m, v, count, step + 1);
#endif
    seconds[step] = now() - begin;
  }
  if (rank == 0) {
    qsort(seconds, (size_t)steps, sizeof(double), ascending);
    printf("step: %.1f us\n", 1e6 * seconds[steps / 2]);
    FILE *file = fopen(argv[2], "wb");
    fwrite(params, sizeof(float), count, file);
    fclose(file);
  }
#ifdef WITH_LIBZERO
  zero_free(optim);
  zero_arena_free(params);
  zero_arena_free(grads);
  zero_comm_free(comm);
#endif
  return 0;
}

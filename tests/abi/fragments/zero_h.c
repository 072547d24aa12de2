/* SPDX-License-Identifier: Apache-2.0 */
/* What zero.h shows in comments. */
#include "zero.h"

static float weights[8], grads[8];

static void forward_backward(void) { grads[0] = weights[0] - 1; }

int main(void) {
  const size_t count = 1;
  const int64_t shape[] = {8};
  zero_param params[1];
  ZERO_INIT(*params);
  params->name = "w";
  params->shape = shape;
  params->ndim = 1;
  params->data = weights;
  params->grad = grads;
#include "zero.h/1.c"
  zero_free(optim);
  zero_comm_free(comm);
  return weights[0] > 0 ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// What Rule::prepare and Rule::next_product point to, by ZERO_OPTIMIZER_*: devices call no pointers
// of the host.
#pragma once

#include "kernels/gradient_scalars.h"
#include "kernels/moment_scalars.h"
#include "zero.h"

namespace zero {

ZERO_HOST_DEVICE inline Scalars prepare_scalars(int32_t optimizer, const StepContext& context) {
  switch (optimizer) {
    case ZERO_OPTIMIZER_ADAMW:
      return rows::prepare_adamw(context);
    case ZERO_OPTIMIZER_ADAM:
      return rows::prepare_adam(context);
    case ZERO_OPTIMIZER_SGD:
      return rows::prepare_sgd(context);
    case ZERO_OPTIMIZER_RMSPROP:
      return rows::prepare_rmsprop(context);
    case ZERO_OPTIMIZER_ADAGRAD:
      return rows::prepare_adagrad(context);
    case ZERO_OPTIMIZER_LION:
      return rows::prepare_lion(context);
    case ZERO_OPTIMIZER_ADAMAX:
      return rows::prepare_adamax(context);
    case ZERO_OPTIMIZER_ADADELTA:
      return rows::prepare_adadelta(context);
    case ZERO_OPTIMIZER_RADAM:
      return rows::prepare_radam(context);
    case ZERO_OPTIMIZER_NADAM:
      return rows::prepare_nadam(context);
    case ZERO_OPTIMIZER_RPROP:
      return rows::prepare_rprop(context);
    case ZERO_OPTIMIZER_LAMB:
      return rows::prepare_lamb(context);
    case ZERO_OPTIMIZER_LARS:
      return rows::prepare_lars(context);
    default:
      return {};
  }
}

/// The product as it is, of rules that have none.
ZERO_HOST_DEVICE inline double next_product(int32_t optimizer, const StepContext& context) {
  return optimizer == ZERO_OPTIMIZER_NADAM ? rows::nadam_product(context) : context.product;
}

}  // namespace zero

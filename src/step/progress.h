// SPDX-License-Identifier: Apache-2.0
// What a step knows and decides, on the host: the functions that devices run, on the same record.
#pragma once

#include <exception>

#include "kernels/launches.h"
#include "step/memory.h"

namespace zero {

/// The record as the optimizer has it by now, of which `before` was the latest.
StepState state_of(const Optimizer& optim, const StepState& before);
/// The optimizer as the record of a step tells, that was made, skipped or refused.
void adopt(Optimizer& optim, const StepState& state);

/// Decide on the host by the ranks' records, or without any where `by` has no p and is no
/// beginning.
void decide(const Optimizer& optim, StepMemory& memory, launch::Decide by);
/// A step was made or skipped.
void advance(Optimizer& optim, StepMemory& memory);
/// Every parameter with a gradient has made one more update.
void count_updates(Optimizer& optim, const StepMemory& memory);

/// Memory that runs out ends a step by an exception: its result says so.
class ExceptionTold {
 public:
  explicit ExceptionTold(Optimizer& optim)
      : optim_(optim), exceptions_(std::uncaught_exceptions()) {}
  ~ExceptionTold() {
    if (std::uncaught_exceptions() > exceptions_) optim_.outcome.status = ZERO_ERR_MEMORY;
  }
  ExceptionTold(const ExceptionTold&) = delete;
  ExceptionTold& operator=(const ExceptionTold&) = delete;

 private:
  Optimizer& optim_;
  const int exceptions_;
};

}  // namespace zero

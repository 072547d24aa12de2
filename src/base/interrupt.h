// SPDX-License-Identifier: Apache-2.0
// Asks the program whether to end a call that waits for other ranks or accesses a checkpoint, for
// example after Ctrl-C or a notebook's stop.
#pragma once

#include "zero.h"

namespace zero {

/// Sets the function that interrupted() calls, for the whole process. null removes it.
void set_interrupt(zero_interrupt_fn ask, void* ctx);

/// Returns true after the program has said that this thread's call must end. Asks the program at
/// most every 50 ms, after a first delay of 50 ms, and only on the main thread inside a call of the
/// program. Waits call this between two slices, without holding a lock.
bool interrupted();

/// A call of the program, for the lifetime of this object. A nested call from a callback is a part
/// of the outer call.
class InterruptibleCall {
 public:
  InterruptibleCall();
  ~InterruptibleCall();
  InterruptibleCall(const InterruptibleCall&) = delete;
  InterruptibleCall& operator=(const InterruptibleCall&) = delete;

  /// Returns whether a wait of this call was interrupted, and clears the interrupt. An interrupt
  /// that no call clears ends the next wait of this thread.
  bool heeds() const;
};

}  // namespace zero

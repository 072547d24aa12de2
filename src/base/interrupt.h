// SPDX-License-Identifier: Apache-2.0
// Asks the program whether a call that waits for other ranks, or reads or writes a checkpoint, is
// to end: Ctrl-C, a notebook's stop.
#pragma once

#include "zero.h"

namespace zero {

/// Sets whom interrupted() asks, for the whole process; null for nobody.
void set_interrupt(zero_interrupt_fn ask, void* ctx);

/// True once the program has said that this thread's call is to end. Asks at most every 50 ms, not
/// at once, and only on the process's main thread inside a call of the program's. To be called by
/// whoever waits, between two slices, without a lock.
bool interrupted();

/// A call of the program's, for as long as it lives. A call inside it, from a callback, is a part
/// of it.
class InterruptibleCall {
 public:
  InterruptibleCall();
  ~InterruptibleCall();
  InterruptibleCall(const InterruptibleCall&) = delete;
  InterruptibleCall& operator=(const InterruptibleCall&) = delete;

  /// Says whether a wait of this call was told to end, and forgets it. What no call heeds ends the
  /// next wait of this thread.
  bool heeds() const;
};

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Calls whose stream is captured: what they queue is done by each launch of a graph, later and
// without the host.
#pragma once

#include "step/queued/queue.h"

namespace zero::queued {

/// What must be known before a call is part of `capture`, or is made outside of the capture in
/// which its sums are: this rank's reason to refuse it. Steps so far have been made then.
Status check_capture(Optimizer& optim, uint64_t capture);

/// The turn of a call, which may be captured. Then it walks with a frame of its own, which stays if
/// anything was queued, and from now on each parameter has a class of its own: which of them have
/// made the same steps depends on launches, of which the host knows nothing.
class CapturedCall {
 public:
  CapturedCall(Optimizer& optim, uint64_t capture);
  ~CapturedCall();
  CapturedCall(const CapturedCall&) = delete;
  CapturedCall& operator=(const CapturedCall&) = delete;

 private:
  void exchange();

  Optimizer& optim_;
  StepMemory& memory_;
  const bool captured_;
  Frame other_;  // that of the calls that are not captured
  const Counters counters_;
};

/// All streams of a captured call take part in the capture, from here ...
Status fork(const Optimizer& optim, Queue& queue, StreamHandle stream);
/// ... to here.
Status join(Queue& queue, StreamHandle stream);

}  // namespace zero::queued

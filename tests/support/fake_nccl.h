// SPDX-License-Identifier: Apache-2.0
// A library with NCCL's function names, for ranks that are threads, on streams of chaos devices.
// Knobs that the test and the library share select its faults.
#pragma once

#include <atomic>
#include <cstdint>

namespace zero::test {

struct FakeNcclKnobs {
  std::atomic<int> version{22703};
  std::atomic<int> busy_polls{1};  // before a call has been accepted; negative: never
  // If not 0, a thread accepts each operation after this time, and queues it only then.
  std::atomic<int> takes_us{0};
  int (*current_device)() = nullptr;  // of the calling thread; -1: none

  // This call (from 0) of this rank (-1: any) fails at once.
  std::atomic<int64_t> failing_call{-1};
  std::atomic<int> failing_outcome{3};
  // From this call of this rank on, its communicators report an error.
  std::atomic<int64_t> broken_from_call{-1};
  std::atomic<int> broken_outcome{2};
  std::atomic<int> rank{-1};
  std::atomic<int> broken_now{0};  // the error that the rank's communicators report, if not 0

  std::atomic<int> stuck_rank{-1};       // its part of a collective ends only by an abort
  std::atomic<bool> abort_hangs{false};  // aborts hang until this is false again
  std::atomic<bool> finalize_fails{false};
  std::atomic<bool> allows_blocking{false};  // new groups may block, as an engine's do

  std::atomic<bool> has_windows{true};     // on these GPUs
  std::atomic<bool> keeps_windows{false};  // never closes one

  // Counts of what happened.
  std::atomic<int64_t> calls{0};  // the base of failing_call and broken_from_call
  std::atomic<int64_t> living{0};
  std::atomic<int> blocked{0};  // calls that are waiting inside
  std::atomic<int64_t> aborted{0}, destroyed{0};
  std::atomic<int64_t> met{0};        // transfers of a rank on two communicators that could overlap
  std::atomic<int64_t> launches{0};   // of a transfer, or of a group of them
  std::atomic<int64_t> to_owners{0};  // sums of parts with different sizes
  std::atomic<int64_t> windows{0};    // open windows
  // Transfers of a rank in windows: reductions, gathers by kernels, and gathers by copy engines.
  std::atomic<int64_t> reduced_in_windows{0}, gathered_in_windows{0}, gathered_by_engines{0};
  std::atomic<int> reduce_ctas{0};  // of the latest new group
  // Counts calls on a communicator that is busy or has ended, or without its device current; memory
  // in two windows, or at unequal offsets of one window on several ranks; and windows that were
  // still open when their communicator ended.
  std::atomic<int64_t> misused{0};
};

}  // namespace zero::test

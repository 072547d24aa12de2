// SPDX-License-Identifier: Apache-2.0
// A library with NCCL's names, for ranks that are threads, on streams of chaos devices. What it
// does wrong is set by knobs that the test and the library share.
#pragma once

#include <atomic>
#include <cstdint>

namespace zero::test {

struct FakeNcclKnobs {
  std::atomic<int> version{22703};
  std::atomic<int> busy_polls{1};  // until a call is taken in; negative: never
  // If not 0: a thread takes in what was begun, so long after that, and only then it is queued.
  std::atomic<int> takes_us{0};
  int (*current_device)() = nullptr;  // of the calling thread; -1: none

  // The call of that number, from 0, of that rank (-1: any) fails at once.
  std::atomic<int64_t> failing_call{-1};
  std::atomic<int> failing_outcome{3};
  // From that call of that rank on its communicators tell of an error.
  std::atomic<int64_t> broken_from_call{-1};
  std::atomic<int> broken_outcome{2};
  std::atomic<int> rank{-1};
  std::atomic<int> broken_now{0};  // what that rank's communicators tell of, if not 0

  std::atomic<int> stuck_rank{-1};       // its part of a collective never ends, unless aborted
  std::atomic<bool> abort_hangs{false};  // until this is false again
  std::atomic<bool> finalize_fails{false};
  std::atomic<bool> allows_blocking{false};  // new groups, which are the test's own

  std::atomic<bool> has_windows{true};     // on these GPUs
  std::atomic<bool> keeps_windows{false};  // gives none back

  // What happened.
  std::atomic<int64_t> calls{0};  // since failing_call and broken_from_call count
  std::atomic<int64_t> living{0};
  std::atomic<int> blocked{0};  // calls that are waiting inside
  std::atomic<int64_t> aborted{0}, destroyed{0};
  std::atomic<int64_t> met{0};  // transfers of a rank on two communicators that could run at once
  std::atomic<int64_t> launches{0};   // of a transfer, or of a group of them
  std::atomic<int64_t> to_owners{0};  // sums of parts of their own sizes
  std::atomic<int64_t> windows{0};    // that are open
  // Transfers of a rank in windows: reductions, gathers by kernels, and by copy engines.
  std::atomic<int64_t> reduced_in_windows{0}, gathered_in_windows{0}, gathered_by_engines{0};
  std::atomic<int> reduce_ctas{0};  // of the latest new group
  // Calls on a communicator that was busy or had ended, or where its device was not current; memory
  // in two windows, or in one at different places of ranks; windows that were left to a
  // communicator's end.
  std::atomic<int64_t> misused{0};
};

}  // namespace zero::test

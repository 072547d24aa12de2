// SPDX-License-Identifier: Apache-2.0
// The gates of a local comm on devices: words in shared memory that the ranks' streams write and
// wait for, and a thread that opens the gates permanently when the comm breaks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/worker_thread.h"
#include "comm/comm.h"
#include "comm/local/control.h"
#include "comm/local/segment.h"
#include "comm/watch.h"

namespace zero::local {

/// Returns a name for error messages.
const char* name_of(Gate gate);

/// At each gate a rank writes a word to every other rank, waits for a word from each of them, and
/// clears those words. Writing a word again is safe because another gate lies in between. The
/// writer has passed that gate, so the receiver has cleared the word before. Words contain no
/// counter, so a graph can pass gates repeatedly. Streams of one rank pass gates one after another.
class LocalGates final : public Gates {
 public:
  static constexpr int32_t kMostRanks = 64;
  static size_t bytes_of(int32_t world);

  /// `words` is bytes_of(world) zeroed bytes of host memory that all ranks share. `control` must
  /// outlive this object. Tests whether the device's streams can wait for words, and fails with
  /// ZERO_ERR_UNSUPPORTED if they cannot.
  static Result<std::unique_ptr<LocalGates>> open(std::shared_ptr<Device> device, Control& control,
                                                  std::shared_ptr<Mapping> words,
                                                  int64_t timeout_ms);
  ~LocalGates() override;

  Status pass(Gate gate, StreamHandle stream, const char* rule) override;
  const uint32_t* broken() const override { return broken_word(); }

 private:
  LocalGates(std::shared_ptr<Device> device, Control& control, std::shared_ptr<Mapping> words,
             int64_t timeout_ms)
      : device_(std::move(device)),
        control_(control),
        words_(std::move(words)),
        timeout_ms_(timeout_ms) {}

  size_t world() const { return static_cast<size_t>(control_.world()); }
  size_t rank() const { return static_cast<size_t>(control_.rank()); }
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(words_->data()); }
  /// Returns the word that rank `from` writes for rank `to`.
  uint32_t* told(size_t gate, size_t to, size_t from) const {
    return words() + (gate * world() + to) * world() + from;
  }
  /// Returns the word that shows where this rank's stream waits. It is 0 if the stream waits at no
  /// gate. Otherwise its low bits are 1 + the gate, and its high bits are a number that is unique
  /// to the wait. Launches of one graph repeat the same number.
  uint32_t* waits_word() const { return words() + kGates * world() * world() + rank(); }
  /// Returns the word that becomes nonzero when a stream of this rank passes a gate. The watch
  /// resets it. The watch needs it because the waits of launches of one graph look alike.
  uint32_t* passed_word() const { return words() + (kGates * world() + 2) * world() + rank(); }
  uint32_t* broken_word() const { return words() + (kGates * world() + 1) * world() + rank(); }

  Status try_out();
  Status await_trial(int64_t limit_ms);
  bool await_end();
  void abandon();
  void abort_without_memory();
  void watch();
  Status look();
  int32_t find_missing(size_t gate) const;
  void open_for_good();

  const std::shared_ptr<Device> device_;
  Control& control_;
  const std::shared_ptr<Mapping> words_;
  const int64_t timeout_ms_;
  OpenedHost opened_;
  Event passed_;  // recorded after the last gate; the next gate on any stream waits for it
  bool any_passed_ = false;
  uint32_t passes_ = 0;

  // Used by the watch thread: what it saw last, and since when.
  uint32_t wait_ = 0;
  int32_t missing_ = -1;
  std::optional<Watch> watch_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  WorkerThread thread_;
};

// ---- If streams of different ranks cannot wait for each other, the host does so. Between two
// launches of a step it waits for its own stream, and then for the other ranks.

/// Used inside a call that all ranks of the comm are in. Its meetings are ordinary exchanges. After
/// a meeting, everything that later queued work needs is complete.
class HostMeeting final : public Gates {
 public:
  /// `what` names the meetings in messages, and `waits` counts them. The references must outlive
  /// this.
  static Result<std::unique_ptr<HostMeeting>> open(const char* what, std::shared_ptr<Device> device,
                                                   Control& control, int64_t timeout_ms,
                                                   std::atomic<int64_t>& waits);

  /// Returns after every rank's stream has finished the work queued before this call. `phase` is a
  /// word for error messages. `rule` has the same meaning as in Device::wait.
  Status meet(StreamHandle stream, const char* phase, const char* rule);
  Status pass(Gate gate, StreamHandle stream, const char* rule) override {
    return meet(stream, name_of(gate), rule);
  }
  const uint32_t* broken() const override { return nullptr; }

 private:
  HostMeeting(const char* what, std::shared_ptr<Device> device, Control& control,
              int64_t timeout_ms, std::atomic<int64_t>& waits)
      : what_(what),
        device_(std::move(device)),
        control_(control),
        timeout_ms_(timeout_ms),
        waits_(waits) {}
  Status look(const Patience& where);

  const char* const what_;
  const std::shared_ptr<Device> device_;
  Control& control_;
  const int64_t timeout_ms_;
  std::atomic<int64_t>& waits_;
  Stream behind_;  // follows the caller's stream, so that waits are between streams
  Event held_, done_;
  int64_t looked_ns_ = 0;
};

}  // namespace zero::local

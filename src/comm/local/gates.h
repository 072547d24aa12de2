// SPDX-License-Identifier: Apache-2.0
// The gates of a local comm on devices: words of shared memory that the ranks' streams write and
// wait for, and a thread that opens them for good when the comm breaks.
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

/// Returns a word for errors.
const char* name_of(Gate gate);

/// At each gate a rank writes a word to every other rank, waits for a word from each, and clears
/// those for the next time. A word can be written again without harm, because another gate lies
/// between: the rank that writes has passed that gate, so this rank had cleared the word before.
/// Words hold no count, so a graph can pass gates again and again. Streams of one rank pass them
/// one behind the other.
class LocalGates final : public Gates {
 public:
  static constexpr int32_t kMostRanks = 64;
  static size_t bytes_of(int32_t world);

  /// `words`: bytes_of(world) zeroed bytes of the host's memory that all ranks share. `control`
  /// must outlive this. Tries out whether the device's streams can wait for words, and fails with
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
  /// Returns the word that `from` writes to `to`.
  uint32_t* told(size_t gate, size_t to, size_t from) const {
    return words() + (gate * world() + to) * world() + from;
  }
  /// This rank's: 0 while its stream waits at no gate; else 1 + the gate, and in the bits above a
  /// number that no other wait of a call has. Waits of one graph's launches share it.
  uint32_t* waits_word() const { return words() + kGates * world() * world() + rank(); }
  /// Returns the word that is not 0 once a stream of this rank has passed a gate since the watch
  /// looked last. The watch needs it because waits of one graph's launches look alike.
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
  Event passed_;  // behind the last gate: the next one, of whatever stream, begins there
  bool any_passed_ = false;
  uint32_t passes_ = 0;

  // For the thread that looks: what it saw last, and since when.
  uint32_t wait_ = 0;
  int32_t missing_ = -1;
  std::optional<Watch> watch_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  WorkerThread thread_;
};

// ---- If streams of several ranks cannot wait for each other, the host does it for them: between
// two launches of a step it waits for its own stream, and then for the other ranks.

/// Used inside a call that all ranks of the comm are in. Its meetings are exchanges like any other.
/// Work that is queued behind a meeting has all that it needs.
class HostMeeting final : public Gates {
 public:
  /// `what`: a name of the meetings, for errors. `waits` counts them. `control` and `waits` must
  /// outlive this.
  static Result<std::unique_ptr<HostMeeting>> open(const char* what, std::shared_ptr<Device> device,
                                                   Control& control, int64_t timeout_ms,
                                                   std::atomic<int64_t>& waits);

  /// Returns when all that every rank's stream held before this is done. `phase`: a word for
  /// errors. `rule` as in Device::wait.
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
  Stream behind_;  // the caller's stream: so the host's wait is one between streams, like any other
  Event held_, done_;
  int64_t looked_ns_ = 0;
};

}  // namespace zero::local

// SPDX-License-Identifier: Apache-2.0
// The comm of ranks on different hosts, which are connected as a tree. Data from all ranks goes up,
// combined or concatenated, and the outcome goes down. Rank 0 decides how an exchange ends. A rank
// that finds a reason to break the comm sends it up, and rank 0's decision comes down. A rank whose
// connection ends counts as dead, unless it has sent a goodbye.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "comm/link.h"
#include "comm/tcp/tree.h"

namespace zero::tcp {

/// A rank that other ranks wait for in an exchange.
struct Awaited {
  uint64_t sequence = 0;
  int32_t rank = 0;
  std::string name;
  int64_t quiet_since_ns = 0;
  int64_t until_ns = 0;  // the entry expires then unless it is repeated
};

/// The other end of a connection.
struct Peer {
  int32_t place = 0;
  int32_t rank = 0;  // its number in error messages
  std::string name;  // "rank 2 (process 1234 on host-b)"
  std::unique_ptr<Link> link;
  std::optional<Frame> record = {};     // from a child, for the next exchange
  std::optional<Awaited> awaited = {};  // the rank for which it last said that it waits
  int64_t sign_ns = 0;                  // when its last frame arrived
  bool left = false;                    // it has sent a goodbye
};

/// The connections of a rank.
struct Neighbours {
  int32_t rank = 0;         // the number of this rank in error messages
  std::vector<Peer> peers;  // the parent, except at the root, and then the children by place
  int32_t fan_out = Tree::kFanOut;
};

/// The most bytes of one rank's record, and of a part of a broadcast.
inline constexpr size_t kPartBytes = 256u << 10;

/// A comm of ranks that are only connected, with which they can choose a faster comm. It is also
/// the control plane of comms that transfer data in another way. rank() is the place in the tree.
class TcpComm : public Comm {
 public:
  TcpComm(int32_t place, int32_t world, const CommOptions& options, std::shared_ptr<Device> device,
          Neighbours neighbours)
      : Comm(place, world, options, std::move(device)),
        tree_{place, world, neighbours.fan_out},
        called_(neighbours.rank),
        peers_(std::move(neighbours.peers)) {}
  ~TcpComm() override;

  const char* kind() const override { return "tcp"; }
  bool direct() const override { return false; }

  /// First reads all received frames.
  Status check() override;
  Failure failure() const override;
  void abort(const Failure& cause) override;

  bool combines() const override { return true; }
  Status combine_bytes(std::span<std::byte> data, const Combine& combine,
                       const Patience& patience) override;
  Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                        const Patience& patience) override;
  Status broadcast_bytes(std::span<std::byte> data, int32_t root,
                         const Patience& patience) override;
  void note_progress() override;

  /// Tells the neighbours that may wait for this rank that it is alive but waits for the given
  /// rank, which need not be in this tree. Any thread may call it, as often as it likes.
  void tell_waiting(int32_t rank, std::string_view name, int64_t quiet_since_ns);
  /// Breaks the comm if a neighbour has sent nothing for too long. For waits on other events,
  /// during which all ranks note progress. `absent_ns` is the result of the last look() of `watch`.
  void expect_signs(const Watch& watch, int64_t absent_ns);

 protected:
  Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                           int32_t place, int32_t color) override;
  int32_t called() const override { return called_; }
  /// Returns the progress that failures report.
  virtual const StepsSoFar& steps_so_far() const { return steps; }

 private:
  class Wait;

  /// The data of one round of an exchange.
  struct Round {
    static constexpr int32_t kOfAll = -1;
    std::span<const std::byte> mine;
    std::span<std::byte> out;
    int32_t source = kOfAll;           // the only rank that sends
    const Combine* combine = nullptr;  // combines the data; if null, the data is concatenated
  };
  Status run(const Round& round, const Patience& patience);
  bool risen() const { return risen_ == sequence_; }
  bool decided() const { return records_.has_value() || answered_ == sequence_; }
  bool rise(const Round& round);
  bool pass_down(const Round& round);
  size_t bytes_from(const Round& round, int32_t child) const;
  std::vector<std::byte> in_order(std::span<const std::byte> rows) const;
  bool unsent() const;
  void sleep(std::unique_lock<std::mutex>& lock, int milliseconds);

  Peer& parent() { return peers_.front(); }
  bool is_parent(const Peer& peer) const { return !tree_.is_root() && &peer == &peers_.front(); }
  std::span<Peer> children() { return std::span(peers_).subspan(tree_.is_root() ? 0 : 1); }

  void pump();
  void send(Peer& peer, FrameKind kind, std::span<const std::byte> payload);
  void handle(Peer& peer, Frame frame);
  void hear_cause(const Peer& peer, const Frame& frame);
  void hear_waiting(Peer& peer, const Frame& frame);
  Awaited awaited_of(const Peer& peer, int64_t now_ns) const;
  void forgive(int64_t absent_ns);
  int64_t interval_ns() const;
  bool is_due(int64_t& told_ns) const;
  static void send_waiting(Peer& peer, const Awaited& awaited, int64_t interval_ns);

  void set_cause(const Failure& cause, const Peer* told_by = nullptr);
  void propose(const Failure& cause, uint64_t sequence = 0, int64_t grace_ms = kGraceMs);
  void break_for(const Peer& peer, const Failure& failure);
  void blame(const Peer& peer, Code code, std::string_view sentence);
  Failure make_failure(Code code, int32_t rank, std::string_view sentence) const;

  static constexpr int64_t kGraceMs = 200;  // for a parent's report, and for rank 0's answer

  const Tree tree_;
  const int32_t called_;
  std::mutex mutex_;  // guards all fields below
  std::vector<Peer> peers_;
  uint64_t sequence_ = 0;  // of the last exchange begun
  uint64_t risen_ = 0;     // the last for which this rank has sent up all data from below
  int64_t risen_ns_ = 0;   // when it did so
  uint64_t answered_ = 0;  // the last exchange for which this rank has sent the outcome down
  std::string where_;      // "zero_step: vote"
  std::vector<std::byte> together_;  // what was sent up, if it need not come down again
  std::optional<Frame> records_;     // the outcome
  int64_t told_ns_ = 0;              // when this rank last reported progress
  int64_t told_waiting_ns_ = 0;      // when this rank last reported for whom it waits
  bool news_ = false;                // the next report is due earlier

  // The cause that this rank has sent up, and the time until which it waits for an answer.
  std::optional<Failure> proposed_;
  Deadline alone_{0};
  uint64_t void_at_ = 0;  // exchange whose completion makes the cause void, or 0
};

}  // namespace zero::tcp

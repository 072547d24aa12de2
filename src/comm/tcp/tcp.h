// SPDX-License-Identifier: Apache-2.0
// Ranks between hosts: every rank has one connection to rank 0, which combines or gathers what all
// send, and sends the outcome to all. Rank 0 decides how an exchange ends and tells the others. A
// rank whose connection ends counts as dead, unless it has said goodbye.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/link.h"

namespace zero::tcp {

/// The other end of a connection.
struct Peer {
  int32_t rank = 0;
  std::string name;  // "rank 2 (process 1234 on host-b)"
  std::unique_ptr<Link> link;
  std::optional<Frame> record = {};  // of the exchange that comes, on rank 0
  int64_t sign_ns = 0;               // when it last showed progress
  bool left = false;                 // it has said goodbye
};

/// The most bytes of one rank's record, and of a part of a broadcast.
inline constexpr size_t kPartBytes = 256u << 10;

/// A comm of ranks that are only connected, so that they can find out which comm serves them. It is
/// also the control plane of a comm that has other ways for its data.
class TcpComm : public Comm {
 public:
  /// `peers`: on rank 0 every other rank in order, on another rank only rank 0.
  TcpComm(int32_t rank, int32_t world, const CommOptions& options, std::shared_ptr<Device> device,
          std::vector<Peer> peers)
      : Comm(rank, world, options, std::move(device)), peers_(std::move(peers)) {}
  ~TcpComm() override;

  const char* kind() const override { return "tcp"; }
  bool direct() const override { return false; }

  /// Reads first whatever has come.
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

 protected:
  Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                           int32_t place, int32_t color) override;

 private:
  class Wait;

  /// What one round brings to all ranks but a single source.
  struct Round {
    static constexpr int32_t kOfAll = -1;
    std::span<const std::byte> mine;
    std::span<std::byte> out;
    int32_t source = kOfAll;           // the only rank that sends
    const Combine* combine = nullptr;  // of what all send; null: one behind the other
  };
  Status run(const Round& round, const Patience& patience);
  bool decided() const;
  /// Returns any other rank on rank 0, and rank 0 elsewhere.
  const Peer& peer(int32_t rank) const {
    return peers_[rank == 0 ? 0 : static_cast<size_t>(rank) - 1];
  }
  bool advance(const Round& round);
  bool collect(const Round& round);
  bool take_records(std::span<std::byte> out);
  void sleep(std::unique_lock<std::mutex>& lock, int milliseconds);

  void pump();
  void handle(Peer& peer, Frame frame);
  void handle_waiting(const Frame& frame);
  void set_cause(const Failure& cause, int32_t told_by);
  void break_for(Code code, int32_t rank, std::string_view sentence);
  Failure make_failure(Code code, int32_t rank, std::string_view sentence) const;

  std::mutex mutex_;  // all below
  std::vector<Peer> peers_;
  uint64_t sequence_ = 0;  // of the last exchange begun
  uint64_t answered_ = 0;  // the last that rank 0 has sent to all
  std::string where_;      // "zero_step: vote"
  std::optional<Frame> records_;
  int64_t told_ns_ = 0;  // when this rank last told of its progress

  /// Rank 0's words about the rank that it waits for.
  struct Waiting {
    int32_t rank, unused;
    int64_t quiet_ms;
    char name[128];
  };
  // The rank that rank 0 waits for in exchange `sequence_`, as it last said.
  struct Awaited {
    int32_t rank;
    std::string name;
    int64_t quiet_since_ns;
  };
  std::optional<Awaited> awaited_;
};

}  // namespace zero::tcp

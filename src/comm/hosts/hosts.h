// SPDX-License-Identifier: Apache-2.0
// The comm of ranks on several hosts, with the same number of ranks on each. Control messages are
// combined on each host (comm/local), and then between the leaders of the hosts (comm/tcp).
// Gradients are summed on each host. Every rank then exchanges its part of the sums with its
// fellows, which are the ranks of the same place on the other hosts. So each byte is sent between
// hosts once.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/comm.h"
#include "comm/hosts/layout.h"
#include "comm/hosts/messages.h"
#include "comm/local/local.h"
#include "comm/tcp/tcp.h"

namespace zero::hosts {

/// An arena in which the ranks of a host access each other's parts.
class HostArena final : public Arena {
 public:
  HostArena(std::shared_ptr<Comm> comm, uint32_t number, std::shared_ptr<local::LocalArena> inner)
      : Arena(std::move(comm), number, inner->data(), inner->bytes(), inner->kind()),
        inner_(std::move(inner)) {}
  bool one_copy() const override { return inner_->one_copy(); }
  std::byte* data_of(int32_t place) const { return inner_->data_of(place); }

 private:
  const std::shared_ptr<local::LocalArena> inner_;
};

class HostsComm final : public Comm {
 public:
  /// `leaders` is used on place 0 of a host, and holds the connections to the other leaders.
  /// `words` is the text of this host for form().
  HostsComm(int32_t rank, const CommOptions& options, Layout layout,
            std::shared_ptr<local::LocalComm> host, tcp::Neighbours leaders, std::string words,
            std::unique_ptr<Messages> messages);
  ~HostsComm() override;

  const char* kind() const override { return messages_->kind(); }
  bool direct() const override { return false; }
  Status check_caller() override { return messages_->check_caller(); }

  bool aborted() const override;
  Failure failure() const override;
  void abort(const Failure& cause) override;
  Status check() override;
  void heed_interrupt(std::string_view where) override;

  Status all_gather(Call& call, std::span<const Gathered> all) override;
  Status reduce_scatter(Call& call, std::span<const Scattered> all, void* scratch) override;
  bool carries_padding() const override { return false; }

 protected:
  bool combines() const override { return true; }
  Status combine_bytes(std::span<std::byte> data, const Combine& combine,
                       const Patience& patience) override;
  Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                        const Patience& patience) override;
  Status broadcast_bytes(std::span<std::byte> data, int32_t root,
                         const Patience& patience) override;
  void note_progress() override;
  Status gather_some(Call& call, const Ranks& among, std::span<const Gathered> all,
                     std::span<std::byte> scratch) override;
  Result<std::shared_ptr<Arena>> allocate(Call& call, uint32_t number, size_t bytes, int32_t kind,
                                          Side side) override;
  Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                           int32_t place, int32_t color) override;

 private:
  class Links;
  struct Room;
  struct Trade;

  Status told(Status done);
  template <class Between>
  Status decide(std::span<std::byte> outcome, const Patience& patience, const Between& between);
  void look_from_host(std::span<const Missing> missing);
  void look_from_links();
  void tell() const;

  Status sum_together(const Patience& patience, std::span<const Scattered> all);
  Status gather(Call& call, const Ranks& among, std::span<const Gathered> all);
  Status gather_together(const Patience& patience, const Ranks& among,
                         std::span<const Gathered> all);
  Patience data_patience(const Call& call, const char* phase) const;
  Result<std::vector<std::byte*>> show(const Patience& patience,
                                       std::span<const std::span<const std::byte>> own);
  Status begin_messages(const Trade& trade, Room& room, bool come);
  Status await_part(Room& room, const Patience& patience);
  template <class Pack, class Unpack>
  Status trade_parts(const Trade& trade, const Patience& patience, const Pack& pack,
                     const Unpack& unpack);
  Status break_for(Code code, int32_t culprit, const Patience& patience, std::string_view sentence);
  Status broken(const Patience& patience, const Status& why);

  const Layout layout_;
  const Layout::Seat seat_;
  const std::shared_ptr<local::LocalComm> host_;
  const std::shared_ptr<tcp::TcpComm> links_;  // only on a leader
  const std::string words_;
  const std::unique_ptr<Messages> messages_;
  std::atomic<bool> undecided_{false};  // other hosts may know the outcome of this exchange
  std::vector<std::pair<Ranks, bool>> parts_evenly_;  // results for the few subsets that are used
  std::vector<Room> rooms_;
};

}  // namespace zero::hosts

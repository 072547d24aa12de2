// SPDX-License-Identifier: Apache-2.0
// Threads of one process that act as ranks on several hosts. Control messages travel as between
// hosts, through shared memory and connections. Data is copied from thread to thread.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "api/handles.h"
#include "comm/create.h"
#include "comm/hosts/form.h"

namespace bench {

class ThreadHosts {
 public:
  ThreadHosts(int world, int hosts)
      : hosts_(hosts), seats_(size_t(world)), boxes_(size_t(world)), all_here_(world) {
    for (Seat& seat : seats_) seat = {this, static_cast<int32_t>(&seat - seats_.data())};
  }

  /// Returns the handle of `rank`. Collective. Ranks meet in memory, because a process does not
  /// have enough descriptors for both ends of the connections between all ranks.
  zero::Result<zero_comm*> join(int rank) {
    const auto world = static_cast<int32_t>(seats_.size());
    zero::UserFunctions functions;
    functions.exchange = exchange;
    functions.all_gather = [](void* seat, const void* send, void* recv, size_t bytes, void*) {
      return exchange(seat, send, recv, bytes);
    };
    functions.all_to_all = [](void*, const void*, void*, size_t, void*) {
      return zero::Code{ZERO_ERR_UNSUPPORTED};
    };
    const std::shared_ptr<zero::Comm> first =
        ZERO_TRY(zero::create_user(functions, &seats_[static_cast<size_t>(rank)], rank, world, {}));
    std::vector<int32_t> all(seats_.size());
    std::iota(all.begin(), all.end(), 0);
    zero::Call call = ZERO_TRY(first->begin(zero::Operation::create));
    const std::string host = "host " + std::to_string(rank / (world / hosts_));
    return zero::api::add_handle(
        ZERO_TRY(call.vote("ready", zero::hosts::form(call, all, rank, {}, host, [&] {
                             return zero::Result<std::unique_ptr<zero::hosts::Messages>>(
                                 std::make_unique<Messages>(*this, rank));
                           }))));
  }

 private:
  struct Seat {
    ThreadHosts* of;
    int32_t rank;
  };

  static zero::Code exchange(void* ctx, const void* send, void* recv, size_t bytes) {
    const auto& [of, rank] = *static_cast<const Seat*>(ctx);
    if (rank == 0) of->board_.resize(bytes * of->seats_.size());
    of->all_here_.arrive_and_wait();
    memcpy(&of->board_[static_cast<size_t>(rank) * bytes], send, bytes);
    of->all_here_.arrive_and_wait();
    memcpy(recv, of->board_.data(), of->board_.size());
    of->all_here_.arrive_and_wait();
    return ZERO_OK;
  }

  /// The messages that have arrived at a rank, by sender.
  struct Box {
    std::mutex mutex;
    std::map<int32_t, std::deque<std::vector<std::byte>>> came;
  };

  class Messages final : public zero::hosts::Messages {
   public:
    Messages(ThreadHosts& of, int32_t rank) : of_(of), rank_(rank) {}
    const char* kind() const override { return "threads"; }
    zero::Result<Request> send(int32_t to, std::span<const std::byte> data) override {
      Box& box = of_.boxes_[static_cast<size_t>(to)];
      const std::lock_guard lock(box.mutex);
      box.came[rank_].emplace_back(data.begin(), data.end());
      return Request{0};
    }
    zero::Result<Request> receive(int32_t from, std::span<std::byte> data) override {
      waiting_[++requests_] = {from, data};
      return requests_;
    }
    /// Messages from one rank must be requested in their order.
    zero::Result<bool> has_ended(Request& request) override {
      if (request == 0) return true;
      const auto& [from, data] = waiting_[request];
      Box& box = of_.boxes_[static_cast<size_t>(rank_)];
      const std::lock_guard lock(box.mutex);
      auto& all = box.came[from];
      if (all.empty()) return false;
      std::copy(all.front().begin(), all.front().end(), data.begin());
      all.pop_front();
      waiting_.erase(request);
      return true;
    }
    zero::Result<std::unique_ptr<zero::hosts::Messages>> of_some(
        zero::Call&, std::span<const int32_t>) const override {
      return zero::Status(ZERO_ERR_UNSUPPORTED, "no splits");
    }

   private:
    ThreadHosts& of_;
    const int32_t rank_;
    Request requests_ = 0;
    std::map<Request, std::pair<int32_t, std::span<std::byte>>> waiting_;
  };

  const int hosts_;
  std::vector<Seat> seats_;
  std::vector<std::byte> board_;  // for an exchange
  std::vector<Box> boxes_;
  std::barrier<> all_here_;
};

}  // namespace bench

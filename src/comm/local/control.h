// SPDX-License-Identifier: Apache-2.0
// The control segment as one rank sees it: exchanges that end the same way on every rank, the abort
// word, and the monitoring of the other ranks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "comm/local/layout.h"
#include "comm/local/life.h"
#include "comm/local/segment.h"

namespace zero::local {

/// Describes how the ranks of one host belong to a larger comm.
struct Part {
  std::vector<int32_t> ranks;  // in the larger comm, by local rank; empty if the same
  int32_t world = 0;           // size of the larger comm
  const StepsSoFar* steps = nullptr;
  std::function<void(std::span<const Missing>)> look;  // called between two slices of a wait
};

/// Combines the results of all hosts. The leader of each host calls it with the host's result.
using Between = std::function<Status(std::span<std::byte>)>;

class Control {
 public:
  /// `peers` contains the process of each rank. The mapping holds control_bytes(world).
  Control(std::shared_ptr<Mapping> mapping, int32_t rank, int32_t world,
          std::vector<std::shared_ptr<Peer>> peers);
  ~Control();

  /// For a host in a larger comm. After all ranks of the host have arrived, rank 0, the leader,
  /// calls between(data), which replaces data by the combination over all hosts. `rest` is the
  /// patience with that.
  struct Through {
    const Patience& rest;
    const Between& between;
  };

  /// Sets `data` on every rank to the combination of all ranks' `data`. Its size is the same on
  /// every rank, at most kRecordRoom. Every rank gets the same result.
  Status combine(std::span<std::byte> data, const Combine& combine, const Patience& patience,
                 const Through* through = nullptr);

  /// Submits this rank's record for the exchange after the next one, because this rank has nothing
  /// to do in between. The rank then joins both exchanges at once, and sleeps until the second has
  /// ended. Both exchanges must be combines.
  void come_ahead(std::span<const std::byte> data, const Combine& combine) {
    next_ = {data, combine};
  }

  /// Returns true if other hosts may know an outcome of the current exchange that this host does
  /// not.
  bool may_have_ended() const;

  /// Gathers every rank's `mine` into `all`; the size is the same on every rank. Every rank gets
  /// the same result. If `all` is empty, the call only waits.
  Status exchange(std::span<const std::byte> mine, std::span<std::byte> all,
                  const Patience& patience);

  /// Copies `data` of `root` to every rank through the segment.
  Status broadcast(std::span<std::byte> data, int32_t root, Patience first, const Patience& rest);

  /// Breaks the comm with `cause`. Any thread may call it.
  void abort(const Failure& cause);
  bool aborted() const { return header().abort.load(std::memory_order_seq_cst) != 0; }
  /// Returns the failure that the abort word names, or one with code ZERO_OK if there is none.
  Failure failure() const;
  Status failure_status() const;

  /// Returns the failure of the comm, for waits on other events. Breaks the comm if a rank has
  /// died.
  Status check(const Patience& where);

  /// Makes a failure of the wait `where`. An unnamed wait stands for the current exchange.
  Failure make_failure(Code code, int32_t rank, const Patience& where,
                       std::string_view sentence) const;

  /// Tells the other ranks that this rank failed at something that all ranks do after an exchange.
  /// This rank reports the reason in the next exchange.
  void withdraw() { slot(rank_).withdrew.store(sequence_, std::memory_order_release); }
  bool any_withdrew(std::span<const int32_t> ranks) const;

  /// Sets the progress that is reported in failures of this rank.
  void set_steps(const StepsSoFar* steps) { steps_ = steps; }
  /// Numbers ranks in error messages as in `part`.
  void be_part(Part part) { part_ = std::move(part); }

  void note_progress() { slot(rank_).progress.fetch_add(1, std::memory_order_relaxed); }

  int32_t rank() const { return rank_; }
  int32_t world() const { return world_; }
  /// Returns true if waits spin before they sleep, because each rank has a core.
  bool spins() const { return spin_ns_ != 0; }
  /// Returns a name such as "rank 2 (process 1234)".
  std::string name_of(int32_t rank) const;
  const Generation& generation() const { return header().generation; }

  /// Initializes a zeroed segment for `world` ranks.
  static void format(std::byte* segment, int32_t world, const Generation& generation);
  static Header& header_of(std::byte* segment) { return *reinterpret_cast<Header*>(segment); }
  static Slot& slot_of(std::byte* segment, int32_t rank) {
    return reinterpret_cast<Slot*>(segment + sizeof(Header))[rank];
  }

 private:
  class Wait;

  Header& header() const { return header_of(mapping_->data()); }
  Slot& slot(int32_t rank) const { return slot_of(mapping_->data(), rank); }

  std::byte* combined(uint64_t k) const { return node(nodes_of(world_) - 1).record[k % 2]; }
  Node& node(int32_t place) const { return reinterpret_cast<Node*>(&slot(world_))[place]; }

  /// What a wait in exchange k is for: its decision, for which all other ranks must arrive; the
  /// arrival of all ranks; its decision, which the leader makes; or the decision of exchange k + 1,
  /// which this rank has joined too.
  enum class For { decision, all, leader, next };

  Status meet(std::span<const std::byte> mine, const Combine* combine, const Patience& patience,
              const Through* through = nullptr);
  void come(uint64_t k, std::span<const std::byte> mine, const Combine* combine, bool concludes);
  bool climb(uint64_t k, size_t bytes, const Combine* combine);
  Status decide_through(uint64_t k, size_t bytes, const Patience& patience, const Through& through);
  std::optional<Status> look(uint64_t k, For what);
  Status conclude(uint64_t k, uint32_t aborted_by);
  Status await(uint64_t k, const Patience& patience, For what = For::decision);
  Status await_asleep(uint64_t k, const Patience& patience, For what);
  void give_up(uint64_t k, const Failure& cause);
  void doze(uint64_t k, int64_t nanoseconds, For what);
  Bell& bell_of(uint64_t k, For what) const;
  static void ring(Bell& bell);
  void ring(uint64_t k);
  void ring_all();

  void publish_cores();
  bool cores_for_all() const;
  void say_where(const char* operation, const char* phase);
  std::string where_is(int32_t rank) const;
  int32_t called(int32_t rank) const {
    return part_.ranks.empty() ? rank : part_.ranks[static_cast<size_t>(rank)];
  }
  const StepsSoFar& steps() const { return part_.steps != nullptr ? *part_.steps : *steps_; }
  std::string death_of(int32_t rank) const;
  int32_t find_dead(bool thoroughly) const;
  int32_t find_dead(bool thoroughly, size_t first, size_t count) const;
  int32_t find_left(uint64_t k) const;

  void fill_cause(const Failure& failure);
  void help_abort_word(uint32_t aborted_by);
  Status broken_by(uint32_t aborted_by);
  Status damaged();

  const std::shared_ptr<Mapping> mapping_;
  const int32_t rank_;
  const int32_t world_;
  const std::vector<std::shared_ptr<Peer>> peers_;
  const std::vector<const Peer*> others_;  // the other processes, each once
  int64_t spin_ns_ = 0;
  uint64_t sequence_ = 0;    // number of this rank's last exchange
  uint64_t came_ = 0;        // that exchange or the next, if this rank is ahead
  bool combined_ = false;    // true if that exchange was a combine
  uint64_t broadcasts_ = 0;  // number of parts so far
  struct Next {
    std::span<const std::byte> data;
    Combine combine;
  };
  std::optional<Next> next_;  // for the exchange after the next one
  const StepsSoFar* steps_ = &kNoSteps;
  Part part_;

  // Guards this rank's cause, which can change until the abort word or a decision refers to it.
  std::mutex cause_mutex_;
  bool cause_published_ = false;
};

}  // namespace zero::local

// SPDX-License-Identifier: Apache-2.0
// Exchange k ends by one compare-and-swap on the decision word, from (k-1, committed) to (k,
// committed) or (k, aborted). Ranks count their arrivals at the nodes of a tree. The last child to
// arrive combines its siblings' records and counts the node at its parent, so no rank waits on the
// way up. The last rank to reach the root tries to commit. A rank that detects a death, a deadline
// or an abort tries to abort. All ranks follow the decision word.
//
// Two record areas for each rank and each node are enough. Area k % 2 is reused for exchange k + 2,
// which begins after all ranks have arrived at k + 1. A rank arrives there after it has read the
// records of k, unless it is ahead. A rank that is ahead reads only the combined record, which is
// overwritten only after all ranks have arrived at k + 2.
#include "comm/local/control.h"

#include <linux/futex.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/container.h"
#include "base/text.h"
#include "base/thread_sanitizer.h"

namespace zero::local {
namespace {

constexpr int64_t kSpinNs = 30'000;
constexpr unsigned kSpinsPerClock = 32;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t* futex_word(std::atomic<uint32_t>& word) { return reinterpret_cast<uint32_t*>(&word); }

/// Returns the processes of `peers`, each once and without `self`.
std::vector<const Peer*> others_of(std::span<const std::shared_ptr<Peer>> peers, const Peer* self) {
  std::vector<const Peer*> others;
  for (const std::shared_ptr<Peer>& peer : peers)
    if (peer.get() != self) others.push_back(peer.get());
  std::ranges::sort(others);
  others.erase(std::unique(others.begin(), others.end()), others.end());
  return others;
}

}  // namespace

Control::Control(std::shared_ptr<Mapping> mapping, int32_t rank, int32_t world,
                 std::vector<std::shared_ptr<Peer>> peers)
    : mapping_(std::move(mapping)),
      rank_(rank),
      world_(world),
      peers_(std::move(peers)),
      others_(others_of(peers_, peers_[static_cast<size_t>(rank)].get())) {
  publish_cores();
  slot(rank_).state.store(kJoined, std::memory_order_release);
}

Control::~Control() {
  slot(rank_).state.store(kLeft, std::memory_order_release);
  header().left.fetch_add(1, std::memory_order_release);
  ring_all();
}

void Control::format(std::byte* segment, int32_t world, const Generation& generation) {
  Header& header = header_of(segment);
  header.magic = kControlMagic;
  header.world = world;
  header.generation = generation;
}

// ---- Exchange.

Status Control::combine(std::span<std::byte> data, const Combine& combine, const Patience& patience,
                        const Through* through) {
  ZERO_TRY(meet(data, &combine, patience, through));
  std::memcpy(data.data(), combined(sequence_), data.size());
  os().reached("exchange.read");
  return {};
}

Status Control::exchange(std::span<const std::byte> mine, std::span<std::byte> all,
                         const Patience& patience) {
  ZERO_TRY(meet(mine, nullptr, patience));
  for (int32_t r = 0; r < world_ && !all.empty(); ++r)
    std::memcpy(all.data() + static_cast<size_t>(r) * mine.size(), slot(r).record[sequence_ % 2],
                mine.size());
  os().reached("exchange.read");
  return {};
}

/// Publishes `mine`, and waits until all ranks have published theirs. Without `combine`, nodes get
/// no records.
Status Control::meet(std::span<const std::byte> mine, const Combine* combine,
                     const Patience& patience, const Through* through) {
  const std::optional<Next> next = std::exchange(next_, std::nullopt);
  if (mine.size() > kRecordRoom)
    return Status(ZERO_ERR_INTERNAL, text("a record of ", mine.size(), " bytes is too large"));
  // A rank that is ahead has already arrived, and the exchange may have committed before the comm
  // broke.
  const bool came = came_ > sequence_;
  if (!came && aborted()) return failure_status();
  const uint64_t k = ++sequence_;
  say_where(patience.operation, patience.phase);
  if (!came) come(k, mine, combine, through == nullptr);
  // Writing ahead is safe only if no rank still reads the individual records of k - 1.
  const bool ahead = next && combined_;
  if (ahead) come(k + 1, next->data, &next->combine, true);
  combined_ = combine != nullptr;
  if (through != nullptr)
    ZERO_TRY(decide_through(k, mine.size(), patience, *through));
  else
    ZERO_TRY(await(k, patience, ahead ? For::next : For::decision));
  os().reached("exchange.decided");
  if constexpr (kThreadSanitizer) {
    // The decision orders earlier stores through ranks in other processes, which the sanitizer does
    // not see. It sees the stores of each rank to its own node.
    for (int32_t i = 0; i < nodes_of(world_); ++i)
      (void)node(i).arrivals[k % 2].load(std::memory_order_acquire);
  }
  if (k == 1 && cores_for_all()) spin_ns_ = kSpinNs;
  return {};
}

/// Publishes `mine` in exchange k, and counts this rank as arrived. With `concludes`, the last rank
/// to arrive commits the exchange. Otherwise it wakes the leader.
void Control::come(uint64_t k, std::span<const std::byte> mine, const Combine* combine,
                   bool concludes) {
  Slot& own = slot(rank_);
  if (!mine.empty()) std::memcpy(own.record[k % 2], mine.data(), mine.size());
  os().reached("exchange.written");
  came_ = k;
  const bool last = climb(k, mine.size(), combine);
  if (last && concludes) (void)conclude(k, 0);
  if (last && !concludes) {
    header().came.store(k);
    ring(header().leader_bell);
  }
  own.arrived.store(k, std::memory_order_release);  // no rank needs anything more from this rank
  os().reached("exchange.arrived");
}

/// Waits until all ranks have arrived. Then the leader combines the result with those of other
/// hosts.
Status Control::decide_through(uint64_t k, size_t bytes, const Patience& patience,
                               const Through& through) {
  ZERO_TRY(await(k, patience, For::all));
  if (rank_ != 0) return await(k, through.rest, For::leader);
  header().out.store(k);
  // A rank that gives up from here on sees that other hosts may know another outcome.
  if (std::optional<Status> end = look(k, For::leader)) {
    header().out.store(0);
    return *std::move(end);
  }
  os().reached("exchange.out");
  ZERO_TRY(through.between({combined(k), bytes}));
  return conclude(k, 0);
}

bool Control::may_have_ended() const {
  const uint64_t out = header().out.load();
  const Decision standing = Decision::of(header().decision.load());
  return out > (standing.aborted_by == 0 ? standing.sequence : standing.sequence - 1);
}

/// Counts this rank at its node and, as long as it is the last to arrive, that node at its parent.
/// Returns true if all ranks have arrived.
bool Control::climb(uint64_t k, size_t bytes, const Combine* combine) {
  const auto record_of = [&](int32_t level_begin, int32_t child) {
    return level_begin < 0 ? slot(child).record[k % 2] : node(level_begin + child).record[k % 2];
  };
  int32_t children = world_, place = rank_;  // size of the level, and the index in it
  int32_t level_begin = -1, next_begin = 0;  // first nodes of this level and the next; -1 for ranks
  for (;;) {
    const int32_t parent = place / kFanOut, first = parent * kFanOut;
    const int32_t count = std::min(kFanOut, children - first);
    Node& above = node(next_begin + parent);
    const uint64_t before = above.arrivals[k % 2].fetch_add(1, std::memory_order_acq_rel);
    if (before + 1 != (k + 1) / 2 * static_cast<uint64_t>(count)) return false;
    if (combine != nullptr) {
      std::byte* const into = above.record[k % 2];
      std::memcpy(into, record_of(level_begin, first), bytes);
      for (int32_t child = first + 1; child < first + count; ++child)
        (*combine)(into, record_of(level_begin, child), bytes);
    }
    os().reached("exchange.combined");
    children = parents_of(children);
    if (children == 1) return true;
    place = parent;
    level_begin = next_begin;
    next_begin += children;
  }
}

Status Control::broadcast(std::span<std::byte> data, int32_t root, Patience first,
                          const Patience& rest) {
  Patience patience = first;
  size_t done = 0;
  do {
    const size_t part = std::min(data.size() - done, kBounceBytes / 2);
    std::byte* const bounce = header().bounce[broadcasts_++ % 2];  // halves alternate as records do
    if (rank_ == root && part > 0) std::memcpy(bounce, data.data() + done, part);
    ZERO_TRY(exchange({}, {}, patience));
    if (rank_ != root && part > 0 && data.data() != nullptr)
      std::memcpy(data.data() + done, bounce, part);
    done += part;
    patience = rest;
  } while (done < data.size());
  return {};
}

/// Returns the outcome of exchange k, or nothing if there is none yet. Returns OK too if the wait
/// is for the arrival of all ranks and they have arrived. Aborts the exchange if the comm is
/// broken.
std::optional<Status> Control::look(uint64_t k, For what) {
  // Sequentially consistent with the leader's store to header().out, which comes first.
  const Decision standing = Decision::of(header().decision.load(std::memory_order_seq_cst));
  if (standing.sequence > k) return Status();  // other ranks are further on, so k was committed
  if (standing.sequence == k) {
    if (standing.aborted_by == 0) return Status();
    return broken_by(standing.aborted_by);
  }
  if (const uint32_t word = header().abort.load(std::memory_order_acquire))
    return conclude(k, word);
  if (what == For::all && header().came.load(std::memory_order_acquire) >= k) return Status();
  return std::nullopt;
}

/// Decides exchange k unless it has been decided, and returns the decision.
Status Control::conclude(uint64_t k, uint32_t aborted_by) {
  uint64_t before = Decision{k - 1, 0}.word();
  const uint64_t after = Decision{k, aborted_by}.word();
  if (header().decision.compare_exchange_strong(before, after)) {
    os().reached("exchange.decided");
    aborted_by == 0 ? ring(k) : ring_all();
    return aborted_by == 0 ? Status() : broken_by(aborted_by);
  }
  const Decision standing = Decision::of(before);
  if (standing.sequence > k || (standing.sequence == k && standing.aborted_by == 0)) return {};
  // A rank that is ahead may arrive at k although another rank has aborted k - 1.
  if (standing.aborted_by != 0) return broken_by(standing.aborted_by);
  return damaged();
}

Status Control::await(uint64_t k, const Patience& patience, For what) {
  int64_t spin_end_ns = 0;
  for (unsigned spins = 0;; ++spins) {
    if (std::optional<Status> end = look(k, what)) return *std::move(end);
    if (spins % kSpinsPerClock == 0) {
      const int64_t now = now_ns();
      if (spin_end_ns == 0) spin_end_ns = now + spin_ns_;
      if (now >= spin_end_ns) break;
    }
    // Wait: spin_ns_ at most, then asleep.
    pause_cpu();
  }
  return await_asleep(k, patience, what);
}

/// Tries to abort exchange k with `cause`. look() then returns the decision.
void Control::give_up(uint64_t k, const Failure& cause) {
  const uint32_t me = static_cast<uint32_t>(rank_) + 1;
  uint64_t before = Decision{k - 1, 0}.word();
  bool decided_here;
  {
    const std::lock_guard lock(cause_mutex_);
    fill_cause(cause);
    os().reached("exchange.blamed");
    decided_here = header().decision.compare_exchange_strong(before, Decision{k, me}.word());
    if (decided_here) cause_published_ = true;
  }
  if (!decided_here) {
    if (Decision::of(before).sequence < k) (void)damaged();
    return;
  }
  os().reached("exchange.given_up");
  help_abort_word(me);
  ring_all();
}

/// Returns the bell for a wait. A leader that waits for arrivals has its own bell, so that other
/// ranks sleep on.
Bell& Control::bell_of(uint64_t k, For what) const {
  if (what == For::next) return header().ahead_bell[(k + 1) % 2];
  return what == For::all && rank_ == 0 ? header().leader_bell : header().bell;
}

void Control::doze(uint64_t k, int64_t nanoseconds, For what) {
  // The sleeper is counted before the last check, so a rank that decides or aborts after this check
  // sees the sleeper and rings. Both sides store and then load, so the operations must be
  // sequentially consistent.
  Bell& bell = bell_of(k, what);
  bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t rings = bell.rings.load(std::memory_order_seq_cst);
  const bool decided =
      Decision::of(header().decision.load(std::memory_order_seq_cst)).sequence >= k;
  const bool came = what == For::all && header().came.load(std::memory_order_seq_cst) >= k;
  if (!decided && !came && !aborted()) {
    const timespec timeout{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    // Wait: a slice: await_asleep() looks at deaths and the deadline.
    if (os().futex(futex_word(bell.rings), FUTEX_WAIT, rings, &timeout) != 0 && errno != EAGAIN &&
        errno != EINTR && errno != ETIMEDOUT)
      // Wait: the same slice.
      sleep_ms(1);
  }
  bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Control::ring(Bell& bell) {
  if (bell.sleepers.load(std::memory_order_seq_cst) == 0) return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  os().futex(futex_word(bell.rings), FUTEX_WAKE, INT_MAX, nullptr);
}

void Control::ring(uint64_t k) {
  ring(header().bell);
  ring(header().leader_bell);
  ring(header().ahead_bell[k % 2]);
}

void Control::ring_all() {
  ring(0);
  ring(1);
}

void Control::publish_cores() {
  uint64_t mask[8 * kCoreWords] = {};  // the kernel rejects a mask that is smaller than its own
  if (os().sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask)) < 0) return;
  for (size_t i = 0; i < kCoreWords; ++i)
    slot(rank_).cores[i].store(mask[i], std::memory_order_relaxed);
}

/// Returns true if the ranks may use at least as many cores as there are ranks, shared or pinned,
/// and if the CPU quota allows as many. Ranks spin only in this case.
bool Control::cores_for_all() const {
  int count = 0;
  for (size_t i = 0; i < kCoreWords; ++i) {
    uint64_t together = 0;
    for (int32_t r = 0; r < world_; ++r)
      together |= slot(r).cores[i].load(std::memory_order_relaxed);
    count += std::popcount(together);
  }
  return world_ <= std::min(count, granted_cores().value_or(count));
}

}  // namespace zero::local

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "base/os.h"
#include "base/refusals.h"
#include "state/collective.h"
#include "step/enter.h"
#include "step/memory.h"
#include "step/seal.h"

namespace zero {
namespace {

constexpr size_t kExchangeBytes = size_t{1} << 20;
constexpr size_t kMostParts = 4096;  // in a chunk of small tensors

Status check_owners(const Optimizer& optim, std::span<const int32_t> owners) {
  if (owners.empty()) return {};
  if (optim.options.partition != ZERO_PARTITION_MANUAL)
    return bad_argument(
        "owners were given, but the partition is not ZERO_PARTITION_MANUAL: pass NULL");
  if (owners.size() != optim.params.size())
    return bad_argument(owners.size(), " owners given for ", optim.params.size(),
                        " registered parameters");
  for (size_t i = 0; i < owners.size(); i++)
    ZERO_TRY(optim.check_owner(optim.params[i].name, owners[i]));
  return {};
}

Status check_all(const Optimizer& optim, std::span<const int32_t> owners) {
  ZERO_TRY(optim.check_params());
  ZERO_TRY(optim.check_open());
  ZERO_TRY(optim.check_loaded());
  return check_owners(optim, owners);
}

Entry entry_of(const Optimizer& optim, std::span<const int32_t> owners) {
  Entry entry{.local = check_all(optim, owners)};
  if (!entry.local.ok()) return entry;
  if (owners.empty()) entry.args = "owners by the rule\n";
  for (size_t i = 0; i < owners.size(); i++)
    entry.args += text("owner of parameter '", optim.params[i].name, "': ", owners[i], "\n");
  return entry;
}

/// Consecutive elements of one parameter that move from one owner to another, or stay.
struct Move {
  int32_t from, to;  // owners by place, which is the rank in the first instance, which sends
  Segment before, after;
};

/// Calls visit(move) for all elements of a parameter, in ascending order.
template <class Visit>
void for_each_move(const Plan& before, const Plan& after, int64_t param, const Visit& visit) {
  const std::vector<OwnedSegment> froms = before.segments_of(param), tos = after.segments_of(param);
  size_t from = 0, to = 0;
  while (from < froms.size() && to < tos.size()) {
    const Segment &a = froms[from].segment, &b = tos[to].segment;
    const int64_t begin = std::max(a.first, b.first);
    const int64_t a_end = a.first + a.count, b_end = b.first + b.count;
    const int64_t count = std::min(a_end, b_end) - begin;
    visit(Move{froms[from].owner, tos[to].owner, a.part(begin - a.first, count),
               b.part(begin - b.first, count)});
    from += a_end <= b_end;
    to += b_end <= a_end;
  }
}

/// Copies the state from its old places to its new ones, which are not used yet.
class Transport {
 public:
  Transport(Call& call, Optimizer& optim, Window& window, const Optimizer::Deal& deal,
            std::byte* chunk)
      : call_(call), optim_(optim), window_(window), deal_(deal), chunk_(chunk) {}

  Status run() {
    std::vector<std::vector<Move>> leaving(static_cast<size_t>(optim_.places()));
    for (int64_t param = 0; param < optim_.plan.params(); param++) {
      for_each_move(optim_.plan, deal_.plan, param, [&](const Move& move) {
        if (move.from != move.to) return leaving[static_cast<size_t>(move.from)].push_back(move);
        if (move.from == optim_.place()) staying_.push_back(move);
      });
    }
    for (const Move& move : staying_) ZERO_TRY(or_abort(keep(move)));
    for (int32_t rank = 0; rank < optim_.places(); rank++) {
      for (const Move& move : leaving[static_cast<size_t>(rank)]) ZERO_TRY(send(move));
      ZERO_TRY(flush(rank));
    }
    return {};
  }

 private:
  /// A part of a chunk.
  struct Part {
    int slot;
    Move move;
    size_t at, bytes;
  };

  /// Calls visit(slot, bytes of an element) for each slot that a parameter has.
  template <class Visit>
  Status for_each_slot(int64_t param, const Visit& visit) const {
    const Section& section = optim_.plan.section_of(param);
    const uint32_t live =
        optim_.progress[static_cast<size_t>(param)].live_slots | 1u << kMasterSlot;
    for (int slot = 0; slot < kSlotCount; slot++) {
      const size_t element = live >> slot & 1 ? optim_.slot_size(slot, section) : 0;
      if (element > 0) ZERO_TRY(visit(slot, element));
    }
    return {};
  }

  std::byte* old_place(int slot, const Segment& at) const { return optim_.slot(slot, at); }
  std::byte* new_place(int slot, const Segment& at) const {
    return optim_.slot_in(deal_.plan, deal_.state, slot, at.section, at.share);
  }

  /// Aborts the comm if this rank has failed, because the other ranks wait for it.
  Status or_abort(Status status) { return status.ok() ? status : call_.abort(status, "state"); }

  Status keep(const Move& move) {
    return for_each_slot(move.before.param, [&](int slot, size_t element) {
      return window_.copy(new_place(slot, move.after), old_place(slot, move.before),
                          static_cast<size_t>(move.before.count) * element);
    });
  }

  /// Adds the state of a move to the chunk, and sends the chunk whenever it is full.
  Status send(const Move& move) {
    return for_each_slot(move.before.param, [&](int slot, size_t element) -> Status {
      for (int64_t done = 0; done < move.before.count;) {
        if (kExchangeBytes - filled_ < element || parts_.size() == kMostParts)
          ZERO_TRY(flush(move.from));
        const auto room = static_cast<int64_t>((kExchangeBytes - filled_) / element);
        const int64_t count = std::min(room, move.before.count - done);
        const Move part{move.from, move.to, move.before.part(done, count),
                        move.after.part(done, count)};
        parts_.push_back({slot, part, filled_, static_cast<size_t>(count) * element});
        filled_ += parts_.back().bytes;
        done += count;
      }
      return {};
    });
  }

  Status flush(int32_t from) {
    if (parts_.empty()) return {};
    const bool mine = from == call_.rank();
    bool needed = mine || !optim_.comm->direct();
    for (const Part& part : parts_) {
      needed = needed || part.move.to == optim_.place();
      if (mine)
        ZERO_TRY(or_abort(
            window_.read(chunk_ + part.at, old_place(part.slot, part.move.before), part.bytes)));
    }
    ZERO_TRY(call_.broadcast("state", {needed ? chunk_ : nullptr, filled_}, from));
    for (const Part& part : parts_) {
      if (part.move.to == optim_.place())
        ZERO_TRY(or_abort(
            window_.write(new_place(part.slot, part.move.after), chunk_ + part.at, part.bytes)));
    }
    parts_.clear();
    filled_ = 0;
    call_.progress();
    os().reached("rebalance.chunk");
    return {};
  }

  Call& call_;
  Optimizer& optim_;
  Window& window_;
  const Optimizer::Deal& deal_;
  std::byte* const chunk_;
  std::vector<Move> staying_;
  std::vector<Part> parts_;
  size_t filled_ = 0;
};

}  // namespace

Status rebalance(Call& call, Optimizer& optim, std::span<const int32_t> owners) {
  StepMemory& memory = step_memory(optim);
  ZERO_TRY(enter(call, optim, entry_of(optim, owners)));
  os().reached("rebalance.begin");
  std::optional<Optimizer::Deal> deal;
  Windows* windows = nullptr;
  HostMemory chunk;
  const auto allocate = [&]() -> Status {
    deal = ZERO_TRY(optim.prepare_deal(owners));
    windows = ZERO_TRY(windows_of(optim));
    chunk = ZERO_TRY(HostMemory::allocate(kExchangeBytes, "a chunk of the state"));
    return {};
  };
  ZERO_TRY(call.vote("rebalance: allocate", allocate()));
  if (!deal->state.empty())
    ZERO_TRY(Transport(call, optim, windows->values, *deal, chunk.data()).run());
  // Nothing changes before every rank has received everything.
  ZERO_TRY(call.vote("rebalance: moved", Status()));
  os().reached("rebalance.moved");
  if (!deal->state.empty()) forget_places(optim, memory);
  optim.commit_deal(std::move(*deal));
  os().reached("rebalance.done");
  return {};
}

}  // namespace zero

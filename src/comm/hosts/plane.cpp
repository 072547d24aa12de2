// SPDX-License-Identifier: Apache-2.0
// The data plane over hosts. A part of a transfer is packed by sums over this host, traded with the
// fellows, and unpacked in host order. Several parts are in flight at a time, also across the
// boundary of two transfers.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/float_environment.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/hosts/parts.h"
#include "comm/hosts/room.h"
#include "comm/rank_sum.h"

namespace zero::hosts {
namespace {

constexpr int64_t kGraceMs = 400;    // lets a rank that waits on its host report first
constexpr int64_t kWitnessMs = 400;  // until a dead rank's connection ends as well
constexpr size_t kTogether = 64;     // transfers without a synchronization in between

/// Calls `work` with up to kTogether transfers at a time.
template <class Transfer, class Work>
Status for_each_batch(std::span<const Transfer> all, const Work& work) {
  for (size_t done = 0; done < all.size(); done += kTogether)
    ZERO_TRY(work(all.subspan(done, std::min(kTogether, all.size() - done))));
  return {};
}

}  // namespace

/// Transfers to and from each of `fellows`. Index `own` is this rank's row.
struct HostsComm::Trade {
  struct Transfer {
    size_t bytes;    // with each fellow
    int32_t owners;  // the rows of the other ranks are padding
  };
  std::vector<int32_t> fellows;
  std::vector<int32_t> numbers;  // of the fellows, among all ranks that trade
  size_t own;
  std::vector<Transfer> transfers;
  bool sends_same;  // sends the first row to all fellows

  /// Returns true if the row belongs to an owner.
  bool owns(size_t row, size_t transfer) const { return numbers[row] < transfers[transfer].owners; }
  /// Returns true if a transfer receives data from that row's fellow, or sends data to it.
  bool moves(size_t row, size_t transfer, bool comes) const {
    return row != own && owns(comes == sends_same ? row : own, transfer);
  }
};

Patience HostsComm::data_patience(const Call& call, const char* phase) const {
  return {operation_name(call.operation()), phase, options().timeout_ms, true};
}

Status HostsComm::break_for(Code code, int32_t culprit, const Patience& patience,
                            std::string_view sentence) {
  abort(steps.fail(code, culprit, patience.where(), text(patience.where(), ": ", sentence)));
  return failure_status();
}

/// Breaks the comm after a failure of the carrier. First waits briefly, because the failure may be
/// the death of a rank, whose connection soon shows which rank it is.
Status HostsComm::broken(const Patience& patience, const Status& why) {
  for (const Deadline deadline(kWitnessMs); !deadline.passed();) {
    ZERO_TRY(check());
    // Wait: a slice of kWitnessMs.
    sleep_ms(1);
  }
  return break_for(why.code(), -1, patience, text("rank ", rank(), ": ", why.text()));
}

/// Waits until all ranks of this host have arrived, and returns the addresses of their data. Each
/// rank passes its data as `own`. The result has, for each element of `own`, a row with one address
/// for each rank of the host.
Result<std::vector<std::byte*>> HostsComm::show(const Patience& patience,
                                                std::span<const std::span<const std::byte>> own) {
  const auto places = static_cast<size_t>(layout_.places);
  std::vector<Location> mine, all(own.size() * places);
  for (const auto& data : own) mine.push_back(place_in_arena(data.data(), data.size()));
  ZERO_TRY(told(host_->exchange_bytes(std::as_bytes(std::span(mine)),
                                      std::as_writable_bytes(std::span(all)), patience)));
  std::vector<std::byte*> rows;
  for (size_t i = 0; i < own.size(); ++i) {
    for (int32_t place = 0; place < layout_.places; ++place) {
      const Location& at = all[static_cast<size_t>(place) * own.size() + i];
      const auto arena = std::static_pointer_cast<HostArena>(this->arena(at));
      if (arena == nullptr || at.offset > arena->bytes() ||
          own[i].size() > arena->bytes() - at.offset)
        return break_for(ZERO_ERR_STATE, layout_.rank(seat_.host, place), patience,
                         "data to transfer is not in an arena that this rank also has");
      rows.push_back(arena->data_of(place) + at.offset);
    }
  }
  return rows;
}

// ---- Parts in flight.

/// Starts the receives of a part if `come` is true, and otherwise its sends.
Status HostsComm::begin_messages(const Trade& trade, Room& room, bool come) {
  const size_t bytes = room.part.bytes;
  for (size_t i = 0; i < trade.fellows.size(); ++i) {
    if (!trade.moves(i, room.part.transfer, come)) continue;
    const int32_t fellow = trade.fellows[i];
    const std::span<std::byte> row{
        come ? room.row(room.received, i) : room.row(room.sent, trade.sends_same ? 0 : i), bytes};
    room.messages.push_back({fellow, come, 0});
    room.messages.back().request =
        ZERO_TRY(come ? messages_->receive(fellow, row) : messages_->send(fellow, row));
    (come ? traffic().data.received : traffic().data.sent).add(bytes);
    if (!come) os().reached("trade.sent");
  }
  return {};
}

/// Waits until all messages of a part have ended.
Status HostsComm::await_part(Room& room, const Patience& patience) {
  constexpr int64_t kLookNs = 2'000'000;
  const bool may_spin = host_->has_cores_for_all();
  const int64_t busy_ns = may_spin ? 200'000 : 0, pause_ns = may_spin ? 200'000 : 1'000'000;
  const int64_t limit_ns = (patience.limit_ms + kGraceMs) * 1'000'000;
  Watch watch(patience);
  for (int64_t sign_ns = watch.now_ns(), looked_ns = sign_ns;;) {
    const int64_t absent_ns = watch.look(), now = watch.now_ns();
    sign_ns += absent_ns;
    for (size_t i = 0; i < room.messages.size();) {
      if (!ZERO_TRY(messages_->has_ended(room.messages[i].request))) {
        ++i;
        continue;
      }
      room.messages[i] = room.messages.back();
      room.messages.pop_back();
      sign_ns = now;
    }
    if (room.messages.empty()) return {};
    if (now - looked_ns >= kLookNs) {
      looked_ns = now;
      note_progress();
      if (links_ != nullptr) links_->expect_signs(watch, absent_ns);
      ZERO_TRY(check());
      if (now - sign_ns >= limit_ns) {
        const auto late = std::ranges::find_if(room.messages, &Room::Message::comes);
        const int32_t rank = (late != room.messages.end() ? *late : room.messages[0]).rank;
        return break_for(ZERO_ERR_TIMEOUT, rank, patience,
                         text("rank ", rank, " neither sent nor received anything for ",
                              patience.limit_ms, " ms"));
      }
    }
    // Wait: a slice of the limit.
    if (now - sign_ns >= busy_ns) pause_between_looks(now - sign_ns, 0, pause_ns);
  }
}

/// pack(room) fills the rows to send, and this rank's own row in `received`. unpack(room) uses the
/// received rows.
template <class Pack, class Unpack>
Status HostsComm::trade_parts(const Trade& trade, const Patience& patience, const Pack& pack,
                              const Unpack& unpack) {
  const size_t fellows = trade.fellows.size();
  size_t transfer = 0, at = 0;
  const auto next = [&]() -> std::optional<Part> {
    const auto& all = trade.transfers;
    for (; transfer < all.size() && at == all[transfer].bytes; at = 0) ++transfer;
    if (transfer == all.size()) return std::nullopt;
    const size_t bytes = all[transfer].bytes, most = Parts{fellows, bytes}.most();
    const Part part{transfer, at, std::min(most, bytes - at), most};
    at += part.bytes;
    return part;
  };
  const auto begin = [&](Room& room, const Part& part) -> Status {
    room.part = part;
    for (Memory* const memory : {&room.sent, &room.received})
      if (memory->bytes() < part.most * fellows)
        *memory = ZERO_TRY(
            Memory::allocate(nullptr, part.most * fellows, "buffers for transfers between hosts"));
    ZERO_TRY(begin_messages(trade, room, true));
    pack(room);
    return begin_messages(trade, room, false);
  };
  rooms_.resize(Parts::kRooms);
  const auto run = [&]() -> Status {
    std::optional<Part> part = next();
    for (size_t begun = 0, ended = 0; part || ended < begun; ++ended) {
      for (; part && begun < ended + Parts::kRooms; part = next())
        ZERO_TRY(begin(rooms_[begun++ % Parts::kRooms], *part));
      Room& room = rooms_[ended % Parts::kRooms];
      ZERO_TRY(await_part(room, patience));
      unpack(room);
      host_->note_progress();
    }
    return {};
  };
  if (aborted()) return failure_status();
  Status status = run();
  return status.ok() || aborted() ? status : broken(patience, status);
}

// ---- Transfers. All ranks of a host arrive before them, and finish reading after them.

Status HostsComm::reduce_scatter(Call& call, std::span<const Scattered> all, void*) {
  return for_each_batch(all, [&](std::span<const Scattered> some) {
    return sum_together(data_patience(call, "reduce_scatter"), some);
  });
}

Status HostsComm::sum_together(const Patience& patience, std::span<const Scattered> all) {
  const auto places = static_cast<size_t>(layout_.places);
  const auto travels = [&](const SumTypes& types) {
    return places == 1 ? types.from : types.travels;
  };
  Trade trade{{}, {}, static_cast<size_t>(seat_.host), {}, false};
  for (int32_t host = 0; host < layout_.hosts(); ++host)
    trade.fellows.push_back(layout_.rank(host, seat_.place));
  trade.numbers = trade.fellows;
  std::vector<std::span<const std::byte>> own;
  for (const auto& [types, send, recv, count, owners] : all) {
    own.emplace_back(static_cast<const std::byte*>(send),
                     count * static_cast<size_t>(std::min(world(), owners)) * size_of(types.from));
    trade.transfers.push_back({count * size_of(travels(types)), owners});
  }
  const std::vector<std::byte*> sends = ZERO_TRY(show(patience, own));
  const FloatEnvironment environment;
  RankSum host_sum(layout_.places), sum(layout_.hosts());
  const auto pack = [&](Room& room) {
    const Part& part = room.part;
    const auto& [types, send, recv, count, owners] = all[part.transfer];
    const DType travel = travels(types);
    const size_t first = part.at / size_of(travel), elements = part.bytes / size_of(travel);
    for (size_t i = 0; i < trade.fellows.size(); ++i) {
      if (!trade.owns(i, part.transfer)) continue;
      std::byte* const to = room.row(i == trade.own ? room.received : room.sent, i);
      const size_t chunk = static_cast<size_t>(trade.fellows[i]) * count + first;
      for (size_t l = 0; l < places; ++l)
        host_sum.parts()[l] = sends[part.transfer * places + l] + chunk * size_of(types.from);
      if (places == 1)
        memcpy(to, host_sum.parts()[0], part.bytes);
      else
        host_sum.make(types.from, travel, to, elements);
      messages_->progress();
    }
  };
  const auto unpack = [&](const Room& room) {
    const Part& part = room.part;
    if (!trade.owns(trade.own, part.transfer)) return;
    const auto& [types, send, recv, count, owners] = all[part.transfer];
    const DType travel = travels(types);
    for (size_t i = 0; i < trade.fellows.size(); ++i) sum.parts()[i] = room.row(room.received, i);
    sum.add({travel, types.sum, types.adds},
            static_cast<std::byte*>(recv) + part.at / size_of(travel) * size_of(types.sum),
            part.bytes / size_of(travel));
  };
  ZERO_TRY(trade_parts(trade, patience, pack, unpack));
  return show(patience, {}).status();
}

Status HostsComm::all_gather(Call& call, std::span<const Gathered> all) {
  return gather(call, {0, 1, world()}, all);
}

Status HostsComm::gather_some(Call& call, const Ranks& among, std::span<const Gathered> all,
                              std::span<std::byte> scratch) {
  const auto known = std::ranges::find(parts_evenly_, among, &std::pair<Ranks, bool>::first);
  const bool evenly = known != parts_evenly_.end()
                          ? known->second
                          : parts_evenly_.emplace_back(among, layout_.parts_evenly(among)).second;
  if (evenly) return gather(call, among, all);
  return Comm::gather_some(call, among, all, scratch);
}

Status HostsComm::gather(Call& call, const Ranks& among, std::span<const Gathered> all) {
  return for_each_batch(all, [&](std::span<const Gathered> some) {
    return gather_together(data_patience(call, "all_gather"), among, some);
  });
}

/// Gathers the data of the ranks `among` on all of them. Each rank receives its fellows' data for
/// all ranks of its host.
Status HostsComm::gather_together(const Patience& patience, const Ranks& among,
                                  std::span<const Gathered> all) {
  Trade trade{{}, {}, 0, {}, true};
  std::vector<std::span<const std::byte>> own;
  for (const auto& [send, recv, bytes, owners] : all) {
    own.emplace_back(static_cast<const std::byte*>(recv),
                     bytes * static_cast<size_t>(std::min(among.count, owners)));
    trade.transfers.push_back({bytes, owners});
  }
  const std::vector<std::byte*> shown = ZERO_TRY(show(patience, own));
  std::vector<size_t> here;  // places of this host whose ranks are in `among`
  for (int32_t i = 0; i < among.count; ++i) {
    const int32_t rank = among.first + i * among.stride;
    const auto [host, place] = layout_.seat(rank);
    if (host == seat_.host) here.push_back(static_cast<size_t>(place));
    if (place != seat_.place) continue;
    if (host == seat_.host) trade.own = trade.fellows.size();
    trade.fellows.push_back(rank);
    trade.numbers.push_back(i);
  }
  const auto put = [&](const Part& part, size_t row, const std::byte* from) {
    const auto number = static_cast<size_t>(trade.numbers[row]);
    const std::byte* before = nullptr;  // ranks of a host may share one copy
    for (const size_t place : here) {
      std::byte* const to = shown[part.transfer * static_cast<size_t>(layout_.places) + place] +
                            number * all[part.transfer].bytes + part.at;
      if (to != from && to != before) memcpy(to, from, part.bytes);
      before = to;
    }
  };
  const auto pack = [&](Room& room) {
    const Part& part = room.part;
    if (!trade.owns(trade.own, part.transfer)) return;
    const std::byte* const send = static_cast<const std::byte*>(all[part.transfer].send) + part.at;
    memcpy(room.sent.data(), send, part.bytes);
    put(part, trade.own, send);
  };
  const auto unpack = [&](const Room& room) {
    for (size_t i = 0; i < trade.fellows.size(); ++i)
      if (trade.moves(i, room.part.transfer, true)) put(room.part, i, room.row(room.received, i));
  };
  ZERO_TRY(trade_parts(trade, patience, pack, unpack));
  return show(patience, {}).status();
}

}  // namespace zero::hosts

// SPDX-License-Identifier: Apache-2.0
// How gradients and parameters travel: parts of a transfer are packed by sums over this host,
// traded with the fellows, and unpacked in the order of hosts. Some are on their way at a time.
#include <algorithm>
#include <cstring>

#include "base/float_environment.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/hosts/parts.h"
#include "comm/hosts/room.h"
#include "comm/rank_sum.h"

namespace zero::hosts {
namespace {

constexpr int64_t kGraceMs = 400;    // a rank that waits on its host for a late one names that
constexpr int64_t kWitnessMs = 200;  // for a dead rank's connection to end as well

}  // namespace

/// A transfer to and from each of `fellows`. The row `own` is this rank's.
struct HostsComm::Trade {
  std::vector<int32_t> fellows;
  size_t own;
  Parts parts;
  bool sends_same;  // to all, from the first row

  std::byte* row(const Memory& rows, size_t fellow) const {
    return rows.data() + fellow * parts.most();
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

/// Breaks the comm for what the carrier says. It first waits a little, because what is called an
/// error there may be the death of a rank, whose connection soon tells which.
Status HostsComm::broken(const Patience& patience, const Status& why) {
  for (const Deadline deadline(kWitnessMs); !deadline.passed();) {
    ZERO_TRY(check());
    // Wait: a slice of kWitnessMs.
    sleep_ms(1);
  }
  return break_for(why.code(), -1, patience, text("rank ", rank(), ": ", why.text()));
}

/// Waits until all ranks of this host have come. Returns where `bytes` of each are, which it gives
/// as its `data`.
Result<std::vector<std::byte*>> HostsComm::show(const Patience& patience, const void* data,
                                                size_t bytes) {
  const Location own = place_in_arena(data, bytes);
  std::vector<Location> all(static_cast<size_t>(layout_.places));
  ZERO_TRY(told(host_->exchange_bytes(std::as_bytes(std::span(&own, 1)),
                                      std::as_writable_bytes(std::span(all)), patience)));
  std::vector<std::byte*> places;
  for (const Location& one : all) {
    const auto arena = std::static_pointer_cast<HostArena>(this->arena(one));
    if (arena == nullptr || one.offset > arena->bytes() || bytes > arena->bytes() - one.offset)
      return break_for(ZERO_ERR_STATE,
                       layout_.rank(seat_.host, static_cast<int32_t>(places.size())), patience,
                       "data that travels lies in no arena that this rank has, too");
    places.push_back(arena->data_of(static_cast<int32_t>(places.size())) + one.offset);
  }
  return places;
}

// ---- Parts on their way.

/// Begins the messages of a part that come, or those that go.
Status HostsComm::begin_messages(const Trade& trade, Room& room, size_t part, bool come) {
  const size_t bytes = trade.parts.bytes_of(part);
  for (size_t i = 0; i < trade.fellows.size(); ++i) {
    if (i == trade.own) continue;
    const int32_t fellow = trade.fellows[i];
    const std::span<std::byte> row{
        come ? trade.row(room.received, i) : trade.row(room.sent, trade.sends_same ? 0 : i), bytes};
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
  const int64_t begin_ns = now_ns();
  for (int64_t start_ns = begin_ns, looked_ns = begin_ns;;) {
    for (size_t i = 0; i < room.messages.size();) {
      if (!ZERO_TRY(messages_->has_ended(room.messages[i].request))) {
        ++i;
        continue;
      }
      room.messages.erase(room.messages.begin() + static_cast<ptrdiff_t>(i));
      start_ns = now_ns();
    }
    if (room.messages.empty()) return {};
    const int64_t now = now_ns();
    if (now - looked_ns >= kLookNs) {
      looked_ns = now;
      note_progress();
      ZERO_TRY(check());
      if (links_ != nullptr) links_->expect_signs(patience, begin_ns);
      if (now - start_ns >= limit_ns) {
        const auto late = std::ranges::find_if(room.messages, &Room::Message::comes);
        const int32_t rank = (late != room.messages.end() ? *late : room.messages[0]).rank;
        return break_for(
            ZERO_ERR_TIMEOUT, rank, patience,
            text("rank ", rank, " sent or took nothing for ", patience.limit_ms, " ms"));
      }
    }
    // Wait: a slice of the limit.
    if (now - start_ns >= busy_ns) pause_between_looks(now - start_ns, 0, pause_ns);
  }
}

/// pack(room, at, bytes) fills the rows that are sent, and this rank's own that is received;
/// unpack(received, at, bytes) uses what has come.
template <class Pack, class Unpack>
Status HostsComm::trade_parts(const Trade& trade, const Patience& patience, const Pack& pack,
                              const Unpack& unpack) {
  const size_t parts = trade.parts.count(), most = trade.parts.most();
  rooms_.resize(Parts::kRooms);
  const auto begin = [&](size_t part) -> Status {
    Room& room = rooms_[part % Parts::kRooms];
    const size_t room_bytes = most * trade.fellows.size();
    for (Memory* const memory : {&room.sent, &room.received})
      if (memory->bytes() < room_bytes)
        *memory = ZERO_TRY(Memory::allocate(nullptr, room_bytes, "what travels between hosts"));
    ZERO_TRY(begin_messages(trade, room, part, true));
    pack(room, part * most, trade.parts.bytes_of(part));
    return begin_messages(trade, room, part, false);
  };
  const auto run = [&]() -> Status {
    for (size_t begun = 0, ended = 0; ended < parts; ++ended) {
      for (; begun < std::min(parts, ended + Parts::kRooms); ++begun) ZERO_TRY(begin(begun));
      Room& room = rooms_[ended % Parts::kRooms];
      ZERO_TRY(await_part(room, patience));
      unpack(room.received, ended * most, trade.parts.bytes_of(ended));
      host_->note_progress();
    }
    return {};
  };
  if (aborted()) return failure_status();
  Status status = run();
  return status.ok() || aborted() ? status : broken(patience, status);
}

// ---- What travels.

Status HostsComm::reduce_scatter(Call& call, SumTypes types, const void* send, void* recv,
                                 size_t count, void*) {
  const Patience patience = data_patience(call, "reduce_scatter");
  const bool alone = layout_.places == 1;
  const DType travels = alone ? types.from : types.travels;
  const std::vector<std::byte*> sends =
      ZERO_TRY(show(patience, send, count * static_cast<size_t>(world()) * size_of(types.from)));
  const auto hosts = static_cast<size_t>(layout_.hosts());
  Trade trade{{}, static_cast<size_t>(seat_.host), {hosts, count * size_of(travels)}, false};
  for (int32_t host = 0; host < layout_.hosts(); ++host)
    trade.fellows.push_back(layout_.rank(host, seat_.place));
  const FloatEnvironment environment;
  RankSum host_sum(layout_.places), sum(layout_.hosts());
  const auto pack = [&](Room& room, size_t at, size_t bytes) {
    const size_t first = at / size_of(travels), elements = bytes / size_of(travels);
    for (size_t i = 0; i < trade.fellows.size(); ++i) {
      std::byte* const to = trade.row(i == trade.own ? room.received : room.sent, i);
      const size_t place = static_cast<size_t>(trade.fellows[i]) * count + first;
      for (size_t l = 0; l < sends.size(); ++l)
        host_sum.parts()[l] = sends[l] + place * size_of(types.from);
      if (alone)
        memcpy(to, host_sum.parts()[0], bytes);
      else
        host_sum.make(types.from, travels, to, elements);
      messages_->progress();
    }
  };
  const auto unpack = [&](const Memory& received, size_t at, size_t bytes) {
    const size_t first = at / size_of(travels);
    for (size_t i = 0; i < trade.fellows.size(); ++i) sum.parts()[i] = trade.row(received, i);
    sum.add({travels, types.sum, types.adds},
            static_cast<std::byte*>(recv) + first * size_of(types.sum), bytes / size_of(travels));
  };
  ZERO_TRY(trade_parts(trade, patience, pack, unpack));
  return show(patience, send, 0).status();
}

Status HostsComm::all_gather(Call& call, const void* send, void* recv, size_t bytes) {
  return gather(call, {0, 1, world()}, static_cast<const std::byte*>(send),
                static_cast<std::byte*>(recv), bytes);
}

Status HostsComm::gather_some(Call& call, const Ranks& among, const std::byte* send,
                              std::byte* recv, size_t bytes, std::span<std::byte> scratch) {
  const auto known = std::ranges::find(parts_evenly_, among, &std::pair<Ranks, bool>::first);
  const bool evenly = known != parts_evenly_.end()
                          ? known->second
                          : parts_evenly_.emplace_back(among, layout_.parts_evenly(among)).second;
  if (evenly) return gather(call, among, send, recv, bytes);
  return Comm::gather_some(call, among, send, recv, bytes, scratch);
}

/// Brings what the ranks `among` send to all of them: each gets its fellows', for all of its host.
Status HostsComm::gather(Call& call, const Ranks& among, const std::byte* send, std::byte* recv,
                         size_t bytes) {
  const Patience patience = data_patience(call, "all_gather");
  const std::vector<std::byte*> shown =
      ZERO_TRY(show(patience, recv, bytes * static_cast<size_t>(among.count)));
  std::vector<std::byte*> all;  // of this host's
  std::vector<size_t> rows;     // of the fellows, in what is gathered
  Trade trade{{}, 0, {}, true};
  for (int32_t i = 0; i < among.count; ++i) {
    const int32_t rank = among.first + i * among.stride;
    const auto [host, place] = layout_.seat(rank);
    if (host == seat_.host) all.push_back(shown[static_cast<size_t>(place)]);
    if (place != seat_.place) continue;
    if (host == seat_.host) trade.own = rows.size();
    trade.fellows.push_back(rank);
    rows.push_back(static_cast<size_t>(i));
  }
  trade.parts = {rows.size(), bytes};
  std::ranges::sort(all);  // ranks of a host may have one copy
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const auto put = [&](size_t row, size_t at, const std::byte* from, size_t part) {
    for (std::byte* const one : all)
      if (std::byte* const to = one + row * bytes + at; to != from) memcpy(to, from, part);
  };
  const auto pack = [&](Room& room, size_t at, size_t part) {
    memcpy(room.sent.data(), send + at, part);
    put(rows[trade.own], at, send + at, part);
  };
  const auto unpack = [&](const Memory& received, size_t at, size_t part) {
    for (size_t i = 0; i < rows.size(); ++i)
      if (i != trade.own) put(rows[i], at, trade.row(received, i), part);
  };
  ZERO_TRY(trade_parts(trade, patience, pack, unpack));
  return show(patience, recv, 0).status();
}

}  // namespace zero::hosts

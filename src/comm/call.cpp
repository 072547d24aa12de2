// SPDX-License-Identifier: Apache-2.0
// The calls that every comm shares. Each exchange starts with one record of a fixed size, so that
// even ranks that disagree about everything else exchange the same number of bytes and can tell
// each other.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <exception>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/comm.h"

namespace zero {
namespace {

constexpr uint32_t kMagic = 0x325a7264;     // changes with the layout of Record
constexpr size_t kScratchBytes = 4u << 20;  // for chunks, at most; touched only where used
constexpr size_t kVoteTextBytes = 3500;  // of a failure, for the other ranks: fits zero_last_error

size_t chunk_bytes(int32_t world, size_t record_bytes) {
  const size_t share = kScratchBytes / static_cast<size_t>(world) / 64 * 64;
  return std::clamp(share, size_t{1024}, record_bytes);
}

enum Kind : uint32_t { kExchange = 1, kVote, kGather, kBroadcast };

/// What must be the same on every rank. It has no padding, because it is compared as bytes.
struct Agreed {
  uint32_t world = 0;
  Operation operation = Operation::create;
  uint32_t object = 0;
  uint32_t exchange = 0;
  uint64_t call = 0;
  uint64_t bytes = 0;  // every rank sends so many
  uint32_t kind = kExchange;
  int32_t root = -1;
  char phase[32] = {};
};
static_assert(std::has_unique_object_representations_v<Agreed>);

const char* kind_verb(uint32_t kind) {
  constexpr const char* kVerbs[] = {"does something unknown", "exchanges", "votes", "gathers",
                                    "broadcasts"};
  return kVerbs[kind < std::size(kVerbs) ? kind : 0];
}

std::string place_of(const Agreed& a) {
  const size_t length = strnlen(a.phase, sizeof a.phase);
  return text(operation_name(a.operation), " at '", std::string_view(a.phase, length), "'");
}

/// Returns "rank 1 <what it does>, rank 0 <what that does>", by the first thing that tells them
/// apart.
std::string desync_sentence(int32_t rank, const Agreed& a, int32_t other, const Agreed& b) {
  const auto both = [&](auto&& describe) {
    return text("rank ", rank, " ", describe(a), ", rank ", other, " ", describe(b));
  };
  const auto name = [](const Agreed& x) { return operation_name(x.operation); };
  if (a.world != b.world)
    return both([](const Agreed& x) { return text("has a comm of ", x.world, " ranks"); });
  if (a.operation != b.operation)
    return both([&](const Agreed& x) { return text("called ", name(x)); });
  if (a.object != b.object)
    return both(
        [&](const Agreed& x) { return text("called ", name(x), " on its optimizer ", x.object); });
  if (a.call != b.call)
    return both([&](const Agreed& x) {
      return text("is in its collective call ", x.call, " (", name(x), ")");
    });
  if (a.exchange != b.exchange || a.kind != b.kind || memcmp(a.phase, b.phase, sizeof a.phase) != 0)
    return both([](const Agreed& x) {
      return text(kind_verb(x.kind), " in ", place_of(x), " (exchange ", x.exchange, ")");
    });
  if (a.bytes != b.bytes)
    return both([](const Agreed& x) { return text("sends ", x.bytes, " bytes in ", place_of(x)); });
  return both([](const Agreed& x) {
    return text("expects the data of rank ", x.root, " in ", place_of(x));
  });
}

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) memcpy(to, from, bytes);
}

}  // namespace

struct Call::Header {
  uint32_t magic = kMagic;
  uint32_t rank = 0;
  Agreed agreed;
  uint64_t own_bytes = 0;  // of this rank's text, in a vote or gather
  int32_t code = ZERO_OK;  // of this rank's status, in a vote
  uint32_t traces = 0;     // this rank: 1
  Stamps stamps = {};
};

/// What each rank sends in every first exchange, of a fixed size. A payload that fits needs no
/// other exchange.
struct Call::Record {
  static constexpr size_t kPayloadBytes = 1024 - sizeof(Header);
  Header header;
  std::byte payload[kPayloadBytes];
};

// ---- Comm.

// Scratch has this rank's record, every rank's records, every rank's chunks and this rank's chunk.
Comm::Comm(int32_t rank, int32_t world, const CommOptions& options, std::shared_ptr<Device> device)
    : rank_(rank),
      world_(world),
      options_(options),
      device_(std::move(device)),
      clocks_(world),
      stamps_(static_cast<size_t>(world)),
      chunk_bytes_(chunk_bytes(world, kRecordBytes)),
      scratch_(
          new std::byte[(static_cast<size_t>(world) + 1) * (sizeof(Call::Record) + chunk_bytes_)]) {
  log_as(rank);
  memset(scratch_.get(), 0, sizeof(Call::Record));
}

// ---- Call.

Call::Call(std::shared_ptr<Comm> comm, Operation operation, uint32_t object)
    : comm_(std::move(comm)),
      operation_(operation),
      object_(object),
      begin_ns_(comm_->trace.on() ? now_ns() : 0),
      exceptions_(std::uncaught_exceptions()) {}

void Call::abort_out_of_memory() noexcept {
  const auto tell = [&] {
    (void)abort_with(
        ZERO_ERR_MEMORY, rank(), "memory",
        text("rank ", rank(), " ran out of memory inside ", operation_name(operation_)));
    return true;
  };
  const auto tell_shortly = [&] {  // strings have room in themselves for words that are this short
    comm_->abort(comm_->steps.fail(ZERO_ERR_MEMORY, rank(), "memory", "out of memory"));
    return true;
  };
  // If that needs memory as well, the comm is left to its deadlines.
  if (!succeeds(tell)) (void)succeeds(tell_shortly);
}

Call::~Call() {
  if (!comm_) return;
  // If memory ran out between two exchanges, the other ranks must not find out by their deadline.
  if (std::uncaught_exceptions() > exceptions_) abort_out_of_memory();
  note_part();
  comm_->in_call_.store(false, std::memory_order_release);
  if (in_background_) comm_->leave_background();
}

Call::Record* Call::mine() const { return reinterpret_cast<Record*>(comm_->scratch_.get()); }

Call::Record* Call::records() const { return mine() + 1; }

Patience Call::patience() const {
  const Patience first{operation_name(operation_), mine()->header.agreed.phase,
                       comm_->options().late_ms, false};
  return exchanges_ == 0 ? first : comm_->later(first);
}

/// Makes the first exchange of every kind, with what this kind adds to the header. Afterwards
/// records() are those of all ranks, and they agree.
Status Call::meet(std::string_view phase, Header header, std::span<const std::byte> payload) {
  log_as(rank());
  if (exchanges_ == 0 && operation_ != Operation::create) ++comm_->calls_;
  header.rank = static_cast<uint32_t>(rank());
  header.agreed.world = static_cast<uint32_t>(world());
  header.agreed.operation = calling_roll_ ? Operation::roll_call : operation_;
  header.agreed.object = object_;
  header.agreed.exchange = exchanges_;
  header.agreed.call = comm_->calls_;
  phase.copy(header.agreed.phase, sizeof header.agreed.phase - 1);
  header.traces = comm_->trace.on();
  if (comm_->some_trace_ || header.traces != 0) header.stamps = comm_->clocks_.stamp(now_ns());
  Record& record = *mine();
  record.header = header;
  copy_bytes(record.payload, payload.data(), std::min(payload.size(), Record::kPayloadBytes));

  const std::span all(records(), static_cast<size_t>(world()));
  ZERO_TRY(comm_->exchange_bytes(std::as_bytes(std::span(&record, 1)), std::as_writable_bytes(all),
                                 patience()));
  ++exchanges_;
  ZERO_TRY(compare());
  note_wait();
  return {};
}

/// Finds out who came last to an exchange, if some rank wants to know.
void Call::note_wait() {
  const std::span all(records(), static_cast<size_t>(world()));
  comm_->some_trace_ =
      std::ranges::any_of(all, [](const Record& one) { return one.header.traces != 0; });
  if (!comm_->some_trace_) return;
  std::vector<Stamps>& stamps = comm_->stamps_;
  std::ranges::transform(all, stamps.begin(), [](const Record& one) { return one.header.stamps; });
  Clocks& clocks = comm_->clocks_;
  const int64_t end_ns = now_ns(), came_ns = mine()->header.stamps.came_ns;
  clocks.take(stamps, rank(), end_ns);
  comm_->trace.set_offset_ns(clocks.ahead_ns(0));
  if (came_ns != 0)
    comm_->trace.add(Trace::Kind::wait, mine()->header.agreed.phase, came_ns, end_ns,
                     clocks.last());
}

/// Ends this thread's part of the call in the trace.
void Call::note_part() {
  if (begin_ns_ == 0) return;
  const int64_t end_ns = now_ns();
  comm_->trace.add(Trace::Kind::call, in_background_ ? "end of a step" : operation_name(operation_),
                   std::exchange(begin_ns_, end_ns), end_ns);
}

/// Compares all records. Every rank compares the same bytes in the same way, so all of them find
/// the same sentence.
Status Call::compare() {
  const Record* const all = records();
  const std::string_view phase = mine()->header.agreed.phase;
  for (int32_t r = 0; r < world(); ++r) {
    const Header& header = all[r].header;
    if (header.magic != kMagic)
      return abort_with(ZERO_ERR_COMM, -1, phase,
                        text("rank ", r, "'s record in ", operation_name(operation_),
                             " is unreadable: the exchange is broken, or it has another libzero"));
    if (header.rank != static_cast<uint32_t>(r))
      return abort_with(
          ZERO_ERR_COMM, -1, phase,
          text("the exchange put rank ", header.rank, "'s record in the place of rank ", r));
  }
  if (memcmp(&all[rank()], mine(), sizeof(Record)) != 0)
    return abort_with(
        ZERO_ERR_COMM, -1, phase,
        text("the exchange did not return rank ", rank(), "'s own record as it was sent"));
  for (int32_t r = 1; r < world(); ++r) {
    const Agreed& usual = all[0].header.agreed;
    const Agreed& odd = all[r].header.agreed;
    if (memcmp(&odd, &usual, sizeof odd) != 0)
      return abort_with(ZERO_ERR_DESYNC, -1, phase, desync_sentence(r, odd, 0, usual));
  }
  return {};
}

Status Call::exchange(std::string_view phase, std::span<const std::byte> mine,
                      std::span<std::byte> all) {
  assert(all.size() == mine.size() * static_cast<size_t>(world()));
  ZERO_TRY(meet(phase, {.agreed = {.bytes = mine.size(), .kind = kExchange}}, mine));
  return collect(mine, all);
}

Status Call::collect(std::span<const std::byte> mine, std::span<std::byte> all) {
  const size_t bytes = mine.size();
  return collect(mine, bytes, [&](size_t r) { return all.subspan(r * bytes, bytes); });
}

/// Takes what came with the records, and exchanges what did not fit there: of each rank as much as
/// its place has room for, `longest` at most.
template <class Place>
Status Call::collect(std::span<const std::byte> mine, size_t longest, const Place& place_of) {
  const size_t ranks = static_cast<size_t>(world());
  const auto take = [&](size_t done, const std::byte* parts, size_t stride, size_t most) {
    for (size_t r = 0; r < ranks; ++r) {
      const std::span<std::byte> to = place_of(r);
      if (to.size() > done)
        memcpy(to.data() + done, parts + r * stride, std::min(to.size() - done, most));
    }
  };
  take(0, records()->payload, sizeof(Record), Record::kPayloadBytes);

  std::byte* const chunks = reinterpret_cast<std::byte*>(records() + ranks);
  for (size_t done = Record::kPayloadBytes, part; done < longest; done += part) {
    part = std::min(longest - done, comm_->chunk_bytes_);
    std::span<const std::byte> own = mine.subspan(std::min(done, mine.size()));
    if (own.size() < part) {  // others send more than this rank
      std::byte* const padded = chunks + ranks * part;
      copy_bytes(padded, own.data(), own.size());
      memset(padded + own.size(), 0, part - own.size());
      own = {padded, part};
    }
    const Span span(comm_->trace, Trace::Kind::transfer, "exchange", part);
    ZERO_TRY(comm_->exchange_bytes(own.first(part), {chunks, ranks * part}, patience()));
    take(done, chunks, part, part);
  }
  return {};
}

Status Call::vote(std::string_view phase, const Status& mine, std::span<const std::byte> payload,
                  std::span<std::byte> payloads) {
  assert(payloads.size() == payload.size() * static_cast<size_t>(world()));
  ZERO_TRY(meet(phase,
                {.agreed = {.bytes = payload.size(), .kind = kVote},
                 .own_bytes = utf8_prefix(mine.text(), kVoteTextBytes).size(),
                 .code = mine.code()},
                payload));
  for (int32_t r = 0; r < world(); ++r)
    if (records()[r].header.code != ZERO_OK) return failed_vote(mine, r);
  return collect(payload, payloads);
}

/// Ends a vote in which all ranks have seen that some rank failed. The lowest one, `culprit`, says
/// why.
Status Call::failed_vote(const Status& mine, int32_t culprit) {
  const Header& header = records()[culprit].header;
  const Code code = header.code;

  std::string why(std::min<uint64_t>(header.own_bytes, kVoteTextBytes), ' ');
  if (culprit == rank()) mine.text().copy(why.data(), why.size());
  if (!why.empty())
    ZERO_TRY(comm_->broadcast_bytes(std::as_writable_bytes(std::span(why)), culprit, patience()));
  if (!mine.ok()) return mine;
  const char* const name = code_name(code);
  return Status(ZERO_ERR_PEER,
                text("rank ", culprit, " in ", operation_name(operation_), ": ",
                     name ? std::string(name) : text("status ", code), ": ", as_utf8(why)));
}

Result<std::vector<std::string>> Call::gather(std::string_view phase, std::string_view mine) {
  ZERO_TRY(meet(phase, {.agreed = {.kind = kGather}, .own_bytes = mine.size()}, bytes_of(mine)));
  std::vector<std::string> all(static_cast<size_t>(world()));
  size_t longest = 0;
  for (int32_t r = 0; r < world(); ++r) {
    const uint64_t bytes = records()[r].header.own_bytes;
    if (bytes > kTextBytes)
      return Status(ZERO_ERR_UNSUPPORTED,
                    text(operation_name(operation_), ": rank ", r, " sends ", bytes,
                         " bytes to the other ranks, at most ", kTextBytes, " are possible"));
    all[static_cast<size_t>(r)].resize(bytes);
    longest = std::max<size_t>(longest, bytes);
  }
  ZERO_TRY(collect(bytes_of(mine), longest,
                   [&](size_t r) { return std::as_writable_bytes(std::span(all[r])); }));
  return all;
}

Status Call::broadcast(std::string_view phase, std::span<std::byte> data, int32_t root) {
  if (root < 0 || root >= world())
    return Status(ZERO_ERR_ARGUMENT, text(operation_name(operation_), ": root is rank ", root,
                                          ", the comm has ranks 0 to ", world() - 1));
  const bool inside = data.size() <= Record::kPayloadBytes;
  const std::span<const std::byte> payload =
      inside && root == rank() ? data : std::span<std::byte>{};
  ZERO_TRY(
      meet(phase, {.agreed = {.bytes = data.size(), .kind = kBroadcast, .root = root}}, payload));
  if (!inside) {
    const Span span(comm_->trace, Trace::Kind::transfer, "broadcast", data.size());
    return comm_->broadcast_bytes(data, root, patience());
  }
  if (root != rank() && data.data() != nullptr)
    copy_bytes(data.data(), records()[root].payload, data.size());
  return {};
}

Status Call::abort_with(Code code, int32_t culprit, std::string_view phase, std::string sentence) {
  comm_->abort(comm_->steps.fail(code, culprit, text(operation_name(operation_), ": ", phase),
                                 std::move(sentence)));
  return comm_->failure_status();
}

Status Call::abort(const Status& status, std::string_view phase) {
  return abort_with(status.code(), rank(), phase, status.text());
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// The calls that all comms share. Each consists of exchanges.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <exception>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/refusals.h"
#include "base/text.h"
#include "comm/exchange_record.h"

namespace zero {
namespace {

constexpr size_t kScratchBytes = 4u << 20;  // the most for chunks; pages are touched only when used
constexpr size_t kVoteTextBytes = 3500;  // of a failure, for the other ranks; fits zero_last_error

size_t chunk_bytes(int32_t world, size_t record_bytes) {
  const size_t share = kScratchBytes / static_cast<size_t>(world) / 64 * 64;
  return std::clamp(share, kMostRecordBytes, record_bytes);
}

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) memcpy(to, from, bytes);
}

/// Combines two ExchangeRecords with payloads of `bytes` bytes.
struct CombineRecords {
  size_t bytes;
  Combining combining;

  void operator()(std::byte* to, const std::byte* from, size_t) const {
    ExchangeRecord& into = *reinterpret_cast<ExchangeRecord*>(to);
    const ExchangeRecord& other = *reinterpret_cast<const ExchangeRecord*>(from);
    into.header.add(other.header);
    if (into.header.odd.rank >= 0) return;  // payloads may have different types
    if (combining.combine != nullptr) combining.combine(into.payload, other.payload, bytes);
    if (other.header.gives == 0) return;
    into.header.gives = 1;
    memcpy(into.payload, other.payload, sizeof into.payload);
  }
};
constexpr CombineRecords kCombineSums{sizeof(Sum), combining<Sum>};

}  // namespace

// ---- Comm.

size_t Comm::scratch_bytes(int32_t world) {
  return 3 * sizeof(ExchangeRecord) +
         (static_cast<size_t>(world) + 1) * chunk_bytes(world, kRecordBytes);
}

Comm::Comm(int32_t rank, int32_t world, const CommOptions& options, std::shared_ptr<Device> device)
    : trace(device.get()),
      rank_(rank),
      world_(world),
      options_(options),
      device_(std::move(device)),
      clocks_(world),
      stamps_(static_cast<size_t>(world)),
      chunk_bytes_(chunk_bytes(world, kRecordBytes)),
      scratch_(new std::byte[scratch_bytes(world)]) {
  static_assert(sizeof(ExchangeRecord) <= kMostRecordBytes);
  log_as(rank);
  memset(scratch_.get(), 0, sizeof(ExchangeRecord));
}

Status Comm::combine_bytes(std::span<std::byte>, const Combine&, const Patience&) {
  return Status(ZERO_ERR_INTERNAL, text("a ", kind(), " comm cannot combine records"));
}

// ---- Call.

Call::Call(std::shared_ptr<Comm> comm, Operation operation, uint32_t object)
    : comm_(std::move(comm)),
      operation_(operation),
      object_(object),
      range_(comm_->trace.range(operation_name(operation))),
      begin_ns_(comm_->trace.on() ? now_ns() : 0),
      exceptions_(std::uncaught_exceptions()) {}

void Call::abort_out_of_memory() noexcept {
  const auto tell = [&] {
    (void)abort_with(
        ZERO_ERR_MEMORY, rank(), "memory",
        text("rank ", rank(), " ran out of memory inside ", operation_name(operation_)));
    return true;
  };
  const auto tell_shortly = [&] {  // short strings need no allocation
    comm_->abort(comm_->steps.fail(ZERO_ERR_MEMORY, rank(), "memory", "out of memory"));
    return true;
  };
  // If the short message also fails, the other ranks find out by their deadlines.
  if (!succeeds(tell)) (void)succeeds(tell_shortly);
}

Call::~Call() {
  if (!comm_) return;
  // Abort now if memory ran out between two exchanges, so that the other ranks do not have to wait
  // for their deadlines.
  if (std::uncaught_exceptions() > exceptions_) abort_out_of_memory();
  note_part();
  comm_->in_call_.store(false, std::memory_order_release);
  if (in_background_) comm_->leave_background();
}

ExchangeRecord& Call::own() const {
  return reinterpret_cast<ExchangeRecord*>(comm_->scratch_.get())[0];
}

ExchangeRecord& Call::combined() const {
  return reinterpret_cast<ExchangeRecord*>(comm_->scratch_.get())[1];
}

ExchangeRecord& Call::next() const {
  return reinterpret_cast<ExchangeRecord*>(comm_->scratch_.get())[2];
}

std::byte* Call::rows() const { return comm_->scratch_.get() + 3 * sizeof(ExchangeRecord); }

Patience Call::patience() const {
  const Patience first{operation_name(operation_), own().header.lowest.key.phase,
                       comm_->options().late_ms, false};
  return exchanges_ == 0 ? first : comm_->later(first);
}

/// Runs the first exchange of any kind, with the fields in `key` and `header` that this kind sets.
/// Afterwards combined() holds the combination over all ranks, which have been found to agree.
/// `payload` has at most kPayloadBytes.
Status Call::meet(std::string_view phase, ExchangeKey key, ExchangeHeader header,
                  std::span<const std::byte> payload, Combining combining) {
  log_as(rank());
  if (exchanges_ == 0 && operation_ != Operation::create) ++comm_->calls_;
  key.world = static_cast<uint32_t>(world());
  key.operation = calling_roll_ ? Operation::roll_call : operation_;
  key.object = object_;
  key.exchange = exchanges_;
  key.call = comm_->calls_;
  phase.copy(key.phase, sizeof key.phase - 1);
  header.lowest = {.rank = rank(), .key = key};
  header.traces = comm_->trace.on();
  const bool timed = comm_->some_trace_;
  header.ahead =
      std::exchange(ahead_, Ahead::no) == Ahead::asked && comm_->combines() && !timed ? 1 : 0;
  if (timed) header.stamps = comm_->clocks_.stamp(now_ns());
  own().header = header;
  copy_bytes(own().payload, payload.data(), payload.size());

  combined() = own();
  if (header.ahead) {
    fill_next();
    comm_->come_ahead(std::as_bytes(std::span(&next(), 1)), kCombineSums);
  }
  ZERO_TRY(combine_bytes(std::as_writable_bytes(std::span(&combined(), 1)),
                         CombineRecords{payload.size(), combining}));
  ++exchanges_;
  if (!comm_->combines()) ZERO_TRY(check_rows());
  ZERO_TRY(compare());
  if (combined().header.ahead != 0)
    ahead_ = Ahead::some;  // a rank that is ahead has not stamped the next exchange
  else
    comm_->some_trace_ = combined().header.traces != 0;
  if (timed) note_wait();
  return {};
}

void Call::come_ahead() { ahead_ = Ahead::asked; }

/// Fills next() with the record that combine(kLast, Sum()) would send.
void Call::fill_next() {
  next() = own();
  next().header.ahead = 0;
  ExchangeKey& key = next().header.lowest.key;
  ++key.exchange;
  key.bytes = sizeof(Sum);
  memset(key.phase, 0, sizeof key.phase);
  kLast.copy(key.phase, sizeof key.phase - 1);
  memset(next().payload, 0, sizeof(Sum));
}

Status Call::skip_ahead() {
  if (ahead_ == Ahead::some) ZERO_TRY(combine(kLast, Sum()));
  return {};
}

/// Sets `data` to the combination of all ranks' `data`. While some rank traces, rows() holds the
/// data of each rank afterwards.
Status Call::combine_bytes(std::span<std::byte> data, const Combine& combine) {
  if (comm_->combines() && !comm_->some_trace_)
    return comm_->combine_bytes(data, combine, patience());
  ZERO_TRY(comm_->exchange_bytes(data, {rows(), data.size() * static_cast<size_t>(world())},
                                 patience()));
  memcpy(data.data(), rows(), data.size());
  for (size_t r = 1; r < static_cast<size_t>(world()); ++r)
    combine(data.data(), rows() + r * data.size(), data.size());
  return {};
}

/// Finds the rank that arrived last at an exchange, and records the wait.
void Call::note_wait() {
  const auto* const all = reinterpret_cast<const ExchangeRecord*>(rows());
  std::vector<Stamps>& stamps = comm_->stamps_;
  for (size_t r = 0; r < stamps.size(); ++r) stamps[r] = all[r].header.stamps;
  Clocks& clocks = comm_->clocks_;
  const int64_t end_ns = now_ns();
  clocks.take(stamps, rank(), end_ns);
  comm_->trace.set_offset_ns(clocks.ahead_ns(0));
  comm_->trace.add(Trace::Kind::wait, own().header.lowest.key.phase, own().header.stamps.came_ns,
                   end_ns, clocks.last());
}

Status Call::go_on() {
  progress();
  comm_->heed_interrupt(operation_name(operation_));
  return comm_->aborted() ? comm_->failure_status() : Status();
}

/// Ends this thread's part of the call in the trace.
void Call::note_part() {
  if (begin_ns_ == 0) return;
  const int64_t end_ns = now_ns();
  comm_->trace.add(Trace::Kind::call, in_background_ ? "end of a step" : operation_name(operation_),
                   std::exchange(begin_ns_, end_ns), end_ns);
}

/// Checks that each rank's record is in its row.
Status Call::check_rows() {
  const std::string_view phase = own().header.lowest.key.phase;
  const auto* const all = reinterpret_cast<const ExchangeRecord*>(rows());
  for (int32_t r = 0; r < world(); ++r) {
    const ExchangeHeader& header = all[r].header;
    if (header.magic != ExchangeHeader::kMagic)
      return abort_with(
          ZERO_ERR_COMM, -1, phase,
          text("rank ", r, "'s record in ", operation_name(operation_),
               " is unreadable: the exchange is broken, or that rank runs another libzero"));
    if (header.lowest.rank != r)
      return abort_with(ZERO_ERR_COMM, -1, phase,
                        text("the exchange returned rank ", header.lowest.rank,
                             "'s record in place of rank ", r, "'s"));
  }
  if (memcmp(&all[rank()], &own(), sizeof(ExchangeRecord)) != 0)
    return abort_with(ZERO_ERR_COMM, -1, phase,
                      text("the exchange did not return rank ", rank(), "'s own record unchanged"));
  return {};
}

/// Checks that all ranks are in the same exchange. All ranks build the same error message.
Status Call::compare() {
  const ExchangeHeader& all = combined().header;
  const std::string_view phase = own().header.lowest.key.phase;
  if (all.odd.rank >= 0)
    return abort_with(ZERO_ERR_DESYNC, -1, phase,
                      desync_sentence(all.odd.rank, all.odd.key, all.lowest.rank, all.lowest.key));
  const bool sound = all.magic == ExchangeHeader::kMagic && all.failed < world() &&
                     !all.lowest.differs_from(own().header.lowest);
  if (!sound)
    return abort_with(
        ZERO_ERR_COMM, -1, phase,
        text("the ranks' records in ", operation_name(operation_), " are not what the ranks sent"));
  return {};
}

Status Call::combine_all(std::string_view phase, const Status& mine, std::span<std::byte> records,
                         Combining combining) {
  const bool inside = records.size() <= ExchangeRecord::kPayloadBytes;
  ExchangeHeader header{.code = mine.code()};
  if (!mine.ok()) {
    header.failed = rank();
    header.why_bytes = utf8_prefix(mine.text(), kVoteTextBytes).size();
  }
  ZERO_TRY(meet(phase, {.bytes = records.size(), .kind = kCombine}, header,
                inside ? records : std::span<std::byte>(), combining));
  if (combined().header.failed >= 0) return failed_vote(mine);
  if (inside) {
    copy_bytes(records.data(), combined().payload, records.size());
    return {};
  }
  const size_t most = comm_->chunk_bytes_ / combining.record_bytes * combining.record_bytes;
  for (size_t done = 0; done < records.size(); done += most) {
    const auto part = records.subspan(done, std::min(most, records.size() - done));
    const Span span(comm_->trace, Trace::Kind::transfer, "combine", part.size());
    ZERO_TRY(combine_bytes(part, combining.combine));
  }
  return {};
}

/// Ends a vote in which some rank failed, as all ranks have seen. The lowest such rank sends its
/// reason.
Status Call::failed_vote(const Status& mine) {
  const int32_t failed = combined().header.failed;
  const Code code = combined().header.code;
  const uint64_t why_bytes = combined().header.why_bytes;
  ZERO_TRY(skip_ahead());
  std::string why(std::min<uint64_t>(why_bytes, kVoteTextBytes), ' ');
  if (failed == rank()) mine.text().copy(why.data(), why.size());
  if (!why.empty())
    ZERO_TRY(comm_->broadcast_bytes(std::as_writable_bytes(std::span(why)), failed, patience()));
  if (!mine.ok()) return mine;
  const char* const name = code_name(code);
  return Status(ZERO_ERR_PEER,
                text("rank ", failed, " in ", operation_name(operation_), ": ",
                     name ? std::string(name) : text("status ", code), ": ", as_utf8(why)));
}

// ---- Functions that send data of each rank to all ranks.

Status Call::exchange(std::string_view phase, std::span<const std::byte> mine,
                      std::span<std::byte> all) {
  assert(all.size() == mine.size() * static_cast<size_t>(world()));
  ZERO_TRY(meet(phase, {.bytes = mine.size(), .kind = kExchange}, {}));
  const size_t bytes = mine.size();
  return collect(mine, bytes, [&](size_t r) { return all.subspan(r * bytes, bytes); });
}

/// Gathers from each rank as many bytes as its place has room for, at most `longest`.
template <class Place>
Status Call::collect(std::span<const std::byte> mine, size_t longest, const Place& place_of) {
  const size_t ranks = static_cast<size_t>(world());
  for (size_t done = 0, part; done < longest; done += part) {
    part = std::min(longest - done, comm_->chunk_bytes_);
    std::span<const std::byte> rest = mine.subspan(std::min(done, mine.size()));
    if (rest.size() < part) {  // other ranks send more than this rank
      std::byte* const padded = rows() + ranks * part;
      copy_bytes(padded, rest.data(), rest.size());
      memset(padded + rest.size(), 0, part - rest.size());
      rest = {padded, part};
    }
    const Span span(comm_->trace, Trace::Kind::transfer, "exchange", part);
    ZERO_TRY(comm_->exchange_bytes(rest.first(part), {rows(), ranks * part}, patience()));
    for (size_t r = 0; r < ranks; ++r) {
      const std::span<std::byte> to = place_of(r);
      if (to.size() > done)
        memcpy(to.data() + done, rows() + r * part, std::min(to.size() - done, part));
    }
  }
  return {};
}

Result<std::vector<std::string>> Call::gather(std::string_view phase, std::string_view mine) {
  ZERO_TRY(meet(phase, {.kind = kGather}, {.longest = mine.size()}));
  const uint64_t longest = combined().header.longest;
  ZERO_TRY(check_text(longest));
  std::vector<std::string> all(static_cast<size_t>(world()));
  if (longest == 0) return all;
  std::vector<uint64_t> sizes(all.size());
  const auto size_at = [&](size_t r) { return std::as_writable_bytes(std::span(&sizes[r], 1)); };
  const uint64_t bytes = mine.size();
  ZERO_TRY(collect(std::as_bytes(std::span(&bytes, 1)), sizeof bytes, size_at));
  for (size_t r = 0; r < all.size(); ++r) all[r].resize(std::min(sizes[r], longest));
  ZERO_TRY(collect(bytes_of(mine), longest,
                   [&](size_t r) { return std::as_writable_bytes(std::span(all[r])); }));
  return all;
}

Status Call::broadcast(std::string_view phase, std::span<std::byte> data, int32_t root) {
  if (root < 0 || root >= world())
    return Status(ZERO_ERR_ARGUMENT, text(operation_name(operation_), ": root is rank ", root,
                                          ", but the comm has ranks 0 to ", world() - 1));
  const bool inside = data.size() <= ExchangeRecord::kPayloadBytes;
  const bool gives = inside && root == rank();
  ZERO_TRY(meet(phase, {.bytes = data.size(), .kind = kBroadcast, .root = root}, {.gives = gives},
                gives ? data : std::span<std::byte>()));
  if (!inside) {
    const Span span(comm_->trace, Trace::Kind::transfer, "broadcast", data.size());
    return comm_->broadcast_bytes(data, root, patience());
  }
  if (root != rank() && data.data() != nullptr)
    copy_bytes(data.data(), combined().payload, data.size());
  return {};
}

Result<std::string> Call::broadcast_text(std::string_view phase, std::string_view mine,
                                         int32_t root) {
  uint64_t bytes = mine.size();
  ZERO_TRY(broadcast(phase, std::as_writable_bytes(std::span(&bytes, 1)), root));
  ZERO_TRY(check_text(bytes));
  std::string text(root == rank() ? mine : std::string_view());
  text.resize(bytes);
  ZERO_TRY(broadcast(phase, std::as_writable_bytes(std::span(text)), root));
  return text;
}

Status Call::check_text(uint64_t bytes) const {
  if (bytes <= kTextBytes) return {};
  return unsupported(operation_name(operation_), ": a rank sends ", bytes,
                     " bytes to the other ranks; at most ", kTextBytes, " are allowed");
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

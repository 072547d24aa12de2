// SPDX-License-Identifier: Apache-2.0
// Comm: one rank's seat in a group. Backends implement the protected virtuals; the calls above them
// (headers compared, votes, agreement) are written once, in call.cpp, for all of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/arena.h"
#include "comm/clocks.h"
#include "comm/combine.h"
#include "comm/failure.h"
#include "comm/operation.h"
#include "comm/options.h"
#include "comm/queued_plane.h"
#include "comm/trace.h"
#include "comm/traffic.h"
#include "comm/watch.h"
#include "device/device.h"

namespace zero {

/// Some ranks of a comm: `count` of them, from `first` on, `stride` apart.
struct Ranks {
  int32_t first, stride, count;
  bool operator==(const Ranks&) const = default;
};

/// The side on which an arena is, on comms with a device.
enum class Side { device, host };

class Call;
struct ExchangeKey;
struct ExchangeHeader;
struct ExchangeRecord;

class Comm : public std::enable_shared_from_this<Comm> {
 public:
  virtual ~Comm() = default;

  int32_t rank() const { return rank_; }
  int32_t world() const { return world_; }
  const CommOptions& options() const { return options_; }
  virtual const char* kind() const = 0;
  /// Returns the device of parameters and gradients; nullptr: they are in the host's memory.
  const std::shared_ptr<Device>& device() const { return device_; }
  /// Returns the plane on which gradients and parameters travel, with a device and without
  /// direct().
  virtual QueuedPlane* queued() { return nullptr; }
  /// Returns the gates: only with a device, direct(), and more than one rank.
  virtual Gates* gates() { return nullptr; }
  /// Returns OK if calls on a stream that is being captured can be part of the graph, or why not.
  virtual Status check_capture() const { return {}; }
  /// With a device: how often the host has waited for a stream inside a call, and so for the other
  /// ranks, because streams cannot do that themselves.
  std::atomic<int64_t> host_waits{0};
  /// With a device: bytes that this rank copied on their way through the host's memory.
  std::atomic<int64_t> staged_bytes{0};
  /// Nothing on comms of one host. A user comm knows no hosts: all other ranks count. What NCCL
  /// carries is not counted.
  virtual Traffic& traffic() { return traffic_; }
  /// Returns the bytes of this rank's record, what all combine to, its next record, and a row for
  /// each rank and one more.
  static size_t scratch_bytes(int32_t world);

  /// Enters a collective call. Fails with ZERO_ERR_BUSY if a thread is inside one, and with the
  /// first cause if the comm is aborted. Waits for a call that ends in the background. `object`
  /// tells optimizers of one comm apart (their number in order of creation; 0: the comm).
  Result<Call> begin(Operation operation, uint32_t object = 0);

  /// Returns the number of the next optimizer created on this comm: 1, 2, ...
  uint32_t next_object() { return ++objects_; }

  /// Returns why this thread cannot begin a collective call now.
  virtual Status check_caller() { return {}; }

  // The failure that broke the comm. A seat that tells no other has only its own first cause.
  virtual bool aborted() const { return cause_.is_set(); }
  /// Looks whether the comm is broken, and returns the cause. It is asked during waits for queued
  /// work. Any thread may call it.
  virtual Status check() {
    heed_interrupt("queued work");
    return aborted() ? failure_status() : Status();
  }
  /// Breaks the comm if the program has interrupted this thread's call (interrupt.h), which waits
  /// at `where`. To be called by whoever waits for other ranks, between two slices.
  virtual void heed_interrupt(std::string_view where);
  virtual Failure failure() const { return cause_.get(); }
  /// Returns the failure that broke the comm, as later calls return it.
  Status failure_status() const;
  /// Breaks the comm for `cause`; the first cause wins. Any thread may call it.
  virtual void abort(const Failure& cause) { cause_.set(cause); }

  /// Set by src/step.
  StepsSoFar steps;

  Trace trace;
  /// Begins this seat's trace in `directory`.
  Status start_trace(const std::string& directory);
  /// Begins it in the directory that ZERO_TRACE names, if there is one. A failure is logged.
  void start_asked_trace();

  // ---- Memory.

  /// True if a rank can load and store other ranks' arenas (solo: trivially): the direct step.
  /// False: the collective step, through all_gather and the like.
  virtual bool direct() const = 0;

  /// Returns the location of this rank's bytes at `data`: arena 0 if they are not in an arena of
  /// this comm. Solo: everything is addressable.
  virtual Location locate(const void* data, size_t bytes) const;

  /// Returns the address in this process of `rank`'s bytes at `location`, range-checked. Only with
  /// direct().
  virtual Result<std::byte*> resolve(int32_t rank, const Location& location, size_t bytes) const;

  /// Returns the arena that a location names, to keep it alive, or nullptr if it is gone or there
  /// is none.
  virtual std::shared_ptr<Arena> arena(const Location& location) const;

  // ---- Data plane of comms on the host that are not direct(): equal `bytes` (or counts) on every
  // rank; called inside a Call; failures have aborted the comm. What is sent to be summed, and what
  // is gathered, lies in an arena of the comm, where other ranks of the host may reach it.

  // Transfers that are given together may go on behind each other without a stop.

  virtual Status all_gather(Call& call, std::span<const Gathered> all);
  Status all_gather(Call& call, const void* send, void* recv, size_t bytes) {
    const Gathered one{send, recv, bytes};
    return all_gather(call, {&one, 1});
  }
  /// Does the same among some ranks: every rank names those that it is one of, and as many. Each
  /// `recv` has room for what each of them sends. `scratch` has room for kGatherBytes of every
  /// rank.
  Status gather_among(Call& call, const Ranks& among, std::span<const Gathered> all,
                      std::span<std::byte> scratch);
  static constexpr size_t kGatherBytes = 4096;
  /// Sets each `recv` to the sum over ranks of this rank's chunk of `send` (world chunks of `count`
  /// elements). If libzero sums itself, it does so in rank order, and may also add: recv + the
  /// first + ... . `scratch` has room for as much as one `send`.
  virtual Status reduce_scatter(Call& call, std::span<const Scattered> all, void* scratch);
  /// True if padding travels, too, so that what is sent and received has room for the parts of all
  /// ranks. If not, it has room for those of owners.
  virtual bool carries_padding() const { return true; }
  /// True if libzero sums itself, from any floating type. If not, data to send must have the sum's
  /// type.
  virtual bool sums_itself() const { return true; }

 protected:
  friend class Call;
  /// Makes a gather among more than one rank, and fewer than all. This one gathers from all, and
  /// picks.
  virtual Status gather_some(Call& call, const Ranks& among, std::span<const Gathered> all,
                             std::span<std::byte> scratch);
  Comm(int32_t rank, int32_t world, const CommOptions& options,
       std::shared_ptr<Device> device = nullptr);

  /// Returns this rank as errors call it.
  virtual int32_t called() const { return rank_; }

  /// Returns the patience of waits after a call's first one, which late_ms bounds.
  Patience later(Patience patience) const {
    patience.limit_ms = options_.timeout_ms;
    patience.extended_by_progress = true;
    return patience;
  }

  // The control plane. Sizes are equal on every rank, at most kRecordBytes. All ranks succeed, or
  // all fail with the same cause and the comm is aborted.

  /// True if combine_bytes() is there. If not, ranks bring their records together, and each
  /// combines all of them.
  virtual bool combines() const { return false; }
  /// Sets `data`, on every rank, to what those of all ranks combine to.
  virtual Status combine_bytes(std::span<std::byte> data, const Combine& combine,
                               const Patience& patience);
  /// Tells, before a combine_bytes(), what this rank will bring to the one behind it, because it
  /// has nothing to do between them. The comm may take that along, so that the rank sleeps once.
  virtual void come_ahead(std::span<const std::byte>, const Combine&) {}
  /// Brings every rank's `mine` into `all`, in rank order.
  virtual Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                                const Patience& patience) = 0;
  /// Copies `data` of `root` into every rank's `data`. On direct comms a rank that needs nothing of
  /// it may give null, with the size.
  virtual Status broadcast_bytes(std::span<std::byte> data, int32_t root,
                                 const Patience& patience) = 0;
  /// Collective, inside a Call. Returns the arena, or this rank's failure (the caller votes).
  /// `number` and the parameters after it are the same on every rank. This one makes a
  /// PrivateArena.
  virtual Result<std::shared_ptr<Arena>> allocate(Call& call, uint32_t number, size_t bytes,
                                                  int32_t kind, Side side);
  /// Returns the place of memory in an arena that this comm has made, claimed or not.
  Location place_in_arena(const void* data, size_t bytes) const;
  /// Returns the next arena's number. It counts attempts, which all ranks count alike, even if some
  /// fail.
  uint32_t next_arena();
  /// Collective, inside a Call of the parent, on every rank of it. Returns the seat among `members`
  /// (parent ranks in the child's order), where this rank has `place`, or this rank's failure (the
  /// caller votes). If the color is negative, `members` is empty, and it returns nullptr.
  virtual Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                                   int32_t place, int32_t color) = 0;
  /// Shows that this rank is alive and working: deadlines of those who wait for it start anew.
  virtual void note_progress() {}

  /// A call may carry this many bytes a rank in one exchange.
  static constexpr size_t kRecordBytes = 16384;

  FirstCause cause_;

 private:
  Status await_background(Operation operation);
  void leave_background();

  const int32_t rank_;
  const int32_t world_;
  const CommOptions options_;
  const std::shared_ptr<Device> device_;
  Traffic traffic_;
  std::atomic<bool> in_call_{false};
  std::mutex background_mutex_;
  std::condition_variable background_done_;
  bool in_background_ = false;  // the call in progress has returned to its caller
  std::atomic<uint32_t> objects_{0};
  uint32_t arena_attempts_ = 0;
  mutable std::mutex arenas_mutex_;
  std::map<uint32_t, std::weak_ptr<Arena>> arenas_;  // by number
  // Calls of this seat that have exchanged something, without the one that made it. Ranks must
  // agree on it.
  uint64_t calls_ = 0;
  std::string split_;  // the splits by which it came about; "": none
  Clocks clocks_;
  std::vector<Stamps> stamps_;  // room for those of all ranks
  bool some_trace_ = false;     // some rank has traced the latest exchange: all stamp the next
  const size_t chunk_bytes_;    // of what all ranks' bytes are brought together of, a rank
  const std::unique_ptr<std::byte[]> scratch_;  // of the call in progress, see call.cpp
};

/// One collective call in progress on one seat. Each of its exchanges is compared with the other
/// ranks'. Its destructor leaves the comm; if an exception is the reason, it breaks the comm,
/// because the others wait. Phases are short words; their first 31 bytes are compared.
class Call {
 public:
  Call(Call&&) noexcept = default;
  Call& operator=(Call&&) = delete;
  ~Call();

  Comm& comm() const { return *comm_; }
  int32_t rank() const { return comm_->rank(); }
  int32_t world() const { return comm_->world(); }
  Operation operation() const { return operation_; }

  /// Return the caller's stream, if the comm has a device, and the number of the capture that it is
  /// part of; 0: none.
  StreamHandle stream() const { return stream_; }
  uint64_t capture() const { return capture_; }
  void take_stream(StreamHandle stream, uint64_t capture) {
    stream_ = stream;
    capture_ = capture;
  }

  // Each of these fails with ZERO_ERR_DESYNC, which aborts the comm and names both sides, if a rank
  // is in another call, phase or exchange, or sends another size.

  /// Returns what all ranks' records combine to (comm/combine.h). What it costs a rank does not
  /// grow with the ranks.
  template <class Record>
  Result<Record> combine(std::string_view phase, Record mine) {
    ZERO_TRY(combine_all(phase, Status(), as_bytes_of(mine), combining<Record>));
    return mine;
  }
  /// Combines each of `records` with those that stand in its place on the other ranks.
  template <class Record>
  Status combine_each(std::string_view phase, std::span<Record> records) {
    return combine_all(phase, Status(), std::as_writable_bytes(records), combining<Record>);
  }

  /// Agrees on success. Returns OK only if `mine` is OK on every rank. If not, a rank that failed
  /// gets its own status, and all others get ZERO_ERR_PEER with "rank 2 in zero_step:
  /// ZERO_ERR_MEMORY: ..." of the lowest rank that failed. The comm stays usable.
  Status vote(std::string_view phase, const Status& mine) {
    return combine_all(phase, mine, {}, {});
  }
  /// Votes, and returns what all ranks' records combine to.
  template <class Record>
  Result<Record> vote(std::string_view phase, const Status& mine, Record record) {
    ZERO_TRY(combine_all(phase, mine, as_bytes_of(record), combining<Record>));
    return record;
  }
  /// Votes on what this rank has made, and returns it if all ranks have made theirs.
  template <class Made>
  Result<Made> vote(std::string_view phase, Result<Made> made) {
    ZERO_TRY(vote(phase, made.failure()));
    return made;
  }
  /// Returns why not all ranks can do something: the words of the lowest rank whose `mine` is
  /// ZERO_ERR_UNSUPPORTED; "" if all can. It fails if a rank's `mine` is any other failure.
  Result<std::string> find_lacking(std::string_view phase, const Status& mine);

  /// Says that this rank has nothing to do between the vote that follows and the combine() behind
  /// it, of a Sum of zero in phase kLast. It comes to that as well, if the comm lets it.
  void come_ahead();
  static constexpr std::string_view kLast = "publish";
  /// Makes that combine() if some rank has come to it in the latest vote, and all now go another
  /// way.
  Status skip_ahead();

  // These bring to every rank something of each of them, for what is rare.

  /// Brings every rank's `mine` into `all` (world * mine.size() bytes).
  Status exchange(std::string_view phase, std::span<const std::byte> mine,
                  std::span<std::byte> all);
  template <class Record>
  Result<std::vector<Record>> exchange(std::string_view phase, const Record& mine) {
    std::vector<Record> all(static_cast<size_t>(world()));
    ZERO_TRY(exchange(phase, std::as_bytes(std::span(&mine, 1)),
                      std::as_writable_bytes(std::span(all))));
    return all;
  }
  /// Returns the strings of every rank, in rank order, of any length up to a GiB.
  Result<std::vector<std::string>> gather(std::string_view phase, std::string_view mine);

  /// Copies `data` of `root` into every rank's. Fails with ZERO_ERR_DESYNC if ranks differ about
  /// its size or the root. On direct comms it may be null, as in Comm::broadcast_bytes.
  Status broadcast(std::string_view phase, std::span<std::byte> data, int32_t root);
  /// Returns `mine` of `root`, of any length up to a GiB.
  Result<std::string> broadcast_text(std::string_view phase, std::string_view mine, int32_t root);

  /// Finds out whether every rank passed the same `mine`. If not, the ranks that differ from the
  /// majority (from the lowest rank, on a tie) get ZERO_ERR_MISMATCH and the others ZERO_ERR_PEER,
  /// with one sentence: "<what>: rank 2 has <its text>, rank 0 has <its text>". If texts have
  /// several lines, it shows the first that differs.
  Status agree(std::string_view phase, std::string_view what, std::string_view mine,
               std::string_view verb = "has");

  /// Makes an arena on every rank or on none. The caller claims it. On a comm with a device,
  /// Side::host needs direct().
  Result<std::shared_ptr<Arena>> allocate(size_t bytes, int32_t kind, Side side = Side::device);
  /// Makes the seats of all children or of none. Returns nullptr for a negative color.
  Result<std::shared_ptr<Comm>> split(int32_t color, int32_t key);

  void progress() { comm_->note_progress(); }
  /// Does the same between two parts of work that is long. Fails if the comm is broken, or if the
  /// program ends the call.
  Status go_on();

  /// Takes the call from the caller's thread: another one ends it.
  void go_to_background();

  /// Lets exchanges up to take_up() pair with those of any call on this optimizer that calls the
  /// roll.
  void call_roll() { calling_roll_ = true; }
  /// Exchanges that follow are of `operation`.
  void take_up(Operation operation) {
    calling_roll_ = false;
    operation_ = operation;
  }

  /// Aborts the comm with `status` (of this rank's making), and returns the cause that stands.
  Status abort(const Status& status, std::string_view phase);
  /// Does the same when there may be no memory for words.
  void abort_out_of_memory() noexcept;

 private:
  friend class Comm;
  static constexpr uint64_t kTextBytes = 1ull << 30;  // of one rank, in gather and agree

  Call(std::shared_ptr<Comm> comm, Operation operation, uint32_t object);

  template <class Item>
  static std::span<std::byte> as_bytes_of(Item& item) {
    return std::as_writable_bytes(std::span(&item, 1));
  }

  ExchangeRecord& own() const;
  ExchangeRecord& combined() const;
  ExchangeRecord& next() const;
  std::byte* rows() const;
  Patience patience() const;
  Status meet(std::string_view phase, ExchangeKey key, ExchangeHeader header,
              std::span<const std::byte> payload = {}, Combining combining = {});
  Status combine_bytes(std::span<std::byte> data, const Combine& combine);
  void fill_next();
  Status check_rows();
  Status compare();
  void note_wait();
  void note_part();
  Status combine_all(std::string_view phase, const Status& mine, std::span<std::byte> records,
                     Combining combining);
  template <class Place>
  Status collect(std::span<const std::byte> mine, size_t longest, const Place& place_of);
  Status failed_vote(const Status& mine);
  Status check_text(uint64_t bytes) const;
  Status disagreement(std::string_view what, std::string_view mine, std::string_view verb,
                      std::span<const uint64_t> sizes, int32_t odd, int32_t usual);
  Status abort_with(Code code, int32_t culprit, std::string_view phase, std::string sentence);

  std::shared_ptr<Comm> comm_;
  Operation operation_;
  uint32_t object_ = 0;
  StreamHandle stream_ = nullptr;
  uint64_t capture_ = 0;
  uint32_t exchanges_ = 0;                                  // so far
  enum class Ahead { no, asked, some } ahead_ = Ahead::no;  // some: a rank, in the latest exchange
  DeviceRange range_;
  int64_t begin_ns_;  // in the trace; 0: there is none
  bool calling_roll_ = false;
  bool in_background_ = false;
  int exceptions_;  // in flight when the call began
};

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Comm: one rank's member of a group of ranks. Backends implement the protected virtual functions.
// Everything above them (comparing headers, votes, agreement) is implemented once, in call.cpp.
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

/// A subset of the ranks of a comm: `count` ranks that start at `first` and are `stride` apart.
struct Ranks {
  int32_t first, stride, count;
  bool operator==(const Ranks&) const = default;
};

/// The memory in which an arena is allocated on comms with a device.
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
  /// Returns the device that holds parameters and gradients, or nullptr if they are in host memory.
  const std::shared_ptr<Device>& device() const { return device_; }
  /// Returns the plane that transfers gradients and parameters on comms that have a device and are
  /// not direct(), and nullptr on other comms.
  virtual QueuedPlane* queued() { return nullptr; }
  /// Returns the gates of comms that have a device, are direct(), and have several ranks, or
  /// nullptr.
  virtual Gates* gates() { return nullptr; }
  /// Returns OK if calls on a stream that is being captured can join the graph, or why they cannot.
  virtual Status check_capture() const { return {}; }
  /// How often the host waited for a stream inside a call, and therefore for the other ranks,
  /// because streams cannot do so themselves. Counted only on comms with a device.
  std::atomic<int64_t> host_waits{0};
  /// Bytes that this rank copied through host memory. Counted only on comms with a device.
  std::atomic<int64_t> staged_bytes{0};
  /// Returns the traffic between hosts. It stays 0 on comms of one host. A user comm does not know
  /// hosts, so it counts all other ranks. Data sent by NCCL is not counted.
  virtual Traffic& traffic() { return traffic_; }
  /// Returns the size of the scratch memory: this rank's record, the combined record, the next
  /// record, one row for each rank, and one extra row.
  static size_t scratch_bytes(int32_t world);

  /// Enters a collective call. Waits for a call that ends in the background. Fails with
  /// ZERO_ERR_BUSY if another thread is inside a call, and with the first cause if the comm is
  /// aborted. `object` is the creation number of an optimizer of this comm, or 0 for the comm.
  Result<Call> begin(Operation operation, uint32_t object = 0);

  /// Returns the number of the next optimizer created on this comm, starting at 1.
  uint32_t next_object() { return ++objects_; }

  /// Returns OK, or why this thread cannot begin a collective call now.
  virtual Status check_caller() { return {}; }

  // Returns true if the comm is broken. This version knows only the failures found on this rank.
  virtual bool aborted() const { return cause_.is_set(); }
  /// Checks whether the comm is broken, and returns the cause. Waits for queued work call this. Any
  /// thread may call it.
  virtual Status check() {
    heed_interrupt("queued work");
    return aborted() ? failure_status() : Status();
  }
  /// Breaks the comm if the program has interrupted the call of this thread (interrupt.h). `where`
  /// says where the call waits. Code that waits for other ranks calls this between two slices.
  virtual void heed_interrupt(std::string_view where);
  virtual Failure failure() const { return cause_.get(); }
  /// Returns the failure that broke the comm, in the form that later calls return.
  Status failure_status() const;
  /// Breaks the comm with `cause`. Only the first cause is kept. Any thread may call it.
  virtual void abort(const Failure& cause) { cause_.set(cause); }

  /// Set by src/step.
  StepsSoFar steps;

  Trace trace;
  /// Starts the trace of this rank in `directory`.
  Status start_trace(const std::string& directory);
  /// Starts the trace in the directory named by ZERO_TRACE, if it is set. A failure is only logged.
  void start_asked_trace();

  // ---- Memory.

  /// Returns true if this rank can load from and store to other ranks' arenas (trivially true for
  /// solo). Then steps access memory directly. Otherwise they use collectives such as all_gather.
  virtual bool direct() const = 0;

  /// Returns the location of this rank's bytes at `data`, or arena 0 if they are not in an arena of
  /// this comm. A solo comm can address any memory.
  virtual Location locate(const void* data, size_t bytes) const;

  /// Returns the address in this process of the bytes of `rank` at `location`. Fails if the range
  /// lies outside the arena. Only for direct() comms.
  virtual Result<std::byte*> resolve(int32_t rank, const Location& location, size_t bytes) const;

  /// Returns the arena of a location, to keep it alive, or nullptr if there is none any more.
  virtual std::shared_ptr<Arena> arena(const Location& location) const;

  // Data plane of comms on the host that are not direct(). These functions are called inside a Call
  // with the same sizes on every rank. A failure aborts the comm. Data to be summed, and gathered
  // results, lie in an arena of the comm, where other ranks of the host can reach them.

  // Transfers passed in one call can run one after another without a synchronization in between.

  virtual Status all_gather(Call& call, std::span<const Gathered> all);
  Status all_gather(Call& call, const void* send, void* recv, size_t bytes) {
    const Gathered one{send, recv, bytes};
    return all_gather(call, {&one, 1});
  }
  /// Gathers among a subset of the ranks. Each rank passes a subset that contains it, and all
  /// subsets have the same size. Each `recv` has room for the data of every rank in the subset.
  /// `scratch` has room for kGatherBytes from every rank.
  Status gather_among(Call& call, const Ranks& among, std::span<const Gathered> all,
                      std::span<std::byte> scratch);
  static constexpr size_t kGatherBytes = 4096;
  /// Sets each `recv` to the sum over ranks of this rank's chunk of `send`, which has one chunk of
  /// `count` elements for each rank. If libzero computes the sums, it adds in rank order, and can
  /// also accumulate into `recv`. `scratch` has the size of one `send`.
  virtual Status reduce_scatter(Call& call, std::span<const Scattered> all, void* scratch);
  /// Returns true if padding is also transferred, so that buffers need room for the parts of all
  /// ranks. Otherwise buffers need room only for the parts of owners.
  virtual bool carries_padding() const { return true; }
  /// Returns true if libzero computes the sums, from any floating-point type. Otherwise data to be
  /// sent must have the type of the sums.
  virtual bool sums_itself() const { return true; }

 protected:
  friend class Call;
  /// Gathers among more than one rank and fewer than all ranks. This version gathers from all ranks
  /// and copies the parts of the subset.
  virtual Status gather_some(Call& call, const Ranks& among, std::span<const Gathered> all,
                             std::span<std::byte> scratch);
  Comm(int32_t rank, int32_t world, const CommOptions& options,
       std::shared_ptr<Device> device = nullptr);

  /// Returns the number of this rank in error messages.
  virtual int32_t called() const { return rank_; }

  /// Returns the patience of waits after the first one of a call, which late_ms bounds.
  Patience later(Patience patience) const {
    patience.limit_ms = options_.timeout_ms;
    patience.extended_by_progress = true;
    return patience;
  }

  // The control plane. Sizes are equal on every rank, at most kRecordBytes. Either all ranks
  // succeed, or all ranks fail with the same cause and the comm is aborted.

  /// Returns true if the comm implements combine_bytes(). Otherwise each rank receives the records
  /// of all ranks and combines them itself.
  virtual bool combines() const { return false; }
  /// Sets `data` on every rank to the combination of all ranks' `data`.
  virtual Status combine_bytes(std::span<std::byte> data, const Combine& combine,
                               const Patience& patience);
  /// Submits, before a combine_bytes(), this rank's record for the combine_bytes() after it,
  /// because this rank has nothing to do in between. A comm can combine both at once, so that the
  /// rank blocks once instead of twice. Optional.
  virtual void come_ahead(std::span<const std::byte>, const Combine&) {}
  /// Gathers every rank's `mine` into `all`, in rank order.
  virtual Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                                const Patience& patience) = 0;
  /// Copies `data` of `root` into every rank's `data`. On direct comms, a rank that does not need
  /// the data can pass a null pointer with the size.
  virtual Status broadcast_bytes(std::span<std::byte> data, int32_t root,
                                 const Patience& patience) = 0;
  /// Allocates an arena. Collective, inside a Call. Returns the arena, or this rank's failure, on
  /// which the caller votes. `number` and the parameters after it are the same on every rank. This
  /// version allocates a PrivateArena.
  virtual Result<std::shared_ptr<Arena>> allocate(Call& call, uint32_t number, size_t bytes,
                                                  int32_t kind, Side side);
  /// Returns the location of memory in an arena of this comm, whether or not the arena is claimed.
  Location place_in_arena(const void* data, size_t bytes) const;
  /// Returns the next arena's number. It also counts failed attempts, which all ranks count alike.
  uint32_t next_arena();
  /// Makes the child comm of `members` (parent ranks in the child's order), in which this rank has
  /// number `place`. Collective, inside a Call of the parent, on every rank of the parent. Returns
  /// this rank's failure if there is one, on which the caller votes. If the color is negative,
  /// `members` is empty and the result is nullptr.
  virtual Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                                   int32_t place, int32_t color) = 0;
  /// Reports that this rank is alive, which restarts the deadlines of ranks that wait for it.
  virtual void note_progress() {}

  /// The most bytes that each rank contributes to one exchange.
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
  bool in_background_ = false;  // true after the call in progress has returned to its caller
  std::atomic<uint32_t> objects_{0};
  uint32_t arena_attempts_ = 0;
  mutable std::mutex arenas_mutex_;
  std::map<uint32_t, std::weak_ptr<Arena>> arenas_;  // by number
  // Number of calls of this rank that have exchanged data, except the one that created the comm. It
  // must be the same on all ranks.
  uint64_t calls_ = 0;
  std::string split_;  // the splits that created this comm, or "" if there are none
  Clocks clocks_;
  std::vector<Stamps> stamps_;  // room for the stamps of all ranks
  bool some_trace_ = false;     // some rank traced the latest exchange; stamp the next
  const size_t chunk_bytes_;    // bytes of each rank that one exchange of a longer transfer carries
  const std::unique_ptr<std::byte[]> scratch_;  // used by the call in progress; see call.cpp
};

/// One collective call in progress on one rank. Each of its exchanges is compared with those of the
/// other ranks. The destructor leaves the comm. If it runs because of an exception, it breaks the
/// comm, because the other ranks are waiting. Phases are short words, and their first 31 bytes are
/// compared.
class Call {
 public:
  Call(Call&&) noexcept = default;
  Call& operator=(Call&&) = delete;
  ~Call();

  Comm& comm() const { return *comm_; }
  int32_t rank() const { return comm_->rank(); }
  int32_t world() const { return comm_->world(); }
  Operation operation() const { return operation_; }

  /// Return the caller's stream, if the comm has a device, and the number of the capture that the
  /// stream is part of, or 0.
  StreamHandle stream() const { return stream_; }
  uint64_t capture() const { return capture_; }
  void take_stream(StreamHandle stream, uint64_t capture) {
    stream_ = stream;
    capture_ = capture;
  }

  // Each of these functions fails with ZERO_ERR_DESYNC if a rank is in another call, phase or
  // exchange, or sends another size. The failure aborts the comm and describes both sides.

  /// Returns the combination of all ranks' records (comm/combine.h). The cost on each rank does not
  /// grow with the number of ranks.
  template <class Record>
  Result<Record> combine(std::string_view phase, Record mine) {
    ZERO_TRY(combine_all(phase, Status(), as_bytes_of(mine), combining<Record>));
    return mine;
  }
  /// Combines each element of `records` with the elements at the same index on the other ranks.
  template <class Record>
  Status combine_each(std::string_view phase, std::span<Record> records) {
    return combine_all(phase, Status(), std::as_writable_bytes(records), combining<Record>);
  }

  /// Agrees on success. Returns OK only if `mine` is OK on every rank. Otherwise, a rank that
  /// failed gets its own status, and all other ranks get ZERO_ERR_PEER with "rank 2 in zero_step:
  /// ZERO_ERR_MEMORY: ..." for the lowest rank that failed. The comm stays usable.
  Status vote(std::string_view phase, const Status& mine) {
    return combine_all(phase, mine, {}, {});
  }
  /// Votes, and returns the combination of all ranks' records.
  template <class Record>
  Result<Record> vote(std::string_view phase, const Status& mine, Record record) {
    ZERO_TRY(combine_all(phase, mine, as_bytes_of(record), combining<Record>));
    return record;
  }
  /// Votes on the result of this rank, and returns it if all ranks succeeded.
  template <class Made>
  Result<Made> vote(std::string_view phase, Result<Made> made) {
    ZERO_TRY(vote(phase, made.failure()));
    return made;
  }
  /// Finds out whether all ranks can do something. Returns the message of the lowest rank whose
  /// `mine` is ZERO_ERR_UNSUPPORTED, or "" if there is none. Fails if any `mine` is another
  /// failure.
  Result<std::string> find_lacking(std::string_view phase, const Status& mine);

  /// Announces that this rank has nothing to do between the next vote and the combine() of a zero
  /// Sum in phase kLast after it. The rank then joins that combine() together with the vote, if the
  /// comm can do so.
  void come_ahead();
  static constexpr std::string_view kLast = "publish";
  /// Completes that combine() if some rank joined it in the latest vote but all now do otherwise.
  Status skip_ahead();

  // These functions send data of every rank to every rank. They are for infrequent use.

  /// Gathers every rank's `mine` into `all` (world * mine.size() bytes).
  Status exchange(std::string_view phase, std::span<const std::byte> mine,
                  std::span<std::byte> all);
  template <class Record>
  Result<std::vector<Record>> exchange(std::string_view phase, const Record& mine) {
    std::vector<Record> all(static_cast<size_t>(world()));
    ZERO_TRY(exchange(phase, std::as_bytes(std::span(&mine, 1)),
                      std::as_writable_bytes(std::span(all))));
    return all;
  }
  /// Returns the strings of all ranks, in rank order. Each can have up to 1 GiB.
  Result<std::vector<std::string>> gather(std::string_view phase, std::string_view mine);

  /// Copies `data` of `root` into every rank's `data`. Fails with ZERO_ERR_DESYNC if ranks pass
  /// different sizes or roots. On direct comms, `data` may be null as in Comm::broadcast_bytes.
  Status broadcast(std::string_view phase, std::span<std::byte> data, int32_t root);
  /// Returns `mine` of `root`, which can have up to 1 GiB.
  Result<std::string> broadcast_text(std::string_view phase, std::string_view mine, int32_t root);

  /// Checks that every rank passed the same `mine`. If not, the ranks that differ from the majority
  /// (from the lowest rank, on a tie) get ZERO_ERR_MISMATCH and the others get ZERO_ERR_PEER, with
  /// one sentence: "<what>: rank 2 has <its text>, rank 0 has <its text>". If the texts have
  /// several lines, the sentence shows the first line that differs.
  Status agree(std::string_view phase, std::string_view what, std::string_view mine,
               std::string_view verb = "has");

  /// Allocates an arena on every rank or on none. The caller claims it. On a comm with a device,
  /// Side::host requires direct().
  Result<std::shared_ptr<Arena>> allocate(size_t bytes, int32_t kind, Side side = Side::device);
  /// Creates all child comms or none. Returns nullptr for a negative color.
  Result<std::shared_ptr<Comm>> split(int32_t color, int32_t key);

  void progress() { comm_->note_progress(); }
  /// Reports progress between two parts of a long operation. Fails if the comm is broken, or if the
  /// program interrupts the call.
  Status go_on();

  /// Hands the call over from the caller's thread to another thread, which ends it.
  void go_to_background();

  /// Lets the exchanges before take_up() pair with those of any call on this optimizer that begins
  /// with a roll call.
  void call_roll() { calling_roll_ = true; }
  /// Sets the operation of the exchanges that follow.
  void take_up(Operation operation) {
    calling_roll_ = false;
    operation_ = operation;
  }

  /// Aborts the comm with `status` as this rank's failure, and returns the cause that is kept.
  Status abort(const Status& status, std::string_view phase);
  /// Aborts the comm when there may be no memory for a message.
  void abort_out_of_memory() noexcept;

 private:
  friend class Comm;
  static constexpr uint64_t kTextBytes = 1ull << 30;  // per rank, in gather and agree

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
  int64_t begin_ns_;  // 0 if there is no trace
  bool calling_roll_ = false;
  bool in_background_ = false;
  int exceptions_;  // number of exceptions in flight when the call began
};

}  // namespace zero

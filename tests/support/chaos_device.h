// SPDX-License-Identifier: Apache-2.0
// A device on host memory whose streams run queued work in a random legal order, drawn from a seed,
// so that a missing event becomes a wrong result. Nothing runs until a caller queries or waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace zero::test {

/// What a stream does when the work is at its head and `ready` returns true; an empty `ready` means
/// at once. Both functions are called on any thread with the world locked. They queue nothing, and
/// take no lock that a thread holds while it queues work.
struct ChaosWork {
  std::function<bool()> ready = {};
  std::function<void()> run = {};  // may be empty
};

/// The object to which a stream handle refers. All functions are virtual, so that another shared
/// library, which does not link this file, can queue its own work.
class ChaosStream {
 public:
  /// Queues work that `begin` creates with the world locked: now, or at each launch of the graph
  /// into which the stream is captured.
  virtual void queue(std::string what, std::function<ChaosWork()> begin) = 0;
  virtual bool captured() = 0;

 protected:
  ~ChaosStream() = default;
};

class ChaosDevice;

/// The devices that run together, and the order of their work. Ranks that are threads share one
/// world.
class ChaosWorld : public std::enable_shared_from_this<ChaosWorld> {
 public:
  using Emulate = std::function<void(const Launch&)>;
  /// The work that was captured between begin_capture and end_capture.
  class Graph;
  struct Options {
    uint64_t seed = 1;
    bool eager = false;         // work may run as soon as it is queued
    int64_t patience = 20'000;  // queries without progress before they return an error
    Emulate emulate = {};       // what a launch does
    bool guarded = false;       // only queued work can touch device memory
    bool words = true;          // streams can wait for words
    bool writes_words = true;   // words that streams write are stored
    bool reaches = true;        // devices can map each other's memory
  };
  static std::shared_ptr<ChaosWorld> create(Options options);
  ~ChaosWorld();

  std::shared_ptr<ChaosDevice> make_device(int32_t ordinal = 0);

  /// Drops all later waits of this rule.
  void forget(std::string rule);
  /// Returns how many waits of this rule there were, dropped or not.
  int64_t waits(const std::string& rule);
  /// Returns the names of all rules so far.
  std::set<std::string> rules();

  /// Runs until nothing is queued. Returns an error that lists the stuck work if nothing can run.
  Status run_all();

  /// Returns the number of blocks, streams and events that have not been released.
  int64_t living();
  /// Returns how many blocks were released while work was queued on their device. CUDA waits for
  /// it.
  int64_t released_under_work();
  /// Returns how many blocks were unmapped or closed while work was queued on their device. CUDA
  /// does not wait for it.
  int64_t lost_under_work();

 private:
  friend class ChaosDevice;
  struct Point;
  struct Item;
  struct Step;
  class Queue;
  class Vault;
  class Opened;
  struct Block {
    size_t bytes;
    int32_t ordinal;                   // kHost: host memory
    std::shared_ptr<std::byte> owner;  // null in the vault
    bool shared = false;               // others map it
  };
  static constexpr int32_t kHost = -1;

  explicit ChaosWorld(Options options);

  // All of these are called with the world locked.
  std::shared_ptr<Queue> add_queue(const ChaosDevice* device, int32_t ordinal);
  void queue(Queue& queue, Step step);
  void push(Queue& queue, Item item);
  void finish(const std::shared_ptr<Queue>& queue);
  bool run_one();
  void run_some(const Point& wanted);
  void settle(const ChaosDevice* device);
  bool busy(const ChaosDevice* device) const;
  bool works(const ChaosDevice* device) const;
  Status note_standstill();
  std::string heads() const;
  const std::pair<const uintptr_t, Block>* block_of(const void* data) const;
  /// Returns true if queued work may use this memory when its turn comes.
  bool opened(const void* data) const;
  void* add_block(size_t bytes, int32_t ordinal, size_t alignment);
  Result<void*> add_mapping(int fd, size_t bytes, int32_t ordinal);
  void remove_block(void* memory);

  const Options options_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  const uint64_t redraw_;  // the average number of items until new priorities are drawn
  std::vector<std::shared_ptr<Queue>> queues_;
  std::unique_ptr<Vault> vault_;  // holds the blocks of devices if they are guarded
  std::map<uintptr_t, Block> blocks_;
  struct Pages {
    size_t bytes;
    int count;
  };
  std::map<uintptr_t, Pages> pages_;  // host pages that are open
  std::vector<Block> buried_;         // released blocks that queued work may still use
  std::set<std::string> forgotten_;
  std::map<std::string, int64_t> waits_;
  int64_t queue_count_ = 0;
  int64_t event_count_ = 0;
  uint64_t capture_count_ = 0;
  int64_t living_ = 0;
  int64_t released_under_work_ = 0;
  int64_t lost_under_work_ = 0;
  int64_t standstills_ = 0;  // queries since work last ran or was queued
};

class ChaosDevice final : public Device {
 public:
  ~ChaosDevice() override;

  ChaosWorld& world() const { return *world_; }
  /// Makes every later call fail with `failure`, as on a device after an error.
  void fail(Status failure);
  /// Makes every later request for memory that can be shared fail with `failure`.
  void refuse_shared(Status failure);
  /// Makes one call fail with `failure`. `call` counts from the next call, which is 0.
  void fail_once(int64_t call, Status failure);

  // As in CUDA, each launch of the graph runs the work that was queued on this stream, and on
  // streams that wait for its events. An error in a capture invalidates it. More is an error than
  // in CUDA: a wait for an event that was not recorded in the capture, a query of one of its
  // events, and a copy from or to host memory.
  Status begin_capture(StreamHandle stream);
  /// Returns an error if other streams have more work after the last event that `stream` waited
  /// for.
  Result<std::shared_ptr<const ChaosWorld::Graph>> end_capture(StreamHandle stream);
  Status launch_graph(const ChaosWorld::Graph& graph, StreamHandle stream);

  const char* kind() const override { return "chaos"; }
  int32_t ordinal() const override { return ordinal_; }

  /// Host memory that is neither a HostBuffer nor open is read at once, and written before this
  /// returns.
  Status copy(StreamHandle stream, void* to, const void* from, size_t bytes) override;
  Status fill(StreamHandle stream, void* to, int byte, size_t bytes) override;
  Status launch(StreamHandle stream, const Launch& launch) override;
  Status record(EventHandle event, StreamHandle stream) override;
  Status wait(StreamHandle stream, EventHandle event, const char* rule) override;
  Status words(StreamHandle stream, std::span<const WordStep> steps, const char* rule) override;
  Result<bool> done(EventHandle event) override;
  Status check(const void* data, size_t bytes, std::string_view what) override;
  Status check_stream(StreamHandle stream) override;
  Result<uint64_t> number_of(StreamHandle stream) override;
  Result<uint64_t> capturing(StreamHandle stream) override;
  Status run_current(const std::function<Status()>& body) override;
  /// Returns the number of the device that is current on this thread, or -1 if there is none.
  static int current();

  void begin_range(const char* name) noexcept override;
  void end_range() noexcept override;
  /// Returns the ranges of one thread so far as "outer(inner() next())", and forgets them.
  std::string take_ranges();

  Result<void*> allocate(size_t bytes, std::string_view what) override;
  void release(void* memory) noexcept override;
  Result<void*> allocate_host(size_t bytes, std::string_view what) override;
  void release_host(void* memory) noexcept override;
  Result<Fd> create_shared(size_t bytes, std::string_view what) override;
  Result<void*> map_shared(int fd, size_t bytes, std::string_view what) override;
  Result<void*> allocate_shared(size_t bytes, std::string_view what) override;
  void unmap_shared(void* memory) noexcept override;
  Result<void*> open_host(void* memory, size_t bytes) override;
  void close_host(void* memory) noexcept override;
  Result<void*> make_stream() override;
  void free_stream(void* stream) noexcept override;
  /// Frees a stream and makes another one with the same handle, as CUDA may do.
  void replace_stream(void* stream);
  Result<void*> make_event() override;
  void free_event(void* event) noexcept override;

 private:
  friend class ChaosWorld;
  struct EventState;

  ChaosDevice(std::shared_ptr<ChaosWorld> world, int32_t ordinal);

  // All of these are called with the world locked.
  Result<ChaosWorld::Queue*> queue_of(StreamHandle stream) const;
  Status refuse_captured(uint64_t graph, std::string_view what) const;
  Status check_captured_copy(const ChaosWorld::Queue& queue, const void* to,
                             const void* from) const;
  Status check_captured_wait(ChaosWorld::Queue& queue, const EventState& state) const;
  Result<EventState*> event_of(EventHandle event) const;
  Status await_point(std::unique_lock<std::mutex>& lock, const ChaosWorld::Point& point);
  Result<void*> add(size_t bytes, int32_t ordinal, std::string_view what, size_t alignment = 256);
  void remove(void* memory);
  void let_go(const std::shared_ptr<ChaosWorld::Queue>& queue);

  const std::shared_ptr<ChaosWorld> world_;
  const int32_t ordinal_;
  std::shared_ptr<ChaosWorld::Queue> default_queue_;
  std::map<void*, std::shared_ptr<ChaosWorld::Queue>> streams_;
  std::vector<std::shared_ptr<ChaosWorld::Queue>> replaced_;  // own the memory of their handles
  std::map<void*, std::unique_ptr<EventState>> events_;
  std::set<ino_t> created_;  // memory of this device that others may map
  Status refusal() const;

  std::string ranges_;
  Status failure_, failing_, shared_failure_;
  int64_t failing_call_ = -1;
  mutable int64_t calls_ = 0;
};

/// Returns the same device, or nullptr if it is of another kind. The library's own classes have no
/// run-time type information for dynamic_cast.
inline std::shared_ptr<ChaosDevice> as_chaos(const std::shared_ptr<Device>& device) {
  if (device == nullptr || std::string_view(device->kind()) != "chaos") return nullptr;
  return std::static_pointer_cast<ChaosDevice>(device);
}

}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
// The queues, items and points that chaos_world.cpp and chaos_device.cpp share.
#pragma once

#include <deque>

#include "support/chaos_device.h"

namespace zero::test {

/// A position in a queue that an event recorded.
struct ChaosWorld::Point {
  bool passed = false;
  int64_t event = 0;
  uint64_t graph = 0;  // the number of the graph into which it is captured
};

struct ChaosWorld::Item {
  std::string what;
  std::shared_ptr<const Point> after = {};  // may be null
  ChaosWork work = {};
  bool works = false;  // is more than a position in the queue

  bool can_run() const { return (!after || after->passed) && (!work.ready || work.ready()); }
};

/// Work that is queued now or by launches of a graph.
struct ChaosWorld::Step {
  std::string what;
  std::function<ChaosWork()> begin = {};    // may be empty
  std::shared_ptr<const Point> after = {};  // may be null
  std::shared_ptr<Point> records = {};      // may be null

  static Step of(std::string what, std::function<void()> run) {
    return {std::move(what), [run = std::move(run)] { return ChaosWork{{}, run}; }};
  }
};

class ChaosWorld::Queue final : public ChaosStream, public std::enable_shared_from_this<Queue> {
 public:
  Queue(ChaosWorld& world, const ChaosDevice* device, uint64_t number, std::string name,
        uint64_t priority)
      : world(world), device(device), number(number), name(std::move(name)), priority(priority) {}

  void queue(std::string what, std::function<ChaosWork()> begin) override;
  bool captured() override;

  /// The handle that the device returns for this queue.
  StreamHandle handle() { return static_cast<ChaosStream*>(this); }

  ChaosWorld& world;
  const ChaosDevice* const device;
  const uint64_t number;
  const std::string name;
  uint64_t priority;
  bool freed = false;
  std::deque<Item> items;
  std::shared_ptr<Graph> graph = {};  // the capture that it takes part in, or null
};

class ChaosWorld::Graph {
 public:
  /// The work of one stream in the capture.
  struct Lane {
    std::shared_ptr<Queue> queue;
    std::vector<Step> steps;
  };

  explicit Graph(uint64_t number) : number(number) {}
  void add(Queue& queue, Step step);
  /// Returns the names of the streams that the first stream did not wait for.
  std::string left_out() const;

  const uint64_t number;
  std::vector<Lane> lanes;  // the first is the stream where the capture began
  bool spoiled = false;
};

/// Addresses that are accessible only while the vault is open. Any other access ends the program.
class ChaosWorld::Vault {
 public:
  Vault();
  ~Vault();
  Vault(const Vault&) = delete;
  Vault& operator=(const Vault&) = delete;

  std::byte* take(size_t bytes);  // page-aligned, and never returned twice
  void open(bool opens);

 private:
  std::byte* const start_;
  size_t taken_ = 0;
};

/// Keeps the vault open if there is one.
class ChaosWorld::Opened {
 public:
  explicit Opened(const ChaosWorld& world) : vault_(world.vault_.get()) {
    if (vault_ != nullptr) vault_->open(true);
  }
  ~Opened() {
    if (vault_ != nullptr) vault_->open(false);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  Vault* const vault_;
};

struct ChaosDevice::EventState {
  int64_t number;
  std::shared_ptr<ChaosWorld::Point> last;  // null: never recorded
};

}  // namespace zero::test

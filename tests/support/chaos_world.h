// SPDX-License-Identifier: Apache-2.0
// What chaos_world.cpp and chaos_device.cpp share: queues, their items, and points in them.
#pragma once

#include "support/chaos_device.h"

namespace zero::test {

/// A place in a queue that an event recorded.
struct ChaosWorld::Point {
  bool passed = false;
  int64_t event = 0;
};

struct ChaosWorld::Item {
  std::string what;
  std::shared_ptr<const Point> after = {};  // may be null
  std::function<bool()> ready = {};         // may be empty
  std::function<void()> run = {};           // may be empty

  bool can_run() const { return (!after || after->passed) && (!ready || ready()); }
};

class ChaosWorld::Queue final : public ChaosStream {
 public:
  Queue(ChaosWorld& world, const ChaosDevice* device, std::string name, uint64_t priority)
      : world(world), device(device), name(std::move(name)), priority(priority) {}

  void queue(std::string what, std::function<bool()> ready, std::function<void()> run) override;

  /// What the device hands out.
  StreamHandle handle() { return static_cast<ChaosStream*>(this); }

  ChaosWorld& world;
  const ChaosDevice* const device;
  const std::string name;
  uint64_t priority;
  bool freed = false;
  std::deque<Item> items;
};

struct ChaosDevice::EventState {
  int64_t number;
  std::shared_ptr<ChaosWorld::Point> last;  // null: never recorded
};

}  // namespace zero::test

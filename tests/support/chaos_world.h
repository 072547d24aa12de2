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

/// Addresses that are memory only while it is open: elsewhere a touch ends the program.
class ChaosWorld::Vault {
 public:
  Vault();
  ~Vault();
  Vault(const Vault&) = delete;
  Vault& operator=(const Vault&) = delete;

  std::byte* take(size_t bytes);  // aligned to pages, and never given out again
  void open(bool opens);

 private:
  std::byte* const start_;
  size_t taken_ = 0;
};

/// Keeps the vault open, if there is one.
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

// SPDX-License-Identifier: Apache-2.0
// Selects the queue whose head runs next.
#include "support/chaos_world.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/text.h"

namespace zero::test {
namespace {

constexpr int kFresh = 0xFF;  // a NaN in every floating type
constexpr size_t kPage = 4096;
constexpr size_t kVaultBytes = size_t{1} << 32;  // of addresses

}  // namespace

std::shared_ptr<ChaosWorld> ChaosWorld::create(Options options) {
  return std::shared_ptr<ChaosWorld>(new ChaosWorld(std::move(options)));
}

// Some seeds mix all streams. With others, one stream runs far ahead of the rest.
ChaosWorld::ChaosWorld(Options options)
    : options_(std::move(options)), random_(options_.seed), redraw_(uint64_t{1} << random_() % 7) {
  if (options_.guarded) vault_ = std::make_unique<Vault>();
}

ChaosWorld::~ChaosWorld() = default;

ChaosWorld::Vault::Vault()
    : start_(static_cast<std::byte*>(mmap(nullptr, kVaultBytes, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (start_ == MAP_FAILED) std::abort();
}

ChaosWorld::Vault::~Vault() { munmap(start_, kVaultBytes); }

std::byte* ChaosWorld::Vault::take(size_t bytes) {
  std::byte* const taken = start_ + taken_;
  taken_ += (bytes + kPage) / kPage * kPage;
  if (taken_ > kVaultBytes) std::abort();
  return taken;
}

void ChaosWorld::Vault::open(bool opens) {
  if (taken_ != 0 && mprotect(start_, taken_, opens ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    std::abort();
}

std::shared_ptr<ChaosDevice> ChaosWorld::make_device(int32_t ordinal) {
  return std::shared_ptr<ChaosDevice>(new ChaosDevice(shared_from_this(), ordinal));
}

void ChaosWorld::forget(std::string rule) {
  const std::lock_guard lock(mutex_);
  forgotten_.insert(std::move(rule));
}

int64_t ChaosWorld::waits(const std::string& rule) {
  const std::lock_guard lock(mutex_);
  const auto found = waits_.find(rule);
  return found == waits_.end() ? 0 : found->second;
}

std::set<std::string> ChaosWorld::rules() {
  const std::lock_guard lock(mutex_);
  std::set<std::string> names;
  for (const auto& [name, count] : waits_) names.insert(name);
  return names;
}

Status ChaosWorld::run_all() {
  const std::lock_guard lock(mutex_);
  while (run_one()) {
  }
  if (!busy(nullptr)) return {};
  return {ZERO_ERR_INTERNAL, text("nothing can run: ", heads())};
}

int64_t ChaosWorld::living() {
  const std::lock_guard lock(mutex_);
  return living_;
}

int64_t ChaosWorld::released_under_work() {
  const std::lock_guard lock(mutex_);
  return released_under_work_;
}

int64_t ChaosWorld::lost_under_work() {
  const std::lock_guard lock(mutex_);
  return lost_under_work_;
}

std::shared_ptr<ChaosWorld::Queue> ChaosWorld::add_queue(const ChaosDevice* device,
                                                         int32_t ordinal) {
  const uint64_t number = ++queue_count_;
  auto queue = std::make_shared<Queue>(*this, device, number,
                                       text("stream ", number, " of chaos ", ordinal), random_());
  queues_.push_back(queue);
  return queue;
}

void ChaosWorld::Queue::queue(std::string what, std::function<ChaosWork()> begin) {
  const std::lock_guard lock(world.mutex_);
  world.queue(*this, Step{std::move(what), std::move(begin), {}, {}});
}

bool ChaosWorld::Queue::captured() {
  const std::lock_guard lock(world.mutex_);
  return graph != nullptr;
}

void ChaosWorld::queue(Queue& queue, Step step) {
  if (queue.graph != nullptr) return queue.graph->add(queue, std::move(step));
  ChaosWork work = step.begin ? step.begin() : ChaosWork{};
  if (step.records != nullptr) work.run = [point = step.records] { point->passed = true; };
  const bool works = step.begin != nullptr;
  push(queue, {std::move(step.what), std::move(step.after), std::move(work), works});
}

void ChaosWorld::push(Queue& queue, Item item) {
  queue.items.push_back(std::move(item));
  standstills_ = 0;
  if (!options_.eager) return;
  for (uint64_t items = random_() % 4; items != 0 && run_one(); --items) {
  }
}

bool ChaosWorld::run_one() {
  const Opened opened(*this);
  if (random_() % redraw_ == 0) {
    for (const auto& queue : queues_) queue->priority = random_();
  }
  const std::shared_ptr<Queue>* chosen = nullptr;
  for (const auto& queue : queues_) {
    if (queue->items.empty() || !queue->items.front().can_run()) continue;
    if (chosen == nullptr || queue->priority > (*chosen)->priority) chosen = &queue;
  }
  if (chosen == nullptr) return false;
  Queue& queue = **chosen;
  const Item item = std::move(queue.items.front());
  queue.items.pop_front();
  if (item.work.run) item.work.run();
  standstills_ = 0;
  if (queue.items.empty()) {
    if (queue.freed) queues_.erase(queues_.begin() + (chosen - queues_.data()));
    if (!busy(nullptr)) buried_.clear();
  }
  return true;
}

/// Runs nothing, one item, some items, or as many as it takes to pass `wanted`.
void ChaosWorld::run_some(const Point& wanted) {
  const uint64_t drawn = random_();
  const uint64_t most[] = {0, 1, 1 + drawn / 4 % 16, UINT64_MAX};
  for (uint64_t items = most[drawn % 4]; items != 0 && !wanted.passed; --items) {
    if (!run_one()) return;
  }
}

void ChaosWorld::settle(const ChaosDevice* device) {
  while (busy(device) && run_one()) {
  }
}

/// Returns true if work is queued on the device, or on any device for nullptr.
bool ChaosWorld::busy(const ChaosDevice* device) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const auto& queue) {
    return !queue->items.empty() && (device == nullptr || queue->device == device);
  });
}

bool ChaosWorld::works(const ChaosDevice* device) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const auto& queue) {
    return queue->device == device && std::any_of(queue->items.begin(), queue->items.end(),
                                                  [](const Item& item) { return item.works; });
  });
}

/// Counts a query. Returns an error after too many queries without progress.
Status ChaosWorld::note_standstill() {
  const Opened opened(*this);  // `ready` of queued work may read guarded memory
  for (const auto& queue : queues_) {
    if (!queue->items.empty() && queue->items.front().can_run()) return {};
  }
  if (++standstills_ < options_.patience) return {};
  return {ZERO_ERR_INTERNAL, text("nothing can run: ", heads())};
}

std::string ChaosWorld::heads() const {
  std::string list;
  for (const auto& queue : queues_) {
    if (queue->items.empty()) continue;
    if (!list.empty()) list += "; ";
    list += text(queue->name, " (", queue->items.size(), " queued) at ", queue->items.front().what);
  }
  return list;
}

const std::pair<const uintptr_t, ChaosWorld::Block>* ChaosWorld::block_of(const void* data) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  const auto above = blocks_.upper_bound(at);
  if (above == blocks_.begin()) return nullptr;
  const auto found = std::prev(above);
  return at - found->first < found->second.bytes ? &*found : nullptr;
}

bool ChaosWorld::opened(const void* data) const {
  if (block_of(data) != nullptr) return true;
  const auto at = reinterpret_cast<uintptr_t>(data);
  const auto above = pages_.upper_bound(at);
  return above != pages_.begin() && at - std::prev(above)->first < std::prev(above)->second.bytes;
}

void* ChaosWorld::add_block(size_t bytes, int32_t ordinal, size_t alignment) {
  std::shared_ptr<std::byte> owner;
  std::byte* data = nullptr;
  if (vault_ != nullptr && ordinal != kHost) {
    data = vault_->take(bytes);
  } else {
    owner.reset(new std::byte[bytes + alignment], std::default_delete<std::byte[]>());
    const auto start = reinterpret_cast<uintptr_t>(owner.get());
    data = owner.get() + ((start + alignment - 1) / alignment * alignment - start);
  }
  const Opened opened(*this);
  std::memset(data, kFresh, bytes);
  blocks_.emplace(reinterpret_cast<uintptr_t>(data),
                  Block{bytes, ordinal, std::move(owner), false});
  ++living_;
  return data;
}

/// The mapping is not in the vault, which could not close one mapping per rank at once.
Result<void*> ChaosWorld::add_mapping(int fd, size_t bytes, int32_t ordinal) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return Status(ZERO_ERR_MEMORY, "memory cannot be mapped");
  std::shared_ptr<std::byte> owner(static_cast<std::byte*>(data),
                                   [bytes](std::byte* mapped) { munmap(mapped, bytes); });
  blocks_.emplace(reinterpret_cast<uintptr_t>(data), Block{bytes, ordinal, std::move(owner), true});
  ++living_;
  return data;
}

void ChaosWorld::remove_block(void* memory) {
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(memory));
  if (!found->second.shared) {
    const Opened opened(*this);
    std::memset(memory, kFresh, found->second.bytes);
  }
  if (busy(nullptr)) buried_.push_back(std::move(found->second));
  blocks_.erase(found);
  --living_;
}

}  // namespace zero::test

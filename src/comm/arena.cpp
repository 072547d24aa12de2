// SPDX-License-Identifier: Apache-2.0
// The claimed arenas of the process, by address. Arenas are disjoint, or ranks that are threads
// share one.
#include "comm/arena.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/text.h"

namespace zero {
namespace {

struct Claim {
  uintptr_t start;
  uintptr_t last;  // byte
  std::thread::id thread;
  std::shared_ptr<Arena> arena;
};

// Never destroyed: other threads may still use it while the process exits.
constinit std::mutex mutex;
constinit std::vector<Claim>* claims = nullptr;  // by start, then in order of claiming

std::vector<Claim>& registry() {
  if (claims == nullptr) claims = new std::vector<Claim>;
  return *claims;
}

struct ByStart {
  bool operator()(const Claim& claim, uintptr_t address) const { return claim.start < address; }
  bool operator()(uintptr_t address, const Claim& claim) const { return address < claim.start; }
};

}  // namespace

void claim_arena(const std::shared_ptr<Arena>& arena) {
  const auto start = reinterpret_cast<uintptr_t>(arena->data());
  const uintptr_t last = start + (arena->bytes() - 1);
  const std::lock_guard lock(mutex);
  std::vector<Claim>& all = registry();
  const auto place = std::upper_bound(all.begin(), all.end(), start, ByStart());
  // A copy: where memory runs out here, the caller's goes after the lock.
  all.insert(place, Claim{start, last, std::this_thread::get_id(), arena});
}

Status give_up_arena(const void* data) {
  std::shared_ptr<Arena> given_up;  // goes after the lock: it may be the last hold on a comm
  const std::lock_guard lock(mutex);
  std::vector<Claim>& all = registry();
  const auto [first, end] =
      std::equal_range(all.begin(), all.end(), reinterpret_cast<uintptr_t>(data), ByStart());
  if (first == end)
    return Status(ZERO_ERR_ARGUMENT,
                  "this address is not the start of an arena, or of one that was freed");
  // Ranks that are threads each give up their own claim on a shared arena, not that of a rank which
  // goes on.
  const auto own = std::find_if(
      first, end, [](const Claim& claim) { return claim.thread == std::this_thread::get_id(); });
  const auto chosen = own == end ? first : own;
  given_up = std::move(chosen->arena);
  all.erase(chosen);
  return {};
}

size_t claimed_arenas() {
  const std::lock_guard lock(mutex);
  return registry().size();
}

std::shared_ptr<Arena> find_arena(const void* data, size_t bytes, const Comm* comm, bool* whole) {
  const auto start = reinterpret_cast<uintptr_t>(data);
  const uintptr_t length = bytes == 0 ? 0 : bytes - 1;
  const uintptr_t last = length > UINTPTR_MAX - start ? UINTPTR_MAX : start + length;
  const std::lock_guard lock(mutex);
  const std::vector<Claim>& all = registry();
  auto end = std::upper_bound(all.begin(), all.end(), last, ByStart());
  if (end == all.begin() || (end - 1)->last < start) return nullptr;

  // The first of those that it touches: the one it begins in, if there is one.
  auto found = end - 1;
  while (found != all.begin() && (found - 1)->last >= start) --found;
  end = std::upper_bound(found, end, found->start, ByStart());
  const auto own = std::find_if(
      found, end, [&](const Claim& claim) { return claim.arena->comm().get() == comm; });
  if (own != end) found = own;
  if (whole != nullptr) *whole = found->start <= start && last <= found->last;
  return found->arena;
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Finds the claimed arenas of the process by address. Arenas do not overlap, except that ranks that
// are threads can share one.
#include "comm/arena.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "zero.h"

namespace zero {
namespace {

struct Claim {
  std::thread::id thread;
  std::shared_ptr<Arena> arena;
};
/// An address range with all claims on it, by comm.
struct Claimed {
  uintptr_t last;  // last byte
  std::multimap<const Comm*, Claim> claims;
};
using Registry = std::map<uintptr_t, Claimed>;  // by first byte

// These are never destroyed, because other threads may still use them while the process exits.
constinit std::mutex registry_mutex;
constinit Registry* all_claimed = nullptr;

Registry& registry() {
  if (all_claimed == nullptr) all_claimed = new Registry;
  return *all_claimed;
}

}  // namespace

const char* memory_kind_name(int32_t kind) {
  if (kind == ZERO_MEMORY_PER_RANK) return "ZERO_MEMORY_PER_RANK";
  return kind == ZERO_MEMORY_SHARED ? "ZERO_MEMORY_SHARED" : "an unknown kind";
}

void claim_arena(const std::shared_ptr<Arena>& arena) {
  const auto start = reinterpret_cast<uintptr_t>(arena->data());
  // Allocate before the lock, so that running out of memory leaves nothing half done.
  std::multimap<const Comm*, Claim> claim;
  claim.emplace(arena->comm().get(), Claim{std::this_thread::get_id(), arena});
  const std::lock_guard lock(registry_mutex);
  Claimed& claimed = registry()[start];
  claimed.last = start + (arena->bytes() - 1);
  claimed.claims.merge(claim);
}

Status give_up_arena(const void* data) {
  std::shared_ptr<Arena> given_up;  // released after the lock; may be the last reference
  const std::lock_guard lock(registry_mutex);
  const auto found = registry().find(reinterpret_cast<uintptr_t>(data));
  if (found == registry().end())
    return Status(ZERO_ERR_ARGUMENT,
                  "this address is not the start of an arena, or the arena was already freed");
  // A rank that is a thread releases its own claim on a shared arena, not that of a rank that
  // continues.
  auto& claims = found->second.claims;
  const auto own = std::ranges::find_if(
      claims, [](const auto& claim) { return claim.second.thread == std::this_thread::get_id(); });
  const auto chosen = own == claims.end() ? claims.begin() : own;
  given_up = std::move(chosen->second.arena);
  claims.erase(chosen);
  if (claims.empty()) registry().erase(found);
  return {};
}

size_t claimed_arenas() {
  const std::lock_guard lock(registry_mutex);
  size_t count = 0;
  for (const auto& [start, claimed] : registry()) count += claimed.claims.size();
  return count;
}

std::shared_ptr<Arena> find_arena(const void* data, size_t bytes, const Comm* comm, bool* whole) {
  const auto start = reinterpret_cast<uintptr_t>(data);
  const uintptr_t length = bytes == 0 ? 0 : bytes - 1;
  const uintptr_t last = length > UINTPTR_MAX - start ? UINTPTR_MAX : start + length;
  const std::lock_guard lock(registry_mutex);
  const Registry& all = registry();
  const auto touched = [&](auto place) { return place->second.last >= start; };
  auto found = all.upper_bound(last);
  if (found == all.begin() || !touched(--found)) return nullptr;

  // Find the first claimed range that overlaps; the given range begins in it, if it begins in any.
  while (found != all.begin() && touched(std::prev(found))) --found;
  const auto& [begin, claimed] = *found;
  if (whole != nullptr) *whole = begin <= start && last <= claimed.last;
  const auto own = claimed.claims.find(comm);
  return (own == claimed.claims.end() ? claimed.claims.begin() : own)->second.arena;
}

}  // namespace zero

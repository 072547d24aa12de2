// SPDX-License-Identifier: Apache-2.0
// Finds the claimed arenas of the process by address. Arenas are disjoint, unless ranks that are
// threads share one.
#include "comm/arena.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "base/text.h"

namespace zero {
namespace {

struct Claim {
  uintptr_t last;  // byte
  std::thread::id thread;
  std::shared_ptr<Arena> arena;
};
using Claims = std::multimap<uintptr_t, Claim>;  // by start, then in order of claiming

// They are never destroyed, because other threads may still use them while the process exits.
constinit std::mutex mutex;
constinit Claims* claims = nullptr;

Claims& registry() {
  if (claims == nullptr) claims = new Claims;
  return *claims;
}

}  // namespace

void claim_arena(const std::shared_ptr<Arena>& arena) {
  const auto start = reinterpret_cast<uintptr_t>(arena->data());
  const std::lock_guard lock(mutex);
  // The claim takes a copy, so that the caller's goes after the lock if memory runs out here.
  registry().insert({start, {start + (arena->bytes() - 1), std::this_thread::get_id(), arena}});
}

Status give_up_arena(const void* data) {
  std::shared_ptr<Arena> given_up;  // goes after the lock: it may be the last hold on a comm
  const std::lock_guard lock(mutex);
  const auto [first, end] = registry().equal_range(reinterpret_cast<uintptr_t>(data));
  if (first == end)
    return Status(ZERO_ERR_ARGUMENT,
                  "this address is not the start of an arena, or of one that was freed");
  // A rank that is a thread gives up its own claim on a shared arena, not that of a rank that goes
  // on.
  const auto own = std::find_if(first, end, [](const auto& claim) {
    return claim.second.thread == std::this_thread::get_id();
  });
  const auto chosen = own == end ? first : own;
  given_up = std::move(chosen->second.arena);
  registry().erase(chosen);
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
  const Claims& all = registry();
  const auto touched = [&](auto place) { return place->second.last >= start; };
  auto found = all.upper_bound(last);
  if (found == all.begin() || !touched(--found)) return nullptr;

  // This finds the first arena that the range touches: the one in which it begins, if there is one.
  while (found != all.begin() && touched(std::prev(found))) --found;
  const uintptr_t begin = found->first;
  const auto own = std::find_if(found, all.upper_bound(begin), [&](const auto& claim) {
    return claim.second.arena->comm().get() == comm;
  });
  if (own != all.upper_bound(begin)) found = own;
  if (whole != nullptr) *whole = begin <= start && last <= found->second.last;
  return found->second.arena;
}

}  // namespace zero

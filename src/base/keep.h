// SPDX-License-Identifier: Apache-2.0
// Keeps objects until the process ends, because a device or a library may always use them.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace zero {

/// Keeps an object and never destroys it. Leak checkers can reach it. Any thread may call this.
template <class Kept>
void keep_for_ever(Kept kept) noexcept {
  struct Place {
    Kept kept;
    Place* next;
  };
  static std::atomic<Place*> all{nullptr};
  auto* const place = new (std::nothrow) Place{std::move(kept), nullptr};
  if (place == nullptr) {  // out of memory: leak the object rather than destroy it
    alignas(Kept) std::byte lost[sizeof(Kept)];
    new (lost) Kept(std::move(kept));
    return;
  }
  place->next = all.load();
  while (!all.compare_exchange_weak(place->next, place)) {
  }
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// What stays until the process ends, because a device or a library may use it for ever.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace zero {

/// Never destroyed, and found by leak checkers. Any thread.
template <class Kept>
void keep_for_ever(Kept kept) noexcept {
  struct Place {
    Kept kept;
    Place* next;
  };
  static std::atomic<Place*> all{nullptr};
  auto* const place = new (std::nothrow) Place{std::move(kept), nullptr};
  if (place == nullptr) {  // rather lost than given back
    alignas(Kept) std::byte lost[sizeof(Kept)];
    new (lost) Kept(std::move(kept));
    return;
  }
  place->next = all.load();
  while (!all.compare_exchange_weak(place->next, place)) {
  }
}

}  // namespace zero

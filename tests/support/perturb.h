// SPDX-License-Identifier: Apache-2.0
// Calls perturb.c if it is preloaded.
#pragma once

#include <dlfcn.h>

#include <cstdint>

#include "support/system_calls.h"

namespace zero::test {

inline bool perturbed() { return dlsym(RTLD_DEFAULT, "perturb_seed") != nullptr; }

inline uint64_t seed_in_force = 0;  // for reports of a hang

/// Changes the seed of the schedules.
inline void perturb_by(uint64_t seed) {
  seed_in_force = seed;
  auto* const change = reinterpret_cast<void (*)(uint64_t)>(dlsym(RTLD_DEFAULT, "perturb_seed"));
  if (change != nullptr) change(seed);
}

/// Perturbs the library's numbered points as well, unless a test watches them.
inline void perturb_points() {
  static auto* const sleep = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "perturb"));
  if (sleep == nullptr || os().reached != real_system_calls().reached) return;
  replace_call(&SystemCalls::reached, [](const char*) { sleep(); });
}

}  // namespace zero::test

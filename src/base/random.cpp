// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <cerrno>

#include "base/os.h"
#include "base/text.h"

namespace zero {

Status draw_random(std::span<std::byte> out) {
  const ssize_t got =
      // Wait: kInterruptedMs; the kernel has had random bits since it started.
      uninterrupted([&] { return os().getrandom(out.data(), out.size(), 0); }, kInterruptedMs);
  if (got == static_cast<ssize_t>(out.size())) return {};
  return Status(ZERO_ERR_SYSTEM, text("getrandom: ", errno_text(errno)));
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Gates: how the streams of ranks that do address each other's memory wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "device/device.h"

namespace zero {

/// Where the streams of ranks that read and write each other's memory wait for each other. A call
/// passes some, in the same order on every rank, and never the same one twice running.
enum class Gate : uint32_t {
  entered,    // gradients and parameters are as the call is to find them
  reread,     // what the last records said has been read
  measured,   // the records of all are there
  published,  // all parameters are written
};
inline constexpr size_t kGates = 4;

class Gates {
 public:
  virtual ~Gates() = default;

  /// What comes on `stream` begins when what every rank's stream held before this gate is done.
  /// Inside a call.
  /// `rule` as in Device::wait.
  virtual Status pass(Gate gate, StreamHandle stream, const char* rule) = 0;
  /// A word for queued work behind a gate to read: not 0 when the comm is broken, and no gate keeps
  /// anybody any more. nullptr where pass() itself fails then.
  virtual const uint32_t* broken() const = 0;
};

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// QueuedPlane: how gradients and parameters travel on a device, where ranks do not address each
// other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/arena.h"
#include "device/device.h"

namespace zero {

/// What a reduction reads and makes: f32 or f64 of any floating type.
struct SumTypes {
  DType from = DType::f32;
  DType sum = DType::f32;
  bool adds = false;  // to what stands where the sum goes; only where the comm sums_itself()
};

/// What work of the data plane does with memory where it is.
enum class Use { reduce, gather };

/// What one rank has to send to all, and the sum of what all have for one rank: equal sizes on
/// every rank.
struct Sent {
  void* data;
  size_t bytes;
  int32_t root;
};
struct Summed {
  const void* send;
  void* recv;  // of the root
  size_t count;
  int32_t root;
};
/// A sum over ranks of this rank's chunk of `send`: `count` elements of each rank's.
struct Scattered {
  SumTypes types;
  const void* send;
  void* recv;
  size_t count;
};

/// Every rank's `bytes` into `recv`, in rank order; `send` may be this rank's part of it.
struct Gathered {
  const void* send;
  void* recv;
  size_t bytes;
};

/// The data plane of a comm on a device of its own: work is queued on a stream, in the same order
/// on every rank, inside a call, and the status says only that. What fails later aborts the comm.
class QueuedPlane {
 public:
  virtual ~QueuedPlane() = default;

  // What is given together begins together, and may end together. None of it is empty.

  /// In the backend's order. Where types are the same `recv` may be this rank's chunk of `send`,
  /// and they are unless the comm sums_itself().
  virtual Status reduce_scatter(std::span<const Scattered> all, void* stream) = 0;
  Status reduce_scatter(SumTypes types, const void* send, void* recv, size_t count, void* stream) {
    const Scattered one{types, send, recv, count};
    return reduce_scatter({&one, count == 0 ? 0u : 1u}, stream);
  }
  /// The same where ranks own parts of different sizes.
  virtual Status reduce(SumTypes types, std::span<const Summed> all, void* stream) = 0;
  virtual Status all_gather(std::span<const Gathered> all, void* stream) = 0;
  Status all_gather(const void* send, void* recv, size_t bytes, void* stream) {
    const Gathered one{send, recv, bytes};
    return all_gather({&one, bytes == 0 ? 0u : 1u}, stream);
  }
  virtual Status broadcast(std::span<const Sent> all, void* stream) = 0;

  /// How many transfers should be given together where others could go on behind each of them:
  /// more where a call costs the host much.
  virtual size_t at_once() const { return 1; }

  /// Where `base` is, if the backend can map the arena it is in on other ranks, and so move what
  /// lies there without copies of its own; else arena 0.
  virtual Location mappable(const void*) const { return {}; }
  /// Every rank has memory at `place` that is mappable: map its arena for the use that all have for
  /// it. Collective, in the same order on every rank, once for each arena.
  virtual Status map_arena(Use, const Location&) { return {}; }
  /// Whether that was asked for. Such an arena is used at the same place on every rank or not at
  /// all.
  virtual bool was_mapped(uint32_t) const { return false; }

  /// The last reductions and the last gathers queued by any optimizer of the comm. The two never
  /// run at once: each may wait for room on the device that the other holds.
  Event reduced, gathered;
};

// ---- Gates: how the streams of ranks that do address each other's memory wait for each other.

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

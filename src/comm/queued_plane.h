// SPDX-License-Identifier: Apache-2.0
// QueuedPlane: the transfer of gradients and parameters between devices whose ranks do not address
// each other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/arena.h"
#include "device/device.h"

namespace zero {

/// The types of a reduction. Any floating-point type can be summed in f32 or f64.
struct SumTypes {
  DType from = DType::f32;
  DType sum = DType::f32;
  bool adds = false;           // accumulates into the destination; requires sums_itself()
  DType travels = DType::f32;  // type in which the sums of each host are sent between hosts
};

/// What the data plane uses a memory range for.
enum class Use { reduce, gather };

/// Sent is data that one rank sends to all ranks. Summed is a sum over all ranks for one rank.
/// Sizes are equal on every rank.
struct Sent {
  void* data;
  size_t bytes;
  int32_t root;
};
struct Summed {
  const void* send;
  void* recv;  // used on the root
  size_t count;
  int32_t root;
};
inline constexpr int32_t kAllRanks = INT32_MAX;

/// A sum over ranks of this rank's chunk of `send`, which has one chunk of `count` elements for
/// each rank. Only the first `owners` chunks contain data. A comm need not sum the others.
struct Scattered {
  SumTypes types;
  const void* send;
  void* recv;
  size_t count;
  int32_t owners = kAllRanks;
};

/// A gather of `bytes` from every rank into `recv`, in rank order. `send` may be this rank's part
/// of `recv`. Only the parts of the first `owners` ranks contain data. The others are padding,
/// which a comm need not transfer.
struct Gathered {
  const void* send;
  void* recv;
  size_t bytes;
  int32_t owners = kAllRanks;
};

/// The data plane of a comm on a device. Its functions queue work on a stream, in the same order on
/// every rank, inside a call. Their status covers the queuing. A later failure aborts the comm.
class QueuedPlane {
 public:
  virtual ~QueuedPlane() = default;

  // Transfers passed in one call start together and may end together. None of them is empty.

  /// Sums in the order of the backend. The types must be the same unless the comm sums_itself(). If
  /// they are the same, `recv` may be this rank's chunk of `send`.
  virtual Status reduce_scatter(std::span<const Scattered> all, void* stream) = 0;
  Status reduce_scatter(SumTypes types, const void* send, void* recv, size_t count, void* stream) {
    const Scattered one{types, send, recv, count};
    return reduce_scatter({&one, count == 0 ? 0u : 1u}, stream);
  }
  /// Sums for ranks that own parts of different sizes.
  virtual Status reduce(SumTypes types, std::span<const Summed> all, void* stream) = 0;
  virtual Status all_gather(std::span<const Gathered> all, void* stream) = 0;
  Status all_gather(const void* send, void* recv, size_t bytes, void* stream) {
    const Gathered one{send, recv, bytes};
    return all_gather({&one, bytes == 0 ? 0u : 1u}, stream);
  }
  virtual Status broadcast(std::span<const Sent> all, void* stream) = 0;

  /// Returns how many transfers to pass in one call if work can start after each of them. The
  /// number is larger if a call costs much host time.
  virtual size_t at_once() const { return 1; }

  /// Returns the location of `base` if the backend can map its arena on other ranks, which saves
  /// internal copies. Otherwise returns arena 0.
  virtual Location mappable(const void*) const { return {}; }
  /// Maps the arena at `place` for the given use. Every rank has mappable memory there. Collective,
  /// in the same order on every rank, once for each arena.
  virtual Status map_arena(Use, const Location&) { return {}; }
  /// Returns true if map_arena() was called for that arena. Then either all ranks use it at the
  /// same offset, or none does.
  virtual bool was_mapped(uint32_t) const { return false; }

  /// The last reductions and the last gathers that any optimizer of the comm queued. The two never
  /// run at the same time, because each may wait for device resources that the other holds.
  Event reduced, gathered;
};

// ---- Gates: how the streams of ranks that address each other's memory wait for each other.

/// Points at which the streams of ranks that access each other's memory wait for each other. A call
/// passes some of them, in the same order on every rank, and never the same gate twice in a row.
enum class Gate : uint32_t {
  entered,    // gradients and parameters are ready for the call
  reread,     // all ranks have read the last records
  measured,   // the records of all ranks are written
  published,  // all parameters are written
};
inline constexpr size_t kGates = 4;

class Gates {
 public:
  virtual ~Gates() = default;

  /// Makes later work on `stream` start only after every rank's stream has finished the work queued
  /// before this gate. Called inside a call. `rule` has the same meaning as in Device::wait.
  virtual Status pass(Gate gate, StreamHandle stream, const char* rule) = 0;
  /// Returns a word that queued work reads after a gate. It becomes nonzero when the comm breaks,
  /// and gates no longer block then. Returns nullptr if pass() itself fails in that case.
  virtual const uint32_t* broken() const = 0;
};

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// QueuedPlane: how gradients and parameters travel on a device if ranks do not address each other's
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/arena.h"
#include "device/device.h"

namespace zero {

/// The types of a reduction: it makes f32 or f64 from any floating type.
struct SumTypes {
  DType from = DType::f32;
  DType sum = DType::f32;
  bool adds = false;           // to the values at the sum's place; only if the comm sums_itself()
  DType travels = DType::f32;  // of the sums of ranks on one host, between hosts
};

/// How work of the data plane uses memory in its place.
enum class Use { reduce, gather };

/// Sent: data that one rank sends to all. Summed: a sum of what all ranks have for one rank. Sizes
/// are equal on every rank.
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
inline constexpr int32_t kAllRanks = INT32_MAX;

/// A sum over ranks of this rank's chunk of `send`: `count` elements of each rank's. Chunks of
/// others than the first `owners` ranks are padding: a comm need not sum them.
struct Scattered {
  SumTypes types;
  const void* send;
  void* recv;
  size_t count;
  int32_t owners = kAllRanks;
};

/// Every rank's `bytes`, brought into `recv` in rank order. `send` may be this rank's part of it.
/// Parts of others than the first `owners` ranks are padding: a comm need not bring them.
struct Gathered {
  const void* send;
  void* recv;
  size_t bytes;
  int32_t owners = kAllRanks;
};

/// The data plane of a comm on a device. Its calls queue work on a stream, in the same order on
/// every rank, inside a call. Their status is about that only; a later failure aborts the comm.
class QueuedPlane {
 public:
  virtual ~QueuedPlane() = default;

  // Transfers that are given together begin together, and may end together. None of them is empty.

  /// Sums in the backend's order. If types are the same, `recv` may be this rank's chunk of `send`.
  /// They must be the same unless the comm sums_itself().
  virtual Status reduce_scatter(std::span<const Scattered> all, void* stream) = 0;
  Status reduce_scatter(SumTypes types, const void* send, void* recv, size_t count, void* stream) {
    const Scattered one{types, send, recv, count};
    return reduce_scatter({&one, count == 0 ? 0u : 1u}, stream);
  }
  /// Does the same for ranks that own parts of different sizes.
  virtual Status reduce(SumTypes types, std::span<const Summed> all, void* stream) = 0;
  virtual Status all_gather(std::span<const Gathered> all, void* stream) = 0;
  Status all_gather(const void* send, void* recv, size_t bytes, void* stream) {
    const Gathered one{send, recv, bytes};
    return all_gather({&one, bytes == 0 ? 0u : 1u}, stream);
  }
  virtual Status broadcast(std::span<const Sent> all, void* stream) = 0;

  /// Returns how many transfers should be given together if work could go on behind each of them:
  /// more if a call costs the host much.
  virtual size_t at_once() const { return 1; }

  /// Returns the location of `base` if the backend can map its arena on other ranks, and so move
  /// data there without copies of its own; if not, arena 0.
  virtual Location mappable(const void*) const { return {}; }
  /// Maps the arena at `place`, where every rank has mappable memory, for the use that all ranks
  /// have for it. Collective, in the same order on every rank, once for each arena.
  virtual Status map_arena(Use, const Location&) { return {}; }
  /// True if map_arena() was called for that arena. It is then used at the same place on every rank
  /// or not at all.
  virtual bool was_mapped(uint32_t) const { return false; }

  /// The last reductions and the last gathers queued by any optimizer of the comm. The two never
  /// run at once: each may wait for room on the device that the other holds.
  Event reduced, gathered;
};

// ---- Gates: how the streams of ranks that do address each other's memory wait for each other.

/// Places where the streams of ranks that read and write each other's memory wait for each other. A
/// call passes some, in the same order on every rank, and never the same one twice in a row.
enum class Gate : uint32_t {
  entered,    // gradients and parameters are as the call must find them
  reread,     // the last records have been read
  measured,   // the records of all are there
  published,  // all parameters are written
};
inline constexpr size_t kGates = 4;

class Gates {
 public:
  virtual ~Gates() = default;

  /// Makes later work on `stream` begin when all that every rank's stream held before this gate is
  /// done. Inside a call. `rule` as in Device::wait.
  virtual Status pass(Gate gate, StreamHandle stream, const char* rule) = 0;
  /// Returns a word that queued work behind a gate reads: it is not 0 once the comm is broken, and
  /// then no gate holds anybody any more. nullptr if pass() itself fails then.
  virtual const uint32_t* broken() const = 0;
};

}  // namespace zero

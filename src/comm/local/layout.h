// SPDX-License-Identifier: Apache-2.0
// The control segment: the memory, other than arenas, that the ranks of a comm share. Every value
// that is read from it is copied and checked against its range before it is used, because a faulty
// peer must not bring down the other ranks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "base/os.h"
#include "comm/failure.h"

namespace zero::local {

inline constexpr int32_t kMaxWorld = 1024;
inline constexpr size_t kRecordRoom = 16384;      // equals Comm::kRecordBytes; checked in local.h
inline constexpr size_t kBounceBytes = 1u << 20;  // for broadcasts, in two halves
inline constexpr size_t kLine = 128;              // two cache lines, which are fetched in pairs
inline constexpr size_t kCoreWords = 16;          // of 64 cores each; further cores are not counted
inline constexpr uint32_t kControlMagic = 0x7a657270;

using Generation = std::array<uint64_t, 2>;  // random; distinguishes this comm from all others

enum SeatState : uint32_t { kEmpty = 0, kJoined = 1, kLeft = 2 };

struct Slot {
  // The last exchange in which this rank has done everything that other ranks wait for.
  alignas(kLine) std::atomic<uint64_t> arrived;
  alignas(kLine) std::atomic<uint64_t> progress;
  std::atomic<uint64_t> withdrew;  // after this exchange; see Control::withdraw
  std::atomic<uint32_t> state;
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> process;            // its index in the table of processes
  std::atomic<uint64_t> where[8];           // "zero_step: vote": the last exchange begun
  std::atomic<uint64_t> cores[kCoreWords];  // bit mask of the cores that it may run on
  alignas(kLine) Cause cause;               // of this rank; not written after it is published
  alignas(kLine) std::byte record[2][kRecordRoom];  // of even and odd exchanges
};

/// A node of the tree that combines records. Its children are ranks, or the nodes of the level
/// below.
struct Node {
  alignas(kLine) std::atomic<uint64_t> arrivals[2];  // of children, in even and odd exchanges
  alignas(kLine) std::byte record[2][kRecordRoom];   // of even and odd exchanges
};

/// Wakes the ranks that sleep until the same event.
struct Bell {
  alignas(kLine) std::atomic<uint32_t> rings;     // a futex
  alignas(kLine) std::atomic<uint32_t> sleepers;  // ranks that may have to be woken
};

struct Header {
  uint32_t magic;
  int32_t world;
  Generation generation;
  alignas(kLine) std::atomic<uint64_t> decision;  // see Decision
  alignas(kLine) std::atomic<uint32_t> abort;     // 0, or 1 + the rank whose cause applies
  Bell bell;                                      // for ranks that wait for a decision
  Bell leader_bell;                               // for a leader that waits until all ranks arrive
  Bell ahead_bell[2];                             // for ranks that are ahead, in even and odd ones
  alignas(kLine) std::atomic<uint64_t> came;      // for the leader: the last one with all ranks
  std::atomic<uint64_t> out;   // the last exchange that the leader has taken to other hosts
  std::atomic<uint32_t> left;  // ranks that have freed their comm
  alignas(kLine) std::byte bounce[2][kBounceBytes / 2];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

/// The outcome of exchange `sequence`: committed, or aborted by a rank. It is a single word, so
/// that there is only one outcome. It starts as exchange 0, committed.
struct Decision {
  uint64_t sequence;
  uint32_t aborted_by;  // 0 if committed, otherwise 1 + rank

  static Decision of(uint64_t word) { return {word >> 16, static_cast<uint32_t>(word & 0xffff)}; }
  uint64_t word() const { return sequence << 16 | aborted_by; }
};

inline constexpr int32_t kFanOut = 16;

/// Returns the number of nodes in the level above `children` children.
constexpr int32_t parents_of(int32_t children) { return (children + kFanOut - 1) / kFanOut; }
/// Returns the total number of nodes.
constexpr int32_t nodes_of(int32_t world) {
  int32_t nodes = 0, level = world;
  do nodes += level = parents_of(level);
  while (level > 1);
  return nodes;
}

inline size_t control_bytes(int32_t world) {
  return round_up(sizeof(Header) + static_cast<size_t>(world) * sizeof(Slot) +
                      static_cast<size_t>(nodes_of(world)) * sizeof(Node),
                  static_cast<size_t>(os().getpagesize()));
}

}  // namespace zero::local

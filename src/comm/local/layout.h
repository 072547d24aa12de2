// SPDX-License-Identifier: Apache-2.0
// The control segment: the memory that the ranks of one comm share besides arenas. Every value that
// is read from it is copied, checked against its range, and only then used: a sick peer must not
// take others with it.
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
inline constexpr size_t kRecordRoom = 16384;      // Comm::kRecordBytes, checked in local.h
inline constexpr size_t kBounceBytes = 1u << 20;  // for broadcasts, in two halves
inline constexpr size_t kLine = 128;              // two cache lines: the prefetcher fetches pairs
inline constexpr size_t kCoreWords = 16;          // of 64 cores; those beyond are not counted
inline constexpr uint32_t kControlMagic = 0x7a657270;

using Generation = std::array<uint64_t, 2>;  // random: tells this comm from any other

enum SeatState : uint32_t { kEmpty = 0, kJoined = 1, kLeft = 2 };

struct Slot {
  // The last exchange for which this rank has done all that others wait for.
  alignas(kLine) std::atomic<uint64_t> arrived;
  alignas(kLine) std::atomic<uint64_t> progress;
  std::atomic<uint64_t> withdrew;  // after that exchange; see Control::withdraw
  std::atomic<uint32_t> state;
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> process;            // its place in the table of processes
  std::atomic<uint64_t> where[8];           // "zero_step: vote": the last exchange begun
  std::atomic<uint64_t> cores[kCoreWords];  // that it may run on, as bits
  alignas(kLine) Cause cause;  // this rank's; written before it is published, never after
  alignas(kLine) std::byte record[2][kRecordRoom];  // of even and odd exchanges
};

/// A node of the tree by which records combine. Its children are ranks, or the nodes of the level
/// below.
struct Node {
  alignas(kLine) std::atomic<uint64_t> arrivals[2];  // of children, in even and odd exchanges
  alignas(kLine) std::byte record[2][kRecordRoom];   // of even and odd exchanges
};

/// Wakes those that sleep for the same.
struct Bell {
  alignas(kLine) std::atomic<uint32_t> rings;     // a futex
  alignas(kLine) std::atomic<uint32_t> sleepers;  // who may have to be woken
};

struct Header {
  uint32_t magic;
  int32_t world;
  Generation generation;
  alignas(kLine) std::atomic<uint64_t> decision;  // see Decision
  alignas(kLine) std::atomic<uint32_t> abort;     // 0, or 1 + the rank whose cause stands
  Bell bell;                                      // of those that wait for a decision
  Bell leader_bell;                               // of a leader that waits until all have come
  Bell ahead_bell[2];                             // of those that are ahead, for even and odd ones
  alignas(kLine) std::atomic<uint64_t> came;      // the last exchange to which all have, for it
  std::atomic<uint64_t> out;   // the last exchange with which it has gone to other hosts
  std::atomic<uint32_t> left;  // ranks that have given up their seats
  alignas(kLine) std::byte bounce[2][kBounceBytes / 2];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

/// How exchange number `sequence` ended: committed, or aborted by a rank. One word, so that there
/// is one answer. Starts as exchange 0, committed.
struct Decision {
  uint64_t sequence;
  uint32_t aborted_by;  // 0: committed; else 1 + rank

  static Decision of(uint64_t word) { return {word >> 16, static_cast<uint32_t>(word & 0xffff)}; }
  uint64_t word() const { return sequence << 16 | aborted_by; }
};

inline constexpr int32_t kFanOut = 16;

/// Returns how many nodes of the level above have so many children.
constexpr int32_t parents_of(int32_t children) { return (children + kFanOut - 1) / kFanOut; }
/// Returns how many nodes there are in all.
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

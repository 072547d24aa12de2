// SPDX-License-Identifier: Apache-2.0
// The memory of one launch: which bytes it was given, and which thread accessed each of them. If
// two threads access the same byte, one of them writes and not both accesses are atomic, they need
// an order. That is a barrier of their block, or a fence before an atomic of one thread and a fence
// after an atomic of the other on the same word. Atomics of different widths on one word do not
// count as atomic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace zero::test::ptx {

/// An access that the launch may not make. The launch ends there.
class Fault : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

enum class Space { global, shared, local, generic };
enum class Use { loads, stores, atomic };

/// A part of the memory that a launch is given.
struct Span {
  const void* begin;
  size_t bytes;
  bool writable;
  std::string_view what;
};

/// What a thread knows to be complete: accesses of other threads up to a time of each thread.
class Clock {
 public:
  void join(const Clock& other);
  void add(uint32_t thread, uint32_t time);
  void add_block(uint32_t block, uint32_t time);
  bool has(uint32_t block, uint32_t thread, uint32_t time) const;
  bool empty() const { return threads_.empty() && blocks_.empty(); }

 private:
  std::map<uint32_t, uint32_t> threads_, blocks_;
};

/// A thread that accesses memory, and its time, which advances at barriers and fences.
struct Toucher {
  uint32_t block = 0;
  uint32_t thread = 0;  // numbered across the launch
  uint32_t time = 1;
  uint32_t block_time = 0;  // all threads of the block are in order up to this time
  Clock known = {};         // of other blocks, and of its own block since block_time
  Clock released = {};      // at its last fence; its atomics publish this
  Clock heard = {};         // received by its atomics; known after the next fence
};

class Memory {
 public:
  Memory(std::vector<Span> spans, uint32_t block_threads);

  /// Throws a Fault if [address, address + bytes) was not given, or is accessed without an order.
  /// An atomic receives what others published there, and publishes as well.
  void touch(Toucher& toucher, Use use, bool is_volatile, uint64_t address, uint64_t bytes);

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  /// The unit of checks, in bytes. No smaller access writes.
  static constexpr uint64_t kGrain = 2;

  struct Access {
    uint32_t thread = kNobody;
    uint32_t time = 0;
    // Set for atomic accesses and for volatile ones, which count as atomic.
    uint8_t bytes = 0;
    bool writes = false;
  };
  /// The accesses of a grain since the last write that is ordered before all others: that write and
  /// the first reader. `others_` has the rest, including all atomics.
  struct Cell {
    Access writer, reader;
  };
  struct Others {
    std::vector<Access> readers, atomics;
  };
  struct Part {
    uint64_t begin, end;
    std::string_view what;
    std::vector<Cell> cells;  // empty if nobody writes
  };

  Part& part_of(Use use, uint64_t address);
  void touch(Part& part, uint64_t grain, const Toucher& toucher, const Access& access);
  void check(const Part& part, uint64_t grain, const Toucher& toucher, const Access& access,
             const Access& other, const char* did) const;

  const uint32_t block_threads_;
  std::vector<Part> parts_;          // sorted, without overlap
  std::array<size_t, 64> recent_{};  // indices of parts, hashed by address
  std::map<const Cell*, Others> others_;
  std::map<uint64_t, Clock> told_;  // published at words by atomics
};

}  // namespace zero::test::ptx

// SPDX-License-Identifier: Apache-2.0
// The memory of one launch: which bytes it was given, and who touched each of them. Two threads
// that touch the same byte, one of them writing and not both by atomics, need an order: a barrier
// of their block, or a fence before an atomic of the one and behind an atomic of the other on the
// same word. Atomics of unlike widths on one word are not both atomics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace zero::test::ptx {

/// What the launch may not do; it ends there.
class Fault : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

enum class Space { global, shared, local, generic };
enum class Use { loads, stores, atomic };

/// Part of what a launch is given.
struct Span {
  const void* begin;
  size_t bytes;
  bool writable;
  std::string_view what;
};

/// What a thread knows to be over: accesses of other threads until a time of theirs.
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

/// Who touches memory, and when: a thread's time goes on at barriers and fences.
struct Toucher {
  uint32_t block = 0;
  uint32_t thread = 0;  // of all of the launch
  uint32_t time = 1;
  uint32_t block_time = 0;  // up to that, all threads of the block are in order
  Clock known = {};         // of other blocks, and of its own since
  Clock released = {};      // at its last fence: what its atomics tell
  Clock heard = {};         // by its atomics, and known from the next fence on
};

class Memory {
 public:
  Memory(std::vector<Span> spans, uint32_t block_threads);

  /// Throws a Fault where [address, address + bytes) is not given, or is touched without an order.
  /// An atomic hears what others told there, and tells.
  void touch(Toucher& toucher, Use use, bool is_volatile, uint64_t address, uint64_t bytes);

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  /// Bytes that are looked at as one: nothing smaller is written by itself.
  static constexpr uint64_t kGrain = 2;

  struct Access {
    uint32_t thread = kNobody;
    uint32_t time = 0;
    // Of atomics and volatile accesses, which are as atomics:
    uint8_t bytes = 0;
    bool writes = false;
  };
  /// Who touched a grain since the last write that everybody else is in order with: that write, and
  /// the first who read. `others_` has the rest, of which an atomic hides none.
  struct Cell {
    Access writer, reader;
  };
  struct Others {
    std::vector<Access> readers, atomics;
  };
  struct Part {
    uint64_t begin, end;
    std::string_view what;
    std::vector<Cell> cells;  // none where nobody writes
  };

  Part& part_of(Use use, uint64_t address);
  void touch(Part& part, uint64_t grain, const Toucher& toucher, const Access& access);
  void check(const Part& part, uint64_t grain, const Toucher& toucher, const Access& access,
             const Access& other, const char* did) const;

  const uint32_t block_threads_;
  std::vector<Part> parts_;          // sorted, apart
  std::array<size_t, 64> recent_{};  // parts, by where they were found
  std::map<const Cell*, Others> others_;
  std::map<uint64_t, Clock> told_;  // at words, by atomics
};

}  // namespace zero::test::ptx

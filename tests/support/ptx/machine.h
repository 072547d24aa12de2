// SPDX-License-Identifier: Apache-2.0
// What translated PTX runs on (translate.py): the threads of a block one after the other, each
// until it ends or waits for others, with every access of memory looked at (memory.h).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "support/ptx/memory.h"

namespace zero::test::ptx {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

class Block;
class Thread;

struct Kernel {
  const char* name;  // mangled
  void (*run)(Thread&);
  size_t parameter_bytes;
  size_t shared_bytes;
  bool waits;        // at barriers or shuffles
  uint32_t threads;  // a block's, at most
};

/// Those of the PTX that is linked.
std::span<const Kernel> all_kernels();

/// One thread of a block, as translated kernels see it.
class Thread {
 public:
  Thread(Block& block, u32 number);

  const u32 tid, ntid, ctaid, nctaid;
  const std::byte* const parameters;

  // ---- Memory: global, shared by a block, or its own.

  struct Place {
    Thread& thread;
    Space space;
    Use use;
    bool is_volatile;
    /// Where the bytes are, or a Fault. `line` of the PTX.
    std::byte* at(u64 address, u64 bytes, u32 line) const {
      return thread.look_up(space, use, is_volatile, address, bytes, line);
    }
  };
  Place global(Use use, bool is_volatile = false) {
    return {*this, Space::global, use, is_volatile};
  }
  Place shared(Use use, bool is_volatile = false) {
    return {*this, Space::shared, use, is_volatile};
  }
  Place local(Use use) { return {*this, Space::local, use, false}; }
  /// Global or local memory: addresses of shared memory are its own here and never become others.
  Place generic(Use use, bool is_volatile = false) {
    return {*this, Space::generic, use, is_volatile};
  }
  /// The address of local memory, the only one that the thread has.
  u64 depot(std::byte* memory, u64 bytes) {
    depot_ = {memory, bytes};
    return reinterpret_cast<u64>(memory);
  }
  void fences();

  // ---- Waiting: a kernel that waits returns, and is called again where `resume` says.

  u32 resume = 0;
  void meets(u32 line);
  void offers(u32 line, u32 value, u32 lanes, u32 clamp, u32 mask);
  void end();
  u32 given = 0;
  bool given_there = false;
  u64 sink = 0;  // of what nobody wants
  template <class Frame>
  Frame& frame() {
    if (frame_ == nullptr) frame_ = std::make_shared<Frame>();
    return *static_cast<Frame*>(frame_.get());
  }

 private:
  friend class Block;
  enum class State { runs, at_barrier, at_shuffle, ended };
  struct Offer {
    u32 value = 0, lanes = 0, clamp = 0, mask = 0;
  };
  std::byte* look_up(Space space, Use use, bool is_volatile, u64 address, u64 bytes, u32 line);

  Block& block_;
  State state_ = State::runs;
  u32 line_ = 0;  // at which it waits
  Offer offer_;
  std::span<std::byte> depot_;
  std::shared_ptr<void> frame_;
};

/// Runs the launch: blocks in an order that `seed` draws. Throws a Fault.
void run(const Kernel& kernel, const void* parameters, u32 blocks, u32 threads, Memory& memory,
         u64 seed);

// ---- What instructions do

template <class T>
T peek(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void poke(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

inline u32 bits(f32 value) { return std::bit_cast<u32>(value); }
inline u64 bits(f64 value) { return std::bit_cast<u64>(value); }
inline f32 f32_of(u32 bits) { return std::bit_cast<f32>(bits); }
inline f64 f64_of(u64 bits) { return std::bit_cast<f64>(bits); }

template <class T>
bool unordered(T a, T b) {
  return a != a || b != b;
}
/// Arithmetic in fp32 has one NaN on a GPU; hosts keep what an operand has.
inline f32 result(f32 value) { return value == value ? value : f32_of(0x7FFFFFFF); }
inline f64 result(f64 value) { return value; }
inline f32 root(f32 value) { return std::sqrt(value); }
inline f64 root(f64 value) { return std::sqrt(value); }
inline f32 fused(f32 a, f32 b, f32 c) { return result(std::fma(a, b, c)); }
inline f64 fused(f64 a, f64 b, f64 c) { return std::fma(a, b, c); }
inline f32 magnitude(f32 value) { return f32_of(bits(value) & 0x7FFFFFFF); }
inline f64 magnitude(f64 value) { return f64_of(bits(value) & 0x7FFFFFFFFFFFFFFF); }

/// Shifts by as much as a register has, or more, leave nothing but the sign.
template <class T>
T shifted_left(T value, u32 by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(value << by);
}
template <class T>
T shifted_right(T value, u32 by) {
  constexpr u32 most = 8 * sizeof(T);
  if (by < most) return static_cast<T>(value >> by);
  return value < 0 ? static_cast<T>(-1) : T{0};
}
/// The lowest `length` bits of `part` in the place of those from `at` on of `whole`.
template <class T>
T inserted(T part, T whole, u32 at, u32 length) {
  const T ones =
      length >= 8 * sizeof(T) ? static_cast<T>(-1) : static_cast<T>((T{1} << length) - 1);
  const T mask = shifted_left(ones, at);
  return static_cast<T>((whole & ~mask) | (shifted_left(part, at) & mask));
}
inline u32 leading_zeros(u32 value) { return static_cast<u32>(std::countl_zero(value)); }
inline u32 leading_zeros(u64 value) { return static_cast<u32>(std::countl_zero(value)); }
/// Four bytes of the eight of `low` and `high`, or of their signs.
inline u32 permuted(u32 low, u32 high, u32 which) {
  const u64 bytes = low | u64{high} << 32;
  u32 found = 0;
  for (u32 i = 0; i < 4; i++) {
    const u32 selected = which >> (4 * i);
    u32 byte = static_cast<u32>(bytes >> (8 * (selected & 7)) & 0xFF);
    if ((selected & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
    found |= byte << (8 * i);
  }
  return found;
}

}  // namespace zero::test::ptx

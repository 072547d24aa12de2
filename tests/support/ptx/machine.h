// SPDX-License-Identifier: Apache-2.0
// Runs translated PTX (translate.py). The threads of a block run one after the other, each until it
// ends or waits for others. Every memory access is checked (memory.h).
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
  bool waits;        // has barriers or shuffles
  uint32_t threads;  // at most, in a block
};

/// Returns the kernels of the linked PTX.
std::span<const Kernel> all_kernels();

/// One thread of a block, as translated kernels use it.
class Thread {
 public:
  Thread(Block& block, u32 number);

  const u32 tid, ntid, ctaid, nctaid;
  const std::byte* const parameters;

  // ---- Memory: global, shared by a block, or local.

  struct Place {
    Thread& thread;
    Space space;
    Use use;
    bool is_volatile;
    /// Returns the address of the bytes, or throws a Fault. `line` is a line of the PTX.
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
  /// Global or local memory. Addresses of shared memory are separate here and are never converted.
  Place generic(Use use, bool is_volatile = false) {
    return {*this, Space::generic, use, is_volatile};
  }
  /// Returns the address of the thread's only local memory.
  u64 depot(std::byte* memory, u64 bytes) {
    depot_ = {memory, bytes};
    return reinterpret_cast<u64>(memory);
  }
  void fences();

  // ---- Waiting: a kernel that waits returns. It is called again and continues at `resume`.

  u32 resume = 0;
  void meets(u32 line);
  void offers(u32 line, u32 value, u32 lanes, u32 clamp, u32 mask);
  void end();
  u32 given = 0;
  bool given_there = false;
  u64 sink = 0;  // receives unused results
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
  u32 line_ = 0;  // where it waits
  Offer offer_;
  std::span<std::byte> depot_;
  std::shared_ptr<void> frame_;
};

/// Runs the launch. `seed` selects the order of the blocks. Throws a Fault.
void run(const Kernel& kernel, const void* parameters, u32 blocks, u32 threads, Memory& memory,
         u64 seed);

// ---- What instructions do.

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
/// fp32 arithmetic on a GPU has only one NaN; a host propagates the NaN of an operand.
inline f32 result(f32 value) { return value == value ? value : f32_of(0x7FFFFFFF); }
inline f64 result(f64 value) { return value; }
inline f32 root(f32 value) { return std::sqrt(value); }
inline f64 root(f64 value) { return std::sqrt(value); }
inline f32 fused(f32 a, f32 b, f32 c) { return result(std::fma(a, b, c)); }
inline f64 fused(f64 a, f64 b, f64 c) { return std::fma(a, b, c); }
inline f32 magnitude(f32 value) { return f32_of(bits(value) & 0x7FFFFFFF); }
inline f64 magnitude(f64 value) { return f64_of(bits(value) & 0x7FFFFFFFFFFFFFFF); }

/// Shifts by the register width or more leave nothing but the sign.
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
/// Returns `whole` with the lowest `length` bits of `part` inserted at bit `at`.
template <class T>
T inserted(T part, T whole, u32 at, u32 length) {
  const T ones =
      length >= 8 * sizeof(T) ? static_cast<T>(-1) : static_cast<T>((T{1} << length) - 1);
  const T mask = shifted_left(ones, at);
  return static_cast<T>((whole & ~mask) | (shifted_left(part, at) & mask));
}
inline u32 leading_zeros(u32 value) { return static_cast<u32>(std::countl_zero(value)); }
inline u32 leading_zeros(u64 value) { return static_cast<u32>(std::countl_zero(value)); }
/// Selects four of the eight bytes of `low` and `high`, or their signs.
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

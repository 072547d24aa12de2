// SPDX-License-Identifier: Apache-2.0
// Records that are combined over ranks. The result does not depend on the order of the ranks, so
// records can be combined up a tree. A record is trivially copyable, has no padding, and has a
// function add(const Record& other).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zero {

/// A function that combines the `bytes` at `from` into those at `into`. It holds a reference to the
/// function that it is constructed from, and allocates no memory.
class Combine {
 public:
  template <class Function>
  Combine(const Function& function)
      : function_(&function),
        call_([](const void* of, std::byte* into, const std::byte* from, size_t bytes) {
          (*static_cast<const Function*>(of))(into, from, bytes);
        }) {}

  void operator()(std::byte* into, const std::byte* from, size_t bytes) const {
    call_(function_, into, from, bytes);
  }

 private:
  const void* function_;
  void (*call_)(const void* of, std::byte* into, const std::byte* from, size_t bytes);
};

/// The function that combines arrays of records of one type, and the size of one record.
struct Combining {
  void (*combine)(std::byte* into, const std::byte* from, size_t bytes) = nullptr;
  size_t record_bytes = 1;
};
inline constexpr size_t kMostRecordBytes = 2048;
template <class Record>
void combine_records(std::byte* into, const std::byte* from, size_t bytes) {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) <= kMostRecordBytes);
  for (size_t at = 0; at + sizeof(Record) <= bytes; at += sizeof(Record))
    reinterpret_cast<Record*>(into + at)->add(*reinterpret_cast<const Record*>(from + at));
}
template <class Record>
inline constexpr Combining combining{combine_records<Record>, sizeof(Record)};

/// A value that should be the same on all ranks.
template <class Value>
struct Same {
  Value value{};         // the smallest value of any rank
  uint64_t differs = 0;  // 1 if another rank has a different value

  Same() = default;
  Same(const Value& own) : value(own) {}
  void add(const Same& other) {
    differs |= other.differs | uint64_t{value != other.value};
    value = std::min(value, other.value);
  }
};

/// A value that is summed over ranks.
struct Sum {
  uint64_t value = 0;
  void add(const Sum& other) { value += other.value; }
};

}  // namespace zero

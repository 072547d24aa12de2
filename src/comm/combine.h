// SPDX-License-Identifier: Apache-2.0
// Records by which ranks agree. What those of some ranks combine to depends on no order, so records
// can go up a tree. A record is trivially copyable, has no padding, and has a function
// add(const Record& other).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zero {

/// A function that combines the `bytes` at `from` into those at `into`. It refers to what it is
/// made of, and takes no memory.
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

/// How records of one type do so, any number of them one behind the other.
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

/// What should be the same on all ranks.
template <class Value>
struct Same {
  Value value{};         // the least of all
  uint64_t differs = 0;  // 1: there is another

  Same() = default;
  Same(const Value& own) : value(own) {}
  void add(const Same& other) {
    differs |= other.differs | uint64_t{value != other.value};
    value = std::min(value, other.value);
  }
};

/// What is added up over ranks.
struct Sum {
  uint64_t value = 0;
  void add(const Sum& other) { value += other.value; }
};

}  // namespace zero

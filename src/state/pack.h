// SPDX-License-Identifier: Apache-2.0
// Values as bytes for other ranks, which have not parsed or made them: all that they hold, in the
// order of their fields.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "state/json.h"

namespace zero {

/// Goes along a value, both to write it and to read it.
class Packing {
 public:
  explicit Packing(std::string& out) : out_(&out) {}
  explicit Packing(std::string_view left) : left_(left) {}
  bool sound() const { return sound_ && left_.empty(); }

  template <class Value>
  void operator()(Value& value) {
    if constexpr (std::is_trivially_copyable_v<Value>)
      move(&value, sizeof value);
    else
      JsonForm<Value>::visit(value, *this);
  }
  template <class First, class Second>
  void operator()(std::pair<First, Second>& pair) {
    (*this)(pair.first);
    (*this)(pair.second);
  }
  void operator()(std::string& value) {
    value.resize(move_size(value.size()));
    move(value.data(), value.size());
  }
  /// One by one: a size that is no proper one ends with the bytes, not with the memory.
  template <class Value>
  void operator()(std::vector<Value>& values) {
    const size_t size = move_size(values.size());
    for (size_t i = 0; i < size && sound_; i++) (*this)(out_ ? values[i] : values.emplace_back());
  }

 private:
  void move(void* value, size_t bytes) {
    if (out_) return (void)out_->append(static_cast<const char*>(value), bytes);
    sound_ = sound_ && bytes <= left_.size();
    if (!sound_) return;
    left_.copy(static_cast<char*>(value), bytes);
    left_.remove_prefix(bytes);
  }
  size_t move_size(size_t size) {
    move(&size, sizeof size);
    sound_ = sound_ && (out_ || size <= left_.size());  // nothing takes less than a byte
    return sound_ ? size : 0;
  }

  std::string* out_ = nullptr;
  std::string_view left_;
  bool sound_ = true;
};

template <class... Values>
std::string pack(const Values&... values) {
  std::string out;
  Packing packing(out);
  (packing(const_cast<Values&>(values)), ...);  // which only reads
  return out;
}

/// False unless `bytes` are exactly what pack made of such values, which are empty before.
template <class... Values>
bool unpack(std::string_view bytes, Values&... values) {
  Packing packing(bytes);
  (packing(values), ...);
  return packing.sound();
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Status and Result<T>. Every function in the library that can fail returns one of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "zero.h"

namespace zero {

using Code = zero_status;

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == ZERO_OK; }
  Code code() const { return code_; }
  const std::string& text() const { return text_; }

  /// Returns the same failure with a context before its text: "loading 'x': " + text.
  Status within(std::string_view context) && {
    if (!ok()) text_.insert(0, std::string(context) + ": ");
    return std::move(*this);
  }

  // These make ZERO_TRY accept a Status like a Result<T>.
  Status status() && { return std::move(*this); }
  void value() && {}

 private:
  Code code_ = ZERO_OK;
  std::string text_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  Status status() && { return std::move(status_); }
  Result within(std::string_view context) && {
    status_ = std::move(status_).within(context);
    return std::move(*this);
  }
  const Status& failure() const { return status_; }
  T value() && { return std::move(*value_); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

/// Returns the result of `body`, or false if it throws. For destructors and other functions that
/// must not throw when memory runs out.
template <class Body>
bool succeeds(const Body& body) noexcept {
  try {
    return body();
  } catch (...) {
    return false;
  }
}

/// Returns the name of a status constant, or nullptr if the number is not one.
const char* code_name(Code code);

}  // namespace zero

/// Evaluates to the value of a Result (to nothing for a Status), or returns its failure from the
/// function. Do not use it in braces after another member, because its return would leak that
/// member.
#define ZERO_TRY(expression)                                               \
  (__extension__({                                                         \
    auto zero_try_result = (expression);                                   \
    if (!zero_try_result.ok()) return std::move(zero_try_result).status(); \
    std::move(zero_try_result).value();                                    \
  }))

// SPDX-License-Identifier: Apache-2.0
// What all libFuzzer targets use: an input that is taken apart, sentences that must hold, and the
// number of open descriptors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/status.h"
#include "support/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace zero::fuzz {

/// Ends the program unless the sentence holds, so that the fuzzer reports it.
inline void must(bool holds, std::string_view sentence) {
  if (holds) return;
  std::fprintf(stderr, "false: %.*s\n", static_cast<int>(sentence.size()), sentence.data());
  std::abort();
}

/// Every refusal must have one of these codes, and a text.
inline void must_refuse(const Status& status, std::initializer_list<Code> codes) {
  const bool known = std::find(codes.begin(), codes.end(), status.code()) != codes.end();
  if (!known) std::fprintf(stderr, "%d: %s\n", status.code(), status.text().c_str());
  must(known, "a refusal has a code that its call may return");
  must(!status.text().empty(), "a refusal says why");
}

/// Checks that as many descriptors are closed as are opened while this exists.
class SameDescriptors {
 public:
  SameDescriptors() = default;
  ~SameDescriptors() { must(count() == before_, "no descriptor is left open"); }
  SameDescriptors(const SameDescriptors&) = delete;
  SameDescriptors& operator=(const SameDescriptors&) = delete;

 private:
  static int64_t count() { return test::entries_of("/proc/self/fd"); }
  const int64_t before_ = count();
};

/// The bytes of a fuzzer's input, followed by zeros.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }
  std::string_view bytes(size_t most) {
    const std::string_view taken = left_.substr(0, most);
    left_.remove_prefix(taken.size());
    return taken;
  }
  template <class Words = uint8_t>
  Words take() {
    Words words{};
    const std::string_view taken = bytes(sizeof words);
    std::memcpy(static_cast<void*>(&words), taken.data(), taken.size());
    return words;
  }
  /// Returns a number below `end`.
  size_t below(size_t end) { return take() % end; }

 private:
  std::string_view left_;
};

}  // namespace zero::fuzz

// SPDX-License-Identifier: Apache-2.0
#include "warnings.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "output.h"

namespace zero::tool {
namespace {

constexpr size_t kMostPrinted = 3;

void print(void*, int32_t, const char* message) {
  std::fprintf(stderr, "zero: %s\n", tame(message).c_str());
}

}  // namespace

void print_warnings() { set_log(print, nullptr, ZERO_LOG_WARNING); }

HeldWarnings::HeldWarnings() {
  const auto keep = [](void* lines, int32_t, const char* message) {
    static_cast<std::vector<std::string>*>(lines)->emplace_back(message);
  };
  set_log(keep, &lines_, ZERO_LOG_WARNING);
}

HeldWarnings::~HeldWarnings() { print_warnings(); }

void HeldWarnings::print_some() const {
  for (size_t i = 0; i < std::min(lines_.size(), kMostPrinted); i++)
    print(nullptr, ZERO_LOG_WARNING, lines_[i].c_str());
  if (lines_.size() > kMostPrinted)
    print(nullptr, ZERO_LOG_WARNING,
          text("and ", lines_.size() - kMostPrinted, " more are skipped").c_str());
}

}  // namespace zero::tool

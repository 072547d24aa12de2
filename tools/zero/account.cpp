// SPDX-License-Identifier: Apache-2.0
#include "account.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/log.h"
#include "base/refusals.h"
#include "state/json.h"

namespace zero::tool {
namespace {

constexpr size_t kMostNamed = 10;

std::string listed_names(std::vector<std::string> names) {
  std::ranges::transform(names, names.begin(), [](const auto& name) { return shown(name); });
  return listed(names);
}

}  // namespace

bool matches(const std::string& name, const Patterns& patterns) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0 ||
           fnmatch((pattern + ".*").c_str(), name.c_str(), 0) == 0;
  });
}

std::string listed(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words.first(std::min(words.size(), kMostNamed)))
    out += text(out.empty() ? "" : ", ", word);
  return words.size() > kMostNamed ? text(out, " and ", words.size() - kMostNamed, " more") : out;
}

Status Account::status() const {
  std::vector<std::string> parts;
  if (!left_over_.empty())
    parts.push_back(text("it has ", listed_names(left_over_),
                         ", which nothing here takes (--ignore PATTERN,... drops it)"));
  if (!missing_.empty()) parts.push_back(text("it lacks ", listed_names(missing_)));
  if (!others_.empty()) parts.push_back(listed(others_));
  std::string why;
  for (const std::string& part : parts) why += text(why.empty() ? "" : "; ", part);
  if (!why.empty()) return invalid(why);
  if (!ignored_.empty()) log(ZERO_LOG_WARNING, text("not taken: ", listed_names(ignored_)));
  return {};
}

}  // namespace zero::tool

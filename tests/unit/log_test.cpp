// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace zero {
namespace {

using Messages = std::vector<std::pair<int32_t, std::string>>;

void collect(void* ctx, int32_t level, const char* message) {
  static_cast<Messages*>(ctx)->emplace_back(level, message);
}

TEST(Log, nothing_is_called_at_the_start_or_after_null) {
  log(ZERO_LOG_ERROR, "nobody listens");
  Messages messages;
  set_log(collect, &messages, ZERO_LOG_INFO);
  set_log(nullptr, nullptr, ZERO_LOG_INFO);
  log(ZERO_LOG_ERROR, "nobody listens");
  EXPECT_TRUE(messages.empty());
}

TEST(Log, only_wanted_levels_arrive) {
  Messages messages;
  set_log(collect, &messages, ZERO_LOG_WARNING);
  log(ZERO_LOG_ERROR, "one");
  log(ZERO_LOG_WARNING, "two");
  log(ZERO_LOG_INFO, "three");
  set_log(nullptr, nullptr, 0);
  EXPECT_EQ(messages, (Messages{{ZERO_LOG_ERROR, "one"}, {ZERO_LOG_WARNING, "two"}}));
}

TEST(Log, a_part_of_a_longer_text_ends_where_the_view_ends) {
  Messages messages;
  set_log(collect, &messages, ZERO_LOG_INFO);
  log(ZERO_LOG_INFO, std::string_view("saved, loaded").substr(0, 5));
  set_log(nullptr, nullptr, 0);
  EXPECT_EQ(messages, (Messages{{ZERO_LOG_INFO, "saved"}}));
}

}  // namespace
}  // namespace zero

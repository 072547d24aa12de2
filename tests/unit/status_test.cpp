// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "base/text.h"

namespace zero {
namespace {

Status fail_if(bool fails) { return fails ? Status(ZERO_ERR_STATE, "no gradients") : Status(); }

Result<int> number_or(bool fails) {
  ZERO_TRY(fail_if(fails));
  return 7;
}

Result<std::unique_ptr<int>> through_two_levels(bool fails) {
  const int number = ZERO_TRY(number_or(fails));
  return std::make_unique<int>(number + 1);
}

TEST(Status, try_hands_the_value_on) {
  Result<std::unique_ptr<int>> result = through_two_levels(false);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(**result, 8);
}

TEST(Status, try_returns_the_failure_unchanged) {
  Result<std::unique_ptr<int>> result = through_two_levels(true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.failure().code(), ZERO_ERR_STATE);
  EXPECT_EQ(result.failure().text(), "no gradients");
}

TEST(Status, context_stands_in_front_of_a_failure_only) {
  EXPECT_EQ(fail_if(true).within("step 3").text(), "step 3: no gradients");
  const Status fine = fail_if(false).within("step 3");
  EXPECT_TRUE(fine.ok());
  EXPECT_EQ(fine.text(), "");
}

TEST(Status, every_code_has_its_own_name_and_other_numbers_have_none) {
  EXPECT_STREQ(code_name(ZERO_OK), "ZERO_OK");
  EXPECT_STREQ(code_name(ZERO_SKIPPED), "ZERO_SKIPPED");
  EXPECT_STREQ(code_name(ZERO_ERR_PEER_DEAD), "ZERO_ERR_PEER_DEAD");
  EXPECT_STREQ(code_name(ZERO_ERR_INTERNAL), "ZERO_ERR_INTERNAL");
  // tests/abi/check_texts.py compares the numbers that have a name with zero.h.
  std::set<std::string> names;
  size_t found = 0;
  for (Code code = -200; code <= 200; ++code) {
    if (code_name(code) == nullptr) continue;
    names.insert(code_name(code));
    found++;
  }
  EXPECT_EQ(names.size(), found);
  EXPECT_EQ(code_name(-98), nullptr);
  EXPECT_EQ(code_name(2), nullptr);
}

TEST(Text, joins_numbers_strings_and_characters) {
  EXPECT_EQ(text("rank ", 2, " of ", int64_t{1} << 40, ' ', std::string("x"), " at ", 0.5),
            "rank 2 of 1099511627776 x at 0.5");
  EXPECT_EQ(text(uint64_t{18446744073709551615u}), "18446744073709551615");
}

TEST(Text, only_code_points_in_their_shortest_form_are_utf8) {
  for (const char* one : {"", "a", "\x7f", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000",
                          "\uffff", "\U00010000", "\U0010ffff"})
    EXPECT_TRUE(is_utf8(one)) << one;
  for (const char* one :
       {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xa4\x80", "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82"})
    EXPECT_FALSE(is_utf8(one)) << one;
}

TEST(Text, errno_has_its_words_and_its_name) {
  EXPECT_EQ(errno_text(ENOSPC), "No space left on device (ENOSPC)");
  EXPECT_EQ(errno_text(EAGAIN), "Resource temporarily unavailable (EAGAIN)");
  EXPECT_NE(errno_text(123456).find("(errno 123456)"), std::string::npos);
}

}  // namespace
}  // namespace zero

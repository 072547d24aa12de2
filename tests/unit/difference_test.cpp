// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "base/text.h"
#include "comm/agreement.h"

namespace zero {
namespace {

void expect_difference(std::string_view a, std::string_view b, std::string_view in_a,
                       std::string_view in_b) {
  const Difference found = first_difference(a, b);
  EXPECT_EQ(found.a, in_a);
  EXPECT_EQ(found.b, in_b);
  const Difference turned = first_difference(b, a);
  EXPECT_EQ(turned.a, in_b);
  EXPECT_EQ(turned.b, in_a);
}

TEST(Difference, is_the_first_line_that_differs) {
  expect_difference("lr = 1", "lr = 2", "lr = 1", "lr = 2");
  expect_difference("a = 1\nb = 2\nc = 3", "a = 1\nb = 4\nc = 5", "b = 2", "b = 4");
  expect_difference("a = 1\nb = 2", "a = 1\nb = 22", "b = 2", "b = 22");
  expect_difference("x\ny", "z\ny", "x", "z");
}

TEST(Difference, shows_what_is_missing_as_nothing) {
  expect_difference("", "one", "nothing", "one");
  expect_difference("a = 1", "a = 1\nb = 2", "nothing", "b = 2");
  expect_difference("a = 1\n", "a = 1\nb = 2\n", "nothing", "b = 2");
  expect_difference("a\nb", "a\n\nb", "b", "an empty line");
  expect_difference("a\nbc", "a\nb\nc", "bc", "b");
}

TEST(Difference, of_a_line_in_fields_is_the_fields_that_differ) {
  expect_difference("a 1\tb 2\tc 3\n", "a 1\tb 3\tc 3\n", "b 2", "b 3");
  expect_difference("x\na 1\tb 2\tc 3", "x\na 2\tb 2\tc 4", "a 1, c 3", "a 2, c 4");
  expect_difference("a 1\tb 2", "a 1\tb 2\tc 3", "a 1\tb 2", "a 1\tb 2\tc 3");
  expect_difference("a 1\t", "a 1\tb", "nothing", "b");
}

TEST(Difference, in_a_long_line_is_shown_with_what_is_around_it) {
  const std::string front(5000, 'f'), back(5000, 'b');
  const Difference found = first_difference(front + "ONE" + back, front + "TWO" + back);
  EXPECT_NE(found.a.find("fffONEbbb"), std::string::npos);
  EXPECT_NE(found.b.find("fffTWObbb"), std::string::npos);
  EXPECT_LE(found.a.size(), 210u);
  EXPECT_EQ(found.a.substr(0, 4), "...f");
  EXPECT_EQ(found.a.substr(found.a.size() - 4), "b...");
}

TEST(Difference, never_shows_two_equal_sides) {
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string a, b;
    for (std::string* text : {&a, &b})
      for (unsigned n = random() % 6; n > 0; --n) *text += "ab\n"[random() % 3];
    if (a == b) continue;
    const Difference found = first_difference(a, b);
    // "x" and "x\n" have the same lines.
    if (a == b + "\n" || b == a + "\n") continue;
    EXPECT_NE(found.a, found.b) << testing::PrintToString(a) << testing::PrintToString(b);
  }
}

TEST(Difference, cuts_no_character) {
  std::string word;
  for (int i = 0; i < 300; ++i) word += i % 2 ? "\xc3\xa9" : "\xe2\x82\xac";
  for (size_t bytes = 0; bytes <= word.size() + 2; ++bytes) {
    const std::string_view front = utf8_prefix(word, bytes);
    EXPECT_LE(front.size(), bytes);
    EXPECT_GE(front.size() + 3, std::min(bytes, word.size()));
    EXPECT_TRUE(is_utf8(front));
  }
  const Difference found = first_difference(word + "x" + word, word + "y" + word);
  EXPECT_TRUE(is_utf8(found.a));
  EXPECT_TRUE(is_utf8(found.b));
}

}  // namespace
}  // namespace zero

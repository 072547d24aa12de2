// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files: what is built can be parsed, and each rule of the format holds.
#include "state/safetensors.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/text.h"
#include "support/json_of.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/statuses.h"

namespace zero {
namespace {

using test::json_of;

std::string length_bytes(uint64_t length) {
  std::string out(8, '\0');
  for (unsigned i = 0; i < 8; i++) out[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return out;
}

/// Reads a header in two steps, like a load.
Result<SafetensorsHeader> parse(std::string_view file) {
  const uint64_t length = ZERO_TRY(safetensors_header_bytes(file.substr(0, 8), file.size()));
  return parse_safetensors_header(file.substr(8, length), file.size());
}

std::string file_of(std::string_view json, size_t data) {
  return length_bytes(json.size()) + std::string(json) + std::string(data, 'd');
}

SafetensorsHeader random_header(std::mt19937& random) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"k\"", "v\n"}};
  for (uint32_t i = random() % 20; i > 0; i--) {
    TensorEntry& tensor = header.tensors.emplace_back();
    tensor.name = text("layer.", random() % 1000, ".w", i, random() % 2 ? "\u00e9\"\\" : "");
    tensor.dtype = random() % 2 ? "F32" : "BF16";
    for (uint32_t d = random() % 4; d > 0; d--)
      tensor.shape.push_back(static_cast<int64_t>(random() % 6));
  }
  return header;
}

TEST(Safetensors, what_is_built_parses_back) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; round++) {
    SafetensorsHeader header = random_header(random);
    auto built = build_safetensors_header(header);
    ASSERT_TRUE(built.ok()) << built.failure().text();
    EXPECT_EQ((*built).size(), header.data_start);
    EXPECT_EQ(header.data_start % 4096, 0u);
    auto parsed = parse(*built + std::string(header.data_bytes(), 'd'));
    ASSERT_TRUE(parsed.ok()) << parsed.failure().text();
    EXPECT_EQ(parsed->data_start, header.data_start);
    EXPECT_EQ(parsed->data_bytes(), header.data_bytes());
    EXPECT_EQ(test::made(build_safetensors_header(*parsed)), *built);
  }
}

TEST(Safetensors, tensors_lie_one_behind_the_other_by_name) {
  SafetensorsHeader header;
  header.tensors = {{"b", "F32", {2, 3}, 0, 0}, {"a", "F32", {}, 0, 0}, {"aa", "F32", {0}, 0, 0}};
  auto built = build_safetensors_header(header);
  ASSERT_TRUE(built.ok());
  EXPECT_EQ(std::string(built->substr(8, built->find_last_of('}') - 7)),
            json_of("{'__metadata__':{},'a':{'dtype':'F32','shape':[],'data_offsets':[0,4]},"
                    "'aa':{'dtype':'F32','shape':[0],'data_offsets':[4,4]},"
                    "'b':{'dtype':'F32','shape':[2,3],'data_offsets':[4,28]}}"));
}

TEST(Safetensors, a_file_without_padding_metadata_or_order_is_read_too) {
  const std::string json = json_of(
      "{'x':{'data_offsets':[2,6],'shape':[1],'dtype':'F32'},"
      "'y':{'dtype':'BF16','shape':[1,1],'data_offsets':[0,2]}}");
  auto parsed = parse(file_of(json, 6));
  ASSERT_TRUE(parsed.ok()) << parsed.failure().text();
  EXPECT_EQ(parsed->tensors[0].name, "y");
  EXPECT_EQ(parsed->tensors[1].name, "x");
}

void expect_refused(const std::string& json, size_t data, const char* says) {
  SCOPED_TRACE(json.substr(0, 200));
  test::expect_failure(parse(file_of(json, data)), ZERO_ERR_CKPT_INVALID, says);
}

/// In single quotes.
std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape,
                   std::string_view offsets) {
  return text("'", name, "':{'dtype':", dtype, ",'shape':", shape, ",'data_offsets':", offsets,
              "}");
}

TEST(Safetensors, refuses_a_tensor_that_breaks_a_rule) {
  const std::string long_name(9000, 'n');
  const struct {
    std::string_view name, dtype, shape, offsets;
    size_t data;
    const char* says;
  } bad[] = {
      {"a", "'F31'", "[1]", "[0,4]", 4, "unknown dtype 'F31'"},
      {"a", "'f32'", "[1]", "[0,4]", 4, "unknown dtype"},
      {"a", "''", "[1]", "[0,4]", 4, "unknown dtype"},
      {"a", "1", "[1]", "[0,4]", 4, "must be a string"},
      {"", "'F32'", "[1]", "[0,4]", 4, "empty name"},
      {long_name, "'F32'", "[1]", "[0,4]", 4, "longer than"},
      {"a\\u0000", "'F32'", "[1]", "[0,4]", 4, "NUL"},
      {"a", "'F32'", "[1]", "[0]", 4, "are not two"},
      {"a", "'F32'", "[1]", "[]", 4, "are not two"},
      {"a", "'F32'", "[1]", "[0,4,8]", 4, "more than two"},
      {"a", "'F32'", "[1]", "[4,0]", 4, "do not span"},
      {"a", "'F32'", "[1]", "[0,3]", 3, "do not span the 4 bytes"},
      {"a", "'F32'", "[2]", "[0,4]", 4, "do not span the 8 bytes"},
      {"a", "'F32'", "[0]", "[0,4]", 4, "do not span the 0 bytes"},
      {"a", "'F32'", "[1]", "[-4,0]", 4, "negative"},
      {"a", "'F32'", "[-1]", "[0,4]", 4, "negative"},
      {"a", "'F32'", "[1.0]", "[0,4]", 4, "not an integer"},
      {"a", "'F32'", "[1]", "[0,4e0]", 4, "not an integer"},
      {"a", "'F32'", "[4294967296,4294967296]", "[0,4]", 4, "product overflows"},
      {"a", "'F32'", "[4294967296,4294967296,0]", "[0,0]", 0, "product overflows"},
      {"a", "'F32'", "[9223372036854775807]", "[0,4]", 4, "bytes overflow"},
      {"a", "'F32'", "[9223372036854775808]", "[0,4]", 4, "not below 2^63"},
      {"a", "'F32'", "['1']", "[0,4]", 4, "must be an integer"},
      {"a", "'F32'", "[[1]]", "[0,4]", 4, "must be an integer"},
      {"a", "'F32'", "[[[1]]]", "[0,4]", 4, "must be an integer"},
      {"a", "'F32'", "1", "[0,4]", 4, "must be an array"},
      {"a", "'F32'", "null", "[0,4]", 4, "must be an array"},
      {"a", "'F32'", "[1]", "{}", 4, "must be an array"},
      {"a", "'F32'", "[1]", "[0,4],'x':1", 4, "has no such key"},
      {"a", "'F32'", "[1],'shape':[1]", "[0,4]", 4, "appears twice"},
      {"a", "'F32'", "[1]", "[1,5]", 5, "after a gap"},
      {"a", "'F32'", "[1]", "[0,4]", 5, "hold 4 bytes of data, but the file has 5"},
      {"a", "'F32'", "[1]", "[0,4]", 3, "hold 4 bytes of data, but the file has 3"},
  };
  for (const auto& [name, dtype, shape, offsets, data, says] : bad)
    expect_refused(json_of(text("{", tensor(name, dtype, shape, offsets), "}")), data, says);
}

TEST(Safetensors, refuses_headers_that_break_a_rule) {
  const std::string a = tensor("a", "'F32'", "[1]", "[0,4]");
  const auto with_b = [&](const char* shape, const char* offsets) {
    return text("{", a, ",", tensor("b", "'F32'", shape, offsets), "}");
  };
  const struct {
    std::string json;
    size_t data;
    const char* says;
  } bad[] = {
      {"{'a':{'shape':[1],'data_offsets':[0,4]}}", 4, "there is no 'dtype'"},
      {"{'a':{'dtype':'F32','data_offsets':[0,4]}}", 4, "there is no 'shape'"},
      {"{'a':{'dtype':'F32','shape':[1]}}", 4, "there is no 'data_offsets'"},
      {"{" + a + "," + a + "}", 4, "'a' appears twice"},
      {"{'a':[]}", 0, "must be an object"},
      {"{'a':1}", 0, "must be an object"},
      {"{'__metadata__':[]}", 0, "must be an object"},
      {"{'__metadata__':{'k':1}}", 0, "must be a string"},
      {"{'__metadata__':{'k':{}}}", 0, "must be a string"},
      {"{'__metadata__':{'k':'a','k':'a'}}", 0, "appears twice"},
      {"{'__metadata__':{},'__metadata__':{}}", 0, "appears twice"},
      {"{}", 1, "hold 0 bytes of data, but the file has 1"},
      {with_b("[1]", "[5,9]"), 9, "after a gap"},
      {with_b("[1]", "[2,6]"), 6, "inside another tensor"},
      {with_b("[1]", "[0,4]"), 4, "inside another tensor"},
      {with_b("[0]", "[2,2]"), 4, "inside another tensor"},
      {"[" + a + "]", 4, "does not start with '{'"},
      {" {" + a + "}", 4, "does not start with '{'"},
      {"{" + a + "} x", 4, "not valid JSON"},
      {"{" + a, 4, "not valid JSON"},
      {std::string("{}\0", 3), 0, "not valid JSON"},
  };
  for (const auto& [json, data, says] : bad) expect_refused(json_of(json), data, says);
}

TEST(Safetensors, refuses_header_lengths_that_the_file_cannot_have) {
  const struct {
    std::string first;
    uint64_t file;
    const char* says;
  } bad[] = {
      {"", 0, "shorter than the 8 bytes"},
      {std::string(7, '\0'), 7, "shorter than the 8 bytes"},
      {length_bytes(0), 100, "must be 2 to"},
      {length_bytes(1), 100, "must be 2 to"},
      {length_bytes(100'000'001), 1'000'000'000, "must be 2 to"},
      {length_bytes(UINT64_MAX), UINT64_MAX, "must be 2 to"},
      {length_bytes(93), 100, "a header of 93 bytes in a file of 100"},
      {length_bytes(2), 8, "in a file of 8"},
  };
  for (const auto& [first, file, says] : bad)
    test::expect_failure(safetensors_header_bytes(first, file), ZERO_ERR_CKPT_INVALID, says);
  EXPECT_TRUE(safetensors_header_bytes(length_bytes(100'000'000), 100'000'008).ok());
}

TEST(Safetensors, too_many_tensors_are_not_built) {
  SafetensorsHeader header;
  header.tensors.resize(1'000'001, {"a", "F32", {0}, 0, 0});
  EXPECT_EQ(build_safetensors_header(header).failure().code(), ZERO_ERR_UNSUPPORTED);
}

TEST(Safetensors, too_many_tensors_are_not_read) {
  if (!test::nightly_run()) GTEST_SKIP() << "takes seconds: ZERO_TEST_NIGHTLY=1";
  std::string json = "{";
  for (int i = 0; i <= 1'000'000; i++) {
    json += (i ? "," : "") + tensor(std::to_string(i), "'U8'", "[0]", "[0,0]");
  }
  expect_refused(json_of(json + "}"), 0, "more than 1000000 tensors");
}

TEST(Safetensors, a_header_that_would_be_too_long_is_not_built) {
  if (!test::nightly_run()) GTEST_SKIP() << "takes seconds: ZERO_TEST_NIGHTLY=1";
  SafetensorsHeader header;
  for (int i = 0; i < 13'000; i++)
    header.tensors.push_back({text(i, std::string(8000, 'n')), "F32", {1}, 0, 0});
  EXPECT_EQ(build_safetensors_header(header).failure().code(), ZERO_ERR_UNSUPPORTED);
}

TEST(Safetensors, mutations_are_refused_or_consistent) {
  std::mt19937 random(5);
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  header.tensors = {
      {"a", "F32", {2, 3}, 0, 0}, {"b", "F32", {}, 0, 0}, {"c", "BF16", {0, 5}, 0, 0}};
  auto built = build_safetensors_header(header);
  ASSERT_TRUE(built.ok());
  const std::string json = built->substr(8, built->find_last_of('}') - 7);
  int accepted = 0;
  for (int round = 0; round < 30'000; round++) {
    const std::string mutant = test::damaged(json, "{}[]\",:0123456789FU-e\\\xff", random);
    const std::string file = file_of(mutant, header.data_bytes());
    auto parsed = parse(file);
    if (!parsed.ok()) continue;
    accepted++;
    uint64_t end = 0;
    for (const TensorEntry& tensor : parsed->tensors) {
      EXPECT_EQ(tensor.begin, end);
      end = tensor.end;
      const auto elements = shape_elements(tensor.shape);
      ASSERT_TRUE(elements.has_value());
      EXPECT_EQ(tensor.end - tensor.begin,
                static_cast<uint64_t>(*elements) * dtype_bytes(tensor.dtype));
    }
    EXPECT_EQ(parsed->data_start + end, file.size());
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace zero

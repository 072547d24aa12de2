// SPDX-License-Identifier: Apache-2.0
// What the JSON reader lets through, word for word, and that it refuses everything else without a
// crash.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "state/json_fields.h"

namespace zero {
namespace {

struct Name : JsonForm<std::string> {
  static Status read(std::string& to, std::string_view from) {
    if (from == "refuse me") return {ZERO_ERR_UNSUPPORTED, "not that one"};
    return JsonForm<std::string>::read(to, from);
  }
};

struct Entry {
  std::string name;
  bool operator==(const Entry&) const = default;
};

struct Document {
  std::string name;
  int64_t size = 0;
  std::vector<std::pair<std::string, int64_t>> inner;
  std::vector<Entry> list;
  bool operator==(const Document&) const = default;
};

}  // namespace

template <>
struct JsonForm<Entry> : Object<Field<"name", &Entry::name, Name>> {};
template <>
struct JsonForm<Document>
    : Object<Field<"name", &Document::name>, Optional<"size", &Document::size>,
             Optional<"inner", &Document::inner>, Optional<"list", &Document::list>> {};

namespace {

constexpr JsonLimits kStrict = {.max_depth = 4, .ignore_unknown_keys = false, .most_keys = 5};
constexpr JsonLimits kLenient = {.max_depth = 4, .ignore_unknown_keys = true, .most_keys = 5};

struct Outcome {
  Status status;
  Document seen;
};

Outcome parse(std::string_view bytes, const JsonLimits& limits = kStrict) {
  Outcome outcome;
  outcome.status = parse_json(bytes, limits, kJsonType<Document>, &outcome.seen);
  return outcome;
}

std::string written(const Document& document) {
  JsonWriter json;
  JsonForm<Document>::write(json, document);
  return json.take();
}

TEST(Json, every_value_goes_where_its_description_says) {
  const Outcome got = parse(
      "{ \"size\":7,\"name\":\"a\\u00e9\\n\",\"inner\":{\"x\":0,\"\":9223372036854775807},"
      "\"list\":[{\"name\":\"p\"},{\"name\":\"q\"}] }  \n");
  ASSERT_TRUE(got.status.ok()) << got.status.text();
  EXPECT_TRUE((got.seen ==
               Document{"a\u00e9\n", 7, {{"x", 0}, {"", 9223372036854775807}}, {{"p"}, {"q"}}}));
}

TEST(Json, what_is_written_by_a_description_is_read_by_it) {
  for (const Document& one : {Document{"n", 0, {}, {}}, Document{"n", 1, {{"a", 2}}, {{"p"}}}}) {
    const Outcome got = parse(written(one));
    ASSERT_TRUE(got.status.ok()) << got.status.text();
    EXPECT_TRUE(got.seen == one);
  }
  EXPECT_EQ(written({"n", 0, {}, {}}), "{\"name\":\"n\"}");
  EXPECT_EQ(written({"n", 1, {{"a", 2}}, {{"p"}, {"q"}}}),
            "{\"name\":\"n\",\"size\":1,\"inner\":{\"a\":2},"
            "\"list\":[{\"name\":\"p\"},{\"name\":\"q\"}]}");
}

TEST(Json, unknown_keys_are_ignored_with_all_that_is_in_them) {
  const Outcome got = parse(
      "{\"new\":{\"name\":[1,{\"a\":null}]},\"name\":\"n\",\"more\":true,\"and\":null,"
      "\"list\":[{\"name\":\"p\",\"extra\":[]}]}",
      kLenient);
  ASSERT_TRUE(got.status.ok()) << got.status.text();
  EXPECT_TRUE((got.seen == Document{"n", 0, {}, {{"p"}}}));
}

struct Bad {
  std::string_view bytes;
  std::string_view says;  // part of the text
};

// std::string_view literals, because some of them hold a NUL.
using namespace std::string_view_literals;
const Bad kBad[] = {
    {""sv, "does not start with '{'"},
    {" {\"name\":\"n\"}"sv, "does not start with '{'"},
    {"\xEF\xBB\xBF{\"name\":\"n\"}"sv, "does not start with '{'"},
    {"[]"sv, "does not start with '{'"},
    {"\"name\""sv, "does not start with '{'"},
    {"7"sv, "does not start with '{'"},
    {"{"sv, "not valid JSON"},
    {"{\"name\":\"n\""sv, "not valid JSON"},
    {"{\"name\":\"n\"}}"sv, "not valid JSON"},
    {"{\"name\":\"n\"} x"sv, "not valid JSON"},
    {"{\"name\":\"n\"}\0"sv, "not valid JSON"},
    {"{\"name\":\"n\"}\0{}"sv, "not valid JSON"},
    {"{\"name\":\"n\"}{}"sv, "not valid JSON"},
    {"{\"name\":\"n\",}"sv, "not valid JSON"},
    {"{,\"name\":\"n\"}"sv, "not valid JSON"},
    {"{\"name\" \"n\"}"sv, "not valid JSON"},
    {"{name:\"n\"}"sv, "not valid JSON"},
    {"{'name':'n'}"sv, "not valid JSON"},
    {"{\"name\":\"n\" /* x */}"sv, "not valid JSON"},
    {"{\"name\":\"n\"// x\n}"sv, "not valid JSON"},
    {"{\"name\":\"n\nm\"}"sv, "not valid JSON"},
    {"{\"name\":\"n\tm\"}"sv, "not valid JSON"},
    {"{\"name\":\"\\x41\"}"sv, "not valid JSON"},
    {"{\"name\":\"\\u12\"}"sv, "not valid JSON"},
    {"{\"name\":\"\\ud800\"}"sv, "not valid JSON"},
    {"{\"name\":\"\\udc00\"}"sv, "not valid JSON"},
    {"{\"name\":\"\\ud800\\u0041\"}"sv, "not valid JSON"},
    {"{\"name\":\"\x80\"}"sv, "not valid JSON"},
    {"{\"name\":\"\xc0\xaf\"}"sv, "not valid JSON"},
    {"{\"name\":\"\xed\xa0\x80\"}"sv, "not valid JSON"},
    {"{\"name\":\"\xf4\x90\x80\x80\"}"sv, "not valid JSON"},
    {"{\"name\":\"\xe2\x82\"}"sv, "not valid JSON"},
    {"{\"na\xffme\":\"n\"}"sv, "not valid JSON"},
    {"{\"name\":\"n\0\"}"sv, "not valid JSON"},
    {"{\"name\":\"n\\u0000\"}"sv, "a string holds a NUL"},
    {"{\"name\\u0000\":\"n\"}"sv, "a key holds a NUL"},
    {"{\"name\":\"n\",\"name\":\"m\"}"sv, "'name' comes twice"},
    {"{\"name\":\"n\",\"na\\u006de\":\"m\"}"sv, "'name' comes twice"},
    {"{\"name\":\"n\",\"inner\":{\"x\":1,\"x\":1}}"sv, "'inner': the key 'x' comes twice"},
    {"{\"size\":1}"sv, "there is no 'name'"},
    {"{}"sv, "there is no 'name'"},
    {"{\"name\":\"n\",\"list\":[{}]}"sv, "'list'[0]: there is no 'name'"},
    {"{\"name\":\"n\",\"list\":[{\"name\":\"a\"},{}]}"sv, "'list'[1]: there is no 'name'"},
    {"{\"name\":\"n\",\"extra\":1}"sv, "'extra': the format knows no such key"},
    {"{\"name\":1}"sv, "'name': is an integer, must be a string"},
    {"{\"name\":null}"sv, "'name': is null, must be a string"},
    {"{\"name\":true}"sv, "'name': is a boolean, must be a string"},
    {"{\"name\":[]}"sv, "'name': is an array, must be a string"},
    {"{\"name\":{}}"sv, "'name': is an object, must be a string"},
    {"{\"name\":\"n\",\"size\":\"1\"}"sv, "'size': is a string, must be an integer"},
    {"{\"name\":\"n\",\"size\":false}"sv, "'size': is a boolean, must be an integer"},
    {"{\"name\":\"n\",\"size\":null}"sv, "'size': is null, must be an integer"},
    {"{\"name\":\"n\",\"inner\":[]}"sv, "'inner': is an array, must be an object"},
    {"{\"name\":\"n\",\"inner\":{\"x\":\"1\"}}"sv, "'inner'.'x': is a string, must be an integer"},
    {"{\"name\":\"n\",\"list\":{}}"sv, "'list': is an object, must be an array"},
    {"{\"name\":\"n\",\"list\":[1]}"sv, "'list'[0]: is an integer, must be an object"},
    {"{\"name\":\"n\",\"list\":[{\"name\":\"a\"},[]]}"sv,
     "'list'[1]: is an array, must be an object"},
    {"{\"name\":\"n\",\"size\":-1}"sv, "'size': a number is negative"},
    {"{\"name\":\"n\",\"size\":-0}"sv, "'size': a number is negative"},
    {"{\"name\":\"n\",\"size\":1.0}"sv, "not an integer below 2^63"},
    {"{\"name\":\"n\",\"size\":1e3}"sv, "not an integer below 2^63"},
    {"{\"name\":\"n\",\"size\":9223372036854775808}"sv, "not below 2^63"},
    {"{\"name\":\"n\",\"size\":18446744073709551615}"sv, "not below 2^63"},
    {"{\"name\":\"n\",\"size\":18446744073709551616}"sv, "not an integer below 2^63"},
    {"{\"name\":\"n\",\"size\":1e999}"sv, "not valid JSON"},
    {"{\"name\":\"n\",\"size\":01}"sv, "not valid JSON"},
    {"{\"name\":\"n\",\"size\":+1}"sv, "not valid JSON"},
    {"{\"name\":\"n\",\"size\":.5}"sv, "not valid JSON"},
    {"{\"name\":\"n\",\"size\":0x10}"sv, "not valid JSON"},
    {"{\"name\":\"n\",\"size\":NaN}"sv, "not valid JSON"},
    {"{\"name\":\"n\",\"size\":Infinity}"sv, "not valid JSON"},
};

TEST(Json, refuses_what_is_malformed_or_out_of_place) {
  for (const Bad& bad : kBad) {
    const Outcome got = parse(bad.bytes);
    EXPECT_EQ(got.status.code(), ZERO_ERR_CKPT_INVALID) << bad.bytes;
    EXPECT_NE(got.status.text().find(bad.says), std::string::npos)
        << bad.bytes << ": " << got.status.text();
  }
}

TEST(Json, refuses_the_same_inside_unknown_keys) {
  const Bad bad[] = {
      {"{\"name\":\"n\",\"new\":-1}", "a number is negative"},
      {"{\"name\":\"n\",\"new\":[0.5]}", "not an integer"},
      {"{\"name\":\"n\",\"new\":{\"a\":1,\"a\":1}}", "'a' comes twice"},
      {"{\"name\":\"n\",\"new\":1,\"new\":1}", "'new' comes twice"},
      {"{\"name\":\"n\",\"new\":[[[{}]]]}", "nested deeper than 4"},
      {"{\"name\":\"n\",\"new\":{\"a\":{\"a\":{\"a\":[]}}}}", "nested deeper than 4"},
  };
  for (const Bad& one : bad) {
    const Outcome got = parse(one.bytes, kLenient);
    EXPECT_EQ(got.status.code(), ZERO_ERR_CKPT_INVALID) << one.bytes;
    EXPECT_NE(got.status.text().find(one.says), std::string::npos)
        << one.bytes << ": " << got.status.text();
  }
}

TEST(Json, a_million_brackets_are_a_text_not_a_crash) {
  const Outcome got = parse("{\"name\":" + std::string(1'000'000, '['), kLenient);
  EXPECT_EQ(got.status.code(), ZERO_ERR_CKPT_INVALID);
}

TEST(Json, a_value_that_its_form_refuses_ends_the_parse_with_code_and_place) {
  const Outcome got =
      parse("{\"name\":\"n\",\"list\":[{\"name\":\"a\"},{\"name\":\"refuse me\"}],\"size\":1}");
  EXPECT_EQ(got.status.code(), ZERO_ERR_UNSUPPORTED);
  EXPECT_EQ(got.status.text(), "'list'[1].'name': not that one");
  EXPECT_EQ(got.seen.size, 0);
}

TEST(Json, long_and_dirty_names_are_shown_short_and_clean) {
  EXPECT_EQ(shown("a\x1b[31m'\"\\"), "'a\\u001b[31m\\'\"\\\\'");
  const std::string cut = shown(text(std::string(119, 'x'), "\u00e9", std::string(50, 'y')));
  EXPECT_EQ(cut, text("'", std::string(119, 'x'), "'..."));
}

TEST(Json, every_name_comes_back_from_its_quotes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; round++) {
    std::string name;
    for (int i = static_cast<int>(random() % 12); i > 0; i--) {
      const char* const parts[] = {"a",      "\"",     "\\",         "\n", "\x01", "\x7f",
                                   "\u00e9", "\u20ac", "\U0001F600", "/",  "."};
      name += parts[random() % std::size(parts)];
    }
    const Document document{name, round, {}, {}};
    const Outcome got = parse(written(document));
    ASSERT_TRUE(got.status.ok()) << written(document) << ": " << got.status.text();
    EXPECT_TRUE(got.seen == document) << written(document);
  }
}

TEST(Json, the_writer_puts_commas_between_elements_only) {
  JsonWriter json;
  json.open('{').key("a").open('[').value(1).value("x").open('[').close(']').value(2).close(']');
  json.line().key("b").open('{').close('}').close('}');
  EXPECT_EQ(json.bytes(), "{\"a\":[1,\"x\",[],2],\n\"b\":{}}");
}

TEST(Json, mutations_of_a_sound_document_never_crash_and_give_only_utf8) {
  const std::string sound =
      "{\"name\":\"n\\u00e9\u00e9\",\"size\":12,\"inner\":{\"x\":1,\"y\":2},\"list\":[{\"name\":"
      "\"p\"}],\"z\":[null,{}]}";
  std::mt19937 random(11);
  for (int round = 0; round < 30'000; round++) {
    std::string mutant = sound;
    for (uint32_t i = random() % 3 + 1; i > 0; i--) {
      const size_t at = random() % mutant.size();
      constexpr std::string_view bits = "{}[]\",:\\0-e.\xff\x80";
      switch (random() % 3) {
        case 0:
          mutant[at] = bits[random() % bits.size()];
          break;
        case 1:
          mutant.erase(at, random() % 4 + 1);
          break;
        default:
          mutant.insert(at, mutant.substr(random() % mutant.size(), random() % 8));
          break;
      }
      if (mutant.empty()) mutant = "{";
    }
    const Outcome got = parse(mutant, kLenient);
    EXPECT_TRUE(is_utf8(written(got.seen))) << mutant;
    EXPECT_TRUE(got.status.ok() || got.status.code() == ZERO_ERR_CKPT_INVALID);
  }
}

}  // namespace
}  // namespace zero

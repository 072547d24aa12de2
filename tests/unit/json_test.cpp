// SPDX-License-Identifier: Apache-2.0
// What the JSON reader accepts, exactly, and that it refuses everything else without a crash.
#include "state/json.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "support/json_of.h"

namespace zero {
namespace {

using test::json_of;

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
  const Outcome got =
      parse(json_of("{ 'size':7,'name':'a\\u00e9\\n','inner':{'x':0,'':9223372036854775807},"
                    "'list':[{'name':'p'},{'name':'q'}] }  \n"));
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
  EXPECT_EQ(written({"n", 0, {}, {}}), json_of("{'name':'n'}"));
  EXPECT_EQ(written({"n", 1, {{"a", 2}}, {{"p"}, {"q"}}}),
            json_of("{'name':'n','size':1,'inner':{'a':2},'list':[{'name':'p'},{'name':'q'}]}"));
}

TEST(Json, unknown_keys_are_ignored_with_all_that_is_in_them) {
  const Outcome got =
      parse(json_of("{'new':{'name':[1,{'a':null}]},'name':'n','more':true,'and':null,"
                    "'list':[{'name':'p','extra':[]}]}"),
            kLenient);
  ASSERT_TRUE(got.status.ok()) << got.status.text();
  EXPECT_TRUE((got.seen == Document{"n", 0, {}, {{"p"}}}));
}

/// Each of `parts` between `front` and `back` is refused with these words.
struct Bad {
  std::string_view front;
  std::vector<std::string_view> parts;
  std::string_view back;
  const char* says;
};

// Literals that contain a NUL are string_views.
using namespace std::string_view_literals;
const Bad kBad[] = {
    {"",
     {"", "[]", "'name'", "7", " {'name':'n'}", "\xEF\xBB\xBF{'name':'n'}"},
     "",
     "does not start with '{'"},
    {"",
     {"{", "{,'name':'n'}", "{'name' 'n'}", "{name:'n'}", "{'na\xffme':'n'}"},
     "",
     "not valid JSON"},
    {"{'name':'n'",
     {"", "}}", "} x", "}\0"sv, "}\0{}"sv, "}{}", ",}", " /* x */}", "// x\n}"},
     "",
     "not valid JSON"},
    {"{'name':'",
     {"n\nm", "n\tm", "\\x41", "\\u12", "\\ud800", "\\udc00", "\\ud800\\u0041", "\x80", "\xc0\xaf",
      "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "n\0"sv},
     "'}",
     "not valid JSON"},
    {"{'name':'n','size':",
     {"1e999", "01", "+1", ".5", "0x10", "NaN", "Infinity"},
     "}",
     "not valid JSON"},
    {"{'name':'n','size':", {"-1", "-0"}, "}", "'size': a number is negative"},
    {"{'name':'n','size':",
     {"1.0", "1e3", "18446744073709551616"},
     "}",
     "not an integer below 2^63"},
    {"{'name':'n','size':", {"9223372036854775808", "18446744073709551615"}, "}", "not below 2^63"},
    {"{'name':'n','size':", {"'1'"}, "}", "'size': is a string, but must be an integer"},
    {"{'name':'n','size':", {"false"}, "}", "'size': is a boolean, but must be an integer"},
    {"{'name':'n','size':", {"null"}, "}", "'size': is null, but must be an integer"},
    {"{'name':", {"1"}, "}", "'name': is an integer, but must be a string"},
    {"{'name':", {"null"}, "}", "'name': is null, but must be a string"},
    {"{'name':", {"true"}, "}", "'name': is a boolean, but must be a string"},
    {"{'name':", {"[]"}, "}", "'name': is an array, but must be a string"},
    {"{'name':", {"{}"}, "}", "'name': is an object, but must be a string"},
    {"{'name", {"':'n\\u0000"}, "'}", "a string contains a NUL"},
    {"{'name", {"\\u0000':'n"}, "'}", "a key contains a NUL"},
    {"{'name':'n',", {"'name':'m'", "'na\\u006de':'m'"}, "}", "'name' appears twice"},
    {"{", {"", "'size':1"}, "}", "there is no 'name'"},
    {"{'name':'n',", {"'extra':1"}, "}", "'extra': the format has no such key"},
    {"{'name':'n','inner':", {"[]"}, "}", "'inner': is an array, but must be an object"},
    {"{'name':'n','inner':",
     {"{'x':'1'}"},
     "}",
     "'inner'.'x': is a string, but must be an integer"},
    {"{'name':'n','inner':", {"{'x':1,'x':1}"}, "}", "'inner': the key 'x' appears twice"},
    {"{'name':'n','list':", {"{}"}, "}", "'list': is an object, but must be an array"},
    {"{'name':'n','list':", {"[1]"}, "}", "'list'[0]: is an integer, but must be an object"},
    {"{'name':'n','list':", {"[{}]"}, "}", "'list'[0]: there is no 'name'"},
    {"{'name':'n','list':", {"[{'name':'a'},{}]"}, "}", "'list'[1]: there is no 'name'"},
    {"{'name':'n','list':",
     {"[{'name':'a'},[]]"},
     "}",
     "'list'[1]: is an array, but must be an object"},
};

void expect_refused(const Outcome& got, const std::string& words) {
  EXPECT_EQ(got.status.code(), ZERO_ERR_CKPT_INVALID);
  EXPECT_NE(got.status.text().find(words), std::string::npos) << got.status.text();
}

TEST(Json, refuses_what_is_malformed_or_out_of_place) {
  for (const Bad& bad : kBad) {
    for (const std::string_view part : bad.parts) {
      const std::string json = json_of(text(bad.front, part, bad.back));
      SCOPED_TRACE(json);
      expect_refused(parse(json), bad.says);
    }
  }
  expect_refused(parse("{'name':'n'}"), "not valid JSON");
}

TEST(Json, refuses_the_same_inside_unknown_keys) {
  const Bad bad[] = {
      {"{'name':'n','new':", {"-1"}, "}", "a number is negative"},
      {"{'name':'n','new':", {"[0.5]"}, "}", "not an integer"},
      {"{'name':'n','new':", {"{'a':1,'a':1}"}, "}", "'a' appears twice"},
      {"{'name':'n','new':", {"1,'new':1"}, "}", "'new' appears twice"},
      {"{'name':'n','new':", {"[[[{}]]]", "{'a':{'a':{'a':[]}}}"}, "}", "nested deeper than 4"},
  };
  for (const Bad& one : bad) {
    for (const std::string_view part : one.parts)
      expect_refused(parse(json_of(text(one.front, part, one.back)), kLenient), one.says);
  }
}

TEST(Json, a_million_brackets_are_a_text_not_a_crash) {
  const Outcome got = parse("{\"name\":" + std::string(1'000'000, '['), kLenient);
  EXPECT_EQ(got.status.code(), ZERO_ERR_CKPT_INVALID);
}

TEST(Json, a_value_that_its_form_refuses_ends_the_parse_with_code_and_place) {
  const Outcome got =
      parse(json_of("{'name':'n','list':[{'name':'a'},{'name':'refuse me'}],'size':1}"));
  EXPECT_EQ(got.status.code(), ZERO_ERR_UNSUPPORTED);
  EXPECT_EQ(got.status.text(), "'list'[1].'name': not that one");
  EXPECT_EQ(got.seen.size, 0);
}

TEST(Json, long_and_dirty_names_are_shown_short_and_clean) {
  EXPECT_EQ(shown("a\x1b[31m'\"\\"), "'a\\u001b[31m\\'\"\\\\'");
  EXPECT_EQ(shown("\u009b1m \u00a0\xc2"), "'\\u009b1m \u00a0\xc2'");
  const std::string cut = shown(text(std::string(119, 'x'), "\u00e9", std::string(50, 'y')));
  EXPECT_EQ(cut, text("'", std::string(119, 'x'), "'..."));
}

TEST(Json, every_name_comes_back_from_its_quotes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; round++) {
    std::string name;
    for (int i = static_cast<int>(random() % 12); i > 0; i--) {
      const char* const parts[] = {"a",      "\"",         "\\",     "\n",     "\x01",
                                   "\x7f",   "\u0080",     "\u009f", "\u00a0", "\u00e9",
                                   "\u20ac", "\U0001F600", "/",      "."};
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
  EXPECT_EQ(json.bytes(), json_of("{'a':[1,'x',[],2],\n'b':{}}"));
}

TEST(Json, mutations_of_a_sound_document_never_crash_and_give_only_utf8) {
  const std::string sound = json_of(
      "{'name':'n\\u00e9\u00e9','size':12,'inner':{'x':1,'y':2},'list':[{'name':'p'}],"
      "'z':[null,{}]}");
  std::mt19937 random(11);
  for (int round = 0; round < 30'000; round++) {
    const std::string mutant = test::damaged(sound, "{}[]\",:\\0-e.\xff\x80", random);
    const Outcome got = parse(mutant, kLenient);
    EXPECT_TRUE(is_utf8(written(got.seen))) << mutant;
    EXPECT_TRUE(got.status.ok() || got.status.code() == ZERO_ERR_CKPT_INVALID);
  }
}

}  // namespace
}  // namespace zero

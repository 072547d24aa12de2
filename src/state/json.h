// SPDX-License-Identifier: Apache-2.0
// Parses JSON directly into structs, without building a tree. A description (JsonType) says what
// each place may hold, and where the value is stored. The parser checks kinds, required and
// duplicate keys, depth and numbers, so that only valid values are stored.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/refusals.h"

namespace zero {

/// Describes the value at one place of a document, and the functions that store it. `to` and
/// `object` point to memory of the type that the description was made for. A failure ends the
/// parse, and the parser puts the place in front of its text.
struct JsonType {
  /// The kinds from `null` on appear in no description.
  enum Kind { integer, string, object, array, null, boolean, binary, number };
  struct Member {
    std::string_view key;
    bool required;
    const JsonType& type;
    void* (*in)(void* object);
  };
  Kind kind;
  Status (*take_integer)(void* to, int64_t value) = nullptr;
  Status (*take_string)(void* to, std::string_view value) = nullptr;
  std::span<const Member> members = {};  // at most 64
  const JsonType* item = nullptr;        // of array items, or of values with keys outside `members`
  /// Returns memory for an item. `key` is "" in an array; `before` counts the items before it.
  Result<void*> (*add)(void* to, std::string_view key, size_t before) = nullptr;
  Status (*close)(void* to, size_t items) = nullptr;
};

struct JsonLimits {
  int max_depth;
  bool ignore_unknown_keys;
  size_t most_keys;          // of one object; they are kept to detect duplicates
  bool any_numbers = false;  // allowed under unknown keys, if those are ignored
};

/// Fails with ZERO_ERR_CKPT_INVALID unless `bytes` is one object that starts with its brace, in
/// valid UTF-8 without NUL. An object may not have a key twice. Every number must be an integer in
/// [0, 2^63), even under an unknown key unless the limits say otherwise.
Status parse_json(std::string_view bytes, const JsonLimits& limits, const JsonType& root, void* to);

/// Returns `value` as a JSON string, with its quotes.
std::string json_quote(std::string_view value);

/// Returns a name from a file for error texts: in single quotes, escaped, and cut if it is long.
std::string shown(std::string_view name);

/// Writes a document. It inserts the commas.
class JsonWriter {
 public:
  JsonWriter& open(char bracket) { return put({&bracket, 1}, false); }  // '{' or '['
  JsonWriter& close(char bracket) {                                     // '}' or ']'
    comma_ = false;
    return put({&bracket, 1}, true);
  }
  JsonWriter& key(std::string_view name) { return put(json_quote(name) + ':', false); }
  JsonWriter& value(std::string_view text) { return put(json_quote(text), true); }
  JsonWriter& value(int64_t number) { return put(std::to_string(number), true); }
  /// Begins a new line before the next element.
  JsonWriter& line() {
    line_ = true;
    return *this;
  }
  const std::string& bytes() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  JsonWriter& put(std::string_view bytes, bool comma_behind) {
    if (comma_) out_ += ',';
    if (line_) out_ += '\n';
    out_ += bytes;
    comma_ = comma_behind;
    line_ = false;
    return *this;
  }

  std::string out_;
  bool comma_ = false, line_ = false;
};

// ---- One description serves both directions. A form says how a type appears in a document. The
// form of an object is the list of its fields, in the order in which they are written. Both the
// text (write) and the parser's description (kJsonType) are derived from it.

/// The form of a T if a field names no other. A form writes with write(json, value). It reads an
/// integer or a string with read(value, from). For other kinds type<T>() is the description.
template <class T>
struct JsonForm;

template <class T, class Form>
constexpr JsonType json_type() {
  if constexpr (requires(T & to, int64_t from) { Form::read(to, from); }) {
    return {.kind = JsonType::integer, .take_integer = [](void* to, int64_t from) {
              return Form::read(*static_cast<T*>(to), from);
            }};
  } else if constexpr (requires(T & to, std::string_view from) { Form::read(to, from); }) {
    return {.kind = JsonType::string, .take_string = [](void* to, std::string_view from) {
              return Form::read(*static_cast<T*>(to), from);
            }};
  } else {
    return Form::template type<T>();
  }
}
template <class T, class Form = JsonForm<T>>
inline constexpr JsonType kJsonType = json_type<T, Form>();

template <>
struct JsonForm<std::string> {
  static Status read(std::string& to, std::string_view from) { return to = from, Status(); }
  static void write(JsonWriter& json, const std::string& value) { json.value(value); }
};

template <std::integral Integer>
struct JsonForm<Integer> {
  static Status read(Integer& to, int64_t from) {
    if (sizeof to < sizeof from && from > INT32_MAX)
      return invalid("is ", from, ", but must be below 2^31");
    return to = static_cast<Integer>(from), Status();
  }
  static void write(JsonWriter& json, Integer value) { json.value(static_cast<int64_t>(value)); }
};

/// A string as a template argument.
template <size_t kSize>
struct Literal {
  constexpr Literal(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }
  constexpr operator std::string_view() const { return {text, kSize - 1}; }
  char text[kSize];
};

enum class Layout { one_line, lines };  // lines: each field or item begins a new line

/// An array of at most kMost items that have the form `Item`. Errors call the items kCalled.
template <class Item, Layout kLayout = Layout::one_line, size_t kMost = SIZE_MAX,
          Literal kCalled = "items">
struct Array {
  template <class Items>
  static constexpr JsonType type() {
    return {.kind = JsonType::array,
            .item = &kJsonType<typename Items::value_type, Item>,
            .add = [](void* to, std::string_view, size_t before) -> Result<void*> {
              if (before == kMost) return invalid("more than ", kMost, " ", kCalled);
              return &static_cast<Items*>(to)->emplace_back();
            }};
  }
  template <class Items>
  static void write(JsonWriter& json, const Items& items) {
    json.open('[');
    for (const auto& item : items) {
      if (kLayout == Layout::lines) json.line();
      Item::write(json, item);
    }
    json.close(']');
  }
};
template <class T>
struct JsonForm<std::vector<T>> : Array<JsonForm<T>> {};

template <size_t kMost>
using Shape = Array<JsonForm<int64_t>, Layout::one_line, kMost, "dimensions">;

/// An object whose keys the writer chooses.
template <class T>
struct JsonForm<std::vector<std::pair<std::string, T>>> {
  using Pairs = std::vector<std::pair<std::string, T>>;
  template <class>
  static constexpr JsonType type() {
    return {.kind = JsonType::object,
            .item = &kJsonType<T>,
            .add = [](void* to, std::string_view key, size_t) -> Result<void*> {
              return &static_cast<Pairs*>(to)->emplace_back(key, T()).second;
            }};
  }
  static void write(JsonWriter& json, const Pairs& pairs) {
    json.open('{');
    for (const auto& [key, value] : pairs) JsonForm<T>::write(json.key(key), value);
    json.close('}');
  }
};

template <auto kMember>
struct MemberOf;
template <class Owner, class T, T Owner::*kMember>
struct MemberOf<kMember> {
  using Type = T;
};

/// A field that is a member of the object's struct.
template <Literal kName, auto kMember, class Form = JsonForm<typename MemberOf<kMember>::Type>,
          bool kRequired = true>
struct Field {
  template <class Object>
  static constexpr JsonType::Member member() {
    return {kName, kRequired, kJsonType<typename MemberOf<kMember>::Type, Form>,
            [](void* object) -> void* { return &(static_cast<Object*>(object)->*kMember); }};
  }
  template <class Object>
  static void write(JsonWriter& json, const Object& object) {
    if (kRequired || !(object.*kMember == Object().*kMember))
      Form::write(json.key(kName), object.*kMember);
  }
};

/// A field that is written only if it differs from its default.
template <Literal kName, auto kMember, class Form = JsonForm<typename MemberOf<kMember>::Type>>
using Optional = Field<kName, kMember, Form, false>;

/// A field that is made from the object's struct as a whole: from several members, or from none.
template <Literal kName, class Form>
struct Part {
  template <class Object>
  static constexpr JsonType::Member member() {
    return {kName, true, kJsonType<Object, Form>, [](void* object) { return object; }};
  }
  static void write(JsonWriter& json, const auto& object) { Form::write(json.key(kName), object); }
};

template <Layout kLayout, class... Fields>
struct ObjectIn {
  static_assert(sizeof...(Fields) <= 64);
  template <class Object>
  static constexpr JsonType::Member kMembers[] = {Fields::template member<Object>()...};

  template <class Object>
  static constexpr JsonType type() {
    return {.kind = JsonType::object, .members = kMembers<Object>};
  }
  static void write(JsonWriter& json, const auto& object) {
    json.open('{');
    (Fields::write(kLayout == Layout::lines ? json.line() : json, object), ...);
    json.close('}');
  }
};
template <class... Fields>
using Object = ObjectIn<Layout::one_line, Fields...>;

}  // namespace zero

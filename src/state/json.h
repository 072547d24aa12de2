// SPDX-License-Identifier: Apache-2.0
// JSON by events. A reader states what may stand where in a table; the parser checks kinds,
// required and duplicate keys, depth and numbers against it, so that handlers see sound values
// only. No tree is built.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace zero {

/// One thing that may stand in a document. Fields are told apart by `id`, of the reader's choice,
/// at most 63; 0 is the document's root object.
struct JsonField {
  enum Kind { integer, string, object, array };
  int id;
  int parent;            // id of the object or array it stands in
  std::string_view key;  // kAnyKey: every other key of an object, or an item of an array
  Kind kind;
  bool required = true;  // ignored with kAnyKey
};
inline constexpr std::string_view kAnyKey = "*";

struct JsonSchema {
  std::span<const JsonField> fields;
  int max_depth;
  bool ignore_unknown_keys;
  size_t most_keys;  // of one object: they are remembered, as none may come twice
};

/// Receives what the schema names, in the order of the document. A failure ends the parse; the
/// parser puts the place in front of its text. `key` is "" for items of arrays.
class JsonHandler {
 public:
  virtual Status open(int /*id*/, std::string_view /*key*/) { return {}; }
  virtual Status close(int /*id*/) { return {}; }
  virtual Status integer(int id, std::string_view key, int64_t value) = 0;
  virtual Status string(int id, std::string_view key, std::string_view value) = 0;

 protected:
  ~JsonHandler() = default;
};

/// ZERO_ERR_CKPT_INVALID unless `bytes` is one object that starts with its brace, of valid UTF-8
/// without NUL, each key once in its object, and every number (of an unknown key too) an integer in
/// [0, 2^63).
Status parse_json(std::string_view bytes, const JsonSchema& schema, JsonHandler& handler);

/// `value` as a JSON string, with its quotes.
std::string json_quote(std::string_view value);

/// A name from a file as error texts show it: in single quotes, escaped, cut to a bearable length.
std::string shown(std::string_view name);

/// Puts a document together; commas come by themselves.
class JsonWriter {
 public:
  JsonWriter& open(char bracket);   // '{' or '['
  JsonWriter& close(char bracket);  // '}' or ']'
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(int64_t number);
  JsonWriter& line();  // the next element begins a line
  const std::string& bytes() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void separate();
  std::string out_;
  bool comma_ = false, line_ = false;
};

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// JSON straight into memory. A description (JsonType) states what may stand where and where it
// goes; the parser checks kinds, required and duplicate keys, depth and numbers against it, so that
// only sound values go anywhere. No tree is built.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/text.h"

namespace zero {

/// ZERO_ERR_CKPT_INVALID, with these parts of a sentence.
template <class... Parts>
Status invalid(const Parts&... parts) {
  return {ZERO_ERR_CKPT_INVALID, text(parts...)};
}

/// What must stand at one place of a document, and what takes it. `to`, `object` point to memory of
/// the one type that the description was made for. A failure ends the parse; the parser puts the
/// place in front of its text.
struct JsonType {
  enum Kind { integer, string, object, array };
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
  const JsonType* item = nullptr;        // in an array, or under a key that no member has
  /// Memory for an item; `key` is "" in an array, `before` is how many came before it.
  Result<void*> (*add)(void* to, std::string_view key, size_t before) = nullptr;
  Status (*close)(void* to, size_t items) = nullptr;
};

struct JsonLimits {
  int max_depth;
  bool ignore_unknown_keys;
  size_t most_keys;  // of one object: they are remembered, as none may come twice
};

/// ZERO_ERR_CKPT_INVALID unless `bytes` is one object that starts with its brace, of valid UTF-8
/// without NUL, each key once in its object, and every number (of an unknown key too) an integer in
/// [0, 2^63).
Status parse_json(std::string_view bytes, const JsonLimits& limits, const JsonType& root, void* to);

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
  JsonWriter& value(std::string_view text) { return put(json_quote(text)); }
  JsonWriter& value(int64_t number) { return put(std::to_string(number)); }
  JsonWriter& line();  // the next element begins a line
  const std::string& bytes() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  JsonWriter& put(std::string_view scalar);
  void separate();
  std::string out_;
  bool comma_ = false, line_ = false;
};

}  // namespace zero

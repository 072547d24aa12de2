// SPDX-License-Identifier: Apache-2.0
// nlohmann's event parser behind our own checks: nothing else of that library is used, or seen
// elsewhere.
#include "state/json.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/text.h"

namespace zero {
namespace {

constexpr int kIgnored = -1;  // the id of what the schema does not know, and of all that is in it

struct Frame {
  int id;
  bool is_array;
  size_t items = 0;   // arrays: seen so far
  std::string key;    // objects: the latest
  uint64_t seen = 0;  // objects: bit id for each known field
  std::unordered_set<std::string> keys;
};

Status invalid(std::string text) { return {ZERO_ERR_CKPT_INVALID, std::move(text)}; }

const char* kind_name(JsonField::Kind kind) {
  switch (kind) {
    case JsonField::integer:
      return "an integer";
    case JsonField::string:
      return "a string";
    case JsonField::object:
      return "an object";
    case JsonField::array:
      return "an array";
  }
  return "";
}

/// The interface nlohmann calls: each function returns false to stop, after setting status_.
class Events {
 public:
  Events(const JsonSchema& schema, JsonHandler& handler) : schema_(schema), handler_(handler) {}
  Status status() && { return std::move(status_); }

  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("a boolean"); }
  bool number_integer(int64_t) { return fail("a number is negative"); }
  bool number_float(double, const std::string&) {
    return fail("a number is not an integer below 2^63");
  }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) return fail("a number is not below 2^63");
    const int id = enter(JsonField::integer, "an integer");
    if (id == kFailed) return false;
    return id == kIgnored || accept(handler_.integer(id, key(), static_cast<int64_t>(value)));
  }
  bool string(std::string& value) {
    if (value.find('\0') != std::string::npos) return fail("a string holds a NUL");
    const int id = enter(JsonField::string, "a string");
    if (id == kFailed) return false;
    return id == kIgnored || accept(handler_.string(id, key(), value));
  }
  bool binary(std::vector<uint8_t>&) { return scalar("binary"); }

  bool start_object(size_t) { return start(false); }
  bool start_array(size_t) { return start(true); }
  bool end_object() {
    top().key.clear();  // what is wrong from here on is wrong with the object
    for (const JsonField& field : schema_.fields) {
      if (field.parent != top().id || !field.required || field.key == kAnyKey) continue;
      if (!(top().seen >> field.id & 1)) return fail(text("there is no ", shown(field.key)));
    }
    return end();
  }
  bool end_array() { return end(); }
  bool key(std::string& name) {
    top().key.clear();
    if (name.find('\0') != std::string::npos) return fail("a key holds a NUL");
    if (top().keys.size() >= schema_.most_keys)
      return fail(text("has more than ", schema_.most_keys, " keys"));
    if (!top().keys.insert(name).second) return fail(text("the key ", shown(name), " comes twice"));
    top().key = name;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    status_ = invalid(text("not valid JSON at byte ", position));
    return false;
  }

 private:
  static constexpr int kFailed = -2;

  Frame& top() { return frames_.back(); }
  std::string_view key() { return top().is_array ? std::string_view() : top().key; }

  /// "params[3].slots[0]", for error texts.
  std::string place() const {
    std::string out;
    for (const Frame& frame : frames_) {
      if (frame.is_array) {
        if (frame.items > 0) out += text('[', frame.items - 1, ']');
      } else if (!frame.key.empty()) {
        out += text(out.empty() ? "" : ".", shown(frame.key));
      }
    }
    return out;
  }
  bool fail(std::string what) {
    const std::string where = place();
    status_ = invalid(where.empty() ? std::move(what) : text(where, ": ", what));
    return false;
  }
  bool accept(Status status) {
    if (status.ok()) return true;
    const std::string where = place();
    status_ = where.empty() ? std::move(status) : std::move(status).within(where);
    return false;
  }
  bool scalar(const char* found) {
    if (frames_.empty() || enter(JsonField::integer, found, false) == kFailed) return false;
    return true;
  }

  const JsonField* find(int parent, std::string_view name, bool is_array) const {
    const JsonField* any = nullptr;
    for (const JsonField& field : schema_.fields) {
      if (field.parent != parent) continue;
      if (field.key == kAnyKey)
        any = &field;
      else if (!is_array && field.key == name)
        return &field;
    }
    return any;
  }

  /// The id of the value that comes next in the innermost container, after checking that it may
  /// stand there.
  int enter(JsonField::Kind kind, const char* found, bool possible = true) {
    Frame& frame = top();
    if (frame.is_array) frame.items++;
    if (frame.id == kIgnored) return kIgnored;
    const JsonField* field = find(frame.id, frame.key, frame.is_array);
    if (!field) {
      if (schema_.ignore_unknown_keys) return kIgnored;
      return fail("the format knows no such key"), kFailed;
    }
    if (!possible || field->kind != kind) {
      return fail(text("is ", found, ", must be ", kind_name(field->kind))), kFailed;
    }
    frame.seen |= uint64_t{1} << field->id;
    return field->id;
  }

  bool start(bool is_array) {
    if (static_cast<int>(frames_.size()) >= schema_.max_depth) {
      return fail(text("nested deeper than ", schema_.max_depth));
    }
    int id = 0;
    if (!frames_.empty()) {
      id = enter(is_array ? JsonField::array : JsonField::object,
                 is_array ? "an array" : "an object");
      if (id == kFailed) return false;
      if (id != kIgnored && !accept(handler_.open(id, key()))) return false;
    }
    frames_.push_back(Frame{id, is_array, 0, {}, 0, {}});
    return true;
  }
  bool end() {
    const int id = top().id;
    frames_.pop_back();
    return id == kIgnored || accept(handler_.close(id));
  }

  const JsonSchema& schema_;
  JsonHandler& handler_;
  std::vector<Frame> frames_;
  Status status_;
};

std::string quoted(std::string_view value, char quote) {
  std::string out(1, quote);
  for (const char c : value) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out += quote;
}

}  // namespace

Status parse_json(std::string_view bytes, const JsonSchema& schema, JsonHandler& handler) {
  // Also keeps a byte order mark from nlohmann, which would skip it.
  if (bytes.empty() || bytes[0] != '{') return invalid("does not start with '{'");
  // nlohmann takes one for the end, whatever follows.
  const size_t nul = bytes.find('\0');
  if (nul != bytes.npos) return invalid(text("not valid JSON at byte ", nul + 1));
  Events events(schema, handler);
  if (nlohmann::json::sax_parse(bytes.begin(), bytes.end(), &events)) return {};
  Status status = std::move(events).status();
  return status.ok() ? invalid("not valid JSON") : std::move(status);
}

std::string json_quote(std::string_view value) { return quoted(value, '"'); }

std::string shown(std::string_view name) {
  constexpr size_t kLongest = 120;
  if (name.size() <= kLongest) return quoted(name, '\'');
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) end--;
  return quoted(name.substr(0, end), '\'') + "...";
}

void JsonWriter::separate() {
  if (comma_) out_ += ',';
  if (line_) out_ += '\n';
  comma_ = line_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  comma_ = false;
  separate();
  out_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_ += json_quote(name);
  out_ += ':';
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  out_ += json_quote(text);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(int64_t number) {
  separate();
  out_ += std::to_string(number);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::line() {
  line_ = true;
  return *this;
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Adds our own checks to nlohmann's event parser. The library uses nothing else of nlohmann's, and
// only here.
#include "state/json.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/text.h"

namespace zero {
namespace {

/// A place in the document. `type` is null if the description does not contain the place, and then
/// for all places inside it.
struct Place {
  const JsonType* type = nullptr;
  void* to = nullptr;
};

struct Frame {
  Place place;
  bool is_array;
  size_t items = 0;      // items of an array so far
  std::string key = {};  // latest key of an object
  uint64_t seen = 0;     // bits of an object's members that were seen
  std::unordered_set<std::string> keys = {};
};

constexpr const char* kKindNames[] = {"an integer", "a string",  "an object", "an array",
                                      "null",       "a boolean", "binary",    "a number"};

/// The interface that nlohmann calls. Each function sets status_ and returns false to stop the
/// parser.
class Events {
 public:
  Events(const JsonLimits& limits, const Place& root) : limits_(limits), root_(root) {}
  Status status() && { return std::move(status_); }

  bool null() { return other(JsonType::null); }
  bool boolean(bool) { return other(JsonType::boolean); }
  bool number_integer(int64_t) { return other_number("a number is negative"); }
  bool number_float(double, const std::string&) {
    return other_number("a number is not an integer below 2^63");
  }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) return other_number("a number is not below 2^63");
    const auto at = enter(JsonType::integer);
    return at && (!at->type || accept(at->type->take_integer(at->to, static_cast<int64_t>(value))));
  }
  bool string(std::string& value) {
    if (value.find('\0') != std::string::npos) return fail("a string contains a NUL");
    const auto at = enter(JsonType::string);
    return at && (!at->type || accept(at->type->take_string(at->to, value)));
  }
  bool binary(std::vector<uint8_t>&) { return other(JsonType::binary); }

  bool start_object(size_t) { return start(false); }
  bool start_array(size_t) { return start(true); }
  bool end_object() {
    top().key.clear();  // errors from here on concern the object
    uint64_t seen = top().seen;
    for (const JsonType::Member& member : members(top())) {
      if (member.required && !(seen & 1)) return fail(text("there is no ", shown(member.key)));
      seen >>= 1;
    }
    return end();
  }
  bool end_array() { return end(); }
  bool key(std::string& name) {
    top().key.clear();
    if (name.find('\0') != std::string::npos) return fail("a key contains a NUL");
    if (top().keys.size() >= limits_.most_keys)
      return fail(text("has more than ", limits_.most_keys, " keys"));
    if (!top().keys.insert(name).second)
      return fail(text("the key ", shown(name), " appears twice"));
    top().key = name;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    status_ = invalid("not valid JSON at byte ", position);
    return false;
  }

 private:
  Frame& top() { return frames_.back(); }
  static std::span<const JsonType::Member> members(const Frame& frame) {
    if (!frame.place.type) return {};
    return frame.place.type->members;
  }

  /// Returns a path such as "params[3].slots[0]", for error texts.
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
  bool fail(const std::string& what) { return accept(invalid(what)); }
  bool accept(Status status) {
    if (status.ok()) return true;
    const std::string where = place();
    status_ = where.empty() ? std::move(status) : std::move(status).within(where);
    return false;
  }
  /// Accepts a value of a kind that no description contains.
  bool other(JsonType::Kind kind) { return !frames_.empty() && enter(kind); }
  bool other_number(const char* why) {
    return limits_.any_numbers ? other(JsonType::number) : fail(why);
  }

  /// Returns the place of the next value in the innermost container. Fails if none is allowed
  /// there.
  std::optional<Place> enter(JsonType::Kind kind) {
    const auto refuse = [this](const auto&... why) { return fail(text(why...)), std::nullopt; };
    Frame& frame = top();
    const size_t before = frame.items;
    if (frame.is_array) frame.items++;
    if (!frame.place.type) return Place{};
    const auto known = members(frame);
    const auto member =
        std::ranges::find(known, std::string_view(frame.key), &JsonType::Member::key);
    const bool is_item = member == known.end();
    const JsonType* const type = is_item ? frame.place.type->item : &member->type;
    if (!type && limits_.ignore_unknown_keys) return Place{};
    if (!type) return refuse("the format has no such key");
    if (type->kind != kind)
      return refuse("is ", kKindNames[kind], ", but must be ", kKindNames[type->kind]);
    if (!is_item) {
      frame.seen |= uint64_t{1} << (member - known.begin());
      return Place{type, member->in(frame.place.to)};
    }
    auto added = frame.place.type->add(frame.place.to, frame.key, before);
    if (added.ok()) return Place{type, *added};
    accept(std::move(added).status());
    return std::nullopt;
  }

  bool start(bool is_array) {
    if (static_cast<int>(frames_.size()) >= limits_.max_depth)
      return fail(text("nested deeper than ", limits_.max_depth));
    const auto kind = is_array ? JsonType::array : JsonType::object;
    const std::optional<Place> at = frames_.empty() ? root_ : enter(kind);
    if (at) frames_.push_back({*at, is_array});
    return at.has_value();
  }
  bool end() {
    const auto [at, items] = std::pair(top().place, top().items);
    frames_.pop_back();
    return !at.type || !at.type->close || accept(at.type->close(at.to, items));
  }

  const JsonLimits& limits_;
  const Place root_;
  std::vector<Frame> frames_;
  Status status_;
};

std::string quoted(std::string_view value, char quote) {
  std::string out(1, quote);
  for (size_t at = 0; at < value.size(); ++at) {
    const size_t control = control_character_bytes(value.substr(at));
    if (control > 0) {
      at += control - 1;  // the last byte of these is the character's code
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned char>(value[at]));
      out += escape;
      continue;
    }
    if (value[at] == quote || value[at] == '\\') out += '\\';
    out += value[at];
  }
  return out += quote;
}

}  // namespace

Status parse_json(std::string_view bytes, const JsonLimits& limits, const JsonType& root,
                  void* to) {
  // This also rejects a byte order mark, which nlohmann would skip.
  if (bytes.empty() || bytes[0] != '{') return invalid("does not start with '{'");
  // nlohmann treats a NUL as the end, whatever follows it.
  const size_t nul = bytes.find('\0');
  if (nul != bytes.npos) return invalid("not valid JSON at byte ", nul + 1);
  Events events(limits, {&root, to});
  if (nlohmann::json::sax_parse(bytes.begin(), bytes.end(), &events)) return {};
  Status status = std::move(events).status();
  return status.ok() ? invalid("not valid JSON") : std::move(status);
}

std::string json_quote(std::string_view value) { return quoted(value, '"'); }

std::string shown(std::string_view name) {
  const std::string_view whole = utf8_prefix(name, 120);
  return quoted(whole, '\'') + (whole.size() < name.size() ? "..." : "");
}

}  // namespace zero

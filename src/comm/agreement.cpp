// SPDX-License-Identifier: Apache-2.0
// What calls are made of besides plain exchanges: that ranks say the same, or can do the same,
// memory of all, and groups of some.
#include "comm/agreement.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "comm/comm.h"

namespace zero {

Status Call::agree(std::string_view phase, std::string_view what, std::string_view mine,
                   std::string_view verb) {
  struct Gist {
    Digest digest;
    uint64_t bytes;
    bool operator==(const Gist&) const = default;
  };
  const std::vector<Gist> all =
      ZERO_TRY(exchange(phase, Gist{hash128(bytes_of(mine)), mine.size()}));
  const auto differs_from = [&](const Gist& one) {
    return std::find_if(all.begin(), all.end(), [&](const Gist& other) { return other != one; });
  };
  if (differs_from(all[0]) == all.end()) return {};

  // The first of those whom most ranks are equal to.
  const auto followers = [&](const Gist& one) { return std::count(all.begin(), all.end(), one); };
  const auto usual = std::max_element(all.begin(), all.end(), [&](const Gist& a, const Gist& b) {
    return followers(a) < followers(b);
  });
  const auto odd = differs_from(*usual);
  std::vector<uint64_t> sizes;
  for (const Gist& one : all) sizes.push_back(one.bytes);
  Status sentence = disagreement(what, mine, verb, sizes, static_cast<int32_t>(odd - all.begin()),
                                 static_cast<int32_t>(usual - all.begin()));
  if (sentence.code() != ZERO_ERR_PEER || all[static_cast<size_t>(rank())] == *usual)
    return sentence;
  return Status(ZERO_ERR_MISMATCH, sentence.text());
}

/// The sentence about ranks `odd` and `usual`, as ZERO_ERR_PEER.
Status Call::disagreement(std::string_view what, std::string_view mine, std::string_view verb,
                          std::span<const uint64_t> sizes, int32_t odd, int32_t usual) {
  std::string texts[2];
  const int32_t ranks[2] = {odd, usual};
  for (int i = 0; i < 2; ++i) {
    texts[i].resize(std::min(sizes[static_cast<size_t>(ranks[i])], kTextBytes));
    if (ranks[i] == rank()) mine.copy(texts[i].data(), texts[i].size());
    if (!texts[i].empty())
      ZERO_TRY(comm_->broadcast_bytes(std::as_writable_bytes(std::span(texts[i])), ranks[i],
                                      patience()));
  }
  const Difference difference = first_difference(texts[0], texts[1]);
  return Status(ZERO_ERR_PEER, text(what, ": rank ", odd, " ", verb, " ", difference.a, ", rank ",
                                    usual, " ", verb, " ", difference.b));
}

Result<std::string> Call::find_lacking(std::string_view phase, const Status& mine) {
  const bool lacks = mine.code() == ZERO_ERR_UNSUPPORTED;
  ZERO_TRY(vote(phase, lacks ? Status() : mine));
  const std::vector<std::string> reasons =
      ZERO_TRY(gather(phase, lacks ? mine.text() : std::string_view()));
  for (size_t r = 0; r < reasons.size(); r++)
    if (!reasons[r].empty()) return text("rank ", r, ": ", reasons[r]);
  return std::string();
}

Result<std::shared_ptr<Arena>> Call::allocate(size_t bytes, int32_t kind, Side side) {
  ZERO_TRY(agree("allocate", operation_name(operation_),
                 text(bytes, " bytes of ", memory_kind_name(kind)), "asked for"));
  if (bytes == 0 || (kind != ZERO_MEMORY_PER_RANK && kind != ZERO_MEMORY_SHARED))
    return Status(
        ZERO_ERR_ARGUMENT,
        text(operation_name(operation_), ": ", bytes, " bytes of kind ", kind,
             ": bytes must not be 0 and kind is ZERO_MEMORY_PER_RANK or ZERO_MEMORY_SHARED"));
  const uint32_t number = comm_->next_arena();
  std::shared_ptr<Arena> made =
      ZERO_TRY(vote("allocated", comm_->allocate(*this, number, bytes, kind, side)));
  const std::lock_guard lock(comm_->arenas_mutex_);
  comm_->arenas_[number] = made;
  return made;
}

Result<std::shared_ptr<Comm>> Call::split(int32_t color, int32_t key) {
  struct Wish {
    int32_t color;
    int32_t key;
  };
  const std::vector<Wish> wishes = ZERO_TRY(exchange("colors", Wish{color, key}));
  std::vector<int32_t> members;
  for (int32_t r = 0; color >= 0 && r < world(); ++r)
    if (wishes[static_cast<size_t>(r)].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int32_t a, int32_t b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  const auto own = std::find(members.begin(), members.end(), rank());
  const auto place = static_cast<int32_t>(own - members.begin());
  return vote("seated", comm_->make_child(*this, members, place, color));
}

namespace {

constexpr size_t kShownBytes = 200;
constexpr size_t kShownBeforeBytes = 40;  // of what is equal, where the front must be left out

/// The start of the line that holds `position`.
size_t line_start(std::string_view text, size_t position) {
  const size_t newline = position == 0 ? std::string_view::npos : text.rfind('\n', position - 1);
  return newline == std::string_view::npos ? 0 : newline + 1;
}

/// The line of `text` that begins at `start`, without its end.
std::string_view line_at(std::string_view text, size_t start) {
  return text.substr(start, text.find('\n', start) - start);
}

std::string_view take_field(std::string_view& line) {
  const size_t end = std::min(line.find('\t'), line.size());
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return field;
}

/// The fields in which two lines differ, if they have as many fields; else nothing.
Difference differing_fields(std::string_view a, std::string_view b) {
  const auto fields = [](std::string_view line) {
    return std::count(line.begin(), line.end(), '\t');
  };
  Difference found;
  if (fields(a) == 0 || fields(a) != fields(b)) return found;
  while (!a.empty() || !b.empty()) {
    const std::string_view in_a = take_field(a), in_b = take_field(b);
    if (in_a == in_b) continue;
    const char* const comma = found.a.empty() && found.b.empty() ? "" : ", ";
    found.a.append(comma).append(in_a);
    found.b.append(comma).append(in_b);
  }
  return found;
}

/// What to show of the line that begins at `start`, of which `equal` bytes are the same on both
/// sides.
std::string show(std::string_view text, size_t start, size_t equal) {
  if (start >= text.size()) return "nothing";
  std::string_view line = line_at(text, start);
  if (line.empty()) return "an empty line";
  std::string shown;
  if (line.size() > kShownBytes && equal > kShownBeforeBytes) {
    size_t cut = std::min(equal, line.size()) - kShownBeforeBytes;
    while (cut > 0 && continues_character(line[cut])) --cut;
    line.remove_prefix(cut);
    if (cut > 0) shown = "...";
  }
  const std::string_view part = utf8_prefix(line, kShownBytes);
  shown += part;
  if (part.size() < line.size()) shown += "...";
  return shown;
}

}  // namespace

Difference first_difference(std::string_view a, std::string_view b) {
  const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const size_t place = static_cast<size_t>(at_a - a.begin());
  // Where one text is the other and more lines, the difference is the first line too many, not the
  // equal line in front of it.
  const auto goes_on = [place](std::string_view text) {
    return place < text.size() && text[place] == '\n' && place + 1 < text.size();
  };
  const bool whole_lines =
      place > 0 && ((place == a.size() && goes_on(b)) || (place == b.size() && goes_on(a)));
  if (whole_lines) return {show(a, place + 1, 0), show(b, place + 1, 0)};
  const size_t start = line_start(a, place);
  if (start < a.size() && start < b.size()) {
    const Difference fields = differing_fields(line_at(a, start), line_at(b, start));
    if (!fields.a.empty() || !fields.b.empty()) return {show(fields.a, 0, 0), show(fields.b, 0, 0)};
  }
  return {show(a, start, place - start), show(b, start, place - start)};
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// The parts of Call beyond plain exchanges: comparing what ranks pass or support, allocating arenas
// on all ranks, and splitting off groups of ranks.
#include "comm/agreement.h"

#include <algorithm>
#include <map>

#include "base/hash.h"
#include "base/text.h"
#include "comm/comm.h"

namespace zero {

Status Call::agree(std::string_view phase, std::string_view what, std::string_view mine,
                   std::string_view verb) {
  struct Gist {
    Digest digest;
    uint64_t bytes;
    auto operator<=>(const Gist&) const = default;
  };
  const Gist gist{hash128(bytes_of(mine)), mine.size()};
  if (ZERO_TRY(combine(phase, Same(gist))).differs == 0) return {};
  const std::vector<Gist> all = ZERO_TRY(exchange(phase, gist));
  const auto differs_from = [&](const Gist& one) {
    return std::find_if(all.begin(), all.end(), [&](const Gist& other) { return other != one; });
  };
  // Find the first rank whose text is the most common one.
  std::map<Gist, int32_t> followers;
  for (const Gist& one : all) ++followers[one];
  const auto usual = std::max_element(all.begin(), all.end(), [&](const Gist& a, const Gist& b) {
    return followers[a] < followers[b];
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

/// Returns the message about ranks `odd` and `usual`, as ZERO_ERR_PEER.
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
             ": bytes must not be 0, and kind must be ZERO_MEMORY_PER_RANK or ZERO_MEMORY_SHARED"));
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
  auto child = ZERO_TRY(vote("seated", comm_->make_child(*this, members, place, color)));
  if (child == nullptr) return child;
  (void)succeeds([&] {  // the child exists even if its trace cannot start
    child->split_ = text(comm_->split_, "split-", comm_->calls_, "-", color, ".");
    child->start_asked_trace();
    return true;
  });
  return child;
}

namespace {

constexpr size_t kShownBytes = 200;
constexpr size_t kShownBeforeBytes = 40;  // of the equal part, if the start is cut off

/// Returns the part of `rest` before the next `end`, and removes that part and `end` from `rest`.
std::string_view take(std::string_view& rest, char end) {
  const size_t bytes = std::min(rest.find(end), rest.size());
  const std::string_view taken = rest.substr(0, bytes);
  rest.remove_prefix(std::min(bytes + 1, rest.size()));
  return taken;
}

/// Returns the fields in which two lines differ. Returns nothing if the lines have only one field,
/// or different numbers of fields.
Difference differing_fields(std::string_view a, std::string_view b) {
  const auto fields = [](std::string_view line) {
    return std::count(line.begin(), line.end(), '\t');
  };
  Difference found;
  if (fields(a) == 0 || fields(a) != fields(b)) return found;
  while (!a.empty() || !b.empty()) {
    const std::string_view in_a = take(a, '\t'), in_b = take(b, '\t');
    if (in_a == in_b) continue;
    const char* const comma = found.a.empty() && found.b.empty() ? "" : ", ";
    found.a.append(comma).append(in_a);
    found.b.append(comma).append(in_b);
  }
  return found;
}

/// Returns the text to show for a line whose first `equal` bytes are the same on both sides.
std::string show(std::string_view line, size_t equal, const char* if_empty) {
  if (line.empty()) return if_empty;
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
  bool in_a, in_b;
  std::string_view line_a, line_b;
  do {
    in_a = !a.empty();
    in_b = !b.empty();
    line_a = take(a, '\n');
    line_b = take(b, '\n');
  } while (in_a && in_b && line_a == line_b);
  const Difference fields = in_a && in_b ? differing_fields(line_a, line_b) : Difference();
  if (!fields.a.empty() || !fields.b.empty())
    return {show(fields.a, 0, "nothing"), show(fields.b, 0, "nothing")};
  const auto [at_a, at_b] =
      std::mismatch(line_a.begin(), line_a.end(), line_b.begin(), line_b.end());
  const size_t equal = static_cast<size_t>(at_a - line_a.begin());
  return {show(line_a, equal, in_a ? "an empty line" : "nothing"),
          show(line_b, equal, in_b ? "an empty line" : "nothing")};
}

}  // namespace zero

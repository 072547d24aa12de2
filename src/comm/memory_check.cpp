// SPDX-License-Identifier: Apache-2.0
#include "comm/memory_check.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/container.h"
#include "base/text.h"

namespace zero {
namespace {

/// Limits are not read for fewer bytes than this on one rank, because reading takes about 20 files.
/// A new process allocates more: 1,024 ranks allocate at most 64 MiB unchecked.
constexpr uint64_t kWorthReading = 64 * 1024;

uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/// The total that all ranks request, and the least that any rank's tightest limit leaves.
struct Wanted {
  uint64_t bytes;
  uint64_t least_left;
  void add(const Wanted& other) {
    bytes = zero::add(bytes, other.bytes);
    least_left = std::min(least_left, other.least_left);
  }
};

/// One rank's request, with one of its limits.
struct Row {
  uint64_t bytes, limit, left;
};

/// Returns the rows of one rank. Other versions of libzero have failed the comparison of calls.
std::vector<Row> rows_of(std::string_view words) {
  std::vector<Row> rows(words.size() / sizeof(Row));
  if (!rows.empty()) std::memcpy(rows.data(), words.data(), rows.size() * sizeof(Row));
  return rows;
}

/// Compares one limit of this rank with the total request of all ranks that share the limit.
Status check_limit(const MemoryLimit& limit, std::span<const std::string> all,
                   std::string_view what) {
  uint64_t wanted = 0, left = limit.left;
  int32_t ranks = 0;
  for (const std::string& words : all) {
    for (const Row& row : rows_of(words)) {
      if (row.limit != limit.id) continue;
      wanted = add(wanted, row.bytes);
      left = std::min(left, row.left);
      ranks += row.bytes > 0 ? 1 : 0;
    }
  }
  if (wanted <= left) return {};
  return Status(ZERO_ERR_MEMORY,
                text("no memory for ", wanted, " bytes of ", what,
                     ranks > 1 ? text(" on ", ranks, " ranks") : "", ": ", limit.words, " ", left));
}

}  // namespace

Status check_memory_of_ranks(Call& call, uint64_t bytes, std::string_view what) {
  std::vector<MemoryLimit> limits;
  if (bytes >= kWorthReading) limits = memory_limits();
  uint64_t least = UINT64_MAX;
  for (const MemoryLimit& limit : limits) least = std::min(least, limit.left);
  const Wanted all = ZERO_TRY(call.combine("memory", Wanted{bytes, least}));
  if (all.bytes <= all.least_left) return {};

  std::string own;
  for (const MemoryLimit& limit : limits) {
    const Row row{bytes, limit.id, limit.left};
    own.append(reinterpret_cast<const char*>(&row), sizeof row);
  }
  const std::vector<std::string> rows = ZERO_TRY(call.gather("limits of memory", own));
  Status mine;
  for (const MemoryLimit& limit : limits)
    if (mine.ok()) mine = check_limit(limit, rows, what);
  return call.vote("room", mine);
}

}  // namespace zero

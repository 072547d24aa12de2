// SPDX-License-Identifier: Apache-2.0
// What the plan answers. How it comes to be is in partition.cpp.
#include "plan/plan.h"

#include <algorithm>

#include "base/checked.h"

namespace zero {
namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

/// One segment a contiguous part: a single rank's buckets adjoin.
void append_segment(std::vector<Segment>& out, const Segment& next) {
  if (!out.empty()) {
    Segment& last = out.back();
    if (last.param == next.param && last.first + last.count == next.first &&
        last.share + last.count == next.share) {
      last.count += next.count;
      return;
    }
  }
  out.push_back(next);
}

}  // namespace

Plan::Plan(const PlanOptions& options) : options_(options), owned_(at(options.world), 0) {}

const Plan::Section& Plan::section_of(int64_t param) const {
  const auto after = std::upper_bound(
      sections_.begin(), sections_.end(), param,
      [](int64_t number, const Section& section) { return number < section.first_param; });
  return *(after - 1);
}

int64_t Plan::grid(int64_t param) const { return grid_[at(param)]; }

int64_t Plan::layout(int64_t param) const {
  if (!even()) return layout_[at(param)];
  const Section& section = section_of(param);
  return grid(param) - section.grid + section.layout;
}

int64_t Plan::layout_elements() const {
  return sections_.empty() ? 0 : sections_.back().layout + sections_.back().layout_elements;
}

int64_t Plan::owned_elements(int32_t rank) const { return owned_[at(rank)]; }

int64_t Plan::share_elements(int32_t rank) const {
  for (auto section = sections_.rbegin(); section != sections_.rend(); ++section) {
    const int64_t end = share_end(*section, rank);
    if (end > 0) return end;
  }
  return 0;
}

int32_t Plan::owner(int64_t param) const {
  if (!even()) return owners_[at(param)];
  const Section& section = section_of(param);
  if (section.buckets.size() == 0) return 0;
  // A parameter without elements may stand behind the last block.
  const int64_t begin = std::min(grid(param) - section.grid, section.grid_elements - 1);
  const Buckets::Place first = section.buckets.find(begin);
  if (options_.world == 1 || counts_[at(param)] <= 1) return first.rank;
  const Buckets::Place last = section.buckets.find(begin + counts_[at(param)] - 1);
  return first == last ? first.rank : ZERO_OWNER_SPLIT;
}

std::span<const int64_t> Plan::travel(const Section& section) const {
  return std::span(travel_).subspan(at(section.first_param), at(section.params));
}

/// Whole-tensor rules: the parameters of `rank` in this seal, in falling order.
std::span<const int64_t> Plan::owned_by(const Section& section, int32_t rank) const {
  const std::span<const int64_t> all = travel(section);
  const auto begin = std::partition_point(all.begin(), all.end(),
                                          [&](int64_t param) { return owners_[at(param)] < rank; });
  const auto end = std::partition_point(begin, all.end(),
                                        [&](int64_t param) { return owners_[at(param)] == rank; });
  return {begin, end};
}

/// Whole-tensor rules: where a parameter's state lies in its owner's share.
int64_t Plan::share_in(const Section& section, int64_t param) const {
  return layout_[at(param)] - section.layout - owners_[at(param)] * section.chunk + section.share;
}

/// The aligned end, in its share, of what `rank` owns in this seal; 0 if that is nothing.
int64_t Plan::share_end(const Section& section, int32_t rank) const {
  if (!even()) {
    const std::span<const int64_t> owned = owned_by(section, rank);
    for (auto param = owned.rbegin(); param != owned.rend(); ++param) {
      if (counts_[at(*param)] == 0) continue;
      return round_up(share_in(section, *param) + counts_[at(*param)], kAlignment);
    }
    return 0;
  }
  for (int64_t index = section.buckets.size() - 1; index >= 0; --index) {
    const Buckets::Bucket bucket = section.buckets[index];
    const int64_t owned = section.grid_elements - bucket.begin - rank * bucket.chunk;
    if (owned > 0) return section.share + bucket.share + std::min(owned, bucket.chunk);
  }
  return 0;
}

std::vector<Segment> Plan::segments(int32_t rank) const {
  std::vector<Segment> out;
  for (const Section& section : sections_) {
    if (even()) {
      add_even_segments(section, rank, out);
    } else {
      add_whole_segments(section, rank, out);
    }
  }
  return out;
}

void Plan::add_even_segments(const Section& section, int32_t rank,
                             std::vector<Segment>& out) const {
  const std::span<const int64_t> all = travel(section);
  for (int64_t index = 0; index < section.buckets.size(); ++index) {
    const Buckets::Bucket bucket = section.buckets[index];
    const int64_t begin = section.grid + bucket.begin + rank * bucket.chunk;
    const int64_t end = std::min(begin + bucket.chunk, section.grid + section.grid_elements);
    if (begin >= end) continue;
    // A chunk begins at a multiple of kAlignment, so in the last parameter that starts by there.
    const auto behind = std::partition_point(all.begin(), all.end(),
                                             [&](int64_t number) { return grid(number) <= begin; });
    auto param = behind - 1;
    for (; param != all.end() && grid(*param) < end; ++param) {
      const int64_t from = std::max(begin, grid(*param));
      const int64_t to = std::min(end, grid(*param) + counts_[at(*param)]);
      if (from >= to) continue;
      append_segment(out, {*param, from - grid(*param), to - from,
                           section.share + bucket.share + from - begin});
    }
  }
}

void Plan::add_whole_segments(const Section& section, int32_t rank,
                              std::vector<Segment>& out) const {
  for (const int64_t param : owned_by(section, rank)) {
    if (counts_[at(param)] == 0) continue;
    out.push_back({param, 0, counts_[at(param)], share_in(section, param)});
  }
}

std::vector<Transfer> Plan::transfers(bool in_place) const {
  std::vector<Transfer> out;
  const int64_t limit =
      std::max(kBlock, options_.bucket_elements / options_.world / kAlignment * kAlignment);
  for (const Section& section : sections_) {
    for (int64_t index = 0; even() && index < section.buckets.size(); ++index) {
      const Buckets::Bucket bucket = section.buckets[index];
      out.push_back({bucket.chunk, section.layout + bucket.begin, section.share + bucket.share});
    }
    if (even() || section.chunk == 0) continue;
    if (in_place) {
      out.push_back({section.chunk, section.layout, section.share});
      continue;
    }
    for (int64_t done = 0; done < section.chunk; done += limit) {
      out.push_back({std::min(limit, section.chunk - done), -1, section.share + done});
    }
  }
  return out;
}

std::vector<Segment> Plan::within(std::span<const Segment> segments, int64_t first, int64_t count) {
  std::vector<Segment> out;
  const int64_t end = first + count;
  auto segment = std::partition_point(segments.begin(), segments.end(), [&](const Segment& one) {
    return one.share + one.count <= first;
  });
  for (; segment != segments.end() && segment->share < end; ++segment) {
    const int64_t skipped = std::max<int64_t>(0, first - segment->share);
    const int64_t kept = std::min(segment->count, end - segment->share) - skipped;
    out.push_back({segment->param, segment->first + skipped, kept, segment->share + skipped});
  }
  return out;
}

}  // namespace zero

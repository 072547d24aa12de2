// SPDX-License-Identifier: Apache-2.0
// Answers questions about the plan. partition.cpp makes the plan.
#include "plan/plan.h"

#include <algorithm>

#include "base/checked.h"

namespace zero {
namespace {

/// Adds `next` to `last` and returns true if it directly follows `last`, as a single rank's buckets
/// do.
bool extends(Segment& last, const Segment& next) {
  const bool adjoins = last.param == next.param && last.first + last.count == next.first &&
                       last.share + last.count == next.share;
  if (adjoins) last.count += next.count;
  return adjoins;
}

}  // namespace

Plan::Plan(const PlanOptions& options) : options_(options), owned_(at(options.world), 0) {}

int32_t Plan::owner(int64_t param) const {
  const Section& section = section_of(param);
  if (section.whole) return owners_[at(param)];
  if (section.buckets.size() == 0) return 0;
  // A parameter without elements may be after the last block.
  const int64_t begin = std::min(layout(param) - section.layout, section.end - 1);
  const Buckets::Place first = section.buckets.find(begin);
  if (options_.world == 1 || counts_[at(param)] <= 1) return first.rank;
  const Buckets::Place last = section.buckets.find(begin + counts_[at(param)] - 1);
  return first == last ? first.rank : ZERO_OWNER_SPLIT;
}

int64_t Plan::share_elements(size_t number, int32_t rank) const {
  const Section& section = sections_[number];
  if (section.whole) {
    std::vector<Segment> owned;
    add_segments(number, rank, owned);
    if (owned.empty()) return 0;
    return round_up(owned.back().share + owned.back().count - section.share, kAlignment);
  }
  for (int64_t index = section.buckets.size() - 1; index >= 0; --index) {
    const Buckets::Bucket bucket = section.buckets[index];
    const int64_t owned = section.end - bucket.begin - rank * bucket.chunk;
    if (owned > 0) return bucket.share + std::min(owned, bucket.chunk);
  }
  return 0;
}

bool Plan::places_as(const Plan& other) const {
  const auto same = [](const Section& a, const Section& b) {
    return a.layout == b.layout && a.layout_elements == b.layout_elements && a.share == b.share;
  };
  return layout_ == other.layout_ && owners_ == other.owners_ && section_of_ == other.section_of_ &&
         std::equal(sections_.begin(), sections_.end(), other.sections_.begin(),
                    other.sections_.end(), same);
}

std::vector<Segment> Plan::segments(int32_t rank) const {
  std::vector<Segment> out;
  for (size_t number = 0; number < sections_.size(); ++number) add_segments(number, rank, out);
  return out;
}

std::vector<OwnedSegment> Plan::segments_of(int64_t param) const {
  const int64_t count = counts_[at(param)];
  std::vector<OwnedSegment> out;
  const Section& section = section_of(param);
  const int64_t begin = layout(param) - section.layout;
  for (int64_t done = 0; done < count;) {
    const Buckets::Place place = section.buckets.find(begin + done);
    const Buckets::Bucket bucket = section.buckets[place.bucket];
    const int64_t in_chunk = begin + done - bucket.begin - place.rank * bucket.chunk;
    const int64_t part = std::min(count - done, bucket.chunk - in_chunk);
    const Segment next{param, done, part, section.share + bucket.share + in_chunk,
                       section_number(param)};
    if (out.empty() || out.back().owner != place.rank || !extends(out.back().segment, next))
      out.push_back({place.rank, next});
    done += part;
  }
  return out;
}

void Plan::add_segments(size_t number, int32_t rank, std::vector<Segment>& out) const {
  const Section& section = sections_[number];
  const std::span<const int64_t> all = travel(section);
  for (int64_t index = 0; index < section.buckets.size(); ++index) {
    const Buckets::Bucket bucket = section.buckets[index];
    const int64_t begin = section.layout + bucket.begin + rank * bucket.chunk;
    const int64_t end = std::min(begin + bucket.chunk, section.layout + section.end);
    if (begin >= end) continue;
    // Only the last parameter that starts at or before `begin` may reach into the chunk.
    auto param = std::partition_point(all.begin(), all.end(),
                                      [&](int64_t one) { return layout(one) <= begin; });
    if (param != all.begin()) --param;
    for (; param != all.end() && layout(*param) < end; ++param) {
      const int64_t first = layout(*param);
      const int64_t from = std::max(begin, first);
      const int64_t to = std::min(end, first + counts_[at(*param)]);
      if (from >= to) continue;
      const Segment next{*param, from - first, to - from,
                         section.share + bucket.share + from - begin, static_cast<int32_t>(number)};
      if (out.empty() || !extends(out.back(), next)) out.push_back(next);
    }
  }
}

std::vector<Transfer> Plan::transfers(bool in_place) const {
  std::vector<Transfer> out;
  for (size_t number = 0; number < sections_.size(); ++number) {
    const Section& section = sections_[number];
    const auto add = [&](int64_t chunk, int64_t layout, int64_t share, int32_t owners) {
      out.push_back({chunk, layout, section.share + share, owners, static_cast<int32_t>(number)});
    };
    const bool packed = section.whole && !in_place;
    const int64_t limit =
        std::max(kBlock, bucket_elements(section) / options_.world / kAlignment * kAlignment);
    for (int64_t index = 0; index < section.buckets.size(); ++index) {
      const Buckets::Bucket bucket = section.buckets[index];
      if (!packed) add(bucket.chunk, section.layout + bucket.begin, bucket.share, bucket.owners);
      for (int64_t done = 0; packed && done < bucket.chunk; done += limit)
        add(std::min(limit, bucket.chunk - done), -1, done, bucket.owners);
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
    out.push_back(segment->part(skipped, kept));
  }
  return out;
}

}  // namespace zero

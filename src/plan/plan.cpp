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

size_t Plan::section_index(int64_t param) const { return at(section_of_[at(param)]); }

int64_t Plan::grid(int64_t param) const { return grid_[at(param)]; }

int64_t Plan::layout(int64_t param) const { return layout_[at(param)]; }

int64_t Plan::layout_elements() const {
  return sections_.empty() ? 0 : sections_.back().layout + sections_.back().layout_elements;
}

int64_t Plan::owned_elements(int32_t rank) const { return owned_[at(rank)]; }

int64_t Plan::share_elements(size_t section, int32_t rank) const {
  return share_end(sections_[section], rank);
}

int32_t Plan::owner(int64_t param) const {
  if (!even()) return owners_[at(param)];
  const Section& section = section_of(param);
  if (section.buckets.size() == 0) return 0;
  // A parameter without elements may stand behind the last block.
  const int64_t begin = std::min(layout(param) - section.layout, section.end - 1);
  const Buckets::Place first = section.buckets.find(begin);
  if (options_.world == 1 || counts_[at(param)] <= 1) return first.rank;
  const Buckets::Place last = section.buckets.find(begin + counts_[at(param)] - 1);
  return first == last ? first.rank : ZERO_OWNER_SPLIT;
}

std::span<const int64_t> Plan::travel(const Section& section) const {
  return std::span(travel_).subspan(at(section.first_travel), at(section.params));
}

/// Whole-tensor rules: the parameters of `rank` in this section, in falling order.
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

/// The aligned end, from where the section begins in its share, of what `rank` owns there.
int64_t Plan::share_end(const Section& section, int32_t rank) const {
  if (!even()) {
    const std::span<const int64_t> owned = owned_by(section, rank);
    for (auto param = owned.rbegin(); param != owned.rend(); ++param) {
      if (counts_[at(*param)] == 0) continue;
      const int64_t begin = share_in(section, *param) - section.share;
      return round_up(begin + counts_[at(*param)], kAlignment);
    }
    return 0;
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
  for (size_t index = 0; index < sections_.size(); ++index) {
    even() ? add_even_segments(index, rank, out) : add_whole_segments(index, rank, out);
  }
  return out;
}

std::vector<OwnedSegment> Plan::segments_of(int64_t param) const {
  std::vector<OwnedSegment> out;
  const int64_t count = counts_[at(param)];
  const int32_t number = section_of_[at(param)];
  const Section& section = section_of(param);
  if (!even()) {
    if (count > 0)
      out.push_back({owners_[at(param)], {param, 0, count, share_in(section, param), number}});
    return out;
  }
  const int64_t begin = layout(param) - section.layout;
  for (int64_t done = 0; done < count;) {
    const Buckets::Place place = section.buckets.find(begin + done);
    const Buckets::Bucket bucket = section.buckets[place.bucket];
    const int64_t chunk = bucket.begin + place.rank * bucket.chunk;
    const int64_t part = std::min(count - done, chunk + bucket.chunk - (begin + done));
    const int64_t share = section.share + bucket.share + begin + done - chunk;
    const bool joins = !out.empty() && out.back().owner == place.rank &&
                       out.back().segment.share + out.back().segment.count == share;
    if (joins) {
      out.back().segment.count += part;
    } else {
      out.push_back({place.rank, {param, done, part, share, number}});
    }
    done += part;
  }
  return out;
}

void Plan::add_even_segments(size_t number, int32_t rank, std::vector<Segment>& out) const {
  const Section& section = sections_[number];
  const std::span<const int64_t> all = travel(section);
  for (int64_t index = 0; index < section.buckets.size(); ++index) {
    const Buckets::Bucket bucket = section.buckets[index];
    const int64_t begin = section.layout + bucket.begin + rank * bucket.chunk;
    const int64_t end = std::min(begin + bucket.chunk, section.layout + section.end);
    if (begin >= end) continue;
    // If a parameter reaches into the chunk from before, it is the last one that starts by there.
    auto param = std::partition_point(all.begin(), all.end(),
                                      [&](int64_t number) { return layout(number) <= begin; });
    if (param != all.begin()) --param;
    for (; param != all.end() && layout(*param) < end; ++param) {
      const int64_t first = layout(*param);
      const int64_t from = std::max(begin, first);
      const int64_t to = std::min(end, first + counts_[at(*param)]);
      if (from >= to) continue;
      append_segment(out,
                     {*param, from - first, to - from, section.share + bucket.share + from - begin,
                      static_cast<int32_t>(number)});
    }
  }
}

void Plan::add_whole_segments(size_t number, int32_t rank, std::vector<Segment>& out) const {
  const Section& section = sections_[number];
  for (const int64_t param : owned_by(section, rank)) {
    if (counts_[at(param)] == 0) continue;
    out.push_back(
        {param, 0, counts_[at(param)], share_in(section, param), static_cast<int32_t>(number)});
  }
}

std::vector<Transfer> Plan::transfers(bool in_place) const {
  std::vector<Transfer> out;
  for (size_t number = 0; number < sections_.size(); ++number) {
    const Section& section = sections_[number];
    const auto add = [&](int64_t chunk, int64_t layout, int64_t share) {
      out.push_back({chunk, layout, section.share + share, static_cast<int32_t>(number)});
    };
    for (int64_t index = 0; even() && index < section.buckets.size(); ++index) {
      const Buckets::Bucket bucket = section.buckets[index];
      add(bucket.chunk, section.layout + bucket.begin, bucket.share);
    }
    if (even() || section.chunk == 0) continue;
    if (in_place) {
      add(section.chunk, section.layout, 0);
      continue;
    }
    const int64_t limit =
        std::max(kBlock, bucket_elements(section) / options_.world / kAlignment * kAlignment);
    for (int64_t done = 0; done < section.chunk; done += limit)
      add(std::min(limit, section.chunk - done), -1, done);
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
    out.push_back({segment->param, segment->first + skipped, kept, segment->share + skipped,
                   segment->section});
  }
  return out;
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// The plan says which rank owns each element, where the element lies, and which parameters travel
// together. It is a pure function of sizes, dtypes, orders, rule, world and bucket size. It uses no
// I/O, no threads and no device.
//
// The parameters of one seal that have the same dtypes and kind form a section: they travel
// together. These coordinates, all in elements, continue from section to section:
//   grid    Parameters follow one another by falling order. Each starts at a multiple of
//           kAlignment, and each section at a multiple of kBlock. The grid depends on neither world
//           nor rule, and never changes, because norms are summed by pieces of it: a piece is the
//           part of one parameter in one block.
//   layout  The places of parameters in an arena that travels unpacked. EVEN: as on the grid, cut
//           into buckets that are padded to world equal chunks. Whole tensors, which the other
//           rules make of all parameters: by owner, each owner's part padded to the longest.
//   share   The state of one rank: its chunks of the layout, one after the other.
//
// Plan::anew() makes new sections. With EVEN they have no room for blocks that moved elsewhere.
// Each parameter stays at its place within its block, so a piece still has one owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "plan/buckets.h"

namespace zero {

inline constexpr int64_t kAlignment = 16;

/// No coordinate exceeds this, so that positions in bytes fit into an int64_t.
inline constexpr int64_t kMaxElements = INT64_MAX / 16;

struct PlanParam {
  int64_t count = 0;
  int64_t order = 0;  // parameters travel by falling order, on ties by falling position
  int32_t owner = 0;  // manual rule only
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  bool rests = false;  // assigned after the others, in separate sections
  int32_t kind = 0;    // parameters of different kinds are in different sections
  bool whole = false;  // has one owner, even if the rule is EVEN; the same for all of a kind
};

struct PlanOptions {
  int32_t world = 1;
  int32_t rule = ZERO_PARTITION_EVEN;
  int64_t bucket_bytes = 33'554'432;  // in bytes of parameters
};

/// Returns the type of a parameter's sums and state: fp64 for fp64, fp32 for other floating types.
/// Parameters of other types cannot be trained and have neither; then it returns their own type.
constexpr DType sum_dtype(DType dtype) {
  return dtype == DType::f64 || !is_floating(dtype) ? dtype : DType::f32;
}

/// The start of a section, in elements of the layout and of a share, and in bytes of an arena of
/// parameters, an arena of gradients, a share of parameters, and a share of sums.
struct SectionStart {
  int64_t layout = 0, share = 0;
  int64_t data_bytes = 0, grad_bytes = 0, owned_bytes = 0, sum_bytes = 0;
};

/// The parameters of one seal that have the same dtypes and kind.
struct Section : SectionStart {
  int32_t number = 0;
  int32_t kind = 0;
  bool whole = false;  // each parameter has one owner
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  int64_t first_travel = 0;
  int64_t params = 0;
  // From `layout`. Of the last parameter, rounded up to kAlignment, or if `whole` of the only
  // bucket.
  int64_t end = 0;
  int64_t layout_elements = 0;
  int64_t share_elements = 0;  // of every rank, including trailing padding
  Buckets buckets;

  DType sum() const { return sum_dtype(dtype); }
  int64_t data_at(int64_t layout_position) const {
    return data_bytes + (layout_position - layout) * static_cast<int64_t>(size_of(dtype));
  }
  int64_t grad_at(int64_t layout_position) const {
    return grad_bytes + (layout_position - layout) * static_cast<int64_t>(size_of(grad_dtype));
  }
  int64_t owned_at(int64_t share_position) const {
    return owned_bytes + (share_position - share) * static_cast<int64_t>(size_of(dtype));
  }
  int64_t sum_at(int64_t share_position) const {
    return sum_bytes + (share_position - share) * static_cast<int64_t>(size_of(sum()));
  }
};

/// A part of one parameter that one rank owns.
struct Segment {
  int64_t param;
  int64_t first;  // element of the parameter
  int64_t count;
  int64_t share;  // position of its state in the owner's share
  int32_t section = 0;

  std::pair<int64_t, int64_t> start() const { return {param, first}; }
  /// Returns the `kept` elements after the first `skipped`.
  Segment part(int64_t skipped, int64_t kept) const {
    return {param, first + skipped, kept, share + skipped, section};
  }
};

/// A segment and its owner.
struct OwnedSegment {
  int32_t owner;
  Segment segment;
};

/// One reduce-scatter or all-gather: `chunk` elements for each rank.
struct Transfer {
  int64_t chunk;
  int64_t layout;  // the layout position of rank 0's chunk; -1: whole tensors that are packed
  int64_t share;   // start of each rank's chunk in its share
  int32_t owners;  // the first ranks; chunks of the others are padding
  int32_t section = 0;
};

class Plan {
 public:
  explicit Plan(const PlanOptions& options);

  /// Adds the parameters of one more seal. Their numbers follow those of earlier seals, whose
  /// parameters keep their owners. `group_ends` has for each group the number of parameters of this
  /// seal before its end (greedy sorts within a group). Fails with ZERO_ERR_ARGUMENT, and adds
  /// nothing, if an owner is not a rank or a coordinate exceeds kMaxElements.
  Status add(std::span<const PlanParam> params, std::span<const int64_t> group_ends);

  /// Returns a plan that assigns all parameters of this one as one seal, but keeps their grid.
  /// `params` and `group_ends` are as in add(). More seals may be added to it.
  Result<Plan> anew(std::span<const PlanParam> params, std::span<const int64_t> group_ends) const;

  /// Returns true if both plans give everything the same place.
  bool places_as(const Plan& other) const;

  /// Returns false after anew(): then the room after a parameter may exceed its padding.
  bool in_place() const { return in_place_; }

  const PlanOptions& options() const { return options_; }
  int64_t params() const { return static_cast<int64_t>(counts_.size()); }

  /// Return the positions of a parameter's first element.
  int64_t grid(int64_t param) const { return grid_[at(param)]; }
  int64_t layout(int64_t param) const { return layout_[at(param)]; }
  /// Returns the position on the grid of a segment's first element.
  int64_t grid_of(const Segment& segment) const { return grid(segment.param) + segment.first; }

  const std::vector<Section>& sections() const { return sections_; }
  const Section& section(int32_t number) const { return sections_[at(number)]; }
  const Section& section_of(int64_t param) const { return section(section_number(param)); }
  int32_t section_number(int64_t param) const { return section_of_[at(param)]; }

  /// Returns where the next section would begin: the elements of all sections, including padding;
  /// the bytes of an arena of parameters and of an arena of gradients with this layout; and the
  /// bytes of any rank's share of parameters and of sums. Sections begin at multiples of 64 bytes.
  const SectionStart& end() const { return end_; }

  /// Returns how many elements of a section's share need state: those up to the last element that
  /// `rank` owns, rounded up to kAlignment, or after anew() to the end of its block. Transfers may
  /// carry more elements after these.
  int64_t share_elements(size_t section, int32_t rank) const;
  /// Returns the number of parameter elements in a rank's share.
  int64_t owned_elements(int32_t rank) const { return owned_[at(rank)]; }
  /// Returns how many ranks own nothing.
  int64_t idle_ranks() const { return std::ranges::count(owned_, 0); }

  /// Returns the only owner of a parameter, or ZERO_OWNER_SPLIT if it has several. A parameter
  /// without elements always has one owner.
  int32_t owner(int64_t param) const;

  /// Returns all that `rank` owns, sorted by share position. Leaves out segments without elements.
  std::vector<Segment> segments(int32_t rank) const;

  /// Returns one parameter's segments with their owners, sorted by element.
  std::vector<OwnedSegment> segments_of(int64_t param) const;

  /// Returns all transfers, in the fixed order of travel. Pass `in_place` if parameters lie as
  /// layout() says on every rank. Otherwise each transfer is packed, and chunks stay near
  /// bucket_bytes / world. The last transfer of a section may end after a rank's share_elements.
  std::vector<Transfer> transfers(bool in_place) const;

  /// Returns the part of `segments` (as segments() returns them) in the share range [first, first +
  /// count).
  static std::vector<Segment> within(std::span<const Segment> segments, int64_t first,
                                     int64_t count);

 private:
  static constexpr size_t at(int64_t index) { return static_cast<size_t>(index); }
  int64_t bucket_elements(const Section& section) const {
    return options_.bucket_bytes / static_cast<int64_t>(size_of(section.dtype));
  }

  // ---- These make one seal part of the plan: partition.cpp. A failure leaves it half done.
  Status deal(std::span<const PlanParam> params, std::span<const int64_t> group_ends);
  void sort_into_sections(std::span<const PlanParam> params, bool placed);
  Status assign_owners(std::span<const PlanParam> params, std::span<const int64_t> group_ends);
  Status place_on_grid(const Section& section);
  Status lay_out_evenly(Section& section);
  void lay_out_by_owner(Section& section);
  void count_owned(const Section& section);
  SectionStart end_of(const Section& section) const;

  std::span<int64_t> travel(const Section& section) {
    return std::span(travel_).subspan(at(section.first_travel), at(section.params));
  }
  std::span<const int64_t> travel(const Section& section) const {
    return std::span(travel_).subspan(at(section.first_travel), at(section.params));
  }
  void add_segments(size_t number, int32_t rank, std::vector<Segment>& out) const;

  PlanOptions options_;
  std::vector<Section> sections_;
  SectionStart end_;
  std::vector<int32_t> section_of_;  // by parameter
  std::vector<int64_t> counts_;      // by parameter
  std::vector<int64_t> grid_;        // by parameter
  std::vector<int64_t> layout_;      // by parameter
  std::vector<int32_t> owners_;      // by parameter; ZERO_OWNER_SPLIT if its section is not whole
  std::vector<int64_t> travel_;      // the parameters of each section in falling order; in whole
                                     // sections by owner first
  std::vector<int64_t> owned_;       // elements by rank; the greedy rules' running totals
  int64_t grid_end_ = 0;             // start of the next section
  bool in_place_ = true;
};

}  // namespace zero

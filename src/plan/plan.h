// SPDX-License-Identifier: Apache-2.0
// Who owns what, where it lies, and what travels together: a pure function of sizes, dtypes,
// orders, rule, world and bucket size. No I/O, no threads, no device.
//
// Parameters of one seal with the same dtypes make a section: they travel together. Coordinates,
// all in elements, run on from section to section:
//   grid    parameters one behind the other by falling order, each start a multiple of
//           kAlignment, each section's start a multiple of kBlock. Depends on neither world nor
//           rule, and never changes: norms are summed by pieces of this grid, a piece being one
//           parameter's part of one block.
//   layout  where parameters lie in an arena that travels unpacked. EVEN: as on the grid, cut into
//           buckets, each padded to world equal chunks. Whole-tensor rules: by owner, each owner's
//           part padded to the longest.
//   share   the state of one rank: its chunks of the layout one behind the other.
//
// What is dealt out anew gets other sections, and with EVEN lies in them without the blocks that
// have gone elsewhere; in a block each parameter stays where it was, so a piece has one owner.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "plan/buckets.h"

namespace zero {

inline constexpr int64_t kAlignment = 16;

/// No coordinate passes this, so that positions in bytes fit an int64_t.
inline constexpr int64_t kMaxElements = INT64_MAX / 16;

struct PlanParam {
  int64_t count = 0;
  int64_t order = 0;  // falling order is the order of travel; ties by falling position
  int32_t owner = 0;  // manual rule only
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  bool rests = false;  // dealt out behind the others, in sections of its own
};

struct PlanOptions {
  int32_t world = 1;
  int32_t rule = ZERO_PARTITION_EVEN;
  int64_t bucket_bytes = 33'554'432;  // of parameters
};

/// What sums and state of a parameter are: fp64 for fp64, fp32 for the other floating types. What
/// cannot be trained has neither; its values stay what they are.
constexpr DType sum_dtype(DType dtype) {
  return dtype == DType::f64 || !is_floating(dtype) ? dtype : DType::f32;
}

/// Where a section begins: in elements, and in bytes of an arena of parameters and of one of
/// gradients, which are laid out, of a share of parameters, and of a share of sums.
struct SectionStart {
  int64_t layout = 0, share = 0;
  int64_t data_bytes = 0, grad_bytes = 0, owned_bytes = 0, sum_bytes = 0;
};

/// The parameters of one seal that have the same dtypes.
struct Section : SectionStart {
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  int64_t first_travel = 0;
  int64_t params = 0;
  int64_t end = 0;  // EVEN: of the last parameter, from `layout`, rounded up to kAlignment
  int64_t layout_elements = 0;
  int64_t share_elements = 0;  // of every rank, trailing padding included
  int64_t chunk = 0;           // whole-tensor rules: the longest rank's part
  Buckets buckets;             // EVEN

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
  int64_t share;  // where its state lies in the owner's share
  int32_t section = 0;

  std::pair<int64_t, int64_t> start() const { return {param, first}; }
  /// Of its elements `kept` behind the first `skipped`.
  Segment part(int64_t skipped, int64_t kept) const {
    return {param, first + skipped, kept, share + skipped, section};
  }
};

/// A segment and who owns it.
struct OwnedSegment {
  int32_t owner;
  Segment segment;
};

/// One reduce-scatter or all-gather: `chunk` elements for each rank.
struct Transfer {
  int64_t chunk;
  int64_t layout;  // EVEN, and whole tensors in place: the layout position of rank 0's chunk;
                   // -1: packed only
  int64_t share;   // where each rank's chunk begins in its share
  int32_t section = 0;
};

class Plan {
 public:
  explicit Plan(const PlanOptions& options);

  /// Add the parameters of one more seal, numbered on from those before; owners of earlier ones
  /// stand. `group_ends`: the number of parameters of this seal up to the end of each group (greedy
  /// sorts within a group). ZERO_ERR_ARGUMENT if an owner is no rank, or a coordinate passes
  /// kMaxElements; nothing is added then.
  Status add(std::span<const PlanParam> params, std::span<const int64_t> group_ends);

  /// All parameters of this plan, described as in add(), dealt out as those of one seal, but with
  /// the grid that they have. Another seal may be added to it.
  Result<Plan> anew(std::span<const PlanParam> params, std::span<const int64_t> group_ends) const;

  /// True if both give everything the same place.
  bool places_as(const Plan& other) const;

  /// False once dealt out anew: behind a parameter there may be more room than its padding.
  bool in_place() const { return in_place_; }

  const PlanOptions& options() const { return options_; }
  int64_t params() const { return static_cast<int64_t>(counts_.size()); }

  /// Where a parameter's first element lies.
  int64_t grid(int64_t param) const { return grid_[at(param)]; }
  int64_t layout(int64_t param) const { return layout_[at(param)]; }

  const std::vector<Section>& sections() const { return sections_; }
  const Section& section(int32_t number) const { return sections_[at(number)]; }
  const Section& section_of(int64_t param) const { return section(section_number(param)); }
  int32_t section_number(int64_t param) const { return section_of_[at(param)]; }

  /// Elements of all sections, padding included.
  int64_t layout_elements() const { return end_.layout; }
  /// The bytes of arenas with this layout, of memory for the share of parameters of any rank, and
  /// of that for its sums. Sections begin at multiples of 64 bytes.
  int64_t data_bytes() const { return end_.data_bytes; }
  int64_t grad_bytes() const { return end_.grad_bytes; }
  int64_t owned_bytes() const { return end_.owned_bytes; }
  int64_t sum_bytes() const { return end_.sum_bytes; }

  /// Of a section, to the end of the last element that a rank owns there, rounded up to kAlignment,
  /// or, dealt out anew, to the end of its block: what transfers carry behind that needs no state.
  int64_t share_elements(size_t section, int32_t rank) const;
  /// Elements of parameters in a rank's share.
  int64_t owned_elements(int32_t rank) const { return owned_[at(rank)]; }

  /// The only owner, or ZERO_OWNER_SPLIT. A parameter without elements always has one.
  int32_t owner(int64_t param) const;

  /// What `rank` owns, by rising share position. Segments without elements are left out.
  std::vector<Segment> segments(int32_t rank) const;

  /// One parameter's elements by who owns them, by rising element.
  std::vector<OwnedSegment> segments_of(int64_t param) const;

  /// What moves together, in the fixed order of travel. `in_place`: the list to use when parameters
  /// lie as layout() says on every rank; otherwise each transfer is packed, and chunks stay near
  /// bucket_bytes / world. A section's last one may end behind a rank's share_elements.
  std::vector<Transfer> transfers(bool in_place) const;

  /// The part of `segments` (as segments() gives them) within share range [first, first + count).
  static std::vector<Segment> within(std::span<const Segment> segments, int64_t first,
                                     int64_t count);

 private:
  static constexpr size_t at(int64_t index) { return static_cast<size_t>(index); }
  bool even() const { return options_.rule == ZERO_PARTITION_EVEN; }
  int64_t bucket_elements(const Section& section) const {
    return options_.bucket_bytes / static_cast<int64_t>(size_of(section.dtype));
  }

  // ---- One seal becomes part of this plan: partition.cpp. A failure leaves it half done.
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
  std::span<const int64_t> owned_by(const Section& section, int32_t rank) const;
  Segment whole(int64_t param) const;
  void add_even_segments(int32_t number, int32_t rank, std::vector<Segment>& out) const;

  PlanOptions options_;
  std::vector<Section> sections_;
  SectionStart end_;                 // where the next one would begin
  std::vector<int32_t> section_of_;  // by parameter
  std::vector<int64_t> counts_;      // by parameter
  std::vector<int64_t> grid_;        // by parameter
  std::vector<int64_t> layout_;      // by parameter
  std::vector<int32_t> owners_;      // by parameter; whole-tensor rules only
  std::vector<int64_t> travel_;      // the parameters of each section in falling order; under
                                     // whole-tensor rules by owner first
  std::vector<int64_t> owned_;       // elements by rank; the greedy rules' running totals
  int64_t grid_end_ = 0;             // where the next section would begin
  bool in_place_ = true;
};

}  // namespace zero

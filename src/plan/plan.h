// SPDX-License-Identifier: Apache-2.0
// Who owns what, where it lies, and what travels together: a pure function of sizes, orders, rule,
// world and bucket size. No I/O, no threads, no device.
//
// Coordinates, all in elements:
//   grid    parameters one behind the other by falling order, each start a multiple of
//           kAlignment, each seal's start a multiple of kBlock. Depends on neither world nor rule:
//           norms are summed by pieces of this grid, a piece being one parameter's part of one
//           block.
//   layout  where parameters lie in an arena that travels unpacked. EVEN: the grid, cut into
//           buckets, each padded to world equal chunks. Whole-tensor rules: by owner, each owner's
//           part padded to the longest.
//   share   the state of one rank: its chunks of the layout one behind the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "plan/buckets.h"

namespace zero {

inline constexpr int64_t kAlignment = 16;

/// No coordinate passes this, so that positions in bytes fit an int64_t.
inline constexpr int64_t kMaxElements = INT64_MAX / 8;

struct PlanParam {
  int64_t count = 0;
  int64_t order = 0;  // falling order is the order of travel; ties by falling position
  int32_t owner = 0;  // manual rule only
};

struct PlanOptions {
  int32_t world = 1;
  int32_t rule = ZERO_PARTITION_EVEN;
  int64_t bucket_elements = 8388608;
};

/// A part of one parameter that one rank owns.
struct Segment {
  int64_t param;
  int64_t first;  // element of the parameter
  int64_t count;
  int64_t share;  // where its state lies in the owner's share
};

/// One reduce-scatter or all-gather: `chunk` elements for each rank.
struct Transfer {
  int64_t chunk;
  int64_t layout;  // EVEN, and whole tensors in place: the layout position of rank 0's chunk;
                   // -1: packed only
  int64_t share;   // where each rank's chunk begins in its share
};

class Plan {
 public:
  explicit Plan(const PlanOptions& options);

  /// Add the parameters of one more seal, numbered on from those before; owners of earlier ones
  /// stand. `group_ends`: the number of parameters of this seal up to the end of each group (greedy
  /// sorts within a group). ZERO_ERR_ARGUMENT if an owner is no rank, or a coordinate passes
  /// kMaxElements; nothing is added then.
  Status add(std::span<const PlanParam> params, std::span<const int64_t> group_ends);

  const PlanOptions& options() const { return options_; }
  int64_t params() const { return static_cast<int64_t>(counts_.size()); }

  /// Where a parameter's first element lies.
  int64_t grid(int64_t param) const;
  int64_t layout(int64_t param) const;

  /// Of all seals, padding included.
  int64_t layout_elements() const;
  /// To the end of the last element that a rank owns, rounded up to kAlignment: padding behind
  /// that, which transfers carry, needs no state.
  int64_t share_elements(int32_t rank) const;
  /// Elements of parameters in a rank's share.
  int64_t owned_elements(int32_t rank) const;

  /// The only owner, or ZERO_OWNER_SPLIT. A parameter without elements always has one.
  int32_t owner(int64_t param) const;

  /// What `rank` owns, by rising share position. Segments without elements are left out.
  std::vector<Segment> segments(int32_t rank) const;

  /// What moves together, in the fixed order of travel. `in_place`: the list to use when parameters
  /// lie as layout() says on every rank; otherwise each transfer is packed, and chunks stay near
  /// bucket_elements / world. The last ones may end behind a rank's share_elements.
  std::vector<Transfer> transfers(bool in_place) const;

  /// The part of `segments` (as segments() gives them) within share range [first, first + count).
  static std::vector<Segment> within(std::span<const Segment> segments, int64_t first,
                                     int64_t count);

 private:
  /// One seal: where it begins in each coordinate, and how long it is there.
  struct Section {
    int64_t first_param = 0;
    int64_t params = 0;
    int64_t grid = 0;
    int64_t grid_elements = 0;  // to the end of the last parameter, rounded up to kAlignment
    int64_t layout = 0;
    int64_t layout_elements = 0;
    int64_t share = 0;
    int64_t share_elements = 0;  // of every rank, trailing padding included
    int64_t chunk = 0;           // whole-tensor rules: the longest rank's part
    Buckets buckets;             // EVEN
  };

  /// A seal in the making.
  struct Draft {
    Section section;
    std::vector<int64_t> grid, layout, travel, owned;
    std::vector<int32_t> owners;
  };

  bool even() const { return options_.rule == ZERO_PARTITION_EVEN; }
  Section next_section(int64_t params) const;
  Status place_on_grid(std::span<const PlanParam> params, Draft& draft) const;
  Status cut_evenly(std::span<const PlanParam> params, Draft& draft) const;
  Status assign_owners(std::span<const PlanParam> params, std::span<const int64_t> group_ends,
                       Draft& draft) const;
  Status lay_out_by_owner(std::span<const PlanParam> params, Draft& draft) const;
  void append(std::span<const PlanParam> params, Draft draft);

  const Section& section_of(int64_t param) const;
  std::span<const int64_t> travel(const Section& section) const;
  std::span<const int64_t> owned_by(const Section& section, int32_t rank) const;
  int64_t share_in(const Section& section, int64_t param) const;
  int64_t share_end(const Section& section, int32_t rank) const;
  void add_even_segments(const Section& section, int32_t rank, std::vector<Segment>& out) const;
  void add_whole_segments(const Section& section, int32_t rank, std::vector<Segment>& out) const;

  PlanOptions options_;
  std::vector<Section> sections_;
  std::vector<int64_t> counts_;  // by parameter
  std::vector<int64_t> grid_;    // by parameter
  std::vector<int64_t> layout_;  // by parameter; whole-tensor rules only
  std::vector<int32_t> owners_;  // by parameter; whole-tensor rules only
  std::vector<int64_t> travel_;  // the parameters of each section in falling order; under
                                 // whole-tensor rules by owner first
  std::vector<int64_t> owned_;   // elements by rank; the greedy rules' running totals
};

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
#include "state/copies.h"

#include "base/hash.h"
#include "base/refusals.h"
#include "base/text.h"
#include "state/layout.h"
#include "step/walk.h"

namespace zero {
namespace {

/// Returns a checksum of the values and the state that this rank owns.
Result<uint64_t> checksum(Call& call, Optimizer& optim) {
  Walk::Parts parts;
  for (const Segment& segment : optim.segments()) {
    const Section& section = optim.plan.section(segment.section);
    add_parts(parts, optim.values(segment), size_of(section.dtype, segment.count));
    const uint32_t stored = stored_slots(optim, segment.param);
    for (int slot = 0; slot < kSlotCount; slot++) {
      const size_t bytes = static_cast<size_t>(segment.count) * optim.slot_size(slot, section);
      if (stored >> slot & 1) add_parts(parts, optim.slot(slot, segment), bytes);
    }
  }
  std::vector<uint64_t> hashes(parts.size());
  ZERO_TRY(make_walk(call, optim)->hash(parts, hashes));
  return hash64(std::as_bytes(std::span(hashes)));
}

Status name_differing_copy(Call& call, const Optimizer& optim, uint64_t own) {
  const std::vector<uint64_t> all = ZERO_TRY(call.exchange("copies", own));
  for (int32_t rank = optim.places(); rank < optim.world(); rank++) {
    const int32_t first = optim.place_of(rank);
    if (all[static_cast<size_t>(rank)] == all[static_cast<size_t>(first)]) continue;
    const bool mine = call.rank() == rank || call.rank() == first;
    return Status(
        mine ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER,
        text("ranks ", first, " and ", rank, " hold copies of the same state, and the copies ",
             "differ: load the last checkpoint, and look for what was not the same on ",
             "both, such as your own update function, values set with zero_state_set, or ",
             "gradients reduced with ZERO_REDUCE_NONE"));
  }
  return internal_error("sums of checksums differ, but no checksums do");
}

}  // namespace

/// Adds the first instance's checksum once for each other copy, and subtracts the checksum of each
/// other copy. The sum is 0 if all checksums are equal, so the ranks exchange only one number.
Status vote_alike(Call& call, Optimizer& optim, std::string_view phase, Status mine) {
  const auto others = static_cast<uint64_t>(optim.options.instances) - 1;
  uint64_t own = 0;
  if (others > 0 && mine.ok()) {
    Result<uint64_t> made = checksum(call, optim);
    mine = made.failure();
    if (made.ok()) own = *made;
  }
  const Sum weighed{optim.instance() == 0 ? others * own : uint64_t{0} - own};
  const Sum all = ZERO_TRY(call.vote(phase, mine, weighed));
  return all.value == 0 ? Status() : name_differing_copy(call, optim, own);
}

}  // namespace zero

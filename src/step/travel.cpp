// SPDX-License-Identifier: Apache-2.0
#include "step/travel.h"

#include <algorithm>

namespace zero::travel {

namespace {

bool all_travel_whole(const Optimizer& optim) {
  const std::vector<Section>& sections = optim.plan.sections();
  return std::all_of(sections.begin(), sections.end(), [&](const Section& section) {
    return optim.shared(section) == section.dtype;
  });
}

}  // namespace

std::vector<std::vector<Segment>> all_segments(const Optimizer& optim) {
  std::vector<std::vector<Segment>> all;
  for (int32_t rank = 0; rank < optim.world(); rank++) all.push_back(optim.plan.segments(rank));
  return all;
}

DType wire(const Optimizer& optim, const Section& section) {
  if (!optim.comm->sums_itself()) return section.sum();
  const Rounding rounding = optim.rounding_of(section);
  return rounding.any() ? rounding.to : section.grad_dtype;
}

bool reduces_in_place(const Optimizer& optim, const StepMemory& memory) {
  const std::vector<Section>& sections = optim.plan.sections();
  return memory.grads_in_place &&
         std::all_of(sections.begin(), sections.end(), [&](const Section& section) {
           return wire(optim, section) == section.grad_dtype && !optim.rounding_of(section).any();
         });
}

size_t bytes_of(const Optimizer& optim, int64_t elements, DType dtype) {
  return static_cast<size_t>(elements * optim.world()) * size_of(dtype);
}

bool goes_by_owner(const Optimizer& optim, const Transfer& transfer) {
  if (optim.plan.options().rule == ZERO_PARTITION_EVEN) return false;
  int64_t owned = 0;
  for_each_owner(optim, transfer, [&](int32_t, int64_t, int64_t count) { owned += count; });
  return owned <= transfer.chunk * optim.world() / 8 * 7;
}

bool publishes_in_place(const Optimizer& optim, const StepMemory& memory) {
  return memory.data_in_place && memory.present.empty() && all_travel_whole(optim);
}

bool changes(const StepMemory& memory, const Transfer& transfer,
             const std::vector<std::vector<Segment>>& segments) {
  bool any = memory.present.empty();
  for (size_t rank = 0; rank < segments.size() && !any; rank++) {
    for_each_part(transfer, segments[rank], [&](int64_t, const Segment& segment) {
      any = any || memory.present[static_cast<size_t>(segment.param)];
    });
  }
  return any;
}

}  // namespace zero::travel

// SPDX-License-Identifier: Apache-2.0
#include "shares.h"

#include <algorithm>

#include "plan/plan.h"
#include "state/layout.h"

namespace zero::tool {
namespace {

std::vector<ManifestSlice> slices_of(const ManifestParam& param, const std::string& slot,
                                     const std::vector<OwnedSegment>& segments, int32_t world) {
  std::vector<ManifestSlice> slices;
  for (const auto& [owner, segment] : segments) {
    std::string key = text(param.name, '.', slot);
    if (std::ranges::count(segments, owner, &OwnedSegment::owner) > 1)
      key += text('@', segment.first);
    slices.push_back({world + owner, std::move(key), segment.first, segment.count});
  }
  return slices;
}

}  // namespace

Status share_out(Manifest& manifest, int32_t world) {
  std::vector<int64_t> counts;
  std::vector<PlanParam> params;
  for (const ManifestParam& param : manifest.params) {
    const DType dtype = dtype_of_code(param.dtype);
    counts.push_back(param.count);
    params.push_back({.count = param.count, .dtype = dtype, .grad_dtype = dtype});
  }
  const auto end = static_cast<int64_t>(params.size());
  Plan plan({.world = world});
  ZERO_TRY(plan.add(params, {&end, 1}));
  const std::vector<int32_t> writers = ZERO_TRY(param_writers(counts, world));
  manifest.world = world;
  manifest.files = shard_files(world);
  manifest.extras.clear();
  for (size_t i = 0; i < manifest.params.size(); i++) {
    ManifestParam& param = manifest.params[i];
    const auto number = static_cast<int64_t>(i);
    std::vector<OwnedSegment> segments = plan.segments_of(number);
    if (param.count == 0) segments = {{plan.owner(number), {number, 0, 0, 0}}};
    param.file = writers[i];
    for (ManifestSlot& slot : param.slots)
      slot.slices = slices_of(param, slot.name, segments, world);
  }
  for (ManifestBuffer& buffer : manifest.buffers) buffer.file = 0;
  return {};
}

}  // namespace zero::tool

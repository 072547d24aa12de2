// SPDX-License-Identifier: Apache-2.0
#include "step/by_hand.h"

#include <algorithm>

#include "base/text.h"
#include "step/enter.h"
#include "step/publish.h"

namespace zero {
namespace {

template <class Real>
void scale(const std::byte* from, std::byte* to, int64_t count, double factor) {
  const auto* const sums = reinterpret_cast<const Real*>(from);
  auto* const grads = reinterpret_cast<Real*>(to);
  const auto rounded = static_cast<Real>(factor);
  for (int64_t i = 0; i < count; i++) grads[i] = sums[i] * rounded;
}

Status check(const Optimizer& optim, int32_t flags) {
  if ((flags & ~ZERO_SHARE_KEEP_MASTERS) != 0)
    return {ZERO_ERR_ARGUMENT, text("share flags ", flags, " are unknown")};
  ZERO_TRY(optim.check_params());
  if (optim.phase == Phase::reducing) return optim.check_open();
  return optim.check_loaded();
}

}  // namespace

bool copy_grads(Optimizer& optim, const Segment& part, std::byte* out) {
  const StepMemory& memory = step_memory(optim);
  const auto behind =
      std::partition_point(memory.views.begin(), memory.views.end(),
                           [&](const View& view) { return view.segment.share <= part.share; });
  const View& view = *(behind - 1);  // every owned segment has one
  if (view.cls < 0) return false;
  const DType sum = optim.plan.section_of(part.param).sum();
  const std::byte* const sums =
      view.reduced + static_cast<size_t>(part.share - view.segment.share) * size_of(sum);
  sum == DType::f64 ? scale<double>(sums, out, part.count, memory.factor)
                    : scale<float>(sums, out, part.count, memory.factor);
  return true;
}

Status share_by_hand(Call& call, Optimizer& optim, int32_t flags) {
  Entry entry;
  entry.local = check(optim, flags);
  entry.args = text("share flags ", flags, "\n");
  ZERO_TRY(enter(call, optim, step_memory(optim), std::move(entry)));
  optim.phase = Phase::open;  // sharing forgets where reduced gradients stand
  optim.comm->publishing = true;
  Status status = share_params(call, optim);
  if (status.ok() && (flags & ZERO_SHARE_KEEP_MASTERS) == 0) status = retake_masters(call, optim);
  optim.comm->publishing = optim.comm->aborted();
  return status;
}

}  // namespace zero

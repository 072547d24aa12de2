// SPDX-License-Identifier: Apache-2.0
#include "step/by_hand.h"

#include <algorithm>

#include "base/text.h"
#include "kernels/clamp.h"
#include "step/enter.h"
#include "step/publish.h"

namespace zero {
namespace {

Status check(const Optimizer& optim, int32_t flags) {
  if ((flags & ~ZERO_SHARE_KEEP_MASTERS) != 0)
    return {ZERO_ERR_ARGUMENT, text("share flags ", flags, " are unknown")};
  ZERO_TRY(optim.check_params());
  if (optim.announces()) return optim.check_open();
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
  const auto count = static_cast<size_t>(part.count);
  if (sum == DType::f64) {
    scale(reinterpret_cast<double*>(out), reinterpret_cast<const double*>(sums), count,
          memory.factor);
  } else {
    scale(reinterpret_cast<float*>(out), reinterpret_cast<const float*>(sums), count,
          static_cast<float>(memory.factor));
  }
  return true;
}

Status share_by_hand(Call& call, Optimizer& optim, int32_t flags) {
  Entry entry;
  entry.local = check(optim, flags);
  entry.args = text("share flags ", flags, "\n");
  ZERO_TRY(enter(call, optim, step_memory(optim), std::move(entry)));
  optim.phase = Phase::open;  // sharing forgets where reduced gradients stand
  optim.comm->publishing++;
  if ((flags & ZERO_SHARE_KEEP_MASTERS) == 0) optim.take_masters();  // sharing may round
  Status status = share_params(call, optim);
  if (!optim.comm->aborted()) optim.comm->publishing--;
  return status;
}

}  // namespace zero

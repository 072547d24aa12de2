// SPDX-License-Identifier: Apache-2.0
#include "step/by_hand.h"

#include <algorithm>

#include "base/text.h"
#include "kernels/clamp.h"
#include "step/enter.h"
#include "step/seal.h"
#include "step/walk.h"

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

Result<bool> copy_grads(Optimizer& optim, Windows& windows, const Segment& part, std::byte* out) {
  const StepMemory& memory = step_memory(optim);
  const auto behind =
      std::partition_point(memory.views.begin(), memory.views.end(),
                           [&](const View& view) { return view.segment.share <= part.share; });
  const View& view = *(behind - 1);  // every owned segment has one
  if (view.cls < 0) return false;
  const DType sum = optim.plan.section_of(part.param).sum();
  const size_t element = size_of(sum);
  const std::byte* const sums =
      view.reduced + static_cast<size_t>(part.share - view.segment.share) * element;
  const double factor = memory.state.factor;
  for (int64_t done = 0; done < part.count;) {
    const size_t at = static_cast<size_t>(done) * element;
    const auto count =
        static_cast<size_t>(std::min(windows.values.most(element), part.count - done));
    const std::byte* const from = ZERO_TRY(windows.values.show(sums + at, count * element));
    if (sum == DType::f64) {
      scale(reinterpret_cast<double*>(out + at), reinterpret_cast<const double*>(from), count,
            factor);
    } else {
      scale(reinterpret_cast<float*>(out + at), reinterpret_cast<const float*>(from), count,
            static_cast<float>(factor));
    }
    done += static_cast<int64_t>(count);
  }
  return true;
}

Status share_by_hand(Call& call, Optimizer& optim, int32_t flags) {
  Entry entry;
  entry.local = check(optim, flags);
  entry.args = text("share flags ", flags, "\n");
  ZERO_TRY(enter(call, optim, step_memory(optim), std::move(entry)));
  optim.phase = Phase::open;  // sharing forgets where reduced gradients stand
  optim.comm->steps.publishing++;
  if ((flags & ZERO_SHARE_KEEP_MASTERS) == 0)  // sharing may round
    ZERO_TRY(take_masters(call, optim, 0));
  Status status = make_walk(call, optim)->share_params();
  if (!optim.comm->aborted()) optim.comm->steps.publishing--;
  if (status.ok()) optim.alike_params = optim.sealed_params();
  return status;
}

}  // namespace zero

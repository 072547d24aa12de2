// SPDX-License-Identifier: Apache-2.0
// Implements Walk on the host. Each function has done its work when it returns.

#include <cstring>

#include "base/hash.h"
#include "base/os.h"
#include "base/refusals.h"
#include "step/apply.h"
#include "step/background.h"
#include "step/backward.h"
#include "step/broadcast.h"
#include "step/enter.h"
#include "step/progress.h"
#include "step/queued/walk.h"
#include "step/reduce.h"
#include "step/travel.h"
#include "step/views.h"

namespace zero {
namespace {

class HostWalk final : public Walk {
 public:
  HostWalk(Call& call, Optimizer& optim)
      : call_(call), optim_(optim), memory_(step_memory(optim)) {}

  Status check_norm_type(double p) const override {
    if (p > 0) return Status();
    return bad_argument("norm_type is ", p, "; it must be positive or infinite");
  }

  void stage_grads() override {
    if (reduces_alone(optim_, memory_) || memory_.staging == nullptr) return;
    for (const int64_t param : memory_.foreign_grads) {
      const auto i = static_cast<size_t>(param);
      if (memory_.backward != nullptr && memory_.backward->staged(i)) continue;
      const size_t bytes = optim_.params[i].grad_bytes();
      const size_t place = memory_.placements[i].grad.offset;
      std::memcpy(memory_.staging->data() + place, memory_.grads[i], bytes);
      optim_.counters.copied_bytes += static_cast<int64_t>(bytes);
    }
  }

  Status get_ready(bool updates) override {
    if (!updates) return Status();
    if (optim_.any_rule(is_custom)) ZERO_TRY(make_shadow(optim_, memory_));
    if (memory_.background == nullptr) return Status();
    return memory_.background->watch(optim_, memory_);
  }

  Status fill_zeros(std::byte* data, size_t bytes) override {
    std::memset(data, 0, bytes);
    return Status();
  }

  Status sum(double p) override {
    const NormSums mine = ZERO_TRY(sum_share(p));
    const TimedSpan watch(optim_.comm->trace, "vote", optim_.counters.vote_seconds);
    os().reached("vote.before");
    memory_.found = ZERO_TRY(call_.combine("vote", optim_.counted(mine)));
    os().reached("vote.after");
    return Status();
  }

  /// Returns false if collectives compute the sums, because they do so before the vote.
  bool can_let_update_sum() const override { return optim_.comm->direct(); }

  Status measure(double p) override {
    const NormSums mine = norm_of_share(optim_, memory_, p);
    memory_.found = ZERO_TRY(call_.combine("norm", optim_.counted(mine)));
    return Status();
  }

  Status clamp(double limit) override {
    clamp_share(optim_, memory_, limit);
    return Status();
  }

  Status decide(launch::Decide how, By by) override {
    if (by == By::records) how.records = &memory_.found;
    zero::decide(optim_, how);
    if (optim_.state.refusal == Refusal::none) return Status();
    optim_.phase = Phase::open;
    return Status(ZERO_ERR_NONFINITE,
                  text(optim_.state.nonfinite, " elements of the reduced gradients ",
                       "are not finite: step ", optim_.state.steps + 1, " was not taken"));
  }

  Result<Code> vote() override {
    if (optim_.state.skip != 0) {
      advance(optim_);
      return ZERO_SKIPPED;
    }
    if (optim_.any_rule(is_custom)) ZERO_TRY(update_shadow(call_, optim_, memory_));
    if (!updates_announced(memory_)) optim_.comm->steps.publishing++;
    return ZERO_OK;
  }

  Status apply(bool fused) override {
    const bool sums = !fused || early(memory_) != nullptr;
    if (fused && sums) {  // sums what the backward pass left; no decision depends on it
      const TimedSpan watch(optim_.comm->trace, "gather", optim_.counters.gather_seconds);
      nonfinite_ = reduce_share(call_, optim_, memory_, 0).nonfinite;
    }
    if (memory_.backward != nullptr) nonfinite_ += memory_.backward->nonfinite();
    if (fused) end_round(memory_);
    const TimedSpan watch(optim_.comm->trace, "apply", optim_.counters.apply_seconds);
    os().reached("apply.begin");
    if (optim_.any_rule(is_custom)) store_shadow(optim_, memory_);
    nonfinite_ += ZERO_TRY(update_share(call_, optim_, memory_, !sums));
    os().reached("apply.done");
    return Status();
  }

  Status publish(bool fused) override {
    const TimedSpan watch(optim_.comm->trace, "publish", optim_.counters.publish_seconds);
    ZERO_TRY(publish_share(&nonfinite_));
    optim_.comm->steps.publishing--;
    if (fused) optim_.state.nonfinite = nonfinite_;
    count_updates(optim_, memory_);
    advance(optim_);
    optim_.comm->steps.done = optim_.state.steps;
    return Status();
  }

  Status take_masters(size_t first_section) override {
    optim_.take_masters(first_section);
    return Status();
  }

  Status share_params() override {
    memory_.present.clear();  // all parameters are shared, whatever gradients exist
    memory_.grads_shared = false;
    ZERO_TRY(call_.vote("views", make_views(optim_, memory_, Views::of_params)));
    round_share(optim_);
    copy_share(optim_, memory_);
    uint64_t none = 0;
    return publish_share(&none);
  }

  Status broadcast_params(int32_t root) override { return copy_params(call_, optim_, root); }
  Status broadcast_buffers(int32_t root) override { return copy_buffers(call_, optim_, root); }

  Status hash(std::span<const std::span<const std::byte>> parts,
              std::span<uint64_t> hashes) override {
    const auto threads = static_cast<size_t>(optim_.pool->threads());
    optim_.pool->run([&](int thread) {
      for (auto i = static_cast<size_t>(thread); i < parts.size(); i += threads) {
        hashes[i] = hash64(parts[i]);
        if (thread == 0) call_.progress();
      }
    });
    return Status();
  }

 private:
  Result<NormSums> sum_share(double p) {
    const TimedSpan watch(optim_.comm->trace, "gather", optim_.counters.gather_seconds);
    os().reached("gather.begin");
    if (!optim_.comm->direct()) {
      ZERO_TRY(travel::reduce(call_, optim_, memory_));
      return adds_apart(optim_, memory_) ? add_to_share(optim_, memory_, p)
                                         : norm_of_share(optim_, memory_, p);
    }
    const NormSums mine = reduce_share(call_, optim_, memory_, p);
    os().reached("gather.reduced");
    return mine;
  }

  /// Makes the parameters that owners have updated available on all ranks. Sums `*nonfinite` over
  /// all ranks.
  Status publish_share(uint64_t* nonfinite) {
    os().reached("publish.begin");
    if (!optim_.comm->direct()) {
      ZERO_TRY(travel::publish(call_, optim_, memory_));
    } else if (memory_.outbox_used) {
      ZERO_TRY(fetch());
    }
    *nonfinite = ZERO_TRY(call_.combine(Call::kLast, optim_.counted(Sum{*nonfinite}))).value;
    os().reached("publish.done");
    return Status();
  }

  /// Copies the parameters that are in no arena of this rank, where owners could not store them.
  Status fetch() {
    ZERO_TRY(call_.vote("publish: owners have written", Status()));
    const Span span(optim_.comm->trace, Trace::Kind::transfer, "fetch");
    for (const auto& [section, move] : memory_.pulls) {
      const size_t element = size_of(optim_.plan.section(section).dtype);
      std::memcpy(move.to, move.from, static_cast<size_t>(move.count) * element);
      optim_.counters.copied_bytes += move.count * static_cast<int64_t>(element);
    }
    os().reached("publish.pulled");
    return Status();
  }

  Call& call_;
  Optimizer& optim_;
  StepMemory& memory_;
  uint64_t nonfinite_ = 0;  // number of non-finite gradients not counted before the update
};

}  // namespace

std::unique_ptr<Walk> make_walk(Call& call, Optimizer& optim) {
  if (optim.on_device) return std::make_unique<queued::Walk>(call, optim);
  return std::make_unique<HostWalk>(call, optim);
}

}  // namespace zero

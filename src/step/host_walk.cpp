// SPDX-License-Identifier: Apache-2.0
// The host's walk: its verbs are done when they return.

#include <cstring>

#include "base/hash.h"
#include "base/os.h"
#include "base/text.h"
#include "step/apply.h"
#include "step/background.h"
#include "step/backward.h"
#include "step/broadcast.h"
#include "step/collective.h"
#include "step/custom.h"
#include "step/enter.h"
#include "step/progress.h"
#include "step/queued/walk.h"
#include "step/reduce.h"
#include "step/stopwatch.h"
#include "step/views.h"

namespace zero {
namespace {

/// Sums of what the backward left, where no rank decides anything by them. Returns how many are not
/// finite.
uint64_t sum_the_rest(Call& call, Optimizer& optim) {
  const Stopwatch watch(optim.counters.gather_seconds);
  return reduce_share(call, optim, step_memory(optim), 0).nonfinite;
}

class HostWalk final : public Walk {
 public:
  HostWalk(Call& call, Optimizer& optim)
      : call_(call), optim_(optim), memory_(step_memory(optim)) {}

  Status check_norm_type(double p) const override {
    if (p > 0) return Status();
    return Status(ZERO_ERR_ARGUMENT, text("norm_type is ", p, "; it must be positive or infinite"));
  }

  Status prepare(bool updates) override {
    if (!updates) return Status();
    if (optim_.options.custom != nullptr) ZERO_TRY(make_shadow(optim_, memory_));
    if (memory_.background == nullptr) return Status();
    return memory_.background->watch(optim_, memory_);
  }

  Status fill_zeros(std::byte* data, size_t bytes) override {
    std::memset(data, 0, bytes);
    return Status();
  }

  Status sum(double p) override {
    NormSums mine;
    {
      const Stopwatch watch(optim_.counters.gather_seconds);
      mine = optim_.comm->direct() ? direct::sum(call_, optim_, memory_, p)
                                   : ZERO_TRY(collective::sum(call_, optim_, memory_, p));
    }
    const Stopwatch watch(optim_.counters.vote_seconds);
    os().reached("vote.before");
    memory_.found = ZERO_TRY(call_.exchange("vote", mine));
    os().reached("vote.after");
    return Status();
  }

  Status measure(double p) override {
    memory_.found = ZERO_TRY(call_.exchange("norm", norm_of_share(optim_, memory_, p)));
    return Status();
  }

  Status clamp(double limit) override {
    clamp_share(optim_, memory_, memory_.state.factor, limit);
    return Status();
  }

  Status decide(launch::Decide how, By by) override {
    if (by == By::records) how.records = memory_.found.data();
    zero::decide(optim_, memory_, how);
    if (memory_.state.refusal == Refusal::none) return Status();
    optim_.phase = Phase::open;
    return Status(ZERO_ERR_NONFINITE,
                  text(memory_.state.nonfinite, " elements of the reduced gradients ",
                       "are not finite: step ", optim_.step + 1, " was not made"));
  }

  Result<Code> vote() override {
    if (memory_.state.skip != 0) {
      advance(optim_, memory_);
      return ZERO_SKIPPED;
    }
    if (optim_.options.custom != nullptr)
      ZERO_TRY(update_shadow(call_, optim_, memory_, memory_.state.factor));
    if (!updates_announced(memory_)) optim_.comm->steps.publishing++;
    return ZERO_OK;
  }

  Status apply(bool fused) override {
    const bool sums = !fused || early(memory_) != nullptr;
    if (fused && sums) nonfinite_ = sum_the_rest(call_, optim_);
    if (memory_.backward != nullptr) nonfinite_ += memory_.backward->nonfinite();
    if (fused) end_round(memory_);
    const Stopwatch watch(optim_.counters.apply_seconds);
    os().reached("apply.begin");
    if (optim_.options.custom != nullptr) {
      store_shadow(optim_, memory_);
    } else {
      nonfinite_ += ZERO_TRY(update_share(call_, optim_, memory_, memory_.state.factor, !sums));
    }
    os().reached("apply.done");
    return Status();
  }

  Status publish(bool fused) override {
    const Stopwatch watch(optim_.counters.publish_seconds);
    ZERO_TRY(publish_share(&nonfinite_));
    optim_.comm->steps.publishing--;
    if (fused) memory_.state.nonfinite = nonfinite_;
    count_updates(optim_, memory_);
    advance(optim_, memory_);
    optim_.comm->steps.done = optim_.step;
    return Status();
  }

  Status take_masters(size_t first_section) override {
    optim_.take_masters(first_section);
    return Status();
  }

  Status share_params() override {
    ZERO_TRY(sync_placements(call_, optim_, memory_));
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
  Status publish_share(uint64_t* nonfinite) {
    return optim_.comm->direct() ? direct::publish(call_, optim_, memory_, nonfinite)
                                 : collective::publish(call_, optim_, memory_, nonfinite);
  }

  Call& call_;
  Optimizer& optim_;
  StepMemory& memory_;
  uint64_t nonfinite_ = 0;  // of gradients that nobody counted before the update
};

}  // namespace

std::unique_ptr<Walk> make_walk(Call& call, Optimizer& optim) {
  if (optim.comm->device() != nullptr) return std::make_unique<queued::Walk>(call, optim);
  return std::make_unique<HostWalk>(call, optim);
}

}  // namespace zero

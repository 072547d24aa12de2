// SPDX-License-Identifier: Apache-2.0
// The verbs of a step on a device with streams. They only queue work: the caller's stream does all
// arithmetic, and the two directions of travel have streams of their own.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "step/queued/queue.h"
#include "step/walk.h"

namespace zero::queued {

/// Fails with ZERO_ERR_UNSUPPORTED if an optimizer on a device cannot have these options.
Status check_options(const Comm& comm, const OptimizerOptions& options);

class Walk final : public zero::Walk {
 public:
  Walk(Call& call, Optimizer& optim);

  Status begin() override;
  Status check_norm_type(double p) const override;
  Status get_ready(bool updates) override;
  /// True, because a captured call has tables of its own.
  bool always_gets_ready() const override { return true; }
  Status begin_work() override;
  Status end_work(Status status) override;

  Status fill_zeros(std::byte* data, size_t bytes) override;
  Status sum(double p) override;
  Status let_update_sum() override { return reduce(plane_ == nullptr ? 1 : plane_->at_once()); }
  Status find_summed() override;
  Status measure(double p) override { return measure(p, Made::before); }
  Status clamp(double limit) override;
  Status decide(launch::Decide how, By by) override;
  Status apply(bool fused) override;
  Status publish(bool fused) override;
  void count_step() override;
  void note(Code code) override;

  Status take_masters(size_t first_section) override;
  Status share_params() override;
  Status broadcast_params(int32_t root) override;
  Status broadcast_buffers(int32_t root) override;
  Status hash(std::span<const std::span<const std::byte>> parts,
              std::span<uint64_t> hashes) override;

 private:
  template <class Row>
  const Row* table(size_t at) const {
    return reinterpret_cast<const Row*>(queue().table_memory.data() + at);
  }
  Queue& queue() const { return *memory_.queue; }
  Device& device() const { return *optim_.comm->device(); }
  StreamHandle stream() const { return call_.stream(); }
  const Section& section(int32_t number) const { return optim_.plan.section(number); }
  /// Lets the call's stream wait until nothing of an earlier step travels any more.
  Status await_gathers();
  /// Frees memory that is leaving, if nothing uses it any more.
  Status let_go();
  /// Lets all streams of a captured call take part in the capture, until join().
  Status fork();
  /// Ends what fork() began.
  Status join();
  /// Ends the call's work: what comes after it on its stream sees all of it.
  Status end();
  Status order(StreamHandle before, const Event& event, StreamHandle after, const char* why);
  Status launch(StreamHandle stream, const Launch& launch) {
    return device().launch(stream, launch);
  }
  Status move(StreamHandle stream, DType from, DType to, const Rounding& rounding, Range tiles,
              const StepState* unless_skipped = nullptr);
  /// now: sums are also made (if this rank reads all gradients) or added to on the way; before:
  /// not.
  enum class Made { now, before };
  Status measure(double p, Made made);
  /// Queues reductions of every rank's gradients to their owners, `at_once` in a group. They begin
  /// behind what the caller's stream holds. Their sums may be read after await_sums().
  Status reduce(size_t at_once);
  /// Makes the caller's stream wait until all sums have arrived.
  Status await_sums();
  bool adds() const;
  Status send_gradients(std::span<const Travel> group, std::byte* sums);
  Status send_packed(const Travel& travel, std::byte* sums);
  Status send_to_owners(const Travel& travel, std::byte* sums);
  /// Makes later gathers wait, so that they travel alone.
  Status begin_gathers();
  Status gather_records();
  Status stage();
  /// Copies this rank's record to all others, which may read it behind a gate.
  Status tell_record();
  Status take_over();
  Status prepare_scalars();
  Status update(const Part& batch, bool fused);
  Status publish_group(std::span<const Travel> group);
  Status publish_packed(const Travel& travel);
  Status publish_by_owner(const Travel& travel);
  Status advance(StreamHandle stream, bool fused);
  Status send_whole(std::vector<Sent> all, std::string_view what);
  Status send_through_host(const std::vector<Sent>& all, std::string_view what);
  Status round_share();

  Call& call_;
  Optimizer& optim_;
  StepMemory& memory_;
  QueuedPlane* const plane_;  // null if this rank addresses all memory
  Gates* const gates_;        // not null if others address it, too
  std::optional<CapturedCall> captured_;
  std::optional<HostShare> host_share_;
};

}  // namespace zero::queued

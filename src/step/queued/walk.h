// SPDX-License-Identifier: Apache-2.0
// Implements Walk for devices with streams. The functions only queue work. All computation runs on
// the caller's stream. Each of the two directions of transfers has its own stream.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "step/queued/queue.h"
#include "step/walk.h"

namespace zero::queued {

/// Fail with ZERO_ERR_UNSUPPORTED if optimizers on the comm's device do not support the rule of a
/// group, or the options.
Status check_rule(const Comm& comm, const Rule& rule);
Status check_options(const Comm& comm, const OptimizerOptions& options);

class Walk final : public zero::Walk {
 public:
  Walk(Call& call, Optimizer& optim);

  Status begin() override;
  Status check_norm_type(double p) const override;
  Status get_ready(bool updates) override;
  /// Returns true, because each captured call has its own tables.
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
  /// Makes the call's stream wait until all parameters of earlier steps have been gathered.
  Status await_gathers();
  /// Releases arenas in Queue::leaving if no queued work uses them.
  Status let_go();
  /// Adds the side streams to the capture of the call, until join().
  Status fork();
  /// Makes the captured stream wait for the side streams, which ends what fork() began.
  Status join();
  /// Ends the work of the call. Later work on the call's stream follows all of it.
  Status end();
  Status order(StreamHandle before, const Event& event, StreamHandle after, const char* why);
  Status launch(StreamHandle stream, const Launch& launch) {
    return device().launch(stream, launch);
  }
  Status move(StreamHandle stream, DType from, DType to, const Rounding& rounding, Range tiles,
              const StepState* unless_skipped = nullptr);
  /// Whether measure() also computes the sums (if this rank reads all gradients) or adds to them
  /// (now), or only measures them (before).
  enum class Made { now, before };
  Status measure(double p, Made made);
  /// Queues reductions of the gradients of all ranks to their owners, in groups of up to `at_once`.
  /// They begin after the present work on the caller's stream. The sums can be read after
  /// await_sums().
  Status reduce(size_t at_once);
  /// Makes the caller's stream wait until all sums have arrived.
  Status await_sums();
  bool adds() const;
  Status send_gradients(std::span<const Travel> group, std::byte* sums);
  Status send_packed(const Travel& travel, std::byte* sums);
  Status send_to_owners(const Travel& travel, std::byte* sums);
  /// Makes later gathers wait for all earlier transfers, so that they do not overlap.
  Status begin_gathers();
  Status gather_records();
  Status stage();
  /// Copies this rank's record to all other ranks, which can read it after a gate.
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
  QueuedPlane* const plane_;  // null on direct comms
  Gates* const gates_;        // not null on direct comms with several ranks
  std::optional<CapturedCall> captured_;
  std::optional<HostShare> host_share_;
};

}  // namespace zero::queued

// SPDX-License-Identifier: Apache-2.0
// The parts of a step on a device with streams, each of which only queues work: the caller's stream
// does all arithmetic, and the two directions of travel have streams of their own.
#pragma once

#include "comm/comm.h"
#include "step/queued/queue.h"

namespace zero::queued {

class Walk {
 public:
  Walk(Optimizer& optim, StepMemory& memory, StreamHandle stream);

  /// Where ranks write each other's memory: from here on this rank's may be, and the others' are as
  /// their callers left them.
  Status enter();
  /// Queue every rank's gradients to their owners: reductions begin behind what the caller's stream
  /// holds. Their sums may be read after await_sums(). `together`: nothing reads some before all.
  Status reduce(bool together);
  /// The caller's stream goes on when all sums have arrived.
  Status await_sums();
  /// Of sums that stand: the norm for p, 0 for none, and how many are not finite, from all ranks.
  /// `first`: they are made on the way, where this rank reads all gradients, or added to.
  Status measure(double p, bool first);
  Status clamp(double limit);

  struct Decision {
    double factor = 1;
    double max_grad_norm = 0;
    double p = 0;  // of the records, 0: no norm in them
    bool records = false;
    bool skips = false, refuses = false;
    bool again = false;
    bool gradients = false;
  };
  Status decide(const Decision& decision);

  /// Update what this rank owns and put it on all ranks. `fused`: from gradients, or from sums that
  /// have only been asked for, and what is not finite is counted here.
  Status update_and_publish(bool fused);
  /// Progress, behind all of it.
  Status finish(bool fused);

 private:
  template <class Row>
  const Row* table(size_t at) const {
    return reinterpret_cast<const Row*>(queue_.table_memory.data() + at);
  }
  const Section& section(int32_t number) const { return optim_.plan.section(number); }
  Status order(StreamHandle before, const Event& event, StreamHandle after, const char* why);
  Status launch(StreamHandle stream, const Launch& launch) {
    return device_.launch(stream, launch);
  }
  Status move(StreamHandle stream, DType from, DType to, const Rounding& rounding, Range tiles,
              const StepState* unless_skipped = nullptr);
  bool adds() const;
  void count_moved(const Travel& travel, DType dtype);
  Status send_gradients(std::span<const Travel> group, std::byte* sums);
  Status send_packed(const Travel& travel, std::byte* sums);
  Status send_to_owners(const Travel& travel, std::byte* sums);
  /// What is gathered from here on travels alone.
  Status begin_gathers();
  Status share_records();
  Status stage();
  /// This rank's record to all others, which they may read behind a gate.
  Status tell_record();
  Status take_over();
  Status prepare_scalars();
  Status update(const Batch& batch, bool fused);
  Status publish(std::span<const Travel> group);
  Status publish_packed(const Travel& travel);
  Status publish_by_owner(const Travel& travel);
  Status advance(StreamHandle stream, bool fused);

  Optimizer& optim_;
  StepMemory& memory_;
  Queue& queue_;
  Device& device_;
  QueuedPlane* const plane_;  // null where this rank addresses all memory
  Gates* const gates_;        // not null where others address it, too
  const StreamHandle stream_;
};

}  // namespace zero::queued

// SPDX-License-Identifier: Apache-2.0
// A small training run through the public header, and the same run by one process in plain loops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "zero.h"

namespace zero::test {

/// Whose calling thread takes denormals for zeros, and makes zeros of them.
enum class Flushes { none, last_rank, all_ranks };

enum class Where { arenas, per_rank_arenas, foreign, mixed };

/// Of a parameter and of its gradient: ZERO_FLOAT32 and so on.
struct Dtypes {
  int32_t param = ZERO_FLOAT32;
  int32_t grad = ZERO_FLOAT32;
};

struct Training {
  int world = 1;
  std::vector<int> hosts;  // of each rank; empty: all are on one
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  bool own_rule = false;  // of the caller's own making; ADAMW or LARS
  int32_t partition = ZERO_PARTITION_EVEN;
  Where where = Where::arenas;
  std::vector<int64_t> sizes;
  std::vector<Dtypes> dtypes = {{}};  // parameters take turns
  int32_t master = ZERO_MASTER_FLOAT32;
  int32_t wire_dtype = 0;
  double predivide_factor = 1;
  int32_t share_dtype = 0;
  Settings settings;
  double max_grad_norm = 0;
  double norm_type = 2;
  bool explicit_clip = false;  // zero_clip_grad_norm instead of the option
  bool explicit_reduce = false;
  bool sum = false;
  int announces = 0;      // of so many gradients all but one are announced before the call; 0: none
  bool delays = false;    // between announcements
  bool begins = false;    // zero_step_begin before the backward
  bool overlaps = false;  // parameters are read one by one, each after its wait
  int micro_batches = 1;  // more: accumulated by the owners
  bool others_sum = false;  // NCCL, not libzero: a micro-batch is added as one
  int instances = 1;
  bool reduced = false;      // every rank has the same gradient, handed over as reduced already
  double loss_scale = 1;     // that gradients are divided by
  double clip_value = 0;     // > 0: zero_clip_grad_value before the norm
  bool padded = false;       // laid out by zero_partition_plan
  bool missing = false;      // some gradients are absent, on some or all ranks
  bool only_rank_0 = false;  // the gradients of all other ranks are zero
  bool toggled = false;  // parameters freeze and thaw; the gradients of frozen ones are infinite
  int thaws = 7;         // the step that parameter 4 thaws for
  bool own_settings = false;  // some parameters scale lr, or have another weight_decay
  double lr_scale = 1;        // of the reference's parameter at hand
  /// By rank, the steps that it makes in an epoch, the longest of which all wait for in zero_join.
  /// Steps behind that are made by all. Empty: nobody joins.
  std::vector<int> epoch;
  int32_t uneven_inputs = ZERO_UNEVEN_OFF;
  /// Steps before which all is dealt out anew; by hand to other owners each time.
  std::vector<int> deals;
  Flushes flushes = Flushes::none;
  float param_scale = 1;  // of the initial values
  float grad_scale = 0.1f;
  int threads = 1;
  int64_t bucket_bytes = 8192;
  int steps = 20;
  uint64_t seed = 1;
  bool asks = true;          // what each step found; on a device the host waits for that
  bool alternates = false;   // on a device: between two streams, each with gradients of its own
  bool keeps_state = false;  // Outcome::params ends with the state
};

/// What a rank ends with: every parameter one behind the other, with keeps_state then each one's
/// step count and state by name, and the norm of each step, which is -2 while it had joined.
struct Outcome {
  std::vector<double> params = {};
  std::vector<double> norms = {};
  std::string error = {};  // of the first call that failed
};

/// Deterministic contents, as the dtypes can hold them: gradient of `param` on `rank` in a `batch`,
/// of which a step has micro_batches.
std::vector<double> initial(const Training& run, size_t param);
std::vector<double> gradient(const Training& run, size_t param, int rank, int batch);
bool has_gradient(const Training& run, size_t param, int rank, int batch);
bool frozen(const Training& run, size_t param, int step);
/// The steps of the epoch's longest rank.
int epoch_steps(const Training& run);
bool joined(const Training& run, int rank, int step);
std::optional<double> own_lr_scale(const Training& run, size_t param);
std::optional<double> own_weight_decay(const Training& run, size_t param);
Dtypes dtypes_of(const Training& run, size_t param);
int32_t manual_owner(const Training& run, size_t param, int deals = 0);

/// One rank's part of the run. Where the comm's tensors are on a device, all is queued on one
/// stream, gradients too.
Outcome train(const Training& run, zero_comm* comm);

/// The same by one process: sums in rank order and unsharded updates, written out. Its norms are
/// right to some bits only, which fp64 parameters show: `norms`, where given, are clipped by.
Outcome reference(const Training& run, const std::vector<double>& norms = {});

}  // namespace zero::test

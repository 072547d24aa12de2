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

/// The ranks whose calling threads treat denormals as zero, in inputs and results.
enum class Flushes { none, last_rank, all_ranks };

enum class Where { arenas, per_rank_arenas, foreign, mixed };

/// The dtypes of a parameter and its gradient: ZERO_FLOAT32 and so on.
struct Dtypes {
  int32_t param = ZERO_FLOAT32;
  int32_t grad = ZERO_FLOAT32;
};

/// The rule of a group that does not follow that of its optimizer.
struct GroupRule {
  int32_t optimizer;
  Settings settings;
  bool own = false;  // a custom rule with the formulas of `optimizer`, ADAMW or LARS
};

struct Training {
  int world = 1;
  std::vector<int> hosts;  // by rank; empty: all are on one host
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  bool own_rule = false;  // a custom rule with the formulas of ADAMW or LARS
  /// Parameters are divided evenly over the first group, which follows `optimizer`, and these.
  std::vector<GroupRule> more_groups;
  int32_t partition = ZERO_PARTITION_EVEN;
  Where where = Where::arenas;
  std::vector<int64_t> sizes;
  std::vector<Dtypes> dtypes = {{}};  // assigned to parameters in turn
  int32_t master = ZERO_MASTER_FLOAT32;
  int32_t wire_dtype = 0;
  double predivide_factor = 1;
  int32_t share_dtype = 0;
  int32_t state_dtype = ZERO_STATE_DTYPE_FULL;  // of all groups
  Settings settings;
  double max_grad_norm = 0;
  double norm_type = 2;
  bool explicit_clip = false;  // calls zero_clip_grad_norm instead of setting the option
  bool explicit_reduce = false;
  bool sum = false;
  int announces = 0;        // announces all but one of this many gradients before the call; 0: none
  bool delays = false;      // between announcements
  bool begins = false;      // calls zero_step_begin before the backward pass
  bool overlaps = false;    // reads parameters one by one, each after its wait
  int micro_batches = 1;    // if more than 1, the owners accumulate them
  bool others_sum = false;  // NCCL sums, not libzero: a micro-batch is added as a whole
  int instances = 1;
  bool reduced = false;      // every rank passes the same gradient as already reduced
  double loss_scale = 1;     // divides gradients
  double clip_value = 0;     // > 0: calls zero_clip_grad_value before the norm
  bool padded = false;       // uses the layout of zero_partition_plan
  bool missing = false;      // some gradients are absent, on some or all ranks
  bool only_rank_0 = false;  // the gradients of all other ranks are zero
  bool toggled = false;  // parameters freeze and thaw; the gradients of frozen ones are infinite
  int thaws = 7;         // the step before which parameter 4 thaws
  bool own_settings = false;  // some parameters scale lr, or have a different weight_decay
  double lr_scale = 1;        // of the parameter that the reference updates
  /// The steps of each rank in an epoch. All wait in zero_join for the longest. All ranks take the
  /// later steps. If empty, nobody joins.
  std::vector<int> epoch;
  int32_t uneven_inputs = ZERO_UNEVEN_OFF;
  /// Steps before which all parameters are dealt again. A manual partition has other owners each
  /// time.
  std::vector<int> deals;
  Flushes flushes = Flushes::none;
  float param_scale = 1;  // of the initial values
  float grad_scale = 0.1f;
  int threads = 1;
  int64_t bucket_bytes = 8192;
  int steps = 20;
  uint64_t seed = 1;
  bool asks = true;          // asks for each result, for which the host waits on a device
  bool alternates = false;   // on a device: alternates between two streams and gradients
  bool keeps_state = false;  // appends the state to Outcome::params
};

/// The result of a rank: all parameters one after the other; with keeps_state, the step count and
/// the state of each; and the norm of each step, which is -2 while the rank had joined.
struct Outcome {
  std::vector<double> params = {};
  std::vector<double> norms = {};
  std::string error = {};  // of the first failed call
};

/// These return deterministic contents that the dtypes represent exactly. `gradient` is that of
/// `param` on `rank` in a `batch`. A step has micro_batches of them.
std::vector<double> initial(const Training& run, size_t param);
std::vector<double> gradient(const Training& run, size_t param, int rank, int batch);
bool has_gradient(const Training& run, size_t param, int rank, int batch);
bool frozen(const Training& run, size_t param, int step);
/// Returns the number of steps of the rank with the longest epoch.
int epoch_steps(const Training& run);
bool joined(const Training& run, int rank, int step);
std::optional<double> own_lr_scale(const Training& run, size_t param);
std::optional<double> own_weight_decay(const Training& run, size_t param);
Dtypes dtypes_of(const Training& run, size_t param);
/// Returns the number of a parameter's group, and the run with the rule and settings of that group.
size_t group_of(const Training& run, size_t param);
Training follow_group(Training run, size_t param);
int32_t manual_owner(const Training& run, size_t param, int deals = 0);

/// Runs one rank's part. If the comm's tensors are on a device, all work is queued on one stream,
/// including gradients.
Outcome train(const Training& run, zero_comm* comm);

/// Runs the same by one process, with sums in rank order and unsharded updates. Its norms are not
/// exact in the last bits, which fp64 parameters show. If `norms` is given, it clips by these.
Outcome reference(const Training& run, const std::vector<double>& norms = {});

}  // namespace zero::test

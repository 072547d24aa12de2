// SPDX-License-Identifier: Apache-2.0
// N ranks give bitwise the same results as one process.
#include "equivalence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "api/handles.h"
#include "base/text.h"
#include "comm/create.h"
#include "support/comms.h"
#include "support/gpu_wanted.h"
#include "support/pairwise.h"

namespace zero::test {
namespace {

// ---- Any two properties of a training, combined.

/// All rules, and two custom ones: one for elements, and one for whole tensors.
const std::vector<Optimizer>& rules() {
  static const std::vector<Optimizer> all = [] {
    std::vector<Optimizer> both = kOptimizers;
    both.push_back({"adamw of the caller",
                    ZERO_OPTIMIZER_ADAMW,
                    {{"lr", 0.01}, {"beta1", 0.8}, {"weight_decay", 0.1}}});
    both.push_back(
        {"lars of the caller",
         ZERO_OPTIMIZER_LARS,
         {{"lr", 0.5}, {"weight_decay", 0.1}, {"momentum", 0.9}, {"trust_coefficient", 0.2}}});
    return both;
  }();
  return all;
}

enum Axis {
  rule,
  kind,
  on,
  world,
  where,
  partition,
  missing,
  frozen,
  own_settings,
  norm,
  how,
  value,
  wire,
  divided,
  scale,
  sum,
  micro_batches,
  announced,
  ending,
  owners,
  uneven,
  threads,
  instances,
  asks,
  groups
};
constexpr CommKind kOns[] = {CommKind::local,  CommKind::user,     CommKind::device,
                             CommKind::nccl,   CommKind::gates,    CommKind::hosts,
                             CommKind::staged, CommKind::clustered};
enum How { in_step, clipped_by_hand, reduced_by_hand, reduced_already };
const std::vector<GroupRule> kGroups[] = {
    {},
    {{ZERO_OPTIMIZER_SGD, {{"lr", 0.1}, {"momentum", 0.9}}},
     {ZERO_OPTIMIZER_ADAMW, {{"amsgrad", 1}, {"maximize", 1}}},
     {ZERO_OPTIMIZER_LION, {{"lr", 0.003}, {"weight_decay", 0.1}}}},
    {{ZERO_OPTIMIZER_LAMB, {{"lr", 0.01}}},
     {ZERO_OPTIMIZER_LARS, {{"lr", 0.5}, {"weight_decay", 0.1}, {"momentum", 0.9}}, true},
     {ZERO_OPTIMIZER_ADAMW, {{"lr", 0.01}}, true},
     {ZERO_OPTIMIZER_SGD, {{"lr", 0.1}}},
     {ZERO_OPTIMIZER_LARS, {{"momentum", 0.9}, {"trust_coefficient", 0.1}}}}};
enum Ending { as_called, begun_before, ending_behind };
constexpr int kAnnounced[] = {0, 3, 1000};
constexpr int32_t kWires[] = {0, ZERO_BFLOAT16, ZERO_FLOAT16};

template <class List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& one : list) names.push_back(one.name);
  return names;
}

struct Values {
  const char* axis;
  std::vector<std::string> names;
};

/// In the order of Axis.
const std::vector<Values>& axes() {
  const std::vector<std::string> no_yes = {"no", "yes"};
  static const std::vector<Values> all = {
      {"rule", names_of(rules())},
      {"dtypes", names_of(kKinds)},
      {"on", {"local", "user", "device", "nccl", "gates", "hosts", "staged", "clustered"}},
      {"ranks", {"1", "2", "3", "4", "5"}},
      {"memory", {std::begin(kWheres), std::end(kWheres)}},
      {"partition", {std::begin(kPartitionNames), std::end(kPartitionNames)}},
      {"missing", no_yes},
      {"frozen", no_yes},
      {"own settings", no_yes},
      {"norm", {"none", "of p 2", "of p 1"}},
      {"gradients", {"in the step", "clipped by hand", "reduced by hand", "reduced already"}},
      {"clipped by value", no_yes},
      {"wire", {"as it is", "bf16", "fp16"}},
      {"divided", no_yes},
      {"scaled", no_yes},
      {"sum", no_yes},
      {"micro-batches", {"1", "3"}},
      {"announced", {"none", "some", "all"}},
      {"ending", {"as called", "begun before", "in the background"}},
      {"owners move", no_yes},
      {"uneven", {"no", "world", "active"}},
      {"threads", {"1", "3"}},
      {"instances", {"one", "several"}},
      {"asks", no_yes},
      {"groups", {"one", "of other rules", "of rules for tensors"}}};
  return all;
}

CommKind place_of(const Combination& one) { return kOns[one[on]]; }

bool on_devices(const Combination& one) { return on_devices(place_of(one)); }

bool is_own(const Combination& one) { return one[rule] + 2 >= rules().size(); }

bool has_fp64(const Kind& one) {
  return std::any_of(one.dtypes.begin(), one.dtypes.end(),
                     [](const Dtypes& of) { return of.param == ZERO_FLOAT64; });
}

/// Some values of an axis.
struct Some {
  Axis axis;
  std::vector<size_t> values = {};

  bool is(size_t of, size_t value) const {
    return of == axis && std::find(values.begin(), values.end(), value) != values.end();
  }
  bool in(const Combination& one) const { return is(axis, one[axis]); }
};

/// No value of one is combined with any value of the other.
using Exclusion = std::pair<Some, Some>;

/// Combinations that the library refuses with words that other tests check.
std::vector<Exclusion> make_exclusions() {
  const size_t last = rules().size() - 1;
  Some special{rule, {last - 1}};  // the custom rules, and those for whole tensors
  for (size_t r = 0; r <= last; r++)
    if (takes_whole_tensors(rules()[r].number)) special.values.push_back(r);
  const Some begun{ending, {begun_before}}, joins{uneven, {1, 2}}, several{instances, {1}};
  // Positions by their index in kOns.
  const Some on_hosts{on, {0, 1, 7}}, on_devices{on, {2, 3, 4, 5, 6}}, asks_nothing{asks, {0}};
  std::vector<Exclusion> all = {
      // These need all gradients before the first update, or announce none.
      {begun, {norm, {1, 2}}},
      {begun, {how, {clipped_by_hand, reduced_by_hand}}},
      {begun, {value, {1}}},
      {begun, {micro_batches, {1}}},
      {begun, {announced, {0}}},
      {begun, special},
      {begun, {groups, {2}}},
      // There is no norm to clip by.
      {{norm, {0}}, {how, {clipped_by_hand}}},
      // All ranks pass the same gradients.
      {{how, {reduced_already}}, {missing, {1}}},
      {{how, {reduced_already}}, joins},
      // There is no rank to wait for, or owners would change after a rank has joined.
      {joins, {world, {0}}},
      {joins, {owners, {1}}},
      // Copies need several ranks with separate memory, and no queued transfers between them.
      {several, {world, {0}}},
      {several, {where, {size_t(Where::arenas), size_t(Where::mixed)}}},
      {several, {on, {2, 3, 6}}},
      // `device` has one rank. The other kinds are tested with two and three ranks.
      {{on, {2}}, {world, {1, 2, 3, 4}}},
      {{on, {3, 4, 5, 6}}, {world, {0, 3, 4}}},
      // NCCL shares no memory.
      {{on, {3}}, {where, {size_t(Where::arenas), size_t(Where::mixed)}}},
      // A host has completed each step when the call returns, so only devices run without asking.
      {on_hosts, asks_nothing},
      {asks_nothing, {world, {3, 4}}},
  };
  for (const Some& there : {on_devices, asks_nothing})
    for (const Some& refused :
         {special, joins, begun, Some{divided, {1}}, Some{threads, {1}}, Some{groups, {2}}})
      all.emplace_back(there, refused);
  return all;
}

const std::vector<Exclusion>& exclusions() {
  static const std::vector<Exclusion> all = make_exclusions();
  return all;
}

bool is_legal(const Combination& one) {
  // The reference's norms are not exact, which fp64 shows unless the reference is given the ranks'
  // norms.
  if (one[asks] == 0 && one[norm] != 0 && has_fp64(kKinds[one[kind]])) return false;
  return std::none_of(exclusions().begin(), exclusions().end(), [&](const Exclusion& two) {
    return two.first.in(one) && two.second.in(one);
  });
}

const std::vector<Combination>& combinations() {
  static const std::vector<Combination> all = [] {
    std::vector<size_t> sizes;
    for (const Values& one : axes()) sizes.push_back(one.names.size());
    return all_pairs(sizes, is_legal);
  }();
  return all;
}

std::string name_of(const Combination& one) {
  std::string name;
  for (size_t axis = 0; axis < one.size(); axis++)
    name += text(axes()[axis].axis, ": ", axes()[axis].names[one[axis]], "; ");
  return name;
}

void set_gradients(Training& run, const Combination& one) {
  run.missing = one[missing] != 0;
  run.max_grad_norm = one[norm] == 0 ? 0 : one[norm] == 1 ? 0.5 : 20;
  run.norm_type = one[norm] == 2 ? 1 : 2;
  run.explicit_clip = one[how] == clipped_by_hand;
  run.explicit_reduce = one[how] == reduced_by_hand;
  run.reduced = one[how] == reduced_already;
  run.clip_value = one[value] == 0 ? 0 : 0.05;
  run.wire_dtype = kWires[one[wire]];
  run.predivide_factor = one[divided] == 0 ? 1 : 8;
  run.loss_scale = one[scale] == 0 ? 1 : 12.5;
  run.sum = one[sum] != 0;
  run.micro_batches = 1 + 2 * static_cast<int>(one[micro_batches]);
  run.announces = kAnnounced[one[announced]];
}

Training training_of(const Combination& one) {
  Training run = base(static_cast<int>(one[world]) + 1);
  const Optimizer& optimizer = rules()[one[rule]];
  run.optimizer = optimizer.number;
  run.own_rule = is_own(one);
  run.settings = optimizer.settings;
  set_kind(run, kKinds[one[kind]]);
  run.where = static_cast<Where>(one[where]);
  run.partition = static_cast<int32_t>(one[partition]);
  run.padded = run.where != Where::foreign && one[partition] % 2 == 0;
  run.others_sum = place_of(one) == CommKind::nccl;
  if (place_of(one) == CommKind::clustered) run.hosts = hosts_of(run.world);
  run.asks = one[asks] != 0;
  run.toggled = one[frozen] != 0;
  run.thaws = 4;
  run.own_settings = one[own_settings] != 0;
  set_gradients(run, one);
  run.begins = one[ending] == begun_before;
  run.overlaps = one[ending] == ending_behind;
  if (one[owners] != 0) run.deals = {0, 3, 4};
  const int turn = static_cast<int>(one[rule] % 2);  // 1: rank 0 joins before the others
  for (int rank = turn; rank < run.world + turn && one[uneven] != 0; rank++)
    run.epoch.push_back(rank % 2 == 0 ? 5 : rank % 3 + 1);
  run.uneven_inputs = static_cast<int32_t>(one[uneven]);
  run.threads = one[threads] == 0 ? 1 : 3;
  run.more_groups = kGroups[one[groups]];
  if (one[instances] != 0) run.instances = run.world == 4 ? 2 : run.world;
  run.steps = 7;
  return run;
}

/// On devices, also checks that all memory, streams and events are released.
std::vector<Outcome> run_on(const Combination& one, const Training& training, uint64_t seed) {
  if (!on_devices(one)) return run(training, place_of(one));
  const Meeting meeting(place_of(one), training.world, {.seed = seed});
  std::vector<Outcome> ranks = run(training, meeting);
  if (place_of(one) != CommKind::nccl) {
    EXPECT_EQ(meeting.chaos().living(), 0) << "something was not given back";
  }
  return ranks;
}

class Pairs : public ::testing::TestWithParam<size_t> {};

TEST_P(Pairs, of_anything_that_may_meet_in_training_equal_one_process) {
  const Combination& one = combinations()[GetParam()];
  const Training training = training_of(one);
  expect_equals_reference(training, run_on(one, training, GetParam()), name_of(one));
}

/// Returns the indices of combinations for a user comm, for ranks that an mpirun started.
std::vector<size_t> combinations_over_mpi() {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < combinations().size() && launched().world > 1; i++)
    if (place_of(combinations()[i]) == CommKind::user) numbers.push_back(i);
  return numbers;
}

class OverMpi : public ::testing::TestWithParam<size_t> {};

TEST_P(OverMpi, pairs_equal_one_process) {
  Combination one = combinations()[GetParam()];
  one[world] = static_cast<size_t>(launched().world) - 1;
  Training training = training_of(one);
  if (launched().several_hosts()) training.hosts = launched().hosts;
  expect_equals_reference(training, run(training, CommKind::mpi), name_of(one));
}

INSTANTIATE_TEST_SUITE_P(, OverMpi, ::testing::ValuesIn(combinations_over_mpi()));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OverMpi);

/// Returns true if some combination has these values of two axes, given by index.
bool meet(size_t a, size_t i, size_t b, size_t j) {
  return std::any_of(combinations().begin(), combinations().end(),
                     [&](const Combination& one) { return one[a] == i && one[b] == j; });
}

bool exclude(size_t a, size_t i, size_t b, size_t j) {
  return std::any_of(exclusions().begin(), exclusions().end(), [&](const Exclusion& two) {
    return (two.first.is(a, i) && two.second.is(b, j)) ||
           (two.first.is(b, j) && two.second.is(a, i));
  });
}

TEST(Equivalence, any_two_values_meet_that_do_not_exclude_each_other) {
  for (size_t a = 0; a < axes().size(); a++) {
    for (size_t b = a + 1; b < axes().size(); b++) {
      const Values &of = axes()[a], &with = axes()[b];
      for (size_t i = 0; i < of.names.size(); i++)
        for (size_t j = 0; j < with.names.size(); j++)
          EXPECT_NE(meet(a, i, b, j), exclude(a, i, b, j))
              << of.axis << ": " << of.names[i] << "; " << with.axis << ": " << with.names[j];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Pairs, ::testing::Range(size_t{0}, combinations().size()),
                         [](const auto& info) {
                           return text(on_devices(combinations()[info.param]) ? "device" : "host",
                                       info.param);
                         });

using JoinOnGpu = std::function<Result<std::shared_ptr<Comm>>(const std::shared_ptr<Device>& gpu)>;

/// Runs the tests of one device on a GPU.
void expect_of_gpu(const JoinOnGpu& join) {
  const Result<std::shared_ptr<Device>> gpu = open_cuda(0);
  if (!gpu.ok()) {
    ASSERT_FALSE(gpu_is_wanted()) << gpu.failure().text();
    GTEST_SKIP() << gpu.failure().text();
  }
  for (const Combination& one : combinations()) {
    if (place_of(one) != CommKind::device) continue;
    Result<std::shared_ptr<Comm>> seat = join(*gpu);
    ASSERT_TRUE(seat.ok()) << seat.failure().text();
    zero_comm* const comm = api::add_handle(std::move(seat).value());
    const Training training = training_of(one);
    expect_equals_reference(training, {train(training, comm)}, name_of(one));
    zero_comm_free(comm);
  }
}

TEST(Gpu, a_gpu_ends_with_the_bits_of_the_host) {
  expect_of_gpu([](const auto& gpu) { return create_solo({}, gpu); });
}

TEST(Gpu, a_gpu_alone_over_nccl_ends_with_the_bits_of_the_host) {
  expect_of_gpu([](const auto& gpu) -> Result<std::shared_ptr<Comm>> {
    const NcclId id = ZERO_TRY(nccl_unique_id());
    return create_nccl(gpu, id, 0, 1, {});
  });
}

// ---- Cases that are not pairs.

struct Variant {
  const char* name;
  std::function<void(Training&)> set;
};

const std::vector<Variant> kVariants = {
    {"plain", [](Training&) {}},
    {"clipped", [](Training& run) { run.max_grad_norm = 0.25; }},
    {"by a rule of the caller", [](Training& run) { run.own_rule = true; }},
    {"by lamb", [](Training& run) { run.optimizer = ZERO_OPTIMIZER_LAMB; }},
    {"by lars",
     [](Training& run) {
       run.optimizer = ZERO_OPTIMIZER_LARS;
       run.settings = {{"weight_decay", 0.1}, {"momentum", 0.9}};
     }},
    {"owners move",
     [](Training& run) {
       run.dtypes = {{ZERO_BFLOAT16, ZERO_BFLOAT16}, {ZERO_FLOAT32, ZERO_FLOAT32}};
       run.master = ZERO_MASTER_REMAINDER;
       run.toggled = true;
       run.deals = {0, 3, 6, 7, 12};
     }},
};

TEST(Equivalence, copies_that_several_ranks_divide_unevenly_equal_one_process) {
  size_t turn = 0;
  for (const Variant& variant : kVariants) {
    for (const int instances : {2, 3}) {
      Training training = base(6);
      training.instances = instances;
      training.steps = 8;
      training.where = Where::foreign;
      training.partition = kPartitions[++turn % 4];
      training.micro_batches = turn % 3 == 0 ? 2 : 1;
      variant.set(training);
      for (const CommKind kind : kCommKinds)
        expect_equals_reference(training, run(training, kind), variant.name);
      if (HasFatalFailure()) return;
    }
  }
}

/// The reference's norms are not exact, which fp64 shows. Therefore this compares with ranks that
/// have no copies.
TEST(Equivalence, copies_change_no_bit_of_steps_by_norms_of_whole_tensors) {
  for (const int32_t optimizer : {ZERO_OPTIMIZER_LAMB, ZERO_OPTIMIZER_LARS}) {
    Training training = base(6);
    training.optimizer = optimizer;
    training.dtypes = {{ZERO_FLOAT64, ZERO_FLOAT64}};
    training.where = Where::foreign;
    training.steps = 5;
    const Outcome one = run(training)[0];
    for (const int instances : {2, 3}) {
      training.instances = instances;
      for (const CommKind kind : kCommKinds) {
        const std::string what = text("optimizer ", optimizer, ", instances ", instances);
        expect_same_bits(run(training, kind)[0].params, one.params, 0, what);
      }
    }
  }
}

TEST(Equivalence, ranks_as_processes_equal_one_process) {
  size_t turn = 0;  // combines all partitions with all variants
  for (int world = 2; world <= max_world(); world++) {
    for (const Where where : {Where::arenas, Where::foreign}) {
      turn++;
      for (size_t v = 0; v < kVariants.size(); v++) {
        const Variant& variant = kVariants[v];
        Training training = base(world);
        training.where = where;
        training.partition = kPartitions[(turn + v) % 4];
        variant.set(training);
        expect_equals_reference(training, as_processes(training), variant.name);
        if (HasFatalFailure()) return;
      }
    }
  }
}

struct Denormal {
  const char* what;
  int32_t optimizer;
  Settings settings;
  float param_scale, grad_scale;
  double max_grad_norm = 0;
};

const Settings kTrust = {{"lr", 0.02}, {"weight_decay", 0.1}};
/// Runs whose results depend on a denormal.
const std::vector<Denormal> kDenormals = {
    {"parameters and gradients", ZERO_OPTIMIZER_SGD, {{"lr", 1}}, 1e-39f, 1e-39f},
    {"momentum", ZERO_OPTIMIZER_SGD, {{"lr", 1}, {"momentum", 0.9}}, 1e-39f, 1e-39f},
    {"lr", ZERO_OPTIMIZER_SGD, {{"lr", 1e-39}}, 1e-38f, 1},
    {"eps and exp_avg", ZERO_OPTIMIZER_ADAM, {{"eps", 1e-39}}, 1, 1e-39f},
    {"clip factor", ZERO_OPTIMIZER_SGD, {{"lr", 1}}, 1e-39f, 1, 1e-37},
    // Denormal in fp32, but not in the fp64 of the norms.
    {"norms of lamb", ZERO_OPTIMIZER_LAMB, kTrust, 1e-38f, 0.1f},
    {"norms of lars", ZERO_OPTIMIZER_LARS, kTrust, 1e-38f, 0.1f},
};

Training denormal_training(const Denormal& denormal, Flushes flushes, int threads) {
  Training training = base(2);
  training.flushes = flushes;
  training.threads = threads;
  training.optimizer = denormal.optimizer;
  training.settings = denormal.settings;
  training.param_scale = denormal.param_scale;
  training.grad_scale = denormal.grad_scale;
  training.max_grad_norm = denormal.max_grad_norm;
  training.steps = 5;
  training.where = threads == 1 ? Where::arenas : Where::foreign;
  return training;
}

TEST(Equivalence, flushed_denormals_of_the_caller_change_nothing) {
  for (const Denormal& denormal : kDenormals) {
    Training none = denormal_training(denormal, Flushes::none, 1);
    const std::vector<double> trained = reference(none).params;
    none.steps = 0;
    EXPECT_NE(reference(none).params, trained) << denormal.what;
    for (const Flushes flushes : {Flushes::last_rank, Flushes::all_ranks}) {
      for (const int threads : {1, 2}) {
        const Training training = denormal_training(denormal, flushes, threads);
        const std::string what = text(denormal.what, ", threads ", threads, ", flushed on ",
                                      flushes == Flushes::all_ranks ? "all ranks" : "one rank");
        expect_equals_reference(training, as_processes(training), what);
        expect_equals_reference(training, run(training, CommKind::user), what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Equivalence, norms_have_the_same_bits_for_every_world_and_rule) {
  for (const double p : {1.0, 2.0, 3.5, static_cast<double>(INFINITY)}) {
    std::vector<double> first;
    for (int world = 1; world <= max_world(); world++) {
      for (const int32_t partition : kPartitions) {
        // Only one rank has a gradient, so that the sum does not depend on the world.
        Training training = base(world);
        training.partition = partition;
        training.norm_type = p;
        training.max_grad_norm = 0.5;
        training.steps = 3;
        training.sum = true;
        training.seed = 5;
        training.only_rank_0 = true;
        training.threads = world == 1 ? 3 : 1;
        const std::vector<Outcome> ranks = run(training);
        ASSERT_EQ(ranks[0].error, "");
        if (first.empty()) first = ranks[0].norms;
        EXPECT_EQ(ranks[0].norms, first)
            << "p " << p << ", world " << world << ", " << kPartitionNames[partition];
      }
    }
  }
}

/// NAdam on parameters with one element, all 1, in one group. NAdam keeps the most history.
class Lone : public Optim {
 public:
  explicit Lone(size_t count)
      : Optim(alone(), options_with([](zero_options& o) { o.optimizer = ZERO_OPTIMIZER_NADAM; })),
        data(count, 1.0f),
        grad_(count) {
    std::vector<zero_param> params;
    constexpr const char* kNames[] = {"a", "b"};
    for (size_t i = 0; i < count; i++) params.push_back(parameter(kNames[i], kOne, &data[i]));
    add(params);
  }
  ~Lone() { free(); }

  void step(double beta1, const std::vector<bool>& present) {
    set("beta1", beta1);
    std::vector<void*> grads;
    for (size_t i = 0; i < grad_.size(); i++) {
      grad_[i] = 0.25f;
      grads.push_back(present[i] ? &grad_[i] : nullptr);
    }
    EXPECT_OK(step_with(grads));
  }

  std::vector<float> data;

 private:
  std::vector<float> grad_;
};

TEST(Equivalence, parameters_with_as_many_steps_but_another_past_are_updated_apart) {
  Lone both(2), first(1), second(1);
  both.step(0.9, {true, false});
  first.step(0.9, {true});
  both.step(0.5, {false, true});
  second.step(0.5, {true});
  both.step(0.8, {true, true});
  first.step(0.8, {true});
  second.step(0.8, {true});
  EXPECT_EQ(both.data[0], first.data[0]);
  EXPECT_EQ(both.data[1], second.data[0]);
  EXPECT_NE(both.data[0], both.data[1]);
}

TEST(Equivalence, threads_of_a_rank_change_no_bit) {
  for (int threads = 1; threads <= 5; threads++) {
    Training training = base(2);
    training.threads = threads;
    training.sizes.push_back(70001);
    training.padded = true;
    expect_equals_reference(training, "one pass");
    training.max_grad_norm = 0.5;
    expect_equals_reference(training, "two passes");
  }
}

}  // namespace
}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "base/text.h"
#include "own_rules.h"
#include "stored.h"
#include "support/float_control.h"
#include "tensors.h"
#include "unsharded.h"

namespace zero::test {
namespace {

/// Sets how this thread treats denormals, and restores it at the end.
class Denormals {
 public:
  explicit Denormals(bool flushed) : before_(float_control()) {
    set_float_control(flushed ? before_ | kFlushed : before_ & ~kFlushed);
  }
  ~Denormals() { set_float_control(before_); }

 private:
  const uint64_t before_;
};

std::vector<double> numbers(uint64_t seed, size_t count, float scale, int32_t dtype) {
  const Denormals kept(false);
  std::mt19937_64 random(seed);
  std::vector<double> out(count);
  for (double& number : out) {
    // Uniform in (-scale, scale), with an occasional zero, large number or denormal.
    const uint64_t bits = random();
    float value = (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * scale;
    if (bits % 97 == 0) value = 0;
    if (bits % 101 == 0) value *= 1000;
    if (bits % 103 == 0) value *= 1e-38f;
    // fp64 values need digits that no other type has.
    number = dtype == ZERO_FLOAT64 ? value * (1 + 0x1.fp-30) : rounded(dtype, value);
  }
  return out;
}

/// Ends the training of a rank with an error that names the failed call.
void must(zero_status status, const char* what) {
  if (status >= 0) return;
  throw std::runtime_error(text(what, ": ", zero_status_name(status), ": ", last()));
}

std::vector<zero_param> describe(const Training& run, const Tensors& memory,
                                 std::vector<std::string>& names) {
  std::vector<zero_param> params(run.sizes.size());
  names.resize(run.sizes.size());
  for (size_t i = 0; i < params.size(); i++) {
    names[i] = "layer." + std::to_string(i);
    const bool laid_out = !memory.data.empty();
    params[i] = parameter(names[i].c_str(), run.sizes[i], laid_out ? memory.data[i] : nullptr,
                          laid_out ? memory.grads[i] : nullptr, dtypes_of(run, i).param);
    params[i].owner = manual_owner(run, i);
    params[i].grad_dtype = dtypes_of(run, i).grad;
    if (run.padded && run.where != Where::foreign && run.where != Where::mixed)
      params[i].flags |= ZERO_PARAM_PADDED;
    if (frozen(run, i, 0)) params[i].flags |= ZERO_PARAM_FROZEN;
    if (const auto scale = own_lr_scale(run, i)) {
      params[i].flags |= ZERO_PARAM_LR_SCALE;
      params[i].lr_scale = *scale;
    }
    if (const auto decay = own_weight_decay(run, i)) {
      params[i].flags |= ZERO_PARAM_WEIGHT_DECAY;
      params[i].weight_decay = *decay;
    }
  }
  return params;
}

OwnRule own_rule_of(int32_t optimizer) {
  return optimizer == ZERO_OPTIMIZER_LARS ? own_lars() : own_adamw();
}

/// The options of the groups that have parameters, and for each the number of parameters up to its
/// end. Custom rules must live as long as the optimizer.
class DescribedGroups {
 public:
  explicit DescribedGroups(const Training& run) {
    for (size_t end = 1; end <= run.sizes.size(); end++) {
      const size_t group = group_of(run, end - 1);
      if (end < run.sizes.size() && group_of(run, end) == group) continue;
      describe(run, group);
      ends_.push_back(end);
    }
  }

  const zero_group_options& options(size_t group) const { return options_[group]; }
  const std::vector<size_t>& ends() const { return ends_; }
  void put_into(zero_plan& plan) const {
    plan.groups = options_.data();
    plan.group_ends = ends_.data();
    plan.group_count = ends_.size();
  }

 private:
  struct Owned {
    std::vector<const char*> names;
    std::vector<double> values;
    OwnRule rule;
    std::optional<Declared> declared;
  };

  void describe(const Training& run, size_t group) {
    auto options = initialized<zero_group_options>();
    options.state_dtype = run.state_dtype;
    if (group > 0) {
      const GroupRule& follows = run.more_groups[group - 1];
      Owned& owned = owned_.emplace_back();
      auto rule = initialized<zero_rule>();
      must(zero_rule_info(follows.optimizer, &rule), "rule");
      owned.rule = own_rule_of(follows.optimizer);
      if (!follows.own) options.optimizer = rule.name;
      if (follows.own) options.custom = &owned.declared.emplace(owned.rule).custom();
      for (const auto& [name, value] : follows.settings) {
        owned.names.push_back(name.c_str());
        owned.values.push_back(value);
      }
      options.names = owned.names.data();
      options.values = owned.values.data();
      options.setting_count = owned.names.size();
    }
    options_.push_back(options);
  }

  std::deque<Owned> owned_;
  std::vector<zero_group_options> options_;
  std::vector<size_t> ends_;
};

/// The offsets of parameters (0) and gradients (1) in arenas, and the sizes of these.
struct Places {
  std::vector<int64_t> offsets[2];
  size_t bytes[2] = {64, 64};
};

Places find_places(const Training& run, const zero_options& options) {
  Places places;
  std::vector<std::string> names;
  for (auto& offsets : places.offsets) offsets.resize(run.sizes.size());
  auto plan = initialized<zero_plan>();
  plan.offsets = places.offsets[0].data();
  plan.grad_offsets = places.offsets[1].data();
  const std::vector<zero_param> params = describe(run, Tensors(nullptr), names);
  const DescribedGroups groups(run);
  groups.put_into(plan);
  must(zero_partition_plan(params.data(), params.size(), run.world, &options, &plan), "plan");
  places.bytes[0] += static_cast<size_t>(plan.arena_bytes);
  places.bytes[1] += static_cast<size_t>(plan.grad_arena_bytes);
  if (run.padded) return places;
  for (const size_t which : {0, 1}) {  // in registration order, without padding, with small gaps
    size_t end = 0;
    for (size_t i = 0; i < run.sizes.size(); i++) {
      const Dtypes dtypes = dtypes_of(run, i);
      const size_t element = element_bytes(which == 0 ? dtypes.param : dtypes.grad);
      end = (end + element - 1) / element * element;
      places.offsets[which][i] = static_cast<int64_t>(end);
      end += (static_cast<size_t>(run.sizes[i]) + 1) * element;
    }
    places.bytes[which] = end + 64;
  }
  return places;
}

void allocate(const Training& run, zero_comm* comm, const zero_options& options, Tensors& memory) {
  const Places places = find_places(run, options);
  void* base[2] = {nullptr, nullptr};
  for (const size_t which : {0, 1}) {
    if (run.where == Where::foreign) break;
    const bool shared = which == 0 && run.where != Where::per_rank_arenas;
    const int32_t kind = shared ? ZERO_MEMORY_SHARED : ZERO_MEMORY_PER_RANK;
    must(zero_arena_alloc(comm, places.bytes[which], kind, &base[which]), "arena");
    memory.arenas.push_back(base[which]);
  }
  const int rank = zero_comm_rank(comm);
  for (size_t i = 0; i < run.sizes.size(); i++) {
    // Mixed: each rank has different parameters and gradients in arenas.
    const bool foreign_data =
        run.where == Where::foreign ||
        (run.where == Where::mixed && (i + static_cast<size_t>(rank)) % 3 == 0);
    const bool foreign_grad =
        run.where == Where::foreign ||
        (run.where == Where::mixed && (i + static_cast<size_t>(rank)) % 2 == 0);
    const auto place = [&](size_t which, bool foreign) -> std::byte* {
      if (!foreign) return static_cast<std::byte*>(base[which]) + places.offsets[which][i];
      return memory.allocate(static_cast<size_t>(run.sizes[i]) + 1);
    };
    memory.data.push_back(place(0, foreign_data));
    memory.in_arena.push_back(!foreign_data);
    memory.grads.push_back(place(1, foreign_grad));
  }
}

void store(const Tensors& memory, int32_t dtype, const std::vector<double>& values, std::byte* to) {
  const Denormals kept(false);
  memory.write(to, encode(dtype, values));
}

/// Returns true if the gradients are unchanged.
bool grads_stand(const Training& run, const Tensors& memory, int rank, int step, int batch) {
  const Denormals kept(false);
  for (size_t i = 0; i < run.sizes.size(); i++) {
    if (frozen(run, i, step)) continue;
    const std::vector<std::byte> given =
        encode(dtypes_of(run, i).grad, gradient(run, i, rank, batch));
    if (memory.read(memory.grads[i], given.size()) != given) return false;
  }
  return true;
}

}  // namespace

Dtypes dtypes_of(const Training& run, size_t param) {
  return run.dtypes[param % run.dtypes.size()];
}

size_t group_of(const Training& run, size_t param) {
  return param * (1 + run.more_groups.size()) / run.sizes.size();
}

Training follow_group(Training run, size_t param) {
  const size_t group = group_of(run, param);
  if (group == 0) return run;
  run.optimizer = run.more_groups[group - 1].optimizer;
  run.settings = run.more_groups[group - 1].settings;
  return run;
}

std::vector<double> initial(const Training& run, size_t param) {
  return numbers(run.seed * 7919 + param, static_cast<size_t>(run.sizes[param]), run.param_scale,
                 dtypes_of(run, param).param);
}

std::vector<double> gradient(const Training& run, size_t param, int rank, int step) {
  if (run.reduced) rank = 0;
  if (run.only_rank_0 && rank != 0)
    return std::vector<double>(static_cast<size_t>(run.sizes[param]));
  return numbers(run.seed * 1000003 + param * 1009 + static_cast<uint64_t>(rank) * 31 +
                     static_cast<uint64_t>(step) * 100000007,
                 static_cast<size_t>(run.sizes[param]), run.grad_scale, dtypes_of(run, param).grad);
}

bool has_gradient(const Training& run, size_t param, int rank, int step) {
  if (joined(run, rank, step / run.micro_batches)) return false;
  if (!run.missing || param == 0) return true;
  if (param == 9) return false;  // never, on any rank
  const size_t key = param * 5 + static_cast<size_t>(step);
  if (key % 4 == 0) return false;                                       // absent everywhere
  return (key + static_cast<size_t>(rank)) % 3 != 0 || run.world == 1;  // absent on some
}

bool frozen(const Training& run, size_t param, int step) {
  if (!run.toggled || param == 0) return false;
  if (param == 3) return true;                                      // always
  if (param == 4) return step < run.thaws;                          // from the start
  return (param + static_cast<size_t>(step)) / 5 % 3 == param % 3;  // for five steps at a time
}

int epoch_steps(const Training& run) {
  return run.epoch.empty() ? 0 : *std::max_element(run.epoch.begin(), run.epoch.end());
}

bool joined(const Training& run, int rank, int step) {
  if (run.epoch.empty()) return false;
  return step >= run.epoch[static_cast<size_t>(rank)] && step < epoch_steps(run);
}

std::optional<double> own_lr_scale(const Training& run, size_t param) {
  if (!run.own_settings || param % 3 != 1) return std::nullopt;
  return 0.3 * static_cast<double>(param % 5);
}

std::optional<double> own_weight_decay(const Training& run, size_t param) {
  const bool has_none = follow_group(run, param).optimizer == ZERO_OPTIMIZER_RPROP;
  if (!run.own_settings || param % 4 > 1 || has_none) return std::nullopt;
  return param % 4 == 0 ? 0.3 : 0.0;
}

int32_t manual_owner(const Training& run, size_t param, int deals) {
  const size_t turned = param * 7 + 3 + static_cast<size_t>(deals) * (param % 3);
  return static_cast<int32_t>(turned % static_cast<size_t>(run.world / run.instances));
}

namespace {

/// Writes the gradients of a batch, and returns the pointers for a call.
std::vector<void*> backward(const Training& run, const Tensors& memory, int rank, int step,
                            int batch) {
  std::vector<void*> pointers;
  for (size_t i = 0; i < run.sizes.size(); i++) {
    std::vector<double> values = gradient(run, i, rank, batch);
    if (frozen(run, i, step)) std::fill(values.begin(), values.end(), INFINITY);
    // Those of a first batch are written when they are announced.
    if (run.announces > 0 && memory.device != nullptr && batch % run.micro_batches == 0)
      std::fill(values.begin(), values.end(), 0);
    store(memory, dtypes_of(run, i).grad, values, memory.grads[i]);
    pointers.push_back(has_gradient(run, i, rank, batch) ? memory.grads[i] : nullptr);
  }
  return pointers;
}

/// Announces some gradients. They and their order differ between ranks.
void announce(const Training& run, const Tensors& memory, zero_optim* optim,
              const std::vector<void*>& pointers, int rank, int step) {
  if (run.announces == 0) return;
  const auto make = [&](size_t i, void* stream) {
    if (memory.device == nullptr || pointers[i] == nullptr) return;
    const std::vector<std::byte> bytes =
        encode(dtypes_of(run, i).grad, gradient(run, i, rank, step * run.micro_batches));
    move_bytes(memory.device, stream, memory.grads[i], bytes.data(), bytes.size());
  };
  Event cleared;
  if (memory.device != nullptr) {
    cleared = make_event(memory.device).value();
    EXPECT_TRUE(memory.device->record(cleared.handle(), memory.stream()).ok());
    EXPECT_TRUE(memory.device->wait(memory.forward(), cleared.handle(), "the engine's own").ok());
  }
  std::vector<size_t> order(pointers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(run.seed * 1000 + static_cast<uint64_t>(step * 10 + rank));
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    const bool announced = random() % static_cast<uint64_t>(run.announces) != 0;
    make(i, announced ? memory.forward() : memory.stream());
    if (!announced) continue;
    must(zero_grad_ready(optim, static_cast<int64_t>(i), pointers[i], memory.forward()),
         "announce");
    if (run.delays && random() % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
}

/// Runs a forward pass on two threads. What they read of a parameter after its wait must equal its
/// value when all work is complete.
void read_one_by_one(const Training& run, zero_optim* optim, const Tensors& memory, int step) {
  std::mt19937_64 random(run.seed * 31 + static_cast<uint64_t>(step));
  std::vector<size_t> order(run.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  const auto bytes_of = [&](size_t i) {
    return static_cast<size_t>(run.sizes[i]) * element_bytes(dtypes_of(run, i).param);
  };
  std::vector<std::vector<std::byte>> seen(run.sizes.size());
  const auto read = [&](size_t first) {
    for (size_t k = first; k < order.size(); k += 2) {
      const size_t i = order[k];
      if (zero_param_wait(optim, static_cast<int64_t>(i), memory.forward()) != ZERO_OK)
        return false;
      seen[i] = memory.read(memory.data[i], bytes_of(i), memory.forward());
    }
    return true;
  };
  bool other = false;
  std::thread thread([&] { other = read(1); });
  const bool own = read(0);
  thread.join();
  must(own && other ? zero_param_wait(optim, ZERO_ALL_PARAMS, memory.stream()) : ZERO_ERR_PEER,
       "wait");
  for (size_t i = 0; i < seen.size(); i++) {
    if (seen[i] != memory.read(memory.data[i], bytes_of(i)))
      throw std::runtime_error(text("parameter ", i, " was not new after its wait"));
  }
}

/// Freezes and thaws the parameters that differ from the previous step.
void toggle(const Training& run, zero_optim* optim, int step) {
  for (size_t i = 0; i < run.sizes.size() && step > 0; i++) {
    if (frozen(run, i, step) != frozen(run, i, step - 1))
      must(zero_param_set_trainable(optim, static_cast<int64_t>(i), !frozen(run, i, step)),
           "toggle");
  }
}

void deal(const Training& run, zero_optim* optim, int step) {
  const auto due = std::find(run.deals.begin(), run.deals.end(), step);
  if (due == run.deals.end()) return;
  std::vector<int32_t> owners;
  for (size_t i = 0; run.partition == ZERO_PARTITION_MANUAL && i < run.sizes.size(); i++)
    owners.push_back(manual_owner(run, i, static_cast<int>(due - run.deals.begin()) + 1));
  must(zero_rebalance(optim, owners.empty() ? nullptr : owners.data(), owners.size(), nullptr),
       "rebalance");
}

/// Appends the step count and the state of every parameter, as numbers.
void append_state(const Training& run, const Optim& optim, std::vector<double>& out) {
  for (size_t i = 0; i < run.sizes.size(); i++) {
    const auto param = static_cast<int64_t>(i);
    const int32_t dtype = dtypes_of(run, i).param == ZERO_FLOAT64 ? ZERO_FLOAT64 : ZERO_FLOAT32;
    const auto elements = static_cast<size_t>(run.sizes[i]);
    out.push_back(optim.scalar(param));
    for (const char* const slot : optim.state_names(param)) {
      std::vector<std::byte> bytes(elements * element_bytes(dtype));
      must(zero_state_gather(optim.optim(), param, slot, ZERO_ALL_RANKS, bytes.data(), elements),
           slot);
      const Denormals kept(false);
      const std::vector<double> values = decode(dtype, bytes.data(), elements);
      out.insert(out.end(), values.begin(), values.end());
    }
  }
}

zero_options options_of(const Training& run) {
  auto options = initialized<zero_options>();
  options.optimizer = run.optimizer;
  options.partition = run.partition;
  options.bucket_bytes = run.bucket_bytes;
  options.threads = run.threads;
  options.master = run.master;
  options.wire_dtype = run.wire_dtype;
  options.overlap_gather = run.overlaps;
  options.predivide_factor = run.predivide_factor;
  options.share_dtype = run.share_dtype;
  options.uneven_inputs = run.uneven_inputs;
  options.instances = run.instances;
  if (!run.explicit_clip) {
    options.max_grad_norm = run.max_grad_norm;
    options.grad_norm_type = run.norm_type;
  }
  return options;
}

/// Registers the parameters of each group.
void register_groups(const DescribedGroups& groups, zero_optim* optim,
                     const std::vector<zero_param>& params) {
  size_t first = 0;
  for (size_t g = 0; g < groups.ends().size(); first = groups.ends()[g++])
    must(zero_register_params(optim, &groups.options(g), &params[first], groups.ends()[g] - first,
                              nullptr),
         "register");
}

/// Writes rank 0's initial values. Other ranks get values that the broadcast must replace.
void fill_params(const Training& run, const Tensors& memory, int rank) {
  for (size_t i = 0; i < run.sizes.size(); i++) {
    std::vector<double> values = initial(run, i);
    if (rank != 0) {
      if (run.where == Where::arenas) continue;  // all ranks have rank 0's memory
      if (run.where == Where::mixed && memory.in_arena[i]) continue;  // another rank may fill it
      std::fill(values.begin(), values.end(), -7.0);
    }
    store(memory, dtypes_of(run, i).param, values, memory.data[i]);
  }
}

/// Takes one step with all its micro-batches. Returns its norm if the run asks for it.
double make_step(const Training& run, Optim& optim, const Tensors& memory, int step) {
  void* const stream = memory.stream();
  const bool gives = run.missing || run.alternates;
  const int32_t how = run.reduced ? ZERO_REDUCE_NONE : run.sum ? ZERO_REDUCE_SUM : ZERO_REDUCE_MEAN;
  const int32_t flags = how | (run.micro_batches > 1 ? ZERO_REDUCE_ACCUMULATE : 0);
  const int first = step * run.micro_batches, last = first + run.micro_batches - 1;
  if (run.begins) must(optim.begin(flags), "begin");
  std::vector<void*> given;
  for (int batch = first; batch <= last; batch++) {
    const std::vector<void*> pointers = backward(run, memory, optim.rank(), step, batch);
    if (batch == first) announce(run, memory, optim.optim(), pointers, optim.rank(), step);
    if (gives) given = pointers;
    if (batch < last) must(optim.reduce_with(given, flags, stream), "accumulate");
  }
  const bool clips = run.explicit_clip || run.clip_value > 0;
  const bool reduces = run.explicit_reduce || (clips && (gives || flags != 0));
  if (reduces) must(optim.reduce_with(given, flags, stream), "reduce");
  if (run.clip_value > 0)
    must(zero_clip_grad_value(optim.optim(), run.clip_value, stream), "clip value");
  double norm = -1;
  if (run.explicit_clip)
    must(zero_clip_grad_norm(optim.optim(), nullptr, 0, run.max_grad_norm, run.norm_type,
                             run.asks ? &norm : nullptr, stream),
         "clip");
  const bool done = reduces || clips;
  must(optim.step_with(done ? std::vector<void*>() : given, done ? 0 : flags, stream), "step");
  if (run.overlaps) read_one_by_one(run, optim.optim(), memory, step);
  if ((run.reduced || run.micro_batches > 1) && !grads_stand(run, memory, optim.rank(), step, last))
    throw std::runtime_error("gradients that are not libzero's have changed");
  return run.asks && !run.explicit_clip ? optim.found().grad_norm : norm;
}

Outcome train_all(const Training& run, zero_comm* comm) {
  zero_options options = options_of(run);
  const OwnRule own = own_rule_of(run.optimizer);
  const Declared declared(own);
  const DescribedGroups groups(run);
  if (run.own_rule) declared.put_into(options);
  Tensors memory(device_of(comm));
  allocate(run, comm, options, memory);
  Optim optim(comm, options, run.settings);
  std::vector<std::string> names;
  const std::vector<zero_param> params = describe(run, memory, names);
  register_groups(groups, optim.optim(), params);
  fill_params(run, memory, optim.rank());
  must(zero_broadcast_params(optim.optim(), 0, memory.stream()), "broadcast");
  optim.set("loss_scale", run.loss_scale);
  Outcome out;
  for (int step = 0; step < run.steps; step++) {
    if (!run.epoch.empty() && step == run.epoch[static_cast<size_t>(optim.rank())]) {
      must(zero_join(optim.optim(), nullptr, nullptr), "join");
      step = epoch_steps(run);
      out.norms.resize(static_cast<size_t>(step), -2);
    }
    toggle(run, optim.optim(), step);
    deal(run, optim.optim(), step);
    if (run.alternates) memory.alternate(run);
    const double norm = make_step(run, optim, memory, step);
    if (run.asks) out.norms.push_back(norm);
  }
  for (size_t i = 0; i < run.sizes.size(); i++) {
    const Denormals kept(false);
    const auto count = static_cast<size_t>(run.sizes[i]);
    const int32_t dtype = dtypes_of(run, i).param;
    const std::vector<std::byte> bytes = memory.read(memory.data[i], count * element_bytes(dtype));
    const std::vector<double> values = decode(dtype, bytes.data(), count);
    out.params.insert(out.params.end(), values.begin(), values.end());
  }
  if (run.keeps_state) append_state(run, optim, out.params);
  must(zero_comm_barrier(comm), "barrier");
  return out;
}

}  // namespace

Outcome train(const Training& run, zero_comm* comm) {
  const Denormals flushed(
      run.flushes == Flushes::all_ranks ||
      (run.flushes == Flushes::last_rank && zero_comm_rank(comm) == zero_comm_world(comm) - 1));
  try {
    return train_all(run, comm);
  } catch (const std::runtime_error& failed) {
    return {.error = failed.what()};
  }
}

}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "own_rules.h"
#include "stored.h"
#include "tensors.h"
#include "unsharded.h"

namespace zero::test {
namespace {

/// The treatment of denormals by this thread; what it was before comes back at the end.
class Denormals {
 public:
#if defined(__x86_64__)
  explicit Denormals(bool flushed) : before_(_mm_getcsr()) {
    _mm_setcsr(flushed ? before_ | kFlushed : before_ & ~kFlushed);
  }
  ~Denormals() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned kFlushed = 0x8040;  // FTZ and DAZ
  const unsigned before_;
#else
  explicit Denormals(bool) {}
  ~Denormals() {}
#endif
};

std::vector<double> numbers(uint64_t seed, size_t count, float scale, int32_t dtype) {
  const Denormals kept(false);
  std::mt19937_64 random(seed);
  std::vector<double> out(count);
  for (double& number : out) {
    // Uniform in (-scale, scale), with now and then a zero, a large one and a denormal.
    const uint64_t bits = random();
    float value = (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * scale;
    if (bits % 97 == 0) value = 0;
    if (bits % 101 == 0) value *= 1000;
    if (bits % 103 == 0) value *= 1e-38f;
    // fp64 has digits that no other type can hold.
    number = dtype == ZERO_FLOAT64 ? value * (1 + 0x1.fp-30) : rounded(dtype, value);
  }
  return out;
}

class Failed {
 public:
  explicit Failed(std::string* error) : error_(error) {}
  bool operator()(zero_status status, const char* what) const {
    if (status >= 0) return false;
    *error_ = std::string(what) + ": " + zero_status_name(status) + ": " + zero_last_error();
    return true;
  }

 private:
  std::string* error_;
};

std::vector<zero_param> describe(const Training& run, const Tensors& memory,
                                 std::vector<std::string>& names) {
  std::vector<zero_param> params(run.sizes.size());
  names.resize(run.sizes.size());
  for (size_t i = 0; i < params.size(); i++) {
    ZERO_INIT(params[i]);
    names[i] = "layer." + std::to_string(i);
    params[i].name = names[i].c_str();
    params[i].shape = &run.sizes[i];
    params[i].ndim = 1;
    params[i].owner = manual_owner(run, i);
    params[i].dtype = dtypes_of(run, i).param;
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
    if (!memory.data.empty()) {
      params[i].data = memory.data[i];
      params[i].grad = memory.grads[i];
    }
  }
  return params;
}

/// Where parameters (0) and gradients (1) lie in arenas, and how large these are.
struct Places {
  std::vector<int64_t> offsets[2];
  size_t bytes[2] = {64, 64};
};

bool find_places(const Training& run, const zero_options& options, Places& places,
                 const Failed& failed) {
  std::vector<std::string> names;
  for (auto& offsets : places.offsets) offsets.resize(run.sizes.size());
  zero_plan plan;
  ZERO_INIT(plan);
  plan.offsets = places.offsets[0].data();
  plan.grad_offsets = places.offsets[1].data();
  const std::vector<zero_param> params = describe(run, Tensors(nullptr), names);
  if (failed(zero_partition_plan(params.data(), params.size(), run.world, &options, &plan), "plan"))
    return false;
  places.bytes[0] += static_cast<size_t>(plan.arena_bytes);
  places.bytes[1] += static_cast<size_t>(plan.grad_arena_bytes);
  if (run.padded) return true;
  for (const size_t which : {0, 1}) {  // registration order, tight, something apart
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
  return true;
}

bool allocate(const Training& run, zero_comm* comm, const zero_options& options, Tensors& memory,
              const Failed& failed) {
  Places places;
  if (!find_places(run, options, places, failed)) return false;
  void* base[2] = {nullptr, nullptr};
  for (const size_t which : {0, 1}) {
    if (run.where == Where::foreign) break;
    const bool shared = which == 0 && run.where != Where::per_rank_arenas;
    const int32_t kind = shared ? ZERO_MEMORY_SHARED : ZERO_MEMORY_PER_RANK;
    if (failed(zero_arena_alloc(comm, places.bytes[which], kind, &base[which]), "arena"))
      return false;
    memory.arenas.push_back(base[which]);
  }
  const int rank = zero_comm_rank(comm);
  for (size_t i = 0; i < run.sizes.size(); i++) {
    // Mixed: every rank has other parameters and gradients in arenas.
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
  return true;
}

void store(const Tensors& memory, int32_t dtype, const std::vector<double>& values, std::byte* to) {
  const Denormals kept(false);
  memory.write(to, encode(dtype, values));
}

/// What was handed over is still there.
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

struct Handles {
  zero_optim* optim = nullptr;
  ~Handles() { zero_free(optim); }
};

}  // namespace

Dtypes dtypes_of(const Training& run, size_t param) {
  return run.dtypes[param % run.dtypes.size()];
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
  if (param == 4) return step < 7;                                  // from the start
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
  if (!run.own_settings || param % 4 > 1 || run.optimizer == ZERO_OPTIMIZER_RPROP)
    return std::nullopt;
  return param % 4 == 0 ? 0.3 : 0.0;
}

int32_t manual_owner(const Training& run, size_t param, int deals) {
  const size_t turned = param * 7 + 3 + static_cast<size_t>(deals) * (param % 3);
  return static_cast<int32_t>(turned % static_cast<size_t>(run.world));
}

namespace {

/// Fill the gradients of a batch; what a call is given of them.
std::vector<void*> backward(const Training& run, const Tensors& memory, int rank, int step,
                            int batch) {
  std::vector<void*> pointers;
  for (size_t i = 0; i < run.sizes.size(); i++) {
    std::vector<double> values = gradient(run, i, rank, batch);
    if (frozen(run, i, step)) std::fill(values.begin(), values.end(), INFINITY);
    // Of the first batch made where they are announced.
    if (run.announces > 0 && memory.device != nullptr && batch % run.micro_batches == 0)
      std::fill(values.begin(), values.end(), 0);
    store(memory, dtypes_of(run, i).grad, values, memory.grads[i]);
    pointers.push_back(has_gradient(run, i, rank, batch) ? memory.grads[i] : nullptr);
  }
  return pointers;
}

zero_status begin(zero_optim* optim, int32_t flags) {
  zero_step_options options;
  ZERO_INIT(options);
  options.reduce_flags = flags;
  return zero_step_begin(optim, &options);
}

/// Announce some of them, each rank others and in its own order.
zero_status announce(const Training& run, const Tensors& memory, zero_optim* optim,
                     const std::vector<void*>& pointers, int rank, int step) {
  if (run.announces == 0) return ZERO_OK;
  const auto make = [&](size_t i, void* stream) {
    if (memory.device == nullptr || pointers[i] == nullptr) return;
    const std::vector<std::byte> bytes =
        encode(dtypes_of(run, i).grad, gradient(run, i, rank, step * run.micro_batches));
    if (bytes.empty()) return;
    EXPECT_TRUE(memory.device->copy(stream, memory.grads[i], bytes.data(), bytes.size()).ok());
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
    const zero_status status =
        zero_grad_ready(optim, static_cast<int64_t>(i), pointers[i], memory.forward());
    if (status != ZERO_OK) return status;
    if (run.delays && random() % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
  return ZERO_OK;
}

/// A forward pass on two threads: what is read of a parameter after its wait is what stands there
/// when all is done.
bool read_one_by_one(const Training& run, zero_optim* optim, const Tensors& memory, int step,
                     std::string* error) {
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
  if (!own || !other || zero_param_wait(optim, ZERO_ALL_PARAMS, memory.stream()) != ZERO_OK) {
    *error = std::string("wait: ") + zero_last_error();
    return false;
  }
  for (size_t i = 0; i < seen.size(); i++) {
    if (seen[i] == memory.read(memory.data[i], bytes_of(i))) continue;
    *error = "parameter " + std::to_string(i) + " was not new after its wait";
    return false;
  }
  return true;
}

/// Freeze and thaw what this step wants otherwise than the one before.
zero_status toggle(const Training& run, zero_optim* optim, int step) {
  for (size_t i = 0; i < run.sizes.size(); i++) {
    if (step == 0 || frozen(run, i, step) == frozen(run, i, step - 1)) continue;
    const zero_status status =
        zero_param_set_trainable(optim, static_cast<int64_t>(i), !frozen(run, i, step));
    if (status != ZERO_OK) return status;
  }
  return ZERO_OK;
}

zero_status deal(const Training& run, zero_optim* optim, int step) {
  const auto due = std::find(run.deals.begin(), run.deals.end(), step);
  if (due == run.deals.end()) return ZERO_OK;
  std::vector<int32_t> owners;
  for (size_t i = 0; run.partition == ZERO_PARTITION_MANUAL && i < run.sizes.size(); i++)
    owners.push_back(manual_owner(run, i, static_cast<int>(due - run.deals.begin()) + 1));
  return zero_rebalance(optim, owners.empty() ? nullptr : owners.data(), owners.size(), nullptr);
}

/// Of every parameter its step count and its state, as numbers.
bool append_state(const Training& run, zero_optim* optim, const Failed& failed,
                  std::vector<double>& out) {
  for (size_t i = 0; i < run.sizes.size(); i++) {
    const auto param = static_cast<int64_t>(i);
    const char* names[16];
    size_t count = 0;
    int32_t dtype = 0;
    if (failed(zero_state_info(optim, param, &dtype, names, std::size(names), &count), "info"))
      return false;
    double step = 0;
    if (failed(zero_state_get(optim, param, "step", 0, 1, &step), "step")) return false;
    out.push_back(step);
    for (size_t slot = 0; slot < count; slot++) {
      const auto elements = static_cast<size_t>(run.sizes[i]);
      std::vector<std::byte> bytes(elements * element_bytes(dtype));
      if (failed(
              zero_state_gather(optim, param, names[slot], ZERO_ALL_RANKS, bytes.data(), elements),
              names[slot]))
        return false;
      const Denormals kept(false);
      const std::vector<double> values = decode(dtype, bytes.data(), elements);
      out.insert(out.end(), values.begin(), values.end());
    }
  }
  return true;
}

}  // namespace

Outcome train(const Training& run, zero_comm* comm, std::string* error,
              const std::shared_ptr<Device>& device) {
  const Failed failed(error);
  const Denormals flushed(
      run.flushes == Flushes::all_ranks ||
      (run.flushes == Flushes::last_rank && zero_comm_rank(comm) == zero_comm_world(comm) - 1));
  zero_options options;
  ZERO_INIT(options);
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
  if (!run.explicit_clip) {
    options.max_grad_norm = run.max_grad_norm;
    options.grad_norm_type = run.norm_type;
  }
  std::vector<const char*> names;
  for (const std::string& name : run.names) names.push_back(name.c_str());
  options.names = names.data();
  options.values = run.values.data();
  options.setting_count = names.size();

  const OwnRule rule = run.optimizer == ZERO_OPTIMIZER_LARS ? own_lars() : own_adamw();
  const Declared declared(rule);
  if (run.own_rule) declared.put_into(options);

  Tensors memory(device);
  Handles handles;
  Outcome out;
  if (!allocate(run, comm, options, memory, failed)) return out;
  if (failed(zero_create(&handles.optim, comm, &options), "create")) return out;
  std::vector<std::string> param_names;
  const std::vector<zero_param> params = describe(run, memory, param_names);
  if (failed(zero_register_params(handles.optim, nullptr, params.data(), params.size(), nullptr),
             "register"))
    return out;
  for (size_t i = 0; i < run.sizes.size(); i++) {
    std::vector<double> values = initial(run, i);
    if (zero_comm_rank(comm) != 0) {
      if (run.where == Where::arenas) continue;  // rank 0's memory is everybody's
      if (run.where == Where::mixed && memory.in_arena[i]) continue;  // somebody else may fill it
      std::fill(values.begin(), values.end(), -7.0);  // the broadcast must replace it
    }
    store(memory, dtypes_of(run, i).param, values, memory.data[i]);
  }
  if (failed(zero_broadcast_params(handles.optim, 0, memory.stream()), "broadcast")) return out;
  if (failed(zero_group_set(handles.optim, ZERO_ALL_GROUPS, "loss_scale", run.loss_scale),
             "loss scale"))
    return out;
  for (int step = 0; step < run.steps; step++) {
    if (!run.epoch.empty() && step == run.epoch[static_cast<size_t>(zero_comm_rank(comm))]) {
      if (failed(zero_join(handles.optim, nullptr, nullptr), "join")) return out;
      step = epoch_steps(run);
      out.norms.resize(static_cast<size_t>(step), -2);
    }
    if (failed(toggle(run, handles.optim, step), "set_trainable")) return out;
    if (failed(deal(run, handles.optim, step), "rebalance")) return out;
    if (run.alternates) memory.alternate(run);
    void* const stream = memory.stream();
    const bool gives = run.missing || run.alternates;
    const int32_t how = run.reduced ? ZERO_REDUCE_NONE
                        : run.sum   ? ZERO_REDUCE_SUM
                                    : ZERO_REDUCE_MEAN;
    const int32_t flags = how | (run.micro_batches > 1 ? ZERO_REDUCE_ACCUMULATE : 0);
    const int last = (step + 1) * run.micro_batches - 1;
    if (run.begins && failed(begin(handles.optim, flags), "begin")) return out;
    std::vector<void*> pointers;
    void* const* given = nullptr;
    size_t count = 0;
    for (int batch = step * run.micro_batches; batch <= last; batch++) {
      pointers = backward(run, memory, zero_comm_rank(comm), step, batch);
      if (batch == step * run.micro_batches &&
          failed(announce(run, memory, handles.optim, pointers, zero_comm_rank(comm), step),
                 "announce"))
        return out;
      given = gives ? pointers.data() : nullptr;
      count = gives ? pointers.size() : 0;
      if (batch < last &&
          failed(zero_reduce_grads(handles.optim, given, count, flags, stream), "accumulate"))
        return out;
    }
    const bool clips = run.explicit_clip || run.clip_value > 0;
    const bool reduces = run.explicit_reduce || (clips && (gives || flags != 0));
    if (reduces && failed(zero_reduce_grads(handles.optim, given, count, flags, stream), "reduce"))
      return out;
    if (run.clip_value > 0 &&
        failed(zero_clip_grad_value(handles.optim, run.clip_value, stream), "clip value"))
      return out;
    double norm = -1;
    if (run.explicit_clip &&
        failed(zero_clip_grad_norm(handles.optim, nullptr, 0, run.max_grad_norm, run.norm_type,
                                   run.asks ? &norm : nullptr, stream),
               "clip"))
      return out;
    zero_step_options step_options;
    ZERO_INIT(step_options);
    step_options.stream = stream;
    if (!reduces && !clips) {
      step_options.grads = given;
      step_options.grad_count = count;
      step_options.reduce_flags = flags;
    }
    if (failed(zero_step(handles.optim, &step_options), "step")) return out;
    if (run.overlaps && !read_one_by_one(run, handles.optim, memory, step, error)) return out;
    if ((run.reduced || run.micro_batches > 1) &&
        !grads_stand(run, memory, zero_comm_rank(comm), step, last))
      return *error = "gradients that are not libzero's have changed", out;
    if (!run.asks) continue;
    zero_result result;
    ZERO_INIT(result);
    zero_step_result(handles.optim, &result);
    out.norms.push_back(run.explicit_clip ? norm : result.grad_norm);
  }
  for (size_t i = 0; i < run.sizes.size(); i++) {
    const Denormals kept(false);
    const auto count = static_cast<size_t>(run.sizes[i]);
    const int32_t dtype = dtypes_of(run, i).param;
    const std::vector<std::byte> bytes = memory.read(memory.data[i], count * element_bytes(dtype));
    const std::vector<double> values = decode(dtype, bytes.data(), count);
    out.params.insert(out.params.end(), values.begin(), values.end());
  }
  if (run.keeps_state && !append_state(run, handles.optim, failed, out.params)) out.params.clear();
  if (failed(zero_comm_barrier(comm), "barrier")) out.params.clear();
  return out;
}

}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

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

std::vector<float> numbers(uint64_t seed, size_t count, float scale) {
  const Denormals kept(false);
  std::mt19937_64 random(seed);
  std::vector<float> out(count);
  for (float& value : out) {
    // Uniform in (-scale, scale), with now and then a zero, a large one and a denormal.
    const uint64_t bits = random();
    value = (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * scale;
    if (bits % 97 == 0) value = 0;
    if (bits % 101 == 0) value *= 1000;
    if (bits % 103 == 0) value *= 1e-38f;
  }
  return out;
}

/// The norm as documented: fp64 lanes of pieces would need the plan; any exact sum of squares
/// rounds alike here only to within a few bits, so the reference takes long double and tests
/// compare with tolerance.
double reference_norm(const std::vector<std::vector<float>>& sums, double p) {
  long double total = 0;
  double largest = 0;
  for (const auto& sum : sums) {
    for (const float x : sum) {
      total += std::pow(std::fabs(static_cast<long double>(x)), static_cast<long double>(p));
      largest = std::max(largest, std::fabs(static_cast<double>(x)));
    }
  }
  if (std::isinf(p)) return largest;
  return static_cast<double>(std::pow(total, 1 / static_cast<long double>(p)));
}

/// Memory of one rank for all parameters.
struct Memory {
  std::vector<float*> data, grads;
  std::vector<std::vector<float>> own;
  std::vector<void*> arenas;
  std::vector<bool> in_arena;  // of each parameter's data
  ~Memory() {
    for (void* arena : arenas) zero_arena_free(arena);
  }
};

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

std::vector<zero_param> describe(const Training& run, const Memory& memory,
                                 std::vector<std::string>& names) {
  std::vector<zero_param> params(run.sizes.size());
  names.resize(run.sizes.size());
  for (size_t i = 0; i < params.size(); i++) {
    zero_param_init(&params[i], sizeof params[i]);
    names[i] = "layer." + std::to_string(i);
    params[i].name = names[i].c_str();
    params[i].shape = &run.sizes[i];
    params[i].ndim = 1;
    params[i].owner = manual_owner(run, i);
    if (run.padded && run.where != Where::foreign && run.where != Where::mixed)
      params[i].flags |= ZERO_PARAM_PADDED;
    if (!memory.data.empty()) {
      params[i].data = memory.data[i];
      params[i].grad = memory.grads[i];
    }
  }
  return params;
}

bool allocate(const Training& run, zero_comm* comm, const zero_options& options, Memory& memory,
              const Failed& failed) {
  std::vector<std::string> names;
  std::vector<int64_t> offsets(run.sizes.size());
  zero_plan plan;
  zero_plan_init(&plan, sizeof plan);
  plan.offsets = offsets.data();
  const std::vector<zero_param> params = describe(run, memory, names);
  if (failed(zero_partition_plan(params.data(), params.size(), run.world, &options, &plan), "plan"))
    return false;
  size_t bytes = static_cast<size_t>(plan.arena_bytes) + 64;
  if (!run.padded) {  // registration order, tight, a float apart
    bytes = 0;
    for (size_t i = 0; i < offsets.size(); i++) {
      offsets[i] = static_cast<int64_t>(bytes);
      bytes += static_cast<size_t>(run.sizes[i]) * 4 + 4;
    }
    bytes += 64;
  }
  void* base[2] = {nullptr, nullptr};
  const bool uses_arenas = run.where != Where::foreign;
  if (uses_arenas) {
    const int32_t kind =
        run.where == Where::per_rank_arenas ? ZERO_MEMORY_PER_RANK : ZERO_MEMORY_SHARED;
    if (failed(zero_arena_alloc(comm, bytes, kind, &base[0]), "arena")) return false;
    memory.arenas.push_back(base[0]);
    if (failed(zero_arena_alloc(comm, bytes, ZERO_MEMORY_PER_RANK, &base[1]), "arena"))
      return false;
    memory.arenas.push_back(base[1]);
  }
  const int rank = zero_comm_rank(comm);
  memory.own.resize(2 * run.sizes.size());
  for (size_t i = 0; i < run.sizes.size(); i++) {
    // Mixed: every rank has other parameters and gradients in arenas.
    const bool foreign_data =
        run.where == Where::foreign ||
        (run.where == Where::mixed && (i + static_cast<size_t>(rank)) % 3 == 0);
    const bool foreign_grad =
        run.where == Where::foreign ||
        (run.where == Where::mixed && (i + static_cast<size_t>(rank)) % 2 == 0);
    const auto place = [&](size_t which, bool foreign) -> float* {
      if (!foreign) return reinterpret_cast<float*>(static_cast<char*>(base[which]) + offsets[i]);
      std::vector<float>& own = memory.own[2 * i + which];
      own.resize(static_cast<size_t>(run.sizes[i]) + 1);
      return own.data();
    };
    memory.data.push_back(place(0, foreign_data));
    memory.in_arena.push_back(!foreign_data);
    memory.grads.push_back(place(1, foreign_grad));
  }
  return true;
}

struct Handles {
  zero_optim* optim = nullptr;
  ~Handles() { zero_free(optim); }
};

}  // namespace

std::vector<float> initial(const Training& run, size_t param) {
  return numbers(run.seed * 7919 + param, static_cast<size_t>(run.sizes[param]), run.param_scale);
}

std::vector<float> gradient(const Training& run, size_t param, int rank, int step) {
  if (run.only_rank_0 && rank != 0)
    return std::vector<float>(static_cast<size_t>(run.sizes[param]));
  return numbers(run.seed * 1000003 + param * 1009 + static_cast<uint64_t>(rank) * 31 +
                     static_cast<uint64_t>(step) * 100000007,
                 static_cast<size_t>(run.sizes[param]), run.grad_scale);
}

bool has_gradient(const Training& run, size_t param, int rank, int step) {
  if (!run.missing || param == 0) return true;
  if (param == 9) return false;  // never, on any rank
  const size_t key = param * 5 + static_cast<size_t>(step);
  if (key % 4 == 0) return false;                                       // absent everywhere
  return (key + static_cast<size_t>(rank)) % 3 != 0 || run.world == 1;  // absent on some
}

int32_t manual_owner(const Training& run, size_t param) {
  return static_cast<int32_t>((param * 7 + 3) % static_cast<size_t>(run.world));
}

Outcome train(const Training& run, zero_comm* comm, std::string* error) {
  const Failed failed(error);
  const Denormals flushed(
      run.flushes == Flushes::all_ranks ||
      (run.flushes == Flushes::last_rank && zero_comm_rank(comm) == zero_comm_world(comm) - 1));
  zero_options options;
  zero_options_init(&options, sizeof options);
  options.optimizer = run.optimizer;
  options.partition = run.partition;
  options.bucket_bytes = run.bucket_bytes;
  options.threads = run.threads;
  if (!run.explicit_clip) {
    options.max_grad_norm = run.max_grad_norm;
    options.grad_norm_type = run.norm_type;
  }
  std::vector<const char*> names;
  for (const std::string& name : run.names) names.push_back(name.c_str());
  options.names = names.data();
  options.values = run.values.data();
  options.setting_count = names.size();

  Memory memory;
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
    std::vector<float> values = initial(run, i);
    if (zero_comm_rank(comm) != 0) {
      if (run.where == Where::arenas) continue;  // rank 0's memory is everybody's
      if (run.where == Where::mixed && memory.in_arena[i]) continue;  // somebody else may fill it
      std::fill(values.begin(), values.end(), -7.0f);  // the broadcast must replace it
    }
    std::memcpy(memory.data[i], values.data(), values.size() * 4);
  }
  if (failed(zero_broadcast_params(handles.optim, 0, nullptr), "broadcast")) return out;
  for (int step = 0; step < run.steps; step++) {
    std::vector<void*> pointers;
    for (size_t i = 0; i < run.sizes.size(); i++) {
      const std::vector<float> values = gradient(run, i, zero_comm_rank(comm), step);
      std::memcpy(memory.grads[i], values.data(), values.size() * 4);
      pointers.push_back(has_gradient(run, i, zero_comm_rank(comm), step) ? memory.grads[i]
                                                                          : nullptr);
    }
    void* const* given = run.missing ? pointers.data() : nullptr;
    const size_t count = run.missing ? pointers.size() : 0;
    const int32_t flags = run.sum ? ZERO_REDUCE_SUM : ZERO_REDUCE_MEAN;
    const bool reduces = run.explicit_reduce || (run.explicit_clip && (run.missing || run.sum));
    if (reduces && failed(zero_reduce_grads(handles.optim, given, count, flags, nullptr), "reduce"))
      return out;
    double norm = -1;
    if (run.explicit_clip &&
        failed(zero_clip_grad_norm(handles.optim, run.max_grad_norm, run.norm_type, &norm, nullptr),
               "clip"))
      return out;
    zero_step_options step_options;
    zero_step_options_init(&step_options, sizeof step_options);
    if (!reduces && !run.explicit_clip) {
      step_options.grads = given;
      step_options.grad_count = count;
      step_options.reduce_flags = flags;
    }
    if (failed(zero_step(handles.optim, &step_options), "step")) return out;
    zero_result result;
    zero_result_init(&result, sizeof result);
    zero_step_result(handles.optim, &result);
    out.norms.push_back(run.explicit_clip ? norm : result.grad_norm);
  }
  for (size_t i = 0; i < run.sizes.size(); i++) {
    out.params.insert(out.params.end(), memory.data[i], memory.data[i] + run.sizes[i]);
  }
  if (failed(zero_comm_barrier(comm), "barrier")) out.params.clear();
  return out;
}

Outcome reference(const Training& run) {
  Outcome out;
  std::vector<std::vector<float>> params;
  std::vector<Unsharded> states(run.sizes.size());
  for (size_t i = 0; i < run.sizes.size(); i++) params.push_back(initial(run, i));
  for (int step = 0; step < run.steps; step++) {
    std::vector<std::vector<float>> sums(run.sizes.size());
    std::vector<bool> present(run.sizes.size(), false);
    for (size_t i = 0; i < run.sizes.size(); i++) {
      for (int rank = 0; rank < run.world; rank++) {
        std::vector<float> g = gradient(run, i, rank, step);
        if (has_gradient(run, i, rank, step)) {
          present[i] = true;
        } else {
          std::fill(g.begin(), g.end(), 0.0f);
        }
        if (rank == 0)
          sums[i] = g;
        else
          for (size_t k = 0; k < g.size(); k++) sums[i][k] = sums[i][k] + g[k];
      }
      if (!present[i]) sums[i].clear();
    }
    double factor = run.sum ? 1.0 : 1.0 / run.world;
    double norm = -1;
    if (run.max_grad_norm > 0) {
      norm = reference_norm(sums, run.norm_type) * factor;
      const double clip = run.max_grad_norm / (norm + 1e-6);
      if (clip < 1) factor *= clip;
    }
    out.norms.push_back(norm);
    const bool maximize = setting(run, "maximize", 0) != 0;
    const auto scale = static_cast<float>(maximize ? -factor : factor);
    for (size_t i = 0; i < run.sizes.size(); i++) {
      if (!present[i]) continue;
      for (float& x : sums[i]) x = x * scale;
      states[i].update(run, params[i], sums[i]);
    }
  }
  for (const auto& param : params) out.params.insert(out.params.end(), param.begin(), param.end());
  return out;
}

}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
#include "subjects.h"

#include <array>
#include <cstring>
#include <utility>

#include "random_fill.h"

namespace bench {
namespace {

constexpr std::array<CaseInfo, 11> kCases = {{
    {"direct", "zero_step, arenas, local comm"},
    {"traced", "the same while a trace is written"},
    {"direct-clip", "zero_step, arenas, local comm; max_grad_norm"},
    {"lamb", "zero_step, arenas, local comm; LAMB"},
    {"bf16-master", "zero_step, arenas, local comm; bf16 with fp32 masters"},
    {"bf16-remainder", "the same with remainders"},
    {"foreign", "zero_step, malloc'd memory, local comm"},
    {"collective", "zero_step, user comm (copy in, copy out)"},
    {"reduce", "zero_reduce_grads, arenas, local comm"},
    {"clip", "zero_clip_grad_norm, which reduces, likewise"},
    {"save", "zero_state_save, likewise"},
}};

int32_t dtype_of(Case which) {
  const bool halves = which == Case::direct_master || which == Case::direct_remainder;
  return halves ? ZERO_BFLOAT16 : ZERO_FLOAT32;
}

void fill_as(int32_t dtype, char* to, size_t count, float scale, uint64_t seed) {
  if (dtype == ZERO_FLOAT32) return random_fill(reinterpret_cast<float*>(to), count, scale, seed);
  std::vector<float> values(count);
  random_fill(values.data(), count, scale, seed);
  for (size_t i = 0; i < count; i++)  // the upper halves
    std::memcpy(to + 2 * i, reinterpret_cast<const char*>(&values[i]) + 2, 2);
}

zero_options make_options(const Rank& rank, Case which) {
  zero_options options;
  ZERO_INIT(options);
  options.threads = rank.threads;
  if (which == Case::direct_clip) options.max_grad_norm = 1;
  if (which == Case::lamb) options.optimizer = ZERO_OPTIMIZER_LAMB;
  if (which == Case::direct_remainder) options.master = ZERO_MASTER_REMAINDER;
  return options;
}

}  // namespace

void check(zero_status status, const char* call) {
  if (status == ZERO_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", call, zero_status_name(status), zero_last_error());
  _exit(1);
}

const CaseInfo& case_info(Case which) { return kCases[static_cast<size_t>(which)]; }

double modelled_bytes(Case which, int world) {
  const double n = world;
  switch (which) {
    case Case::direct:
    case Case::traced:
      return 4 * n + 24;
    case Case::direct_clip:
      return 4 * n + 32;
    case Case::lamb:
      return 4 * n + 36;
    // Gradients 2n; moments 16; the parameter written 2 and its master weight 8, or both halves 8.
    case Case::direct_master:
      return 2 * n + 26;
    case Case::direct_remainder:
      return 2 * n + 24;
    // Into staging 8n, the step 4n + 24, into the outbox 4, out of it 8(n - 1).
    case Case::foreign:
      return n == 1 ? 28 : 20 * n + 20;
    // All-to-all 8(n - 1) in, 8n out; sum 4n + 4; update 28; all-gather 8 in, 8(n - 1) out.
    case Case::collective:
      return 28 * n + 24;
    case Case::reduce:
    case Case::clip:
      return 4 * n + 4;
    case Case::save:
      return 12;
  }
  return 0;
}

std::vector<zero_param> make_params(const Workload& work, int32_t dtype) {
  std::vector<zero_param> params(work.tensors.size());
  for (size_t i = 0; i < params.size(); i++) {
    ZERO_INIT(params[i]);
    const Tensor& tensor = work.tensors[i];
    params[i].name = tensor.name.c_str();
    params[i].shape = tensor.shape.data();
    params[i].ndim = static_cast<int32_t>(tensor.shape.size());
    params[i].dtype = dtype;
    params[i].flags = ZERO_PARAM_PADDED;
  }
  return params;
}

Subject::Subject(const Rank& rank, const BounceMemory& bounce, const Workload& work, Case which,
                 std::string directory, int serial)
    : rank_(rank), work_(work), case_(which), directory_(std::move(directory)) {
  create_comm(bounce, serial);
  if (which == Case::traced) check(zero_trace_start(comm_, directory_.c_str()), "zero_trace_start");
  allocate();
  register_all();
  fill();
  check(zero_broadcast_params(optim_, 0, nullptr), "zero_broadcast_params");
  if (which == Case::save) check(zero_step(optim_, nullptr), "zero_step");
}

Subject::~Subject() {
  zero_free(optim_);
  if (case_ == Case::foreign) {
    std::free(data_);
    std::free(grads_);
  } else {
    zero_arena_free(data_);
    zero_arena_free(grads_);
  }
  zero_comm_free(comm_);
}

void Subject::create_comm(const BounceMemory& bounce, int serial) {
  if (case_ == Case::collective) {
    return check(create_bench_comm(&comm_, rank_, bounce), "zero_comm_create_user");
  }
  const std::string name = "bench-" + std::to_string(getppid()) + "-" + std::to_string(serial);
  check(zero_comm_create_local(&comm_, name.c_str(), rank_.rank, rank_.world, nullptr),
        "zero_comm_create_local");
  shares_arenas_ = true;
}

void Subject::allocate() {
  const zero_options options = make_options(rank_, case_);
  const std::vector<zero_param> params = make_params(work_, dtype_of(case_));
  zero_plan plan;
  ZERO_INIT(plan);
  offsets_.resize(params.size());
  plan.offsets = offsets_.data();
  check(zero_partition_plan(params.data(), params.size(), rank_.world, &options, &plan),
        "zero_partition_plan");
  arena_bytes_ = plan.arena_bytes;
  const auto bytes = static_cast<size_t>(plan.arena_bytes);
  void *data = nullptr, *grads = nullptr;
  if (case_ == Case::foreign) {
    data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    grads = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  } else {
    check(zero_arena_alloc(comm_, bytes, ZERO_MEMORY_SHARED, &data), "zero_arena_alloc");
    check(zero_arena_alloc(comm_, bytes, ZERO_MEMORY_PER_RANK, &grads), "zero_arena_alloc");
  }
  data_ = static_cast<char*>(data);
  grads_ = static_cast<char*>(grads);
}

void Subject::register_all() {
  const zero_options options = make_options(rank_, case_);
  check(zero_create(&optim_, comm_, &options), "zero_create");
  std::vector<zero_param> params = make_params(work_, dtype_of(case_));
  for (size_t i = 0; i < params.size(); i++) {
    params[i].data = data_ + offsets_[i];
    params[i].grad = grads_ + offsets_[i];
  }
  check(zero_register_params(optim_, nullptr, params.data(), params.size(), nullptr),
        "zero_register_params");
}

void Subject::fill() {
  const bool writes_params = !shares_arenas_ || case_ == Case::foreign || rank_.rank == 0;
  for (size_t i = 0; i < offsets_.size(); i++) {
    const auto count = static_cast<size_t>(work_.tensors[i].count);
    fill_as(dtype_of(case_), grads_ + offsets_[i], count, 0.01f,
            i * kMaxRanks + static_cast<size_t>(rank_.rank));
    if (writes_params) fill_as(dtype_of(case_), data_ + offsets_[i], count, 0.1f, i);
  }
}

void Subject::run() {
  runs_++;
  switch (case_) {
    case Case::reduce:
      return check(zero_reduce_grads(optim_, nullptr, 0, ZERO_REDUCE_MEAN, nullptr),
                   "zero_reduce_grads");
    case Case::clip:
      return check(zero_clip_grad_norm(optim_, nullptr, 0, 1, 2, nullptr, nullptr),
                   "zero_clip_grad_norm");
    case Case::save: {
      zero_save_options options;
      ZERO_INIT(options);
      options.flags = ZERO_SAVE_REPLACE;
      return check(zero_state_save(optim_, directory_.c_str(), &options), "zero_state_save");
    }
    default:
      return check(zero_step(optim_, nullptr), "zero_step");
  }
}

void Subject::settle() {
  if (case_ == Case::reduce || case_ == Case::clip)
    check(zero_drop_grads(optim_), "zero_drop_grads");
}

double Subject::counted_bytes() const {
  zero_statistics statistics;
  ZERO_INIT(statistics);
  check(zero_stats(optim_, &statistics), "zero_stats");
  if (runs_ == 0) return 0;
  return static_cast<double>(statistics.moved_bytes + statistics.copied_bytes) /
         static_cast<double>(runs_);
}

}  // namespace bench

// SPDX-License-Identifier: Apache-2.0
#include "support/model.h"

#include <array>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "rules/list.h"
#include "state/collective.h"
#include "state/layout.h"
#include "state/save_behind.h"
#include "step/step.h"

namespace zero::test {
namespace {

OptimizerOptions options_of(const ModelSpec& spec) {
  OptimizerOptions options;
  options.rule = find_rule(std::string_view(spec.rule));
  options.partition = spec.partition;
  options.bucket_bytes = spec.bucket_bytes;
  options.master = spec.master;
  return options;
}

std::vector<double> settings_of(const ModelSpec& spec) {
  const Rule& rule = *find_rule(std::string_view(spec.rule));
  std::vector<double> values;
  for (const Setting& setting : rule.settings) values.push_back(setting.initial);
  for (const auto& [name, value] : spec.settings) {
    values[static_cast<size_t>(find_setting(rule, name))] = value;
  }
  return values;
}

/// Stores element `i` in memory with a floating dtype.
void put(DType dtype, void* memory, size_t i, float value) {
  if (dtype == DType::f64) {
    static_cast<double*>(memory)[i] = value;
  } else if (dtype == DType::f32) {
    static_cast<float*>(memory)[i] = value;
  } else {
    kernel_table(Isa::scalar).half(dtype).narrow(static_cast<uint16_t*>(memory) + i, &value, 1);
  }
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

std::unique_ptr<ThreadPool> one_thread() {
  auto pool = ThreadPool::create(1);
  if (!pool.ok()) std::abort();
  return std::move(*pool);
}

template <class T>
void append_bits(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_bytes(std::string& out, const void* values, size_t bytes) {
  out.append(static_cast<const char*>(values), bytes);
}

struct OwnedRun {
  int64_t param, first, count;
  int32_t slot, element_bytes;
};

/// Returns this rank's part of the live slots: runs with their values.
std::string owned_state(const Optimizer& optim) {
  std::string out;
  for (const Segment& segment : optim.segments()) {
    const Section& section = optim.plan.section_of(segment.param);
    for (int slot = 0; slot < kSlotCount; slot++) {
      if (!(stored_slots(optim, segment.param) >> slot & 1)) continue;
      const auto element = static_cast<int32_t>(optim.slot_size(slot, section));
      append_bits(out, OwnedRun{segment.param, segment.first, segment.count, slot, element});
      append_bytes(out, optim.slot(slot, segment.section, segment.share),
                   static_cast<size_t>(segment.count * element));
    }
  }
  return out;
}

using Slots = std::vector<std::array<std::string, kSlotCount>>;  // by parameter; empty: not live

void place_runs(const Optimizer& optim, std::string_view record, Slots& slots) {
  while (!record.empty()) {
    OwnedRun run;
    std::memcpy(&run, record.data(), sizeof run);
    record.remove_prefix(sizeof run);
    const auto param = static_cast<size_t>(run.param);
    const auto element = static_cast<size_t>(run.element_bytes);
    const size_t bytes = static_cast<size_t>(run.count) * element;
    std::string& slot = slots[param][static_cast<size_t>(run.slot)];
    slot.resize(static_cast<size_t>(optim.params[param].count) * element);
    std::memcpy(slot.data() + static_cast<size_t>(run.first) * element, record.data(), bytes);
    record.remove_prefix(bytes);
  }
}

}  // namespace

ModelSpec odd_model() {
  ModelSpec spec;
  spec.groups = {{{"wte.weight", {67, 31}},
                  {"none", {0}},
                  {"one", {1}, DType::f16, DType::f16},
                  {"h.0.\u00e9 \"quoted\"", {3, 5, 7}, DType::bf16, DType::bf16}},
                 {{"scalar", {}},
                  {"none.2", {4, 0, 2}},
                  {"bias", {1025}, DType::f64, DType::f64},
                  {"cut", {9001}, DType::bf16, DType::f32}}};
  spec.buffers = {{"mean", {67}},
                  {"tracked", {}, DType::i64},
                  {"nothing", {0, 3}, DType::f64},
                  {"mask", {5, 1001}, DType::bf16},
                  {"a.first", {3}, DType::i32},
                  {"var", {2, 2}, DType::f64},
                  {"half", {1}, DType::f16}};
  return spec;
}

Model::Model(std::shared_ptr<Comm> comm, const ModelSpec& spec)
    : optim_(std::move(comm), options_of(spec), settings_of(spec), one_thread()),
      missing_from_(spec.missing_from),
      saves_behind_(spec.saves_behind),
      extras_(spec.extras) {
  for (const auto& group : spec.groups) {
    std::vector<Param> added;
    for (const ModelParam& param : group) {
      const auto count = static_cast<size_t>(elements_of(param.shape));
      const auto number = static_cast<int32_t>(data_.size());
      data_.emplace_back(count);
      grad_.emplace_back(count);
      for (size_t i = 0; i < count; i++) {
        const auto value = static_cast<float>((i * 37 + data_.size() * 11) % 101) / 64;
        put(param.dtype, data_.back().data(), i, value);
      }
      added.push_back({.name = param.name,
                       .shape = param.shape,
                       .owner = number % optim_.world(),
                       .dtype = param.dtype,
                       .grad_dtype = param.grad_dtype,
                       .data = reinterpret_cast<std::byte*>(data_.back().data()),
                       .grad = reinterpret_cast<std::byte*>(grad_.back().data())});
    }
    auto registered =
        optim_.register_params({.rule = optim_.options.rule, .settings = settings_of(spec)}, added);
    if (!registered.ok()) std::abort();
  }
  std::vector<Buffer> added;
  for (const ModelBuffer& buffer : spec.buffers) {
    buffers_.emplace_back(static_cast<size_t>(elements_of(buffer.shape)));
    added.push_back({.name = buffer.name,
                     .shape = buffer.shape,
                     .dtype = buffer.dtype,
                     .data = reinterpret_cast<std::byte*>(buffers_.back().data())});
  }
  if (!optim_.register_buffers(added).ok()) std::abort();
  fill_buffers();
}

void Model::fill_buffers() {
  if (extras_)
    optim_.extras["position"] = text("rank ", optim_.comm->rank(), " step ", optim_.state.steps);
  for (size_t b = 0; b < optim_.buffers.size(); b++) {
    const Buffer& buffer = optim_.buffers[b];
    for (size_t i = 0; i < buffer.bytes(); i++) {
      const auto seed = static_cast<size_t>(optim_.state.steps) * 101 + b * 37 + i * 7;
      buffer.data[i] = static_cast<std::byte>(seed % 251);
    }
  }
}

Status Model::seal() {
  Call call = ZERO_TRY(optim_.comm->begin(Operation::seal, optim_.object));
  return seal_params(call, optim_);
}

Status Model::step() {
  std::vector<void*> pointers;
  for (size_t p = 0; p < grad_.size(); p++) {
    for (size_t i = 0; i < grad_[p].size(); i++) {
      const auto seed = static_cast<uint64_t>(optim_.state.steps) * 7919 + p * 104729 + i * 31;
      put(optim_.params[p].grad_dtype, grad_[p].data(), i,
          static_cast<float>(static_cast<int>(seed % 257) - 128) / 256);
    }
    pointers.push_back(p < missing_from_ ? grad_[p].data() : nullptr);
  }
  Call call = ZERO_TRY(optim_.comm->begin(Operation::step, optim_.object));
  const Grads grads{
      .pointers = pointers.data(), .count = pointers.size(), .flags = ZERO_REDUCE_MEAN};
  Status status = std::move(zero::step(call, optim_, grads)).status();
  if (status.ok()) fill_buffers();
  return status;
}

Status Model::begin_save(const std::string& directory, int32_t flags) {
  Call call = ZERO_TRY(optim_.comm->begin(Operation::save_begin, optim_.object));
  return zero::begin_save(call, optim_, directory, flags);
}

Status Model::await_save() {
  Call call = ZERO_TRY(optim_.comm->begin(Operation::save_wait, optim_.object));
  return zero::await_save(call, optim_);
}

Status Model::save(const std::string& directory, int32_t flags) {
  if (saves_behind_) {
    ZERO_TRY(begin_save(directory, flags));
    return await_save();
  }
  Call call = ZERO_TRY(optim_.comm->begin(Operation::save, optim_.object));
  return save_state(call, optim_, directory, flags);
}

Status Model::load(const std::string& directory, int32_t flags) {
  Call call = ZERO_TRY(optim_.comm->begin(Operation::load, optim_.object));
  return load_state(call, optim_, directory, flags);
}

std::string Model::state() {
  auto call = optim_.comm->begin(Operation::barrier);
  if (!call.ok()) return "failed: " + call.failure().text();
  const auto records = call->gather("state", owned_state(optim_));
  if (!records.ok()) return "failed: " + records.failure().text();

  std::string extras;
  for (const auto& [name, bytes] : optim_.extras) extras += text(name, " ", bytes, "\n");
  const auto set = call->gather("extras", extras);
  if (!set.ok()) return "failed: " + set.failure().text();

  Slots slots(optim_.params.size());
  for (const std::string& record : *records) place_runs(optim_, record, slots);

  std::string out = text(optim_.options.rule->name, " step ", optim_.state.steps, "\n") + (*set)[0];
  for (const Group& group : optim_.groups) {
    for (const double setting : group.settings) append_bits(out, setting);
  }
  for (size_t i = 0; i < optim_.params.size(); i++) {
    const Param& param = optim_.params[i];
    const ParamProgress& progress = optim_.progress[i];
    out += text(param.name, " step ", progress.step, " live ", progress.live_slots, "\n");
    append_bits(out, progress.product);
    append_bytes(out, param.data, param.bytes());
    for (const std::string& slot : slots[i]) out += slot;
  }
  for (const Buffer& buffer : optim_.buffers) append_bytes(out, buffer.data, buffer.bytes());
  return out;
}

std::unique_ptr<Model> solo_model(const ModelSpec& spec) {
  auto comm = create_solo({});
  if (!comm.ok()) std::abort();
  auto model = std::make_unique<Model>(std::move(*comm), spec);
  if (!model->seal().ok()) std::abort();
  return model;
}

std::unique_ptr<Model> local_model(const ModelSpec& spec, std::string_view name, int rank,
                                   int world, const CommOptions& options) {
  auto comm = create_local(name, rank, world, options);
  if (!comm.ok()) return nullptr;
  auto model = std::make_unique<Model>(std::move(*comm), spec);
  if (!model->seal().ok()) return nullptr;
  return model;
}

std::string told(const Status& status) {
  if (status.ok()) return "";
  const char* const name = code_name(status.code());
  return text(name ? name : "?", ": ", status.text());
}

}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
#include "state/layout.h"

#include <algorithm>

#include "base/refusals.h"
#include "optim/options.h"

namespace zero {
namespace {

/// Returns `steps`, limited to kMostSteps. Further steps are not counted.
int64_t in_range(int64_t steps) { return std::min(steps, kMostSteps); }

/// Returns the segments that `rank` owns and writes, by parameter and element. Only ranks of the
/// first instance write. A parameter without elements is an empty segment of its owner.
std::vector<Segment> owned_segments(const Optimizer& optim, int32_t rank) {
  if (rank >= optim.places()) return {};
  std::vector<Segment> segments = optim.plan.segments(rank);
  for (int64_t param = 0; param < optim.plan.params(); param++) {
    if (optim.params[static_cast<size_t>(param)].count == 0 && optim.plan.owner(param) == rank)
      segments.push_back({.param = param, .first = 0, .count = 0, .share = 0, .section = 0});
  }
  std::ranges::sort(segments, {}, &Segment::start);
  return segments;
}

void sort_for_file(std::vector<StoredTensor>& tensors) {
  std::ranges::sort(tensors, {}, [](const StoredTensor& tensor) {
    return place_in_file(size_of(tensor.dtype), tensor.key);
  });
}

/// Describes a parameter or buffer that one file holds as a whole.
template <class Tensor>
ManifestBuffer describe_whole(const Tensor& tensor, int32_t file) {
  return {tensor.name, std::string(dtype_code(tensor.dtype)), tensor.shape, tensor.count, file};
}

/// Returns the manifest's parameters, without slices.
std::vector<ManifestParam> describe_params(const Optimizer& optim,
                                           const std::vector<int32_t>& writers) {
  std::vector<ManifestParam> params;
  for (size_t i = 0; i < optim.params.size(); i++) {
    ManifestParam& param = params.emplace_back();
    static_cast<ManifestBuffer&>(param) = describe_whole(optim.params[i], writers[i]);
    param.group = optim.params[i].group;
    param.step = in_range(optim.progress[i].step);
    param.mu_product = optim.progress[i].product;
    const uint32_t stored = stored_slots(optim, static_cast<int64_t>(i));
    const Rule& rule = optim.rule_of(optim.params[i]);
    for (int slot = 0; slot < kSlotCount; slot++)
      if (stored >> slot & 1) param.slots.push_back({slot_name(rule, slot), {}});
  }
  return params;
}

}  // namespace

uint32_t stored_slots(const Optimizer& optim, int64_t param) {
  const auto index = static_cast<size_t>(param);
  const bool master = is_kept(master_of(optim.params[index].dtype, optim.options));
  return optim.progress[index].live_slots | (master ? 1u << kMasterSlot : 0);
}

DType stored_dtype(const Optimizer& optim, int64_t param, int slot) {
  const DType dtype = optim.param(param).dtype;
  return slot == kMasterSlot ? sum_dtype(dtype)
                             : slot_dtype(dtype, optim.slot_format(optim.plan.section_of(param)));
}

Result<std::vector<int32_t>> param_writers(std::span<const int64_t> counts, int32_t world) {
  std::vector<PlanParam> params;
  for (const int64_t count : counts) params.push_back({.count = count});
  const auto end = static_cast<int64_t>(params.size());
  Plan plan({.world = world, .rule = ZERO_PARTITION_GREEDY});
  ZERO_TRY(plan.add(params, {&end, 1}));
  std::vector<int32_t> writers;
  for (int64_t param = 0; param < end; param++) writers.push_back(plan.owner(param));
  return writers;
}

Result<std::vector<int32_t>> param_writers(const Optimizer& optim) {
  std::vector<int64_t> counts;
  for (const Param& param : optim.params) counts.push_back(param.count);
  return param_writers(counts, optim.places());
}

std::string creator() {
  return text("libzero ", ZERO_VERSION_MAJOR, ".", ZERO_VERSION_MINOR, ".", ZERO_VERSION_PATCH);
}

std::vector<FileRecord> shard_files(int32_t world) {
  std::vector<FileRecord> files;
  for (std::string& name : file_names(world)) {
    if (name == kManifestName) break;  // extras follow it; not every rank has any
    files.push_back({std::move(name), 0, {}});
  }
  return files;
}

std::vector<std::pair<std::string, std::string>> shard_metadata(const Digest& save_id, int32_t rank,
                                                                int32_t world) {
  return {{"format", "pt"},
          {"zero.format", text(kFormat)},
          {"zero.rank", text(rank + 1, "/", world)},
          {"zero.save_id", hex(save_id)}};
}

std::vector<StoredTensor> model_tensors(const Optimizer& optim, const std::vector<int32_t>& writers,
                                        int32_t rank) {
  std::vector<StoredTensor> tensors;
  const auto add = [&](const auto& tensor, size_t number, int slot) {
    const Segment all{static_cast<int64_t>(number), 0, tensor.count, 0};
    tensors.push_back({tensor.name, tensor.dtype, slot, all, tensor.shape});
  };
  for (size_t i = 0; i < optim.params.size(); i++) {
    if (writers[i] == rank) add(optim.params[i], i, kParameterItself);
  }
  for (size_t i = 0; i < optim.buffers.size() && rank == 0; i++)
    add(optim.buffers[i], i, kBufferItself);
  sort_for_file(tensors);
  return tensors;
}

std::vector<StoredTensor> optim_tensors(const Optimizer& optim, int32_t rank) {
  const std::vector<Segment> pieces = owned_segments(optim, rank);
  std::vector<StoredTensor> tensors;
  for (size_t i = 0; i < pieces.size(); i++) {
    const Segment& piece = pieces[i];
    const Param& param = optim.params[static_cast<size_t>(piece.param)];
    const uint32_t stored = stored_slots(optim, piece.param);
    const bool alone = (i == 0 || pieces[i - 1].param != piece.param) &&
                       (i + 1 == pieces.size() || pieces[i + 1].param != piece.param);
    for (int slot = 0; slot < kSlotCount; slot++) {
      if (!(stored >> slot & 1)) continue;
      std::string key = text(param.name, ".", slot_name(optim.rule_of(param), slot));
      if (!alone) key += text("@", piece.first);
      tensors.push_back({std::move(key), stored_dtype(optim, piece.param, slot), slot, piece,
                         piece.count == param.count ? param.shape : std::vector{piece.count}});
    }
  }
  sort_for_file(tensors);
  return tensors;
}

SafetensorsHeader file_header(const std::vector<StoredTensor>& tensors, const Digest& save_id,
                              int32_t rank, int32_t world) {
  SafetensorsHeader header;
  header.metadata = shard_metadata(save_id, rank, world);
  for (const StoredTensor& tensor : tensors)
    header.tensors.push_back({tensor.key, std::string(dtype_code(tensor.dtype)), tensor.shape});
  return header;
}

Manifest describe_checkpoint(const Optimizer& optim, const Digest& save_id,
                             const std::vector<int32_t>& writers) {
  const OptimizerOptions& options = optim.options;
  const int32_t world = optim.world();
  Manifest manifest;
  manifest.save_id = save_id;
  manifest.step = in_range(optim.state.steps);
  manifest.skipped = in_range(optim.state.skipped);
  manifest.world = world;
  manifest.created_by = creator();
  manifest.rule = options.rule->name;
  if (options.custom_rule != nullptr)
    manifest.slots.assign(options.rule->slots.begin(), options.rule->slots.end());
  manifest.options = {{"max_grad_norm", options.max_grad_norm},
                      {"grad_norm_type", options.grad_norm_type},
                      {"nonfinite", options.nonfinite},
                      {kLossScale, optim.state.loss_scale},
                      {kGoodSteps, static_cast<double>(in_range(optim.state.good_steps))}};
  for (const Group& group : optim.groups) {
    ManifestGroup& saved = manifest.groups.emplace_back();
    if (group.rule_line() != optim.initial.rule_line()) {
      saved.rule = group.rule->name;
      if (is_custom(*group.rule))
        saved.slots.assign(group.rule->slots.begin(), group.rule->slots.end());
    }
    saved.slot_format = group.slot_format;
    for (size_t s = 0; s < group.settings.size(); s++)
      saved.settings.emplace_back(group.rule->settings[s].name, group.settings[s]);
  }
  manifest.format = manifest.needed_format();
  manifest.files = shard_files(world);
  manifest.params = describe_params(optim, writers);
  for (const Buffer& buffer : optim.buffers) manifest.buffers.push_back(describe_whole(buffer, 0));
  for (int32_t rank = 0; rank < world; rank++) {
    for (StoredTensor& tensor : optim_tensors(optim, rank)) {
      ManifestParam& param = manifest.params[static_cast<size_t>(tensor.part.param)];
      const uint32_t before = stored_slots(optim, tensor.part.param) & ((1u << tensor.slot) - 1);
      ManifestSlot& slot = param.slots[static_cast<size_t>(__builtin_popcount(before))];
      slot.slices.push_back(
          {world + rank, std::move(tensor.key), tensor.part.first, tensor.part.count});
    }
  }
  for (ManifestParam& param : manifest.params) {
    for (ManifestSlot& slot : param.slots)
      std::ranges::sort(slot.slices, {}, &ManifestSlice::start);
  }
  return manifest;
}

Status check_saveable(const Optimizer& optim) {
  bool taken = optim.find(kMetadataKey).ok();
  for (const Buffer& buffer : optim.buffers) taken = taken || buffer.name == kMetadataKey;
  if (!taken) return {};
  return bad_argument("'", kMetadataKey, "' cannot be saved: safetensors reserves that name");
}

}  // namespace zero

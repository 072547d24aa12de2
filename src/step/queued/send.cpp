// SPDX-License-Identifier: Apache-2.0
// Sends settings, progress and tables from the host to the device.
#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "step/queued/queue.h"

namespace zero::queued {
namespace {

/// Adds entries that fetch the settings that the caller keeps in device memory to `to`. `own` is
/// the parameter that uses them and may have its own settings, or null for a group.
void add_given(const Group& group, const Param* own, double* to, std::vector<launch::Given>& all) {
  for (const auto& [setting, given] : group.given) {
    const Setting& row = group.rule->settings[setting];
    const std::string_view name = row.name;
    if (own != nullptr && own->weight_decay && name == "weight_decay") continue;
    const double factor = own != nullptr && name == "lr" ? own->lr_scale : 1;
    all.push_back({given.data, to + setting, factor, given.dtype, row.range});
  }
}

StepState state_of(const Optimizer& optim) {
  StepState state = optim.state;
  state.layout = layout_of(optim);
  return state;
}

/// Sends the settings. Returns false if they have not changed.
Result<bool> send_settings(const Optimizer& optim, Queue& queue, Frame& frame,
                           StreamHandle stream) {
  const Blob now = settings_of_now(optim, frame);
  if (std::ranges::equal(now.bytes(), frame.settings_sent)) return false;
  ZERO_TRY(queue.settings_upload.put(stream, frame.settings.data(), now.bytes()));
  frame.settings_sent.assign(now.bytes().begin(), now.bytes().end());
  return true;
}

/// Sends the host's progress, which is valid, for the parameters that the device knows.
Status send_progress(const Optimizer& optim, StepMemory& memory, StreamHandle stream) {
  Queue& queue = *memory.queue;
  queue.host_is_newer = true;
  const StepState state = state_of(optim);
  const size_t rows =
      std::min(optim.progress.size(), queue.progress.bytes() / sizeof(ParamProgress));
  const auto bytes = std::as_bytes(std::span(optim.progress).first(rows));
  ZERO_TRY(queue.progress_upload.put(stream, queue.progress.data(), bytes));
  ZERO_TRY(
      queue.progress_upload.put(stream, queue.state.data(), std::as_bytes(std::span(&state, 1))));
  queue.known = state;
  queue.layout_sent = state.layout;
  queue.host_is_newer = false;
  return Status();
}

/// Returns true if the host has changed the progress or state since it last read them.
bool has_changed(const Optimizer& optim, const StepMemory& memory) {
  const Queue& queue = *memory.queue;
  const StepState state = state_of(optim);
  if (std::memcmp(&state, &queue.known, sizeof state) != 0) return true;
  const size_t bytes = std::min({optim.progress.size() * sizeof(ParamProgress),
                                 queue.progress.bytes(), queue.progress_read.bytes()});
  return std::memcmp(optim.progress.data(), queue.progress_read.data(), bytes) != 0;
}

}  // namespace

uint64_t layout_of(const Optimizer& optim) {
  std::vector<uint64_t> all = {optim.layout, optim.not_loaded ? 1u : 0u};
  for (const Group& group : optim.groups) all.push_back(group.slots_used());
  return hash64(std::as_bytes(std::span(all))) | 1;  // 0 stands for none
}

Blob settings_of_now(const Optimizer& optim, Frame& frame) {
  std::vector<double> of_classes, of_groups;
  for (const int64_t param : frame.tables.params_of_classes) {
    const auto settings = optim.settings_of(static_cast<size_t>(param));
    of_classes.insert(of_classes.end(), settings.begin(), settings.end());
  }
  std::vector<uint32_t> used;
  for (const Group& group : optim.groups) {
    std::array<double, kMaxSettings> settings{};
    std::copy(group.settings.begin(), group.settings.end(), settings.begin());
    of_groups.insert(of_groups.end(), settings.begin(), settings.end());
    used.push_back(group.slots_used());
  }
  Blob blob;
  const size_t of_classes_at = blob.add<double>(of_classes);
  frame.group_settings_at = blob.add<double>(of_groups);
  frame.groups_used_at = blob.add<uint32_t>(used);

  std::vector<launch::Given> given;
  const auto place = [&](size_t block, size_t row) {
    return reinterpret_cast<double*>(frame.settings.data() + block) + row * kMaxSettings;
  };
  for (size_t cls = 0; cls < frame.tables.params_of_classes.size(); cls++) {
    const Param& param = optim.param(frame.tables.params_of_classes[cls]);
    add_given(optim.groups[static_cast<size_t>(param.group)], &param, place(of_classes_at, cls),
              given);
  }
  for (size_t group = 0; group < optim.groups.size(); group++)
    add_given(optim.groups[group], nullptr, place(frame.group_settings_at, group), given);
  frame.given_at = blob.add<launch::Given>(given);
  frame.given_count = static_cast<uint32_t>(given.size());
  return blob;
}

Status send(const Optimizer& optim, StepMemory& memory, StreamHandle stream) {
  Queue& queue = *memory.queue;
  if (!queue.tables_uploaded) {
    ZERO_TRY(queue.tables_upload.put(stream, queue.table_memory.data(), queue.tables.bytes));
    queue.tables_uploaded = true;
  }
  ZERO_TRY(send_settings(optim, queue, queue, stream));
  return queue.host_is_newer ? send_progress(optim, memory, stream) : Status();
}

Status send_changes(Optimizer& optim, bool all) {
  auto* const memory = static_cast<StepMemory*>(optim.step_memory.get());
  if (memory == nullptr || memory->queue == nullptr || !memory->queue->replays()) return Status();
  Queue& queue = *memory->queue;
  const StreamHandle stream = queue.looks.handle();
  const uint64_t layout = layout_of(optim);
  bool sent = false;
  for (Frame& frame : queue.captured) {
    if (frame.layout != layout) continue;
    const bool differed = ZERO_TRY(send_settings(optim, queue, frame, stream));
    sent = sent || differed;
  }
  if (all && (queue.host_is_newer || has_changed(optim, *memory))) {
    ZERO_TRY(send_progress(optim, *memory, stream));
    sent = true;
  } else if (queue.layout_sent != layout) {
    ZERO_TRY(queue.progress_upload.put(stream, &queue.device_state()->layout,
                                       std::as_bytes(std::span(&layout, 1))));
    queue.layout_sent = queue.known.layout = layout;
    sent = true;
  }
  return sent ? queue.await_looks() : Status();
}

}  // namespace zero::queued

// SPDX-License-Identifier: Apache-2.0
#include "state/read.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "state/json.h"
#include "state/verify.h"

namespace zero {
namespace {

/// Elements of a file's tensor, and where they go.
struct Job {
  int32_t file;
  std::string_view key;
  int64_t tensor_count;  // elements of the whole tensor
  int64_t element;       // the first one wanted
  int64_t count;
  float* to;
  uint64_t offset = 0;  // byte of the file, once its header is read
};

/// What of one slot lies in a segment, slice by slice.
void add_slot_jobs(const ManifestSlot& slot, const Segment& segment, float* to,
                   std::vector<Job>& jobs) {
  const int64_t end = segment.first + segment.count;
  auto slice =
      std::upper_bound(slot.slices.begin(), slot.slices.end(), segment.first,
                       [](int64_t first, const ManifestSlice& s) { return first < s.start; });
  for (--slice; slice != slot.slices.end() && slice->start < end;
       ++slice) {  // the first one starts at 0
    const int64_t from = std::max(slice->start, segment.first);
    const int64_t until = std::min(slice->start + slice->count, end);
    jobs.push_back({slice->file, slice->key, slice->count, from - slice->start, until - from,
                    to + (from - segment.first)});
  }
}

Result<std::vector<Job>> plan_jobs(const Manifest& manifest, const std::vector<size_t>& places,
                                   Optimizer& optim) {
  const Rule& rule = *optim.options.rule;
  std::vector<Job> jobs;
  for (const Segment& segment : optim.segments()) {
    const auto index = static_cast<size_t>(segment.param);
    const Param& param = optim.params[index];
    const ManifestParam& saved = manifest.params[places[index]];
    jobs.push_back({saved.file, saved.name, saved.count, segment.first, segment.count,
                    param.data + segment.first});
    const uint32_t live = saved_slots(saved, rule);
    for (size_t s = 0; s < rule.slots.size(); s++) {
      float* const to = optim.slot(static_cast<int>(s), segment.share);
      if (!(live >> s & 1)) {
        if (to) std::fill_n(to, segment.count, 0.0f);
        continue;
      }
      if (!to) return Status(ZERO_ERR_INTERNAL, text("no memory for state '", rule.slots[s], "'"));
      const auto slot =
          std::find_if(saved.slots.begin(), saved.slots.end(),
                       [&](const ManifestSlot& one) { return one.name == rule.slots[s]; });
      add_slot_jobs(*slot, segment, to, jobs);
    }
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.file < b.file; });
  return jobs;
}

/// Each job's place in the file, and the jobs in the order of the file.
Status locate(const BlockReader& reader, SafetensorsHeader header, std::span<Job> jobs) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  for (Job& job : jobs) {
    const auto tensor =
        std::lower_bound(header.tensors.begin(), header.tensors.end(), job.key,
                         [](const TensorEntry& a, std::string_view key) { return a.name < key; });
    if (tensor == header.tensors.end() || tensor->name != job.key ||
        tensor->end - tensor->begin != static_cast<uint64_t>(job.tensor_count) * sizeof(float)) {
      return {ZERO_ERR_CKPT_INVALID,
              text("'", reader.path(), "': has changed since it was verified: tensor ",
                   shown(job.key), " is not what the manifest says")};
    }
    job.offset =
        header.data_start + tensor->begin + static_cast<uint64_t>(job.element) * sizeof(float);
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const Job& a, const Job& b) { return a.offset < b.offset; });
  return {};
}

}  // namespace

uint32_t saved_slots(const ManifestParam& param, const Rule& rule) {
  uint32_t live = 0;
  for (const ManifestSlot& slot : param.slots) {
    for (size_t s = 0; s < rule.slots.size(); s++) {
      if (slot.name == rule.slots[s]) live |= 1u << s;
    }
  }
  return live;
}

Status read_share(const Fd& directory, const std::string& path, const Manifest& manifest,
                  const std::vector<size_t>& places, Optimizer& optim, BlockBuffer& buffer,
                  const std::function<void()>& progress) {
  std::vector<Job> jobs = ZERO_TRY(plan_jobs(manifest, places, optim));
  for (size_t begin = 0; begin < jobs.size();) {
    size_t end = begin;
    while (end < jobs.size() && jobs[end].file == jobs[begin].file) end++;
    const std::span of_file(jobs.data() + begin, end - begin);
    const FileRecord& file = manifest.files[static_cast<size_t>(jobs[begin].file)];
    BlockReader reader = ZERO_TRY(BlockReader::open(directory, path, file, buffer, progress));
    SafetensorsHeader header = ZERO_TRY(read_header(reader, file.bytes));
    ZERO_TRY(locate(reader, std::move(header), of_file));
    for (const Job& job : of_file) {
      ZERO_TRY(reader.read(
          job.offset, std::as_writable_bytes(std::span(job.to, static_cast<size_t>(job.count)))));
    }
    begin = end;
  }
  return {};
}

}  // namespace zero

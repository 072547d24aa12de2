// SPDX-License-Identifier: Apache-2.0
#include "state/read.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "state/access.h"
#include "state/json.h"

namespace zero {
namespace {

/// Elements of a file's tensor, and where they go.
struct Job {
  int32_t file;
  std::string_view key;
  int64_t tensor_count;  // elements of the whole tensor
  int64_t element;       // the first one wanted
  Segment part;          // those wanted
  size_t element_bytes;
  std::byte* to;
  bool splits = false;  // what is read are masters, kept as values and remainders
  uint64_t offset = 0;  // byte of the file, once its header is read
};

/// What of one slot lies in a segment, slice by slice. `whole` is the job for all of the segment.
void add_slot_jobs(const ManifestSlot& slot, const Segment& segment, const Job& whole,
                   std::vector<Job>& jobs) {
  const int64_t end = segment.first + segment.count;
  auto slice =
      std::upper_bound(slot.slices.begin(), slot.slices.end(), segment.first,
                       [](int64_t first, const ManifestSlice& s) { return first < s.start; });
  for (--slice; slice != slot.slices.end() && slice->start < end;
       ++slice) {  // the first one starts at 0
    const int64_t from = std::max(slice->start, segment.first);
    const int64_t until = std::min(slice->start + slice->count, end);
    Job job = whole;
    const int64_t skipped = from - segment.first;
    job.file = slice->file;
    job.key = slice->key;
    job.tensor_count = slice->count;
    job.element = from - slice->start;
    job.part.first = from;
    job.part.share += skipped;
    job.part.count = until - from;
    job.to += static_cast<size_t>(skipped) * job.element_bytes;
    jobs.push_back(job);
  }
}

/// The job for all of a segment's slot `slot`.
Job slot_job(const Optimizer& optim, const Segment& segment, int slot) {
  const Param& param = optim.params[static_cast<size_t>(segment.param)];
  Job job{};
  job.part = segment;
  job.element_bytes = size_of(sum_dtype(param.dtype));
  job.to = optim.slot(slot, segment.section, segment.share);
  job.splits = keeps_remainders(optim, segment.param, slot);
  return job;
}

Status add_state_jobs(const Optimizer& optim, Window& window, const ManifestParam& saved,
                      const Segment& segment, std::vector<Job>& jobs) {
  const Rule& rule = *optim.options.rule;
  const uint32_t live = saved_slots(saved, rule);
  const Section& section = optim.plan.section(segment.section);
  const int rule_slots = static_cast<int>(rule.slots.size());
  for (int s = 0; s < kSlotCount; s++) {
    if (s >= rule_slots && s != kMasterSlot) continue;
    const Job whole = slot_job(optim, segment, s);
    if (!(live >> s & 1)) {
      const auto count = static_cast<size_t>(segment.count);
      if (whole.to && s != kMasterSlot)
        ZERO_TRY(window.clear(whole.to, count * optim.slot_size(s, section)));
      continue;
    }
    if (!whole.to)
      return Status(ZERO_ERR_INTERNAL, text("no memory for state '", slot_name(rule, s), "'"));
    const auto slot =
        std::find_if(saved.slots.begin(), saved.slots.end(),
                     [&](const ManifestSlot& one) { return find_slot(rule, one.name) == s; });
    add_slot_jobs(*slot, segment, whole, jobs);
  }
  return {};
}

Result<std::vector<Job>> plan_jobs(const Manifest& manifest, const Places& places,
                                   const Optimizer& optim, Window& window) {
  std::vector<Job> jobs;
  for (const Segment& segment : optim.segments()) {
    const auto index = static_cast<size_t>(segment.param);
    const Param& param = optim.params[index];
    const ManifestParam& saved = manifest.params[places.params[index]];
    const size_t element = size_of(param.dtype);
    jobs.push_back({saved.file, saved.name, saved.count, segment.first, segment, element,
                    param.data + static_cast<size_t>(segment.first) * element});
    ZERO_TRY(add_state_jobs(optim, window, saved, segment, jobs));
  }
  for (size_t i = 0; i < optim.buffers.size() && optim.comm->rank() == 0; i++) {
    const ManifestBuffer& saved = manifest.buffers[places.buffers[i]];
    jobs.push_back({saved.file,
                    saved.name,
                    saved.count,
                    0,
                    {static_cast<int64_t>(i), 0, saved.count, 0},
                    size_of(optim.buffers[i].dtype),
                    optim.buffers[i].data});
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.file < b.file; });
  return jobs;
}

/// Read a job's elements, from the place that locate found.
Status run(BlockReader& reader, const Optimizer& optim, Windows& windows, const Job& job) {
  uint64_t offset = job.offset;
  const auto read = [&](std::span<std::byte> to) {
    offset += to.size();
    return reader.read(offset - to.size(), to);
  };
  if (job.splits)
    return split_masters(optim, windows, job.part, [&](std::span<float> masters) {
      return read(std::as_writable_bytes(masters));
    });
  const int64_t most = windows.values.most(job.element_bytes);
  for (int64_t done = 0; done < job.part.count;) {
    const int64_t count = std::min(most, job.part.count - done);
    const size_t bytes = static_cast<size_t>(count) * job.element_bytes;
    std::byte* const to = job.to + static_cast<size_t>(done) * job.element_bytes;
    ZERO_TRY(read({ZERO_TRY(windows.values.room(to)), bytes}));
    ZERO_TRY(windows.values.store(to, bytes));
    done += count;
  }
  return {};
}

/// Make the parameter, as it stands, the master of a segment.
Status take_master(const Optimizer& optim, Windows& windows, const Segment& segment) {
  const Section& section = optim.plan.section(segment.section);
  const Master master = optim.master_of(section);
  std::byte* const all = optim.slot(kMasterSlot, segment.section, segment.share);
  if (master == Master::remainder)
    return windows.values.clear(all, static_cast<size_t>(segment.count) * sizeof(uint16_t));
  if (master != Master::full) return {};
  return for_each_piece(
      optim, windows, segment, [&](const Segment& piece, size_t before) -> Status {
        const auto count = static_cast<size_t>(piece.count);
        const std::byte* const from =
            optim.params[static_cast<size_t>(piece.param)].element(piece.first);
        float* const to = reinterpret_cast<float*>(ZERO_TRY(windows.remainders.room(all + before)));
        read_values(section.dtype, to,
                    ZERO_TRY(windows.values.show(from, count * size_of(section.dtype))), count);
        return windows.remainders.store(all + before, count * sizeof(float));
      });
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
        tensor->end - tensor->begin !=
            static_cast<uint64_t>(job.tensor_count) * job.element_bytes) {
      return invalid("'", reader.path(), "': has changed since it was verified: tensor ",
                     shown(job.key), " is not what the manifest says");
    }
    job.offset =
        header.data_start + tensor->begin + static_cast<uint64_t>(job.element) * job.element_bytes;
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const Job& a, const Job& b) { return a.offset < b.offset; });
  return {};
}

}  // namespace

uint32_t saved_slots(const ManifestParam& param, const Rule& rule) {
  uint32_t live = 0;
  for (const ManifestSlot& slot : param.slots) {
    if (const int s = find_slot(rule, slot.name); s >= 0) live |= 1u << s;
  }
  return live;
}

Status read_share(const BlockFiles& files, const Manifest& manifest, const Places& places,
                  const Optimizer& optim, Windows& windows) {
  std::vector<Job> jobs = ZERO_TRY(plan_jobs(manifest, places, optim, windows.values));
  for (size_t begin = 0; begin < jobs.size();) {
    size_t end = begin;
    while (end < jobs.size() && jobs[end].file == jobs[begin].file) end++;
    const std::span of_file(jobs.data() + begin, end - begin);
    const FileRecord& file = manifest.files[static_cast<size_t>(jobs[begin].file)];
    BlockReader reader = ZERO_TRY(BlockReader::open(files, file));
    SafetensorsHeader header = ZERO_TRY(read_header(reader));
    ZERO_TRY(locate(reader, std::move(header), of_file));
    for (const Job& job : of_file) ZERO_TRY(run(reader, optim, windows, job));
    begin = end;
  }
  for (const Segment& segment : optim.segments()) {
    const ManifestParam& saved = manifest.params[places.params[static_cast<size_t>(segment.param)]];
    if (!(saved_slots(saved, *optim.options.rule) >> kMasterSlot & 1))
      ZERO_TRY(take_master(optim, windows, segment));
  }
  return {};
}

}  // namespace zero

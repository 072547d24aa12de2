// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "state/access.h"
#include "state/extras.h"
#include "state/json.h"
#include "state/layout.h"
#include "state/load.h"
#include "state/safetensors.h"

namespace zero {

Result<SafetensorsHeader> read_header(BlockReader& reader) {
  std::string first(std::min<uint64_t>(reader.bytes(), 8), '\0');
  ZERO_TRY(reader.read(0, std::as_writable_bytes(std::span(first))));
  const std::string where = text("'", reader.path(), "'");
  std::string json(ZERO_TRY(safetensors_header_bytes(first, reader.bytes()).within(where)), '\0');
  ZERO_TRY(reader.read(8, std::as_writable_bytes(std::span(json))));
  return parse_safetensors_header(json, reader.bytes()).within(where);
}

namespace {

// ---- These check every byte against its checksum, and every header against the manifest.

/// Returns the tensors that the manifest lists for one file, sorted by name.
std::vector<ManifestTensor> expected_in(const Manifest& manifest, int32_t file) {
  std::vector<ManifestTensor> expected;
  for_each_tensor(manifest, [&](const ManifestTensor& tensor) {
    if (tensor.file == file) expected.push_back(tensor);
  });
  std::ranges::sort(expected, {}, &ManifestTensor::key);
  return expected;
}

}  // namespace

Status check_metadata(const SafetensorsHeader& header, const Manifest& manifest) {
  const std::pair<const char*, std::string> wanted[] = {{"zero.format", text(kFormat)},
                                                        {"zero.save_id", hex(manifest.save_id)}};
  for (const auto& [key, value] : wanted) {
    const auto found = std::ranges::find(
        header.metadata, key, [](auto& entry) -> auto& { return entry.first; });
    if (found == header.metadata.end()) return invalid("its header has no ", key);
    if (found->second != value)
      return invalid("its header has ", key, " ", shown(found->second), ", but the manifest says ",
                     value, ": it belongs to another save");
  }
  return {};
}

namespace {

Status check_expected(const TensorEntry& tensor, const ManifestTensor& expected) {
  if (tensor.dtype != expected.dtype)
    return invalid("tensor ", shown(tensor.name), " has dtype ", shown(tensor.dtype),
                   ", but the manifest says ", expected.dtype);
  const bool whole = expected.count == expected.all;
  if (tensor.shape == (whole ? *expected.shape : std::vector{expected.count})) return {};
  return invalid("tensor ", shown(tensor.name), " has a different shape than in the manifest");
}

bool holds_extras(const Manifest& manifest, int32_t file) {
  return std::ranges::find(manifest.extras, file, &ManifestExtras::file) != manifest.extras.end();
}

/// Checks that a header has the manifest's save id, and exactly the tensors of the manifest.
Status check_header(SafetensorsHeader header, const Manifest& manifest, int32_t file) {
  ZERO_TRY(check_metadata(header, manifest));
  std::ranges::sort(header.tensors, {}, &TensorEntry::name);
  const std::vector<ManifestTensor> expected = expected_in(manifest, file);
  for (size_t i = 0; i < std::max(expected.size(), header.tensors.size()); i++) {
    const bool extra = i >= expected.size() ||
                       (i < header.tensors.size() && header.tensors[i].name < expected[i].key);
    if (extra)
      return invalid("has a tensor ", shown(header.tensors[i].name),
                     ", which the manifest does not list");
    if (i >= header.tensors.size() || header.tensors[i].name != expected[i].key)
      return invalid("has no tensor ", shown(expected[i].key), ", which the manifest lists");
    ZERO_TRY(check_expected(header.tensors[i], expected[i]));
  }
  return {};
}

// ---- These read the ranges that one rank owns from the slices that hold them.

/// Elements of a tensor in a file, and where they are stored.
struct Job {
  int32_t file;
  std::string_view key;
  int64_t tensor_count;  // elements of the whole tensor
  int64_t element;       // the first one to read
  Segment part;          // those to read
  size_t element_bytes;
  std::byte* to;
  bool splits = false;  // it reads master weights, which are stored as values and remainders
  uint64_t offset = 0;  // position in the file, set after its header is read
};

/// Adds a job for each slice of one slot that overlaps a segment. `whole` is the job for the whole
/// segment.
void add_slot_jobs(const ManifestSlot& slot, const Job& whole, std::vector<Job>& jobs) {
  const Segment& segment = whole.part;
  const int64_t end = segment.first + segment.count;
  // The segment begins in this slice, which exists because the first slice starts at 0.
  auto slice = std::ranges::upper_bound(slot.slices, segment.first, {}, &ManifestSlice::start) - 1;
  for (; slice != slot.slices.end() && slice->start < end; ++slice) {
    const int64_t from = std::max(slice->start, segment.first);
    const int64_t skipped = from - segment.first;
    Job job = whole;
    job.file = slice->file;
    job.key = slice->key;
    job.tensor_count = slice->count;
    job.element = from - slice->start;
    job.part = segment.part(skipped, std::min(slice->start + slice->count, end) - from);
    job.to += static_cast<size_t>(skipped) * job.element_bytes;
    jobs.push_back(job);
  }
}

Status add_state_jobs(const Optimizer& optim, Window& window, const ManifestParam& saved,
                      const Segment& segment, std::vector<Job>& jobs) {
  const Rule& rule = optim.rule_of(segment);
  const uint32_t live = saved_slots(saved, rule);
  const Section& section = optim.plan.section(segment.section);
  for (int s = 0; s < kSlotCount; s++) {
    if (s >= static_cast<int>(rule.slots.size()) && s != kMasterSlot) continue;
    Job whole{};
    whole.part = segment;
    whole.element_bytes = size_of(stored_dtype(optim, segment.param, s));
    whole.to = optim.slot(s, segment);
    whole.splits = keeps_remainders(optim, segment.param, s);
    if (!(live >> s & 1)) {
      const auto count = static_cast<size_t>(segment.count);
      if (whole.to && s != kMasterSlot)
        ZERO_TRY(window.clear(whole.to, count * optim.slot_size(s, section)));
      continue;
    }
    if (!whole.to) return internal_error("no memory for state '", slot_name(rule, s), "'");
    const auto slot = std::ranges::find(saved.slots, slot_name(rule, s), &ManifestSlot::name);
    add_slot_jobs(*slot, whole, jobs);
  }
  return {};
}

Result<std::vector<Job>> plan_jobs(const Places& places, const Optimizer& optim, Window& window) {
  std::vector<Job> jobs;
  for (const Segment& segment : optim.segments()) {
    const auto index = static_cast<size_t>(segment.param);
    const Param& param = optim.params[index];
    const ManifestParam& saved = *places.params[index];
    const size_t element = size_of(param.dtype);
    jobs.push_back({saved.file, saved.name, saved.count, segment.first, segment, element,
                    param.data + static_cast<size_t>(segment.first) * element});
    ZERO_TRY(add_state_jobs(optim, window, saved, segment, jobs));
  }
  for (size_t i = 0; i < optim.buffers.size() && optim.comm->rank() == 0; i++) {
    const ManifestBuffer& saved = *places.buffers[i];
    const Buffer& buffer = optim.buffers[i];
    const Segment all{static_cast<int64_t>(i), 0, saved.count, 0};
    jobs.push_back(
        {saved.file, saved.name, saved.count, 0, all, size_of(buffer.dtype), buffer.data});
  }
  std::ranges::stable_sort(jobs, {}, &Job::file);
  return jobs;
}

/// Reads the elements of a job from the position that locate_jobs() found.
Status run_job(BlockReader& reader, const Optimizer& optim, Windows& windows, const Job& job) {
  uint64_t offset = job.offset;
  const auto read = [&](std::span<std::byte> to) {
    offset += to.size();
    return reader.read(offset - to.size(), to);
  };
  if (job.splits)
    return split_masters(optim, windows, job.part, [&](std::span<float> masters) {
      return read(std::as_writable_bytes(masters));
    });
  return windows.values.fill_all(job.to, static_cast<size_t>(job.part.count) * job.element_bytes,
                                 read);
}

/// Sets the master weights of a segment to the values that the parameter has now.
Status take_master(const Optimizer& optim, Windows& windows, const Segment& segment) {
  const Section& section = optim.plan.section(segment.section);
  const Master master = optim.master_of(section);
  std::byte* const all = optim.slot(kMasterSlot, segment);
  if (master == Master::remainder)
    return windows.values.clear(all, static_cast<size_t>(segment.count) * sizeof(uint16_t));
  if (master != Master::full) return {};
  const auto take = [&](const Segment& segment, int64_t before) -> Status {
    const auto count = static_cast<size_t>(segment.count);
    std::byte* const to = all + static_cast<size_t>(before) * sizeof(float);
    const std::byte* const from =
        optim.params[static_cast<size_t>(segment.param)].element(segment.first);
    float* const masters = reinterpret_cast<float*>(ZERO_TRY(windows.remainders.room(to)));
    read_values(section.dtype, masters,
                ZERO_TRY(windows.values.show(from, count * size_of(section.dtype))), count);
    return windows.remainders.store(to, count * sizeof(float));
  };
  return in_chunks(segment, windows.values.most(sizeof(float)), take);
}

/// Finds the position of each job in the file, and sorts the jobs by position.
Status locate_jobs(const BlockReader& reader, SafetensorsHeader header, std::span<Job> jobs) {
  std::ranges::sort(header.tensors, {}, &TensorEntry::name);
  for (Job& job : jobs) {
    const auto tensor = std::ranges::lower_bound(header.tensors, job.key, {}, &TensorEntry::name);
    const uint64_t bytes = static_cast<uint64_t>(job.tensor_count) * job.element_bytes;
    if (tensor == header.tensors.end() || tensor->name != job.key ||
        tensor->end - tensor->begin != bytes)
      return invalid("'", reader.path(), "': has changed since it was verified: tensor ",
                     shown(job.key), " does not match the manifest");
    job.offset =
        header.data_start + tensor->begin + static_cast<uint64_t>(job.element) * job.element_bytes;
  }
  std::ranges::sort(jobs, {}, &Job::offset);
  return {};
}

}  // namespace

uint64_t total_blocks(const Manifest& manifest) {
  uint64_t total = 0;
  for (const FileRecord& file : manifest.files) total += file.blocks.size();
  return total;
}

Status verify_blocks(const BlockFiles& files, const Manifest& manifest, uint64_t begin,
                     uint64_t end, ExtrasFiles extras) {
  uint64_t at = 0;
  for (size_t i = 0; i < manifest.files.size(); i++) {
    const FileRecord& file = manifest.files[i];
    const uint64_t first = std::max(begin, at), last = std::min(end, at + file.blocks.size());
    const bool has_extras = holds_extras(manifest, static_cast<int32_t>(i));
    if (first < last && !(has_extras && extras == ExtrasFiles::left_out)) {
      BlockReader reader = ZERO_TRY(BlockReader::open(files, file));
      for (uint64_t block = first; block < last; block++) ZERO_TRY(reader.verify(block - at));
      if (first == at && is_tensor_file(file.name)) {
        SafetensorsHeader header = ZERO_TRY(read_header(reader));
        ZERO_TRY(check_header(std::move(header), manifest, static_cast<int32_t>(i))
                     .within(text("'", reader.path(), "'")));
      } else if (first == at && has_extras) {
        ZERO_TRY(check_extras_header(ZERO_TRY(read_header(reader)), manifest)
                     .within(text("'", reader.path(), "'")));
      }
    }
    at += file.blocks.size();
  }
  return {};
}

Status verify_files(const BlockFiles& files, const Manifest& manifest, int32_t rank, int32_t world,
                    ExtrasFiles extras) {
  // Each rank takes consecutive blocks, so that it reads forward. The product of total and rank
  // could overflow.
  const uint64_t total = total_blocks(manifest);
  const uint64_t share = total / static_cast<uint64_t>(world),
                 rest = total % static_cast<uint64_t>(world);
  const auto begin_of = [&](uint64_t r) { return share * r + std::min(r, rest); };
  return verify_blocks(files, manifest, begin_of(static_cast<uint64_t>(rank)),
                       begin_of(static_cast<uint64_t>(rank) + 1), extras);
}

uint32_t saved_slots(const ManifestParam& param, const Rule& rule) {
  uint32_t live = 0;
  for (const ManifestSlot& slot : param.slots) {
    if (const int s = find_slot(rule, slot.name); s >= 0) live |= 1u << s;
  }
  return live;
}

Status read_share(const BlockFiles& files, const Manifest& manifest, const Places& places,
                  const Optimizer& optim, Windows& windows) {
  std::vector<Job> jobs = ZERO_TRY(plan_jobs(places, optim, windows.values));
  for (size_t begin = 0; begin < jobs.size();) {
    size_t end = begin;
    while (end < jobs.size() && jobs[end].file == jobs[begin].file) end++;
    const std::span of_file(jobs.data() + begin, end - begin);
    const FileRecord& file = manifest.files[static_cast<size_t>(jobs[begin].file)];
    BlockReader reader = ZERO_TRY(BlockReader::open(files, file));
    SafetensorsHeader header = ZERO_TRY(read_header(reader));
    ZERO_TRY(locate_jobs(reader, std::move(header), of_file));
    for (const Job& job : of_file) ZERO_TRY(run_job(reader, optim, windows, job));
    begin = end;
  }
  for (const Segment& segment : optim.segments()) {
    const ManifestParam& saved = *places.params[static_cast<size_t>(segment.param)];
    if (!(saved_slots(saved, optim.rule_of(segment)) >> kMasterSlot & 1))
      ZERO_TRY(take_master(optim, windows, segment));
  }
  return {};
}

}  // namespace zero

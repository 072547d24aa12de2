// SPDX-License-Identifier: Apache-2.0
#include "parts.h"

#include "base/refusals.h"
#include "state/json.h"
#include "state/layout.h"

namespace zero::tool {
namespace {

/// Returns the parts that the manifest places in each file.
std::vector<std::vector<Part>> parts_by_file(const Manifest& manifest,
                                             const std::vector<WholeTensor>& sources) {
  std::vector<std::vector<Part>> parts(manifest.files.size());
  const std::vector<WholeTensor> placed = tensors_of(manifest, true);
  for (size_t i = 0; i < placed.size(); i++) {
    for (const ManifestSlice& slice : placed[i].slices)
      parts[static_cast<size_t>(slice.file)].push_back(
          {slice.key, &sources[i], slice.start, slice.count});
  }
  return parts;
}

}  // namespace

Result<PartsFile> PartsFile::of(Metadata metadata, std::vector<Part> parts) {
  PartsFile file;
  file.header_.metadata = std::move(metadata);
  for (Part& part : parts) {
    const WholeTensor& of = *part.of;
    file.header_.tensors.push_back(
        {part.key, std::string(of.dtype),
         part.count == of.count ? *of.shape : std::vector<int64_t>{part.count}});
    if (!file.parts_.emplace(part.key, part).second)
      return unsupported("two tensors would be called ", shown(part.key));
  }
  file.head_ = ZERO_TRY(build_safetensors_header(file.header_));
  return file;
}

Status PartsFile::write(const Read& read, const Append& append) const {
  ZERO_TRY(append(bytes_of(head_)));
  std::vector<std::byte> values(kPartBytes);
  for (const TensorEntry& entry : header_.tensors) {
    const Part& part = parts_.find(entry.name)->second;
    const uint64_t element = dtype_bytes(entry.dtype);
    ZERO_TRY(in_parts(entry.dtype, part.count, [&](int64_t first, int64_t count) -> Status {
      const auto some = std::span(values).first(static_cast<size_t>(count) * element);
      ZERO_TRY(read(*part.of, part.first + first, some));
      return append(some);
    }));
  }
  return {};
}

Status write_shards(const OutputDirectory& to, Manifest& manifest, const ShardSource& source) {
  const std::vector<std::vector<Part>> parts = parts_by_file(manifest, source.tensors);
  std::vector<PartsFile> shards;
  uint64_t all = 0, done = 0;
  for (size_t i = 0; i + 1 < manifest.files.size(); i++) {
    const auto rank = static_cast<int32_t>(i) % manifest.world;
    shards.push_back(ZERO_TRY(PartsFile::of(source.metadata(rank), parts[i])));
    all += shards.back().bytes();
  }
  ProgressBar bar(all);
  for (size_t i = 0; i < shards.size(); i++) {
    FileRecord& record = manifest.files[i];
    BlockWriter file = ZERO_TRY(BlockWriter::create(to.files(), record.name, shards[i].bytes()));
    ZERO_TRY(shards[i].write(source.read, [&](std::span<const std::byte> bytes) {
      bar.show(done += bytes.size());
      return file.append(bytes);
    }));
    record = ZERO_TRY(file.finish());
  }
  FileRecord& index = manifest.files.back();
  index = ZERO_TRY(write_text(to.files(), index.name, write_index(manifest)));
  return {};
}

Status write_checkpoint(OutputDirectory& to, Manifest& manifest, std::vector<WholeTensor> tensors,
                        const Read& read, const std::map<int32_t, Extras>& extras) {
  manifest.save_id = to.save_id();
  manifest.created_by = creator();
  const int32_t world = manifest.world;
  ZERO_TRY(write_shards(to, manifest, {std::move(tensors), read, [&](int32_t rank) {
                                         return shard_metadata(to.save_id(), rank, world);
                                       }}));
  for (const auto& [rank, of] : extras) {
    const std::string all = ZERO_TRY(extras_file(of, to.save_id(), rank, world));
    manifest.extras.push_back({rank, static_cast<int32_t>(manifest.files.size())});
    manifest.files.push_back(
        ZERO_TRY(write_text(to.files(), shard_name(kExtra, rank, world), all)));
  }
  // A checkpoint that a load would refuse must not replace another.
  ZERO_TRY(parse_manifest(write_manifest(manifest)).status());
  ZERO_TRY(write_manifest_file(to.files(), manifest));
  return to.publish();
}

}  // namespace zero::tool

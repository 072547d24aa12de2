// SPDX-License-Identifier: Apache-2.0
#include "state/shards.h"

#include <algorithm>
#include <cstring>

#include "base/refusals.h"
#include "kernels/kernels.h"
#include "state/access.h"
#include "state/extras.h"

namespace zero {
namespace {

using Bytes = std::span<const std::byte>;

}  // namespace

Result<Shards> Shards::of(const Optimizer& optim, const std::vector<int32_t>& writers) {
  Shards shards;
  shards.rank_ = optim.comm->rank();
  shards.world_ = optim.world();
  shards.shards_[0] = {"model", model_tensors(optim, writers, shards.rank_), {}};
  shards.shards_[1] = {"optim", optim_tensors(optim, shards.rank_), {}};
  shards.extras_ = optim.extras;
  for (Shard& shard : shards.shards_) {
    for (const StoredTensor& tensor : shard.tensors)
      shard.sources.push_back(ZERO_TRY(source_of(optim, tensor)));
  }
  return shards;
}

Result<Shards::Source> Shards::source_of(const Optimizer& optim, const StoredTensor& tensor) {
  const Segment& part = tensor.part;
  const auto index = static_cast<size_t>(part.param);
  const size_t bytes = static_cast<size_t>(part.count) * size_of(tensor.dtype);
  if (tensor.slot == kBufferItself) return Source{optim.buffers[index].data, bytes, nullptr};
  if (tensor.slot == kParameterItself) return Source{optim.params[index].data, bytes, nullptr};
  if (part.count == 0) return Source{nullptr, 0, nullptr};
  const std::byte* const values = optim.slot(tensor.slot, part);
  if (values == nullptr) return internal_error("no memory of live state '", tensor.key, "'");
  if (!keeps_remainders(optim, part.param, tensor.slot)) return Source{values, bytes, nullptr};
  return Source{optim.values(part), static_cast<size_t>(part.count) * sizeof(uint16_t), values};
}

std::vector<Bytes> Shards::ranges() const {
  std::vector<Bytes> ranges;
  for (const Shard& shard : shards_) {
    for (const Source& source : shard.sources) {
      ranges.emplace_back(source.values, source.bytes);
      if (source.remainders != nullptr) ranges.emplace_back(source.remainders, source.bytes);
    }
  }
  return ranges;
}

/// Joins master weights that are stored as values and remainders, and appends them.
Status Shards::append_joined(BlockWriter& file, const Source& source, const Show& show) {
  constexpr size_t kAtOnce = size_t{64} << 10, kMasters = 1024;
  std::vector<std::byte> remainders(std::min(kAtOnce, source.bytes));
  for (size_t done = 0, part = 0; done < source.bytes; done += part) {
    part = std::min(kAtOnce, source.bytes - done);
    std::byte* to = remainders.data();
    ZERO_TRY(show(source.remainders + done, part, [&](Bytes some) {
      std::memcpy(to, some.data(), some.size());
      to += some.size();
      return Status();
    }));
    const auto* rest = reinterpret_cast<const uint16_t*>(remainders.data());
    ZERO_TRY(show(source.values + done, part, [&](Bytes some) -> Status {
      const auto* params = reinterpret_cast<const uint16_t*>(some.data());
      const size_t count = some.size() / sizeof(uint16_t);
      float masters[kMasters];
      for (size_t at = 0; at < count; at += kMasters) {
        const std::span joined(masters, std::min(kMasters, count - at));
        kernel_table(best_isa()).join_remainder(masters, params + at, rest + at, joined.size());
        ZERO_TRY(file.append(std::as_bytes(joined)));
      }
      rest += count;
      return {};
    }));
  }
  return {};
}

Status Shards::append(BlockWriter& file, const Source& source, const Show& show) {
  if (source.remainders != nullptr) return append_joined(file, source, show);
  return show(source.values, source.bytes, [&](Bytes shown) { return file.append(shown); });
}

Status Shards::write(const BlockFiles& files, const Digest& save_id, const Show& show) {
  for (const Shard& shard : shards_) {
    SafetensorsHeader header = file_header(shard.tensors, save_id, rank_, world_);
    const std::string head = ZERO_TRY(build_safetensors_header(header));
    BlockWriter file = ZERO_TRY(BlockWriter::create(files, shard_name(shard.kind, rank_, world_),
                                                    head.size() + header.data_bytes()));
    ZERO_TRY(file.append(bytes_of(head)));
    for (const Source& source : shard.sources) ZERO_TRY(append(file, source, show));
    written_.push_back(ZERO_TRY(file.finish()));
  }
  if (!extras_.empty()) {
    const std::string all = ZERO_TRY(extras_file(extras_, save_id, rank_, world_));
    written_.push_back(ZERO_TRY(write_text(files, shard_name(kExtra, rank_, world_), all)));
  }
  return sync(files.directory);
}

std::string Shards::record() const {
  std::string out;
  const auto add = [&](uint64_t number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (const FileRecord& file : written_) {
    add(file.bytes);
    std::ranges::for_each(file.blocks, add);
  }
  return out;
}

Status take_record(Manifest& manifest, int32_t rank, std::string_view record) {
  const auto take = [&](void* numbers, size_t count) {
    const size_t bytes = count * sizeof(uint64_t);
    if (bytes > record.size()) return false;
    record.copy(static_cast<char*>(numbers), bytes);
    record.remove_prefix(bytes);
    return true;
  };
  const auto take_file = [&](FileRecord& file) {
    if (!take(&file.bytes, 1) || file.bytes == 0 || block_count(file.bytes) > record.size())
      return false;
    file.blocks.resize(block_count(file.bytes));
    return take(file.blocks.data(), file.blocks.size());
  };
  std::vector<FileRecord>& files = manifest.files;
  bool sound = take_file(files[static_cast<size_t>(rank)]) &&
               take_file(files[static_cast<size_t>(manifest.world + rank)]);
  if (sound && !record.empty()) {
    manifest.extras.push_back({rank, static_cast<int32_t>(files.size())});
    sound =
        take_file(files.emplace_back(FileRecord{shard_name(kExtra, rank, manifest.world), 0, {}}));
  }
  if (sound && record.empty()) return {};
  return internal_error("rank ", rank, " sent an invalid record of its files");
}

}  // namespace zero

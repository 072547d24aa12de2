// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include <algorithm>

#include "base/refusals.h"
#include "state/json.h"
#include "state/load.h"

namespace zero::tool {
namespace {

constexpr size_t kMostOpen = 12;

WholeTensor whole(const ManifestBuffer& of) {
  return {of.name, "", of.dtype, &of.shape, of.count, {{of.file, of.name, 0, of.count}}};
}

}  // namespace

std::string WholeTensor::name() const {
  return slot.empty() ? std::string(owner) : text(owner, '.', slot);
}

std::vector<WholeTensor> tensors_of(const Manifest& manifest, bool with_state) {
  std::vector<WholeTensor> tensors;
  for (const ManifestParam& param : manifest.params) {
    tensors.push_back(whole(param));
    for (size_t i = 0; with_state && i < param.slots.size(); i++) {
      const ManifestSlot& slot = param.slots[i];
      tensors.push_back({param.name, slot.name, dtype_code(manifest.dtype_of(param, slot)),
                         &param.shape, param.count, slot.slices});
    }
  }
  for (const ManifestBuffer& buffer : manifest.buffers) tensors.push_back(whole(buffer));
  std::ranges::sort(tensors, {},
                    [](const WholeTensor& tensor) { return std::pair(tensor.owner, tensor.slot); });
  return tensors;
}

Result<BlockReader*> TensorReader::open(int32_t file) {
  std::list<OpenShard> one;
  const auto known = std::ranges::find(open_, file, &OpenShard::file);
  if (known != open_.end()) {
    one.splice(one.begin(), open_, known);
  } else {
    if (open_.size() == kMostOpen) open_.pop_back();
    HostMemory block = ZERO_TRY(allocate_block());
    const BlockFiles files{of_.directory(), block.data(), unhindered};
    one.push_front({file, std::move(block), files, std::nullopt});
    OpenShard& shard = one.front();
    shard.reader =
        ZERO_TRY(BlockReader::open(shard.files, of_.manifest().files[static_cast<size_t>(file)]));
  }
  open_.splice(open_.begin(), one);
  return &*open_.front().reader;
}

Result<uint64_t> TensorReader::find(BlockReader& reader, const ManifestSlice& slice,
                                    std::string_view dtype) {
  if (!headers_.contains(slice.file)) {
    SafetensorsHeader read = ZERO_TRY(read_header(reader));
    ZERO_TRY(check_metadata(read, of_.manifest()).within(text("'", reader.path(), "'")));
    Header& header = headers_[slice.file];
    header.data_start = read.data_start;
    for (TensorEntry& tensor : read.tensors) header.tensors.emplace(tensor.name, tensor);
  }
  const Header& header = headers_[slice.file];
  const auto found = header.tensors.find(slice.key);
  const uint64_t bytes = static_cast<uint64_t>(slice.count) * dtype_bytes(dtype);
  if (found != header.tensors.end() && found->second.dtype == dtype &&
      found->second.end - found->second.begin == bytes)
    return header.data_start + found->second.begin;
  return invalid("'", reader.path(), "': has no tensor ", shown(slice.key), " of ", bytes,
                 " bytes of ", dtype, ", which the manifest lists");
}

Status TensorReader::read(const WholeTensor& tensor, int64_t first, std::span<std::byte> to) {
  const uint64_t element = dtype_bytes(tensor.dtype);
  auto slice = std::ranges::upper_bound(tensor.slices, first, {}, &ManifestSlice::start) - 1;
  while (!to.empty()) {
    const int64_t skipped = first - slice->start;
    const int64_t count =
        std::min(static_cast<int64_t>(to.size() / element), slice->count - skipped);
    BlockReader& reader = *ZERO_TRY(open(slice->file));
    const uint64_t begin = ZERO_TRY(find(reader, *slice, tensor.dtype));
    const auto part = to.first(static_cast<size_t>(count) * element);
    ZERO_TRY(reader.read(begin + static_cast<uint64_t>(skipped) * element, part));
    to = to.subspan(part.size());
    first += count;
    ++slice;
  }
  return {};
}

}  // namespace zero::tool

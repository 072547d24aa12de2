// SPDX-License-Identifier: Apache-2.0
#include "state/verify.h"

#include <algorithm>

#include "base/text.h"
#include "plan/plan.h"
#include "state/json.h"

namespace zero {
namespace {

Status invalid(const std::string& path, std::string what) {
  return {ZERO_ERR_CKPT_INVALID, text("'", path, "': ", what)};
}

/// A tensor that the manifest says is in a file.
struct Expected {
  std::string_view key;
  std::string_view dtype;
  const std::vector<int64_t>* shape;  // of the whole tensor
  bool whole;
  int64_t count;
};

std::vector<Expected> expected_in(const Manifest& manifest, int32_t file) {
  std::vector<Expected> expected;
  for (const ManifestParam& param : manifest.params) {
    if (param.file == file)
      expected.push_back({param.name, param.dtype, &param.shape, true, param.count});
    const std::string_view state = dtype_code(sum_dtype(dtype_of_code(param.dtype)));
    for (const ManifestSlot& slot : param.slots) {
      for (const ManifestSlice& slice : slot.slices) {
        if (slice.file != file) continue;
        const bool whole = slice.count == param.count;
        expected.push_back({slice.key, state, &param.shape, whole, slice.count});
      }
    }
  }
  for (const ManifestBuffer& buffer : manifest.buffers) {
    if (buffer.file == file)
      expected.push_back({buffer.name, buffer.dtype, &buffer.shape, true, buffer.count});
  }
  std::sort(expected.begin(), expected.end(),
            [](const Expected& a, const Expected& b) { return a.key < b.key; });
  return expected;
}

Status check_metadata(const std::string& path, const SafetensorsHeader& header,
                      const Manifest& manifest) {
  const std::pair<const char*, std::string> wanted[] = {{"zero.format", text(kFormat)},
                                                        {"zero.save_id", hex(manifest.save_id)}};
  for (const auto& [key, value] : wanted) {
    const auto found = std::find_if(header.metadata.begin(), header.metadata.end(),
                                    [&, k = key](const auto& entry) { return entry.first == k; });
    if (found == header.metadata.end()) return invalid(path, text("its header has no ", key));
    if (found->second != value) {
      return invalid(path, text("its header has ", key, " ", shown(found->second),
                                ", the manifest says ", value, ": it is of another save"));
    }
  }
  return {};
}

Status check_tensor(const std::string& path, const TensorEntry& tensor, const Expected& expected) {
  if (tensor.dtype != expected.dtype) {
    return invalid(path, text("tensor ", shown(tensor.name), " has dtype ", shown(tensor.dtype),
                              ", the manifest says ", expected.dtype));
  }
  if (expected.whole ? tensor.shape == *expected.shape
                     : tensor.shape == std::vector<int64_t>{expected.count})
    return {};
  return invalid(path,
                 text("tensor ", shown(tensor.name), " has another shape than the manifest says"));
}

/// Exactly the tensors that the manifest says, and the save id.
Status check_header(const std::string& path, SafetensorsHeader header, const Manifest& manifest,
                    int32_t file) {
  ZERO_TRY(check_metadata(path, header, manifest));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  const std::vector<Expected> expected = expected_in(manifest, file);
  for (size_t i = 0; i < std::max(expected.size(), header.tensors.size()); i++) {
    const bool extra = i >= expected.size() ||
                       (i < header.tensors.size() && header.tensors[i].name < expected[i].key);
    if (extra) {
      return invalid(path, text("has a tensor ", shown(header.tensors[i].name),
                                ", which the manifest does not"));
    }
    if (i >= header.tensors.size() || header.tensors[i].name != expected[i].key) {
      return invalid(path,
                     text("has no tensor ", shown(expected[i].key), ", which the manifest says"));
    }
    ZERO_TRY(check_tensor(path, header.tensors[i], expected[i]));
  }
  return {};
}

}  // namespace

Result<SafetensorsHeader> read_header(BlockReader& reader, uint64_t file_bytes) {
  std::string first(std::min<uint64_t>(file_bytes, 8), '\0');
  ZERO_TRY(reader.read(0, std::as_writable_bytes(std::span(first))));
  const auto within = [&](Status status) {
    return std::move(status).within(text("'", reader.path(), "'"));
  };
  auto length = safetensors_header_bytes(first, file_bytes);
  if (!length.ok()) return within(std::move(length).status());
  std::string json(*length, '\0');
  ZERO_TRY(reader.read(8, std::as_writable_bytes(std::span(json))));
  auto header = parse_safetensors_header(json, file_bytes);
  if (!header.ok()) return within(std::move(header).status());
  return header;
}

Status verify_files(const Fd& directory, const std::string& path, const Manifest& manifest,
                    int32_t rank, int32_t world, BlockBuffer& buffer,
                    const std::function<void()>& progress) {
  uint64_t total = 0;
  for (const FileRecord& file : manifest.files) total += file.blocks.size();
  // Neighbouring blocks, so that each rank reads forward; no product that could overflow.
  const uint64_t share = total / static_cast<uint64_t>(world),
                 rest = total % static_cast<uint64_t>(world);
  const auto begin_of = [&](uint64_t r) { return share * r + std::min(r, rest); };
  const uint64_t begin = begin_of(static_cast<uint64_t>(rank)),
                 end = begin_of(static_cast<uint64_t>(rank) + 1);

  uint64_t at = 0;
  for (size_t i = 0; i < manifest.files.size(); i++) {
    const FileRecord& file = manifest.files[i];
    const uint64_t first = std::max(begin, at), last = std::min(end, at + file.blocks.size());
    if (first < last) {
      BlockReader reader = ZERO_TRY(BlockReader::open(directory, path, file, buffer, progress));
      for (uint64_t block = first; block < last; block++) ZERO_TRY(reader.verify(block - at));
      if (first == at && is_tensor_file(file.name)) {  // who has the first block has the header
        SafetensorsHeader header = ZERO_TRY(read_header(reader, file.bytes));
        ZERO_TRY(check_header(reader.path(), std::move(header), manifest, static_cast<int32_t>(i)));
      }
    }
    at += file.blocks.size();
  }
  return {};
}

}  // namespace zero

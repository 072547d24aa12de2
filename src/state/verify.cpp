// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/text.h"
#include "state/json.h"
#include "state/read.h"

namespace zero {
namespace {

/// The tensors of one file, by name.
std::vector<ManifestTensor> expected_in(const Manifest& manifest, int32_t file) {
  std::vector<ManifestTensor> expected;
  for_each_tensor(manifest, [&](const ManifestTensor& tensor) {
    if (tensor.file == file) expected.push_back(tensor);
  });
  std::sort(expected.begin(), expected.end(),
            [](const ManifestTensor& a, const ManifestTensor& b) { return a.key < b.key; });
  return expected;
}

Status check_metadata(const SafetensorsHeader& header, const Manifest& manifest) {
  const std::pair<const char*, std::string> wanted[] = {{"zero.format", text(kFormat)},
                                                        {"zero.save_id", hex(manifest.save_id)}};
  for (const auto& [key, value] : wanted) {
    const auto found = std::find_if(header.metadata.begin(), header.metadata.end(),
                                    [&, k = key](const auto& entry) { return entry.first == k; });
    if (found == header.metadata.end()) return invalid("its header has no ", key);
    if (found->second != value) {
      return invalid("its header has ", key, " ", shown(found->second), ", the manifest says ",
                     value, ": it is of another save");
    }
  }
  return {};
}

Status check_tensor(const TensorEntry& tensor, const ManifestTensor& expected) {
  if (tensor.dtype != expected.dtype) {
    return invalid("tensor ", shown(tensor.name), " has dtype ", shown(tensor.dtype),
                   ", the manifest says ", expected.dtype);
  }
  const bool whole = expected.count == expected.all;
  if (tensor.shape == (whole ? *expected.shape : std::vector{expected.count})) return {};
  return invalid("tensor ", shown(tensor.name), " has another shape than the manifest says");
}

/// Exactly the tensors that the manifest says, and the save id.
Status check_header(SafetensorsHeader header, const Manifest& manifest, int32_t file) {
  ZERO_TRY(check_metadata(header, manifest));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  const std::vector<ManifestTensor> expected = expected_in(manifest, file);
  for (size_t i = 0; i < std::max(expected.size(), header.tensors.size()); i++) {
    const bool extra = i >= expected.size() ||
                       (i < header.tensors.size() && header.tensors[i].name < expected[i].key);
    if (extra) {
      return invalid("has a tensor ", shown(header.tensors[i].name),
                     ", which the manifest does not");
    }
    if (i >= header.tensors.size() || header.tensors[i].name != expected[i].key) {
      return invalid("has no tensor ", shown(expected[i].key), ", which the manifest says");
    }
    ZERO_TRY(check_tensor(header.tensors[i], expected[i]));
  }
  return {};
}

}  // namespace

Result<SafetensorsHeader> read_header(BlockReader& reader) {
  std::string first(std::min<uint64_t>(reader.bytes(), 8), '\0');
  ZERO_TRY(reader.read(0, std::as_writable_bytes(std::span(first))));
  const std::string where = text("'", reader.path(), "'");
  std::string json(ZERO_TRY(safetensors_header_bytes(first, reader.bytes()).within(where)), '\0');
  ZERO_TRY(reader.read(8, std::as_writable_bytes(std::span(json))));
  return parse_safetensors_header(json, reader.bytes()).within(where);
}

Status verify_files(const BlockFiles& files, const Manifest& manifest, int32_t rank,
                    int32_t world) {
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
      BlockReader reader = ZERO_TRY(BlockReader::open(files, file));
      for (uint64_t block = first; block < last; block++) ZERO_TRY(reader.verify(block - at));
      if (first == at && is_tensor_file(file.name)) {  // who has the first block has the header
        SafetensorsHeader header = ZERO_TRY(read_header(reader));
        ZERO_TRY(check_header(std::move(header), manifest, static_cast<int32_t>(i))
                     .within(text("'", reader.path(), "'")));
      }
    }
    at += file.blocks.size();
  }
  return {};
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// zero merge: the tensors of all files in one, which is the same whatever the world was.
#include <map>
#include <vector>

#include "base/refusals.h"
#include "checkpoint.h"
#include "commands.h"
#include "output.h"
#include "output_file.h"
#include "progress.h"
#include "state/json.h"
#include "tensors.h"

namespace zero::tool {
namespace {

using ByName = std::map<std::string, WholeTensor, std::less<>>;

Result<ByName> by_name(const Manifest& manifest, bool with_state) {
  ByName tensors;
  for (WholeTensor& tensor : tensors_of(manifest, with_state)) {
    const std::string name = tensor.name();
    if (!tensors.emplace(name, std::move(tensor)).second)
      return unsupported("two tensors would be called ", shown(name),
                         ": merge it without --with-state");
  }
  return tensors;
}

SafetensorsHeader header_of(const Manifest& manifest, const ByName& tensors, bool with_state) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  if (with_state) {
    header.metadata.emplace_back("zero.optimizer", manifest.rule);
    header.metadata.emplace_back("zero.step", text(manifest.step));
  }
  for (const auto& [name, tensor] : tensors)
    header.tensors.push_back({name, std::string(tensor.dtype), *tensor.shape});
  return header;
}

/// Writes all of it, and returns how many bytes that are.
Result<uint64_t> write(const Checkpoint& checkpoint, const ByName& tensors,
                       const Request& request) {
  SafetensorsHeader header = header_of(checkpoint.manifest(), tensors, request.with_state);
  const std::string head = ZERO_TRY(build_safetensors_header(header));
  const uint64_t bytes = head.size() + header.data_bytes();
  const auto file = ZERO_TRY(OutputFile::create(request.other, request.replace, bytes));
  ZERO_TRY(file->append(bytes_of(head)));
  ProgressBar bar(bytes);
  TensorReader reader(checkpoint);
  std::vector<std::byte> values(kPartBytes);
  for (const TensorEntry& entry : header.tensors) {
    const WholeTensor& tensor = tensors.find(entry.name)->second;
    uint64_t done = header.data_start + entry.begin;
    ZERO_TRY(in_parts(tensor, [&](int64_t first, int64_t count) -> Status {
      const auto part =
          std::span(values).first(static_cast<size_t>(count) * dtype_bytes(tensor.dtype));
      ZERO_TRY(reader.read(tensor, first, part));
      bar.show(done += part.size());
      return file->append(part);
    }));
  }
  ZERO_TRY(file->publish());
  return bytes;
}

}  // namespace

Result<bool> merge(const Request& request) {
  const Checkpoint checkpoint = ZERO_TRY(Checkpoint::open(request.checkpoint));
  const ByName tensors = ZERO_TRY(by_name(checkpoint.manifest(), request.with_state));
  Result<uint64_t> written = write(checkpoint, tensors, request);
  if (!written.ok()) ZERO_TRY(checkpoint.check_in_place());
  const uint64_t bytes = ZERO_TRY(std::move(written));
  if (request.json)
    print_json(Json{{"checkpoint", checkpoint.path()},
                    {"file", request.other},
                    {"tensors", tensors.size()},
                    {"bytes", bytes}});
  else
    print_line(text(printable(request.other), ": ", counted(tensors.size(), "tensor"), ", ",
                    bytes_text(static_cast<double>(bytes))));
  return true;
}

}  // namespace zero::tool

// SPDX-License-Identifier: Apache-2.0
// Implements zero export: writes the model as a directory of safetensors files with an index, which
// Hugging Face's loaders read.
#include "base/refusals.h"
#include "checkpoint.h"
#include "commands.h"
#include "output.h"
#include "parts.h"
#include "sizes.h"
#include "state/file.h"
#include "state/file_names.h"
#include "state/layout.h"

namespace zero::tool {
namespace {

/// Returns the manifest of the model alone, in files of at most `most_bytes` bytes of tensors. A
/// larger tensor has its own file.
Manifest cut(const Manifest& of, uint64_t most_bytes) {
  Manifest model;
  uint64_t filled = 0;
  int32_t file = 0;
  const auto place = [&](ManifestBuffer& tensor) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.count) * dtype_bytes(tensor.dtype);
    if (filled > 0 && bytes > most_bytes - std::min(filled, most_bytes)) {
      file++;
      filled = 0;
    }
    filled += bytes;
    tensor.file = file;
  };
  for (ManifestParam param : of.params) {
    place(param);
    param.slots.clear();
    model.params.push_back(std::move(param));
  }
  model.buffers = of.buffers;
  std::ranges::for_each(model.buffers, place);
  model.world = file + 1;
  for (int32_t i = 0; i < model.world; i++)
    model.files.push_back({shard_name("model", i, model.world), 0, {}});
  model.files.push_back({kIndexName, 0, {}});
  return model;
}

Status write(const Checkpoint& checkpoint, Manifest& model, const Request& request) {
  struct stat info;
  if (stat_entry(start_of_paths(), request.other + "/" + kManifestName, info) == 0)
    return wrong_state("'", request.other,
                       "' is a checkpoint, and an export would drop its state: write elsewhere");
  std::vector<std::string> names;
  for (const FileRecord& file : model.files) names.push_back(file.name);
  const auto to = ZERO_TRY(OutputDirectory::create(request.other, request.replace, names));
  TensorReader reader(checkpoint);
  ZERO_TRY(write_shards(*to, model,
                        {tensors_of(checkpoint.manifest(), false), reader.as_read(), [](int32_t) {
                           return Metadata{{"format", "pt"}};
                         }}));
  return to->publish();
}

}  // namespace

Result<bool> export_model(const Request& request) {
  if (request.format != kHuggingFace)
    return unsupported("torch writes its own files: run python -m libzero export --to ",
                       request.format, " CHECKPOINT PATH");
  const Checkpoint checkpoint = ZERO_TRY(Checkpoint::open(request.checkpoint));
  Manifest model = cut(checkpoint.manifest(), request.shard_bytes);
  const Status written = write(checkpoint, model, request);
  if (!written.ok()) ZERO_TRY(checkpoint.check_in_place());
  ZERO_TRY(written);
  uint64_t bytes = 0;
  for (const FileRecord& file : model.files) bytes += file.bytes;
  const size_t tensors = model.params.size() + model.buffers.size();
  if (request.json)
    print_json(Json{{"checkpoint", checkpoint.path()},
                    {"directory", request.other},
                    {"files", model.files.size()},
                    {"tensors", tensors},
                    {"bytes", bytes}});
  else
    print_line(text(printable(request.other), ": ", counted(tensors, "tensor"), " in ",
                    counted(static_cast<uint64_t>(model.world), "file"), ", ",
                    bytes_text(static_cast<double>(bytes))));
  return true;
}

}  // namespace zero::tool

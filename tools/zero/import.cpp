// SPDX-License-Identifier: Apache-2.0
// Implements zero import: makes a checkpoint of one rank, which any number of ranks can load, from
// a safetensors model or from the output of merge --with-state.
#include <algorithm>
#include <set>

#include "account.h"
#include "base/refusals.h"
#include "commands.h"
#include "description.h"
#include "model.h"
#include "optim/optimizer.h"
#include "output.h"
#include "parts.h"
#include "safetensors_input.h"
#include "shares.h"
#include "state/file.h"
#include "state/json.h"

namespace zero::tool {
namespace {

// Patterns of one of the files that an index lists.
constexpr const char* kShard =
    "*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].safetensors";
constexpr const char* kOnlyShard = "*-00001-of-00001.safetensors";

/// Returns the manifest of a model that libzero has not trained. Floating-point tensors are its
/// parameters.
Result<Manifest> describe_model(const SafetensorsInput& input, const Request& request) {
  const Rule* const rule = find_rule(ZERO_TRY(number_of_rule(request.rules[0])));
  Manifest manifest;
  manifest.rule = request.rules[0];
  Settings& settings = manifest.groups.emplace_back().settings;
  for (const Setting& setting : rule->settings)
    settings.emplace_back(setting.name, setting.initial);
  for (const auto& tensor : input.tensors()) {
    if (matches(tensor.name, request.ignore)) continue;  // check_tensors() reports it
    ManifestParam param;
    static_cast<ManifestBuffer&>(param) = {tensor.name, tensor.dtype, tensor.shape,
                                           shape_elements(tensor.shape).value_or(0)};
    if (is_floating(dtype_of_code(tensor.dtype)))
      manifest.params.push_back(std::move(param));
    else
      manifest.buffers.push_back(std::move(param));
  }
  return manifest;
}

/// Checks that a checkpoint can hold tensors of these dtypes.
Status check_dtypes(const Manifest& manifest) {
  std::vector<std::string> foreign;
  const auto check = [&](const ManifestBuffer& tensor) {
    if (dtype_of_code(tensor.dtype) == DType::none)
      foreign.push_back(text("tensor ", shown(tensor.name), " is ", shown(tensor.dtype)));
  };
  std::ranges::for_each(manifest.params, check);
  std::ranges::for_each(manifest.buffers, check);
  if (foreign.empty()) return {};
  return unsupported(listed(foreign), "; a checkpoint has F32, F64, BF16, F16, I32 and I64",
                     " (--ignore PATTERN,... drops it)");
}

/// Checks that the input has exactly the tensors that are described.
Status check_tensors(const SafetensorsInput& input, const std::vector<WholeTensor>& tensors,
                     const Patterns& ignore) {
  Account account(ignore);
  std::set<std::string> described;
  for (const WholeTensor& tensor : tensors) {
    described.insert(tensor.name());
    const auto* const found = input.find(tensor.name());
    if (found == nullptr)
      account.missing(tensor.name());
    else if (found->dtype != tensor.dtype || found->shape != *tensor.shape)
      account.differs(text(shown(found->name), " is ", found->dtype, ' ', shape_text(found->shape),
                           ", not ", tensor.dtype, ' ', shape_text(*tensor.shape)));
  }
  for (const auto& tensor : input.tensors())
    if (!described.contains(tensor.name)) account.left_over(tensor.name);
  return account.status();
}

/// Refuses patterns that match no tensor and no file of the directory: they are misspelt.
Status check_patterns(const SafetensorsInput& input, const Request& request) {
  std::vector<std::string> names;
  for (const auto& tensor : input.tensors()) names.push_back(tensor.name);
  const Directory directory = enter(start_of_paths(), request.checkpoint, Links::followed);
  if (directory.fd.valid())
    std::ranges::copy(ZERO_TRY(list_directory(directory)), std::back_inserter(names));
  std::vector<std::string> vain;
  for (const std::string& pattern : request.ignore)
    if (std::ranges::none_of(names, [&](const auto& name) { return matches(name, {pattern}); }))
      vain.push_back(shown(pattern));
  if (vain.empty()) return {};
  return invalid("--ignore ", listed(vain), ": it has nothing of that name");
}

/// Returns the manifest of a checkpoint of one rank with the contents of the input.
Result<Manifest> describe_input(const SafetensorsInput& input, const Request& request) {
  const std::string described = input.metadata(kDescriptionKey);
  Manifest manifest =
      ZERO_TRY(described.empty() ? describe_model(input, request) : parse_description(described));
  ZERO_TRY(check_dtypes(manifest));
  ZERO_TRY(share_out(manifest, 1));
  ZERO_TRY(check_patterns(input, request));
  ZERO_TRY(check_tensors(input, tensors_of(manifest, true), request.ignore));
  return manifest;
}

Status write(Manifest& manifest, SafetensorsInput& input, const Request& request) {
  struct stat from, target;
  if (stat_entry(start_of_paths(), request.checkpoint, from) == 0 &&
      stat_entry(start_of_paths(), request.other, target) == 0 && from.st_dev == target.st_dev &&
      from.st_ino == target.st_ino)
    return wrong_state("'", request.other, "' is the input of this import: write elsewhere");
  const auto to = ZERO_TRY(OutputDirectory::create(request.other, request.replace, file_names(1)));
  const std::vector<WholeTensor> tensors = tensors_of(manifest, true);
  const Read read = [&](const WholeTensor& tensor, int64_t first, std::span<std::byte> bytes) {
    return input.read(*input.find(tensor.name()),
                      static_cast<uint64_t>(first) * dtype_bytes(tensor.dtype), bytes);
  };
  return write_checkpoint(*to, manifest, tensors, read, {});
}

}  // namespace

Result<bool> import_model(const Request& request) {
  if (request.format != kHuggingFace)
    return unsupported("torch reads its own files: run python -m libzero import --from ",
                       request.format, " PATH CHECKPOINT");
  if (matches(request.checkpoint, {kShard}) && !matches(request.checkpoint, {kOnlyShard}))
    return invalid("'", request.checkpoint,
                   "' is one of several files of a model: give their directory");
  SafetensorsInput input = ZERO_TRY(SafetensorsInput::open(request.checkpoint, request.ignore));
  Manifest manifest =
      ZERO_TRY(describe_input(input, request).within(text("'", request.checkpoint, "'")));
  ZERO_TRY(write(manifest, input, request));
  if (request.json)
    print_json(Json{{"checkpoint", request.other},
                    {"optimizer", manifest.rule},
                    {"step", manifest.step},
                    {"parameters", manifest.params.size()},
                    {"buffers", manifest.buffers.size()}});
  else
    print_line(text(printable(request.other), ": ", counted(manifest.params.size(), "parameter"),
                    ", ", counted(manifest.buffers.size(), "buffer"), ", step ", manifest.step,
                    " of ", printable(manifest.rule)));
  return true;
}

}  // namespace zero::tool

// SPDX-License-Identifier: Apache-2.0
#include "safetensors_input.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/refusals.h"
#include "commands.h"
#include "model_index.h"
#include "state/file_names.h"
#include "state/json.h"

namespace zero::tool {
namespace {

// The files of models and adapters that consist of one file.
constexpr const char* kOneFile[] = {"model.safetensors", "adapter_model.safetensors"};
constexpr std::string_view kOptimizers[] = {"optimizer.pt", "optimizer.bin"};

using Places = std::map<std::string, std::string>;

/// Returns the file in which each tensor is, according to the index.
Result<Places> read_index(const Directory& directory) {
  const InputFile index = ZERO_TRY(open_input(directory, kIndexName, Links::followed));
  if (index.bytes > kLongestHeader)
    return invalid("'", index.path, "': has ", index.bytes, " bytes, at most ", kLongestHeader);
  std::string bytes(index.bytes, '\0');
  ZERO_TRY(read_fully(index, std::as_writable_bytes(std::span(bytes)), 0));
  return parse_model_index(bytes).within(text("'", index.path, "'"));
}

/// Refuses further files of a model or its optimizer next to the `taken` files. Logs all others.
Status check_others(const Directory& directory, const std::set<std::string>& taken,
                    const Patterns& ignore) {
  Account account(ignore);
  std::string optimizer;
  for (const std::string& name : ZERO_TRY(list_directory(directory))) {
    if (taken.contains(name) || name == kIndexName) continue;
    const bool of_optimizer = std::ranges::find(kOptimizers, name) != std::end(kOptimizers);
    if (of_optimizer || name.ends_with(".safetensors"))
      account.left_over(name);
    else
      account.set_aside(name);
    if (of_optimizer)
      optimizer = "; python -m libzero import --from torch takes the optimizer, too";
  }
  const Status status = account.status();
  if (status.ok()) return status;
  return invalid("'", directory.path, "': ", status.text(), optimizer);
}

/// Compares the contents of files with the index.
Status compare_index(const Places& places, const SafetensorsInput& input,
                     const std::vector<std::string>& files, const Patterns& ignore) {
  Account account(ignore);
  for (const auto& tensor : input.tensors()) {
    const auto place = places.find(tensor.name);
    if (place == places.end() && matches(tensor.name, ignore)) continue;  // reported later
    if (place == places.end())
      account.left_over(tensor.name);
    else if (place->second != files[tensor.file])
      account.differs(text(shown(tensor.name), " is in ", shown(files[tensor.file]), ", not in ",
                           shown(place->second)));
  }
  for (const auto& [name, file] : places)
    if (input.find(name) == nullptr) account.missing(name);
  return account.status();
}

}  // namespace

Result<SafetensorsInput> SafetensorsInput::open(const std::string& path, const Patterns& ignore) {
  SafetensorsInput input;
  if (path == kStandard) {
    ZERO_TRY(input.add({{"standard input", Fd(dup(STDIN_FILENO))}, kEndless}));
    return input;
  }
  const Directory directory = enter(start_of_paths(), path, Links::followed);
  if (!directory.fd.valid()) {
    ZERO_TRY(input.add(ZERO_TRY(open_input(start_of_paths(), path, Links::followed))));
    return input;
  }
  ZERO_TRY(input.add_model(directory, ignore));
  return input;
}

Status SafetensorsInput::add_model(const Directory& directory, const Patterns& ignore) {
  struct stat info;
  const auto is_there = [&](const char* name) { return stat_entry(directory, name, info) == 0; };
  Places places;
  std::set<std::string> names;
  const bool indexed = is_there(kIndexName);
  if (is_there(kManifestName))
    return wrong_state("'", directory.path, "' is a checkpoint already: load it, or reshard it");
  if (indexed) {
    places = ZERO_TRY(read_index(directory));
    for (const auto& [tensor, file] : places) names.insert(file);
  } else {
    const auto found = std::ranges::find_if(kOneFile, is_there);
    names.insert(found == std::end(kOneFile) ? kOneFile[0] : *found);
  }
  ZERO_TRY(check_others(directory, names, ignore));
  for (const std::string& name : names)
    ZERO_TRY(add(ZERO_TRY(open_input(directory, name, Links::followed))));
  if (!indexed) return {};
  return compare_index(places, *this, {names.begin(), names.end()}, ignore)
      .within(text("'", directory.path_of(kIndexName), "'"));
}

Status SafetensorsInput::add(InputFile file) {
  const std::string where = text("'", file.path, "'");
  const uint64_t bytes = file.bytes;
  const size_t number = files_.size();
  files_.push_back(std::move(file));
  std::string first(8, '\0');
  ZERO_TRY(read_at(number, 0, std::as_writable_bytes(std::span(first))));
  std::string json(ZERO_TRY(safetensors_header_bytes(first, bytes).within(where)), '\0');
  ZERO_TRY(read_at(number, 8, std::as_writable_bytes(std::span(json))));
  SafetensorsHeader header = ZERO_TRY(parse_safetensors_header(json, bytes).within(where));
  std::ranges::move(header.metadata, std::back_inserter(metadata_));
  for (TensorEntry& tensor : header.tensors) {
    if (!by_name_.emplace(tensor.name, tensors_.size()).second)
      return invalid(where, ": tensor ", shown(tensor.name), " is in another file, too");
    const uint64_t offset = header.data_start + tensor.begin;
    tensors_.push_back({std::move(tensor), number, offset});
  }
  return {};
}

const SafetensorsInput::Tensor* SafetensorsInput::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::string SafetensorsInput::metadata(std::string_view key) const {
  for (const auto& [name, value] : metadata_)
    if (name == key) return value;
  return "";
}

Status SafetensorsInput::read(const Tensor& tensor, uint64_t skipped, std::span<std::byte> to) {
  return read_at(tensor.file, tensor.offset + skipped, to);
}

Status SafetensorsInput::read_at(size_t number, uint64_t offset, std::span<std::byte> to) {
  const InputFile& file = files_[number];
  if (file.bytes != kEndless) return read_fully(file, to, offset);
  if (offset != position_)
    return unsupported(
        "a pipe must deliver tensors in the order in which they are written (at byte ", position_,
        ", byte ", offset, " is needed): give a file");
  position_ += to.size();
  while (!to.empty()) {
    const ssize_t count = ::read(file.fd.get(), to.data(), to.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error(file.path, "read", errno);
    if (count == 0) return invalid("'", file.path, "' ended before its tensors did");
    to = to.subspan(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace zero::tool

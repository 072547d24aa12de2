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

constexpr const char* kOneFile = "model.safetensors";

/// Returns the names of the files of a model in a directory.
Result<std::set<std::string>> model_files(const Directory& directory) {
  struct stat info;
  if (stat_entry(directory, kIndexName, info) != 0) return std::set<std::string>{kOneFile};
  const InputFile index = ZERO_TRY(open_input(directory, kIndexName, Links::followed));
  if (index.bytes > kLongestHeader)
    return invalid("'", index.path, "': has ", index.bytes, " bytes, at most ", kLongestHeader);
  std::string bytes(index.bytes, '\0');
  ZERO_TRY(read_fully(index, std::as_writable_bytes(std::span(bytes)), 0));
  return parse_model_index(bytes).within(text("'", index.path, "'"));
}

}  // namespace

Result<SafetensorsInput> SafetensorsInput::open(const std::string& path) {
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
  for (const std::string& name : ZERO_TRY(model_files(directory)))
    ZERO_TRY(input.add(ZERO_TRY(open_input(directory, name, Links::followed))));
  return input;
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
    return unsupported("a pipe must bring tensors in the order in which they are written (byte ",
                       position_, " comes, ", offset, " is needed): give a file");
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

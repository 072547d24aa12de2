// SPDX-License-Identifier: Apache-2.0
// Reads tensors of safetensors files that are not a checkpoint: of one file, of a model in several
// files with an index, or of a pipe, which can only be read in its order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "account.h"
#include "state/file.h"
#include "state/safetensors.h"

namespace zero::tool {

class SafetensorsInput {
 public:
  /// `path` is a file, a directory, or "-" for the standard input. Fails if the index and the files
  /// of a directory disagree, or if the directory has other files of a model or an optimizer that
  /// `ignore` does not match.
  static Result<SafetensorsInput> open(const std::string& path, const Patterns& ignore = {});

  struct Tensor : TensorEntry {
    size_t file;
    uint64_t offset;  // of its first byte
  };
  /// Returns all tensors, in file order.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;
  /// Returns the metadata under a key in the first file that has it, or "".
  std::string metadata(std::string_view key) const;

  /// Fills `to` with the bytes of a tensor after the first `skipped`.
  Status read(const Tensor& tensor, uint64_t skipped, std::span<std::byte> to);

 private:
  Status add(InputFile file);
  Status add_model(const Directory& directory, const Patterns& ignore);
  Status read_at(size_t file, uint64_t offset, std::span<std::byte> to);

  std::vector<InputFile> files_;
  uint64_t position_ = 0;  // of a pipe
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace zero::tool

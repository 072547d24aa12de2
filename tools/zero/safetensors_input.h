// SPDX-License-Identifier: Apache-2.0
// Tensors of safetensors files that are no checkpoint: of one file, of a model of several with an
// index, or of a pipe, which gives them in its order alone.
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
  /// `path`: of a file, of a directory, or "-" for the standard input. Fails if a directory's index
  /// and files disagree, or if it has other files of a model or an optimizer that `ignore` does not
  /// name.
  static Result<SafetensorsInput> open(const std::string& path, const Patterns& ignore = {});

  struct Tensor : TensorEntry {
    size_t file;
    uint64_t offset;  // of its first byte
  };
  /// All of them, as they lie in files.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;
  /// Returns what the first file that has it says under a key beside its tensors, or "".
  std::string metadata(std::string_view key) const;

  /// Fills `to` with bytes of a tensor from `skipped` on.
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

// SPDX-License-Identifier: Apache-2.0
// The index of an untrusted model in several files.
#include "model_index.h"

#include "fuzz/input.h"

using namespace zero;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto files = tool::parse_model_index(json);
  if (!files.ok()) return fuzz::must_refuse(files.failure(), {ZERO_ERR_CKPT_INVALID}), 0;
  for (const auto& [tensor, name] : *files) {
    fuzz::must(!name.empty() && name[0] != '.', "a file has a name, and is not hidden");
    fuzz::must(name.find_first_of(std::string_view("/\0", 2)) == name.npos,
               "a file lies beside the index");
  }
  return 0;
}

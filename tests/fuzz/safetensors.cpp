// SPDX-License-Identifier: Apache-2.0
// An untrusted safetensors file.
#include "state/safetensors.h"

#include <string>

#include "fuzz/input.h"

using namespace zero;

namespace {

Result<SafetensorsHeader> parse(std::string_view file) {
  const uint64_t length = ZERO_TRY(safetensors_header_bytes(file.substr(0, 8), file.size()));
  return parse_safetensors_header(file.substr(8, length), file.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  Result<SafetensorsHeader> header = parse(file);
  if (!header.ok()) {
    fuzz::must_refuse(header.failure(), {ZERO_ERR_CKPT_INVALID});
    return 0;
  }
  uint64_t end = 0;
  for (const TensorEntry& tensor : header->tensors) {
    fuzz::must(tensor.begin == end && tensor.end >= end, "tensors lie one behind the other");
    end = tensor.end;
  }
  fuzz::must(header->data_start + end == size, "the last tensor ends with the file");
  Result<std::string> built = build_safetensors_header(*header);
  fuzz::must(built.ok(), "what was parsed can be written");
  fuzz::must(parse(*built + std::string(end, '\0')).ok(), "what was written can be parsed");
  return 0;
}

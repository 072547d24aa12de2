// SPDX-License-Identifier: Apache-2.0
// Reads the shapes of a model that may not exist yet, and computes how libzero would divide it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "commands.h"

namespace zero::tool {

struct ModelTensor {
  std::string name;
  std::string dtype;  // such as "F32"
  std::vector<int64_t> shape;
};

/// Reads the shapes of the model that a request names: from a config.json, a checkpoint, the header
/// of a safetensors file, or a file with lines "NAME 768x3072 F32", in which the dtype is optional.
/// Returns one tensor for a number of parameters such as "7B".
Result<std::vector<ModelTensor>> read_model(const Request& request);
/// Returns the word that names the model on the command line.
const std::string& name_of_model(const Request& request);

std::vector<std::string> rule_names();
/// Returns the ZERO_OPTIMIZER_* number of a rule, or a failure that lists all rules.
Result<int32_t> number_of_rule(const std::string& name);

/// The parameters of a division.
struct Division {
  int32_t world = 1;
  std::string rule, partition;
  int32_t instances = 1;
};

struct Divided {
  int64_t state_bytes = 0;        // of the busiest rank
  std::vector<int64_t> elements;  // by rank
  std::vector<int32_t> owners;    // by trained tensor, or ZERO_OWNER_SPLIT
};

/// Returns the tensors that can be trained, with their dtype changed to `dtype` unless that is "".
std::vector<ModelTensor> trained(const std::vector<ModelTensor>& model, const std::string& dtype);
Result<Divided> divide(const std::vector<ModelTensor>& trained, const Division& division);

/// Returns the total size of tensors in bytes, as if they had `dtype` unless that is "".
uint64_t bytes_of_tensors(const std::vector<ModelTensor>& tensors, const std::string& dtype);

}  // namespace zero::tool

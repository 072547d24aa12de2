// SPDX-License-Identifier: Apache-2.0
// Defines architectures of models: the names and shapes of their parameters, as in transformers.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config_keys.h"
#include "model.h"

namespace zero::tool {

/// Collects the parameters of layers, which have one dtype.
class ModelShapes {
 public:
  explicit ModelShapes(std::string dtype) : dtype_(std::move(dtype)) {}

  void add(const std::string& name, std::vector<int64_t> shape) {
    tensors_.push_back({name, dtype_, std::move(shape)});
  }
  void linear(const std::string& name, int64_t out, int64_t in, bool bias = true) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }
  void norm(const std::string& name, int64_t size, bool bias = true) {
    add(name + ".weight", {size});
    if (bias) add(name + ".bias", {size});
  }
  std::vector<ModelTensor> take() && { return std::move(tensors_); }

 private:
  const std::string dtype_;
  std::vector<ModelTensor> tensors_;
};

struct Architecture {
  const char* type;                  // such as "gpt2"
  std::vector<std::string> classes;  // the first is used if a config names none
  void (*add)(ConfigKeys& keys, ModelShapes& shapes, const std::string& name);
};

std::span<const Architecture> architectures();

}  // namespace zero::tool

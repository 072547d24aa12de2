// SPDX-License-Identifier: Apache-2.0
// A small model of one rank for tests of state. It takes steps with made-up gradients, saves and
// loads. It returns its whole state as bytes that do not depend on who owns what.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/create.h"
#include "optim/optimizer.h"

namespace zero::test {

struct ModelParam {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
};

struct ModelBuffer {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;
};

struct ModelSpec {
  std::vector<std::vector<ModelParam>> groups;  // one registration each
  std::vector<ModelBuffer> buffers = {};
  std::string rule = "adamw";
  std::vector<std::pair<std::string, double>> settings = {};  // of every group
  int32_t partition = ZERO_PARTITION_EVEN;
  int64_t bucket_bytes = 16'384;
  int32_t master = ZERO_MASTER_FLOAT32;
  bool saves_behind = false;           // begins each save and then waits for it
  bool extras = false;                 // each rank sets one extra, which depends on the step count
  uint32_t missing_from = UINT32_MAX;  // parameters from this number on never have a gradient
};

/// Returns parameters of odd shapes and several dtypes, including empty ones, single elements and
/// ones cut between ranks, and buffers of all dtypes.
ModelSpec odd_model();

class Model {
 public:
  Model(std::shared_ptr<Comm> comm, const ModelSpec& spec);

  Optimizer& optim() { return optim_; }

  Status seal();
  /// Takes a step. Gradients depend only on parameter, element and step count. Buffers receive the
  /// values of that step count.
  Status step();
  Status save(const std::string& directory, int32_t flags = 0);
  Status begin_save(const std::string& directory, int32_t flags = 0);
  Status await_save();
  Status load(const std::string& directory, int32_t flags = 0);

  /// Collective. Returns the settings, step counts, parameters and buffers of this rank, the state
  /// of all ranks and the extras of rank 0, bitwise exact, or "failed: ..." if the group is broken.
  std::string state();

 private:
  Optimizer optim_;
  void fill_buffers();  // and extras

  std::vector<std::vector<double>> data_, grad_, buffers_;  // storage, aligned for any dtype
  const uint32_t missing_from_;
  const bool saves_behind_;
  const bool extras_;
};

/// Returns a sealed model of one rank. Aborts the test program if that fails.
std::unique_ptr<Model> solo_model(const ModelSpec& spec);

/// Returns a rank's sealed model on a local comm of that name, or null if the group did not form.
std::unique_ptr<Model> local_model(const ModelSpec& spec, std::string_view name, int rank,
                                   int world, const CommOptions& options = {});

/// Returns "" for success, and otherwise "ZERO_ERR_...: text".
std::string told(const Status& status);

}  // namespace zero::test

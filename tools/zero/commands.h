// SPDX-License-Identifier: Apache-2.0
// Declares the commands of zero. Each prints its findings, and returns whether all is well. A
// failure is a sentence for the error stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace zero::tool {

inline constexpr const char* kStandard = "-";  // in place of a file: the standard input or output
inline constexpr const char* kHuggingFace = "hf";
inline constexpr const char* kHelp = "help";

/// What the command line asks for.
struct Request {
  std::string checkpoint, other;  // other: the second checkpoint, or the file to write
  bool json = false;
  bool with_state = false;
  bool replace = false;
  std::string format;                    // of export and import: "hf", "torch" or "dcp"
  std::vector<std::string> ignore;       // of import: patterns of names
  uint64_t shard_bytes = 5'000'000'000;  // of tensors in a file
  // Of top.
  double interval_s = 1;
  int64_t count = 0;
  // Of estimate and plan, for a model that `checkpoint` or `config` names. Import also uses the
  // rule, and reshard the world.
  std::string config, partition = "even", grad_dtype;
  std::vector<std::string> rules = {"adamw"}, dtypes = {""};
  std::vector<int32_t> worlds = {1, 2, 4, 8, 16, 32, 64};
  int32_t instances = 1;
  int32_t hosts = 1, ranks_per_host = 0;  // 0: use `hosts`
};

Result<bool> inspect(const Request& request);
Result<bool> verify(const Request& request);
Result<bool> diff(const Request& request);
Result<bool> merge(const Request& request);
Result<bool> reshard(const Request& request);
Result<bool> export_model(const Request& request);
Result<bool> import_model(const Request& request);
Result<bool> doctor(const Request& request);
Result<bool> estimate(const Request& request);
Result<bool> plan(const Request& request);
/// For these two, `checkpoint` is a directory of traces; top also accepts a process ID.
Result<bool> merge_traces(const Request& request);
Result<bool> top(const Request& request);

}  // namespace zero::tool

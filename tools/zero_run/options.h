// SPDX-License-Identifier: Apache-2.0
// The command line of zero-run, and what its exit codes mean.
#pragma once

namespace zero_run {

inline constexpr int kMostRanks = 1024;

inline constexpr int kUsage = 2;
inline constexpr int kSystem = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

struct Options {
  int ranks = 0;
  bool prefix = true;
  char** program = nullptr;  // and its arguments, ending with nullptr
};

/// Exits after --help, --version and mistakes.
Options parse_options(char** arguments);

}  // namespace zero_run

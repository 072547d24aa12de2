// SPDX-License-Identifier: Apache-2.0
// Defines the command line of zero-run, and its exit codes.
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
  char** program = nullptr;  // and its arguments; ends with nullptr
};

/// Exits after --help, after --version and after mistakes.
Options parse_options(char** arguments);

}  // namespace zero_run

// SPDX-License-Identifier: Apache-2.0
// Queries the kernel about other processes, for error messages and to find a process's ancestors.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// The state of a process from /proc/<pid>/stat.
struct ProcessStat {
  std::string command;  // at most 15 characters
  char state = '?';
  int64_t parent = 0;
  uint64_t flags = 0;
  uint64_t started = 0;     // in clock ticks after boot; tells reused process numbers apart
  int64_t exit_status = 0;  // as in waitpid; also 0 if unknown
};
std::optional<ProcessStat> parse_process_stat(std::string_view text);
std::optional<ProcessStat> read_process_stat(int64_t pid);

/// Returns the state of the process as a word, such as "running", "sleeping" or "stopped".
const char* process_state(pid_t pid);

/// Describes how a process that has ended, or is ending, left: "died", or "ended" with its exit
/// code if the kernel still reports it. `pidfd` may be -1.
std::string how_it_left(pid_t pid, int pidfd);

/// Returns true if the process of a pidfd has ended. Waits for this up to `timeout_ms`.
bool pidfd_ended(int pidfd, int timeout_ms);

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Asks the kernel about another process: for the sentences of errors, and for who started whom.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// One process as /proc/<pid>/stat tells it.
struct ProcessStat {
  std::string command;  // at most 15 characters
  char state = '?';
  int64_t parent = 0;
  uint64_t flags = 0;
  uint64_t started = 0;  // clock ticks after boot: tells processes apart that had the same number
  int64_t exit_status = 0;  // as waitpid gives it; 0 also if it is not known
};
std::optional<ProcessStat> parse_process_stat(std::string_view text);
std::optional<ProcessStat> read_process_stat(int64_t pid);

/// Returns "running", "sleeping", "stopped", ...
const char* process_state(pid_t pid);

/// Returns how a process left that is gone, or going: "died", or "ended" and with which exit code
/// if the kernel still tells. `pidfd` may be -1.
std::string how_it_left(pid_t pid, int pidfd);

/// True if a pidfd says that its process has ended. Waits for that up to `timeout_ms`.
bool pidfd_ended(int pidfd, int timeout_ms);

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
#include "comm/process.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/os.h"
#include "base/text.h"

namespace zero {
namespace {

constexpr int64_t kLeavingMs = 20;  // for a process that the kernel is still removing

/// Returns the wait status of a process that is ending and has not been reaped.
std::optional<int> status_of_leaving(pid_t pid) {
  constexpr uint64_t kExiting = 4;  // PF_EXITING
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  if (!stat || (stat->flags & kExiting) == 0) return std::nullopt;
  // The kernel also reports 0 if the status is not set yet, or is hidden from this user.
  if (stat->exit_status == 0 && stat->state != 'Z') return std::nullopt;
  return static_cast<int>(stat->exit_status);
}

/// Returns the wait status of a process that has been reaped. Kernels report it since 6.15.
std::optional<int> status_of_left(int pidfd) {
  PidfdInfo info{};
  info.mask = PidfdInfo::kExit;
  if (os().pidfd_get_info(pidfd, &info) != 0 || (info.mask & PidfdInfo::kExit) == 0)
    return std::nullopt;
  return info.exit_code;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  // The format is "<pid> (<command>) <state> <parent> ..."; a command may contain ") ".
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  std::vector<std::string_view> words;  // starting with the third field
  for (size_t at = close + 1; (at = text.find_first_not_of(" \n", at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  const auto number = [&](size_t field, auto& out) {  // numbered as in proc(5)
    if (words.size() + 3 <= field) return false;
    const std::string_view word = words[field - 3];
    return std::from_chars(word.begin(), word.end(), out).ptr == word.end();
  };
  ProcessStat stat;
  stat.command = text.substr(open + 1, close - open - 1);
  if (!number(4, stat.parent) || !number(22, stat.started)) return {};
  stat.state = words[0][0];
  (void)number(9, stat.flags);
  (void)number(52, stat.exit_status);
  return stat;
}

std::optional<ProcessStat> read_process_stat(int64_t pid) {
  return parse_process_stat(read_small_file(text("/proc/", pid, "/stat").c_str()));
}

const char* process_state(pid_t pid) {
  constexpr struct {
    char state;
    const char* words;
  } kStates[] = {{'R', "running"},
                 {'S', "sleeping"},
                 {'D', "in an uninterruptible system call"},
                 {'T', "stopped"},
                 {'t', "stopped by a debugger"},
                 {'Z', "ended"},
                 {'X', "ended"}};
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  for (const auto& one : kStates)
    if (stat && stat->state == one.state) return one.words;
  return "state unknown";
}

std::string how_it_left(pid_t pid, int pidfd) {
  const Deadline deadline(kLeavingMs);
  std::optional<int> status;
  do {
    status = status_of_leaving(pid);
    if (!status && pidfd >= 0) status = status_of_left(pidfd);
    // Wait: a slice of kLeavingMs.
    if (!status) os().poll(nullptr, 0, 1);
  } while (!status && !deadline.passed());
  const bool exited = status && (*status & 0x7f) == 0;  // it was not killed by a signal
  if (!exited) return "died";
  if (const int code = *status >> 8 & 0xff; code != 0)
    return text("ended with exit code ", code, ": see its own output for the reason");
  return "ended before the others: a rank that runs out of data calls zero_join, not exit";
}

bool pidfd_ended(int pidfd, int timeout_ms) {
  pollfd one{pidfd, POLLIN, 0};
  // Wait: timeout_ms, which is 0 wherever others wait.
  return os().poll(&one, 1, timeout_ms) == 1 && (one.revents & POLLIN) != 0;
}

}  // namespace zero

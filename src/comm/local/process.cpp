// SPDX-License-Identifier: Apache-2.0
#include "comm/local/process.h"

#include <fcntl.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/os.h"
#include "base/text.h"

namespace zero::local {
namespace {

constexpr int64_t kLeavingMs = 20;  // for a process that the kernel is still taking down

/// What follows "pid (name) " in the process's line in /proc; the name may contain anything.
std::string read_stat(pid_t pid) {
  const std::string path = text("/proc/", pid, "/stat");
  Fd fd(os().openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC, 0));
  char content[1024];
  const ssize_t bytes = fd.valid() ? os().pread(fd.get(), content, sizeof content, 0) : 0;
  const std::string_view line(content, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const size_t end = line.rfind(") ");
  return std::string(end == std::string_view::npos ? std::string_view() : line.substr(end + 2));
}

/// The field of that number, as proc(5) counts them.
long long field(const std::string& stat, int number) {
  size_t at = 0;
  for (int i = 3; i < number && at != std::string::npos; i++) at = stat.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoll(stat.c_str() + at, nullptr, 10);
}

/// The wait status of a process that is leaving and has not been waited for.
std::optional<int> status_of_leaving(pid_t pid) {
  constexpr long long kExiting = 4;  // PF_EXITING
  const std::string stat = read_stat(pid);
  if ((field(stat, 9) & kExiting) == 0) return std::nullopt;
  const auto status = static_cast<int>(field(stat, 52));
  // 0 is said, too, where the status is not set yet or not for everybody to see.
  if (status == 0 && stat[0] != 'Z') return std::nullopt;
  return status;
}

/// The wait status of a process that has been waited for, from kernels since 6.15.
std::optional<int> status_of_left(int pidfd) {
  PidfdInfo info{};
  info.mask = PidfdInfo::kExit;
  if (os().pidfd_get_info(pidfd, &info) != 0 || (info.mask & PidfdInfo::kExit) == 0)
    return std::nullopt;
  return info.exit_code;
}

}  // namespace

const char* process_state(pid_t pid) {
  switch (const std::string stat = read_stat(pid); stat.empty() ? '?' : stat[0]) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "waiting for a device";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
    case 'X':
      return "ended";
    default:
      return "state unknown";
  }
}

std::string how_it_left(pid_t pid, int pidfd) {
  const int64_t end = now_ms() + kLeavingMs;
  std::optional<int> status;
  do {
    status = status_of_leaving(pid);
    if (!status && pidfd >= 0) status = status_of_left(pidfd);
    // Wait: a slice of kLeavingMs.
    if (!status) os().poll(nullptr, 0, 1);
  } while (!status && now_ms() < end);
  const bool exited = status && (*status & 0x7f) == 0;  // no signal ended it
  if (!exited) return "died";
  if (const int code = *status >> 8 & 0xff; code != 0)
    return text("ended with exit code ", code, ": it said why, if anybody did");
  return "ended before the others: a rank that has no more data calls zero_join, not exit";
}

}  // namespace zero::local

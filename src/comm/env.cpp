// SPDX-License-Identifier: Apache-2.0
// The comm that the launcher's variables ask for.
#include <fcntl.h>
#include <stdlib.h>

#include <array>
#include <string>
#include <string_view>

#include "base/os.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/launch.h"

namespace zero {
namespace {

const char* variable(const char* name) { return secure_getenv(name); }

std::optional<ProcessStat> process_stat(int64_t pid) {
  const Fd file(
      os().openat(AT_FDCWD, text("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC, 0));
  if (!file.valid()) return {};
  std::array<char, 1024> content;
  const ssize_t bytes = os().pread(file.get(), content.data(), content.size(), 0);
  if (bytes <= 0) return {};
  return parse_process_stat({content.data(), static_cast<size_t>(bytes)});
}

/// Hydra sets no variable that is the same on all ranks and differs between jobs. What ranks share
/// is the proxy that started them: not always their parent, as scripts may stand between. "" if
/// there is none.
std::string hydra_job() {
  constexpr int kDeepest = 64;
  int64_t pid = os().getpid();
  for (int depth = 0; depth < kDeepest && pid > 0; ++depth) {
    const std::optional<ProcessStat> process = process_stat(pid);
    if (!process) return "";
    if (process->command.starts_with("hydra_")) return text("hydra:", pid, ':', process->started);
    pid = process->parent;
  }
  return "";
}

}  // namespace

Result<std::shared_ptr<Comm>> create_env(CommOptions given, std::shared_ptr<Device> device) {
  const CommOptions options = ZERO_TRY(read_timeouts(variable, given));
  Launched launch = ZERO_TRY(read_launch(variable));
  if (launch.world == 1) return create_solo(options, std::move(device));
  if (device != nullptr) {
    return Status(ZERO_ERR_UNSUPPORTED,
                  text(launch.launcher, " started ", launch.world,
                       " ranks: this comm joins several on the host only, not on ", device->kind(),
                       ' ', device->ordinal()));
  }
  if (launch.hydra) {
    std::string job = hydra_job();
    if (!job.empty()) launch.job = std::move(job);
  }
  if (launch.job.empty()) {
    return Status(
        ZERO_ERR_ARGUMENT,
        text("rank ", launch.rank, " of ", launch.world, ": no variable of ", launch.launcher,
             " tells this job from others on this host; set ZERO_JOB to the same word on all "
             "its ranks, and to another for every job"));
  }
  return create_local(comm_name(launch.job), launch.rank, launch.world, options);
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// The comm that the launcher's variables ask for.
#include <stdlib.h>

#include <string>
#include <string_view>

#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/launch.h"
#include "comm/process.h"

namespace zero {
namespace {

const char* variable(const char* name) { return secure_getenv(name); }

/// Hydra sets no variable that is the same on all ranks and differs between jobs. What ranks share
/// is the proxy that started them: not always their parent, as scripts may stand between. "" if
/// there is none.
std::string hydra_job() {
  constexpr int kDeepest = 64;
  int64_t pid = os().getpid();
  for (int depth = 0; depth < kDeepest && pid > 0; ++depth) {
    const std::optional<ProcessStat> process = read_process_stat(pid);
    if (!process) return "";
    if (process->command.starts_with("hydra_")) return text("hydra:", pid, ':', process->started);
    pid = process->parent;
  }
  return "";
}

/// Sets `launch.job`, or tells what to do.
Status name_job(Launched& launch) {
  if (launch.hydra) {
    std::string job = hydra_job();
    if (!job.empty()) launch.job = std::move(job);
  }
  if (!launch.job.empty()) return {};
  return {ZERO_ERR_ARGUMENT,
          text("rank ", launch.rank, " of ", launch.world, ": no variable of ", launch.launcher,
               " tells this job from others on this host; set ZERO_JOB to the same word on all "
               "its ranks, and to another for every job")};
}

Result<std::shared_ptr<Comm>> create_on_host(Launched launch, const CommOptions& options) {
  if (launch.hosts == Hosts::several) {
    return Status(ZERO_ERR_UNSUPPORTED,
                  text(launch.launcher, " started ranks on several hosts (", launch.evidence,
                       "), which libzero joins on GPUs only: start them all on one host, set "
                       "device to ZERO_DEVICE_CUDA, or bring collectives of your own with "
                       "zero_comm_create_user"));
  }
  ZERO_TRY(name_job(launch));
  return create_local(comm_name(launch.job), launch.rank, launch.world, options, nullptr,
                      launch.job);
}

/// NCCL joins ranks on any number of hosts; on one there may be a better way.
Result<std::shared_ptr<Comm>> create_on_devices(const Lookup& lookup, Launched launch,
                                                const CommOptions& options,
                                                const OpenDevice& open) {
  const std::optional<Meetpoint> point = ZERO_TRY(read_meetpoint(lookup, launch));
  if (point) return create_launched_at(*point, open(launch.local_rank), launch, options);
  ZERO_TRY(name_job(launch));
  return create_launched_here(open(launch.local_rank), launch, options);
}

Result<std::shared_ptr<Comm>> create_launched(const Lookup& lookup, const Launched& launch,
                                              const CommOptions& options, const OpenDevice& open) {
  if (launch.world == 1)
    return create_solo(options, open ? ZERO_TRY(open(launch.local_rank)) : nullptr);
  return open ? create_on_devices(lookup, launch, options, open) : create_on_host(launch, options);
}

}  // namespace

Result<std::shared_ptr<Comm>> create_env(const Lookup& lookup, CommOptions given,
                                         const OpenDevice& open) {
  const CommOptions options = ZERO_TRY(read_timeouts(lookup, given));
  const Launched launch = ZERO_TRY(read_launch(lookup));
  std::shared_ptr<Comm> comm = ZERO_TRY(create_launched(lookup, launch, options, open));
  log(ZERO_LOG_INFO,
      text("zero_comm_create_env: ", launch.launcher == nullptr ? "no launcher" : launch.launcher,
           ", rank ", launch.rank, " of ", launch.world, ", ", comm->kind(), " comm"));
  return comm;
}

std::string word_of_job() {
  if (const char* job = value_of(variable, "ZERO_JOB")) return job;
  Result<Launched> launch = read_launch(variable);
  const bool several = launch.ok() && launch->world > 1;
  return several && name_job(*launch).ok() ? launch->job : std::string();
}

Result<std::shared_ptr<Comm>> create_env(CommOptions given, const OpenDevice& open) {
  return create_env(variable, given, open);
}

}  // namespace zero

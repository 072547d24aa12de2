// SPDX-License-Identifier: Apache-2.0
#include "comm/launch.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"

namespace zero {
namespace {

struct Source {
  const char* launcher;
  const char* rank;
  const char* world;
  const char* local_rank;   // among the ranks of this host
  const char* local_world;  // number of ranks on this host
};

constexpr Source kZeroRun = {"zero-run", "ZERO_RANK", "ZERO_WORLD_SIZE", "ZERO_LOCAL_RANK",
                             "ZERO_LOCAL_WORLD_SIZE"};
constexpr Source kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Source kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Source kHydra = {"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Source kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
constexpr const Source* kSources[] = {&kZeroRun, &kTorchrun, &kOpenMpi, &kHydra, &kSlurm};

constexpr int64_t kLongestWaitMs = 1'000'000'000'000;  // 31 years; sums cannot overflow

/// Rejects a variable whose counterpart is missing. Slurm's variables are exempt, because an
/// allocation sets some of them outside of its steps.
Status half_set(const Lookup& lookup) {
  for (const Source* source : kSources) {
    if (source == &kSlurm) continue;
    const char* rank = value_of(lookup, source->rank);
    const char* world = value_of(lookup, source->world);
    if ((rank == nullptr) == (world == nullptr)) continue;
    const bool has_rank = rank != nullptr;
    return {
        ZERO_ERR_ARGUMENT,
        text(has_rank ? source->rank : source->world, " is '", has_rank ? rank : world, "', but ",
             has_rank ? source->world : source->rank, " is not set: set both or neither")};
  }
  return {};
}

const Source* first_complete(const Lookup& lookup) {
  for (const Source* source : kSources) {
    if (value_of(lookup, source->rank) && value_of(lookup, source->world)) return source;
  }
  return nullptr;
}

/// Sets `hosts`, and `evidence` if there are several hosts.
Status read_hosts(const Lookup& lookup, const Source& source, Launched& launch) {
  launch.hosts = Hosts::unknown;
  const auto found = [&](bool one, std::string evidence) {
    launch.hosts = one ? Hosts::one : Hosts::several;
    if (!one) launch.evidence = std::move(evidence);
    return Status();
  };
  if (const char* local = value_of(lookup, source.local_world)) {
    const int64_t here = ZERO_TRY(number(source.local_world, local, 1, launch.world));
    return found(here == launch.world, text(source.local_world, " is ", here, " and ", source.world,
                                            " is ", launch.world));
  }
  // These also count if a job script passes Slurm's numbers on as RANK and WORLD_SIZE.
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) {
    const char* value = value_of(lookup, name);
    if (value == nullptr) continue;
    return found(ZERO_TRY(number(name, value, 1, INT32_MAX)) == 1, text(name, " is ", value));
  }
  return {};
}

Status read_local_rank(const Lookup& lookup, const Source& source, Launched& launch) {
  // The last variable is for job scripts that pass Slurm's numbers on.
  for (const char* name : {"ZERO_LOCAL_RANK", source.local_rank, "SLURM_LOCALID"}) {
    const char* value = value_of(lookup, name);
    if (value == nullptr) continue;
    launch.local_rank = static_cast<int32_t>(ZERO_TRY(number(name, value, 0, INT32_MAX)));
    return {};
  }
  launch.local_rank = launch.hosts == Hosts::one ? launch.rank : -1;
  return {};
}

const char* slurm_step(const Lookup& lookup) {
  const char* step = value_of(lookup, "SLURM_STEP_ID");
  return step != nullptr ? step : value_of(lookup, "SLURM_STEPID");
}

/// Returns another set of variables that describes several ranks although `source`, which takes
/// precedence, describes one. If the variables of `source` are leftovers, each rank would become a
/// job of its own. torchrun's numbers are right inside other launchers, which start its agents.
/// Slurm's variables count only within a step.
const Source* more_ranks(const Lookup& lookup, const Source& source) {
  if (&source == &kZeroRun) return nullptr;
  if (&source == &kTorchrun && value_of(lookup, "TORCHELASTIC_RUN_ID") != nullptr) return nullptr;
  for (const Source* other : kSources) {
    if (other == &source || (other == &kSlurm && slurm_step(lookup) == nullptr)) continue;
    const char* world = value_of(lookup, other->world);
    if (world == nullptr || value_of(lookup, other->rank) == nullptr) continue;
    if (Result<int64_t> ranks = number(other->world, world, 2, INT32_MAX); ranks.ok()) return other;
  }
  return nullptr;
}

/// Checks that a world of one rank is intended.
Status check_alone(const Lookup& lookup, const Source& source) {
  const Source* more = more_ranks(lookup, source);
  if (more == nullptr) return {};
  return {ZERO_ERR_ARGUMENT,
          text(source.world, " is 1 (", source.launcher, "), but ", more->world, " is ",
               value_of(lookup, more->world), " (", more->launcher, "): unset ", source.rank,
               " and ", source.world, ", or ", more->rank, " and ", more->world,
               ", or set ZERO_RANK and ZERO_WORLD_SIZE, which take precedence over both")};
}

/// Returns "torchrun:<value>:<value>" with the variables that are set, or "" if none is set.
std::string listed_values(const Lookup& lookup, std::string_view prefix,
                          std::initializer_list<const char*> names) {
  std::string out;
  for (const char* name : names) {
    const char* value = value_of(lookup, name);
    if (value != nullptr) out += text(out.empty() ? prefix : "", ':', value);
  }
  return out;
}

/// Returns the values of the launcher's variables that distinguish jobs, or "". Restart counts and
/// the name of rank 0's host can differ between hosts, so they are used only `on_this_host`.
std::string job_of(const Lookup& lookup, const Source& source, bool on_this_host) {
  if (const char* job = value_of(lookup, "ZERO_JOB")) return job;
  std::string job;
  if (&source == &kTorchrun && on_this_host) {
    job = listed_values(
        lookup, "torchrun",
        {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"});
  } else if (&source == &kTorchrun) {
    job = listed_values(lookup, "torchrun", {"TORCHELASTIC_RUN_ID", "MASTER_PORT"});
  } else if (&source == &kOpenMpi) {
    // The namespace contains a process number. Open MPI 4 adds a random key.
    job = listed_values(lookup, "openmpi",
                        {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid",
                         "OMPI_MCA_orte_precondition_transports"});
  }
  const char* slurm_job = value_of(lookup, "SLURM_JOB_ID");
  const char* step = slurm_step(lookup);
  if (job.empty() && &source != &kZeroRun && slurm_job != nullptr && step != nullptr) {
    job = text("slurm:", slurm_job, ':', step);
    if (const char* restarts = value_of(lookup, "SLURM_RESTART_COUNT")) job += text(':', restarts);
  }
  return job;
}

}  // namespace

Result<Launched> read_launch(const Lookup& lookup) {
  const Source* source = first_complete(lookup);
  if (source == nullptr) {
    ZERO_TRY(half_set(lookup));
    return Launched{};
  }
  Launched launch;
  launch.launcher = source->launcher;
  launch.world = static_cast<int32_t>(
      ZERO_TRY(number(source->world, value_of(lookup, source->world), 1, INT32_MAX)));
  launch.rank = static_cast<int32_t>(
      ZERO_TRY(number(source->rank, value_of(lookup, source->rank), 0, launch.world - 1)));
  if (launch.world == 1) {
    ZERO_TRY(check_alone(lookup, *source));
    ZERO_TRY(read_local_rank(lookup, *source, launch));
    return launch;
  }
  if (source == &kSlurm && slurm_step(lookup) == nullptr) {
    return Status(ZERO_ERR_ARGUMENT,
                  text("SLURM_NTASKS is ", launch.world,
                       ", but SLURM_STEP_ID is not set: this process "
                       "is in a Slurm job, but not in a job step; start the ranks with srun"));
  }
  ZERO_TRY(read_hosts(lookup, *source, launch));
  ZERO_TRY(read_local_rank(lookup, *source, launch));
  launch.job = job_of(lookup, *source, true);
  launch.job_of_all_hosts = job_of(lookup, *source, false);
  launch.slurm = source == &kSlurm;
  launch.brings_mpi = source == &kOpenMpi || source == &kHydra || source == &kSlurm;
  launch.hydra = source == &kHydra && value_of(lookup, "ZERO_JOB") == nullptr;
  return launch;
}

Result<CommOptions> read_timeouts(const Lookup& lookup, CommOptions given) {
  const CommOptions defaults;
  const auto fill = [&](const char* name, int64_t& option, int64_t otherwise) -> Status {
    if (option != -1) return {};
    const char* value = value_of(lookup, name);
    option = value == nullptr ? otherwise : ZERO_TRY(number(name, value, 1, kLongestWaitMs));
    return {};
  };
  ZERO_TRY(fill("ZERO_TIMEOUT_MS", given.timeout_ms, defaults.timeout_ms));
  ZERO_TRY(fill("ZERO_LATE_MS", given.late_ms, defaults.late_ms));
  ZERO_TRY(fill("ZERO_RENDEZVOUS_MS", given.rendezvous_ms, defaults.rendezvous_ms));
  return given;
}

std::string comm_name(const std::string& job) {
  constexpr size_t kLongestName = 64;
  if (job.size() <= kLongestName) return job;
  return text("zero-job:", hex(hash128(bytes_of(job))));
}

// ---- The address at which the ranks of several hosts find rank 0.

namespace {

constexpr int64_t kMostPort = 65535;
// These ports lie below the range from which systems assign ports to connections.
constexpr uint64_t kFirstPort = 20'000;
constexpr uint64_t kPorts = 10'000;

/// Sets the host, which stays empty if no variable names it.
void read_host(const Lookup& lookup, const Launched& launch, Meetpoint& point) {
  const auto take = [&](const char* name) {
    const char* value = value_of(lookup, name);
    if (value == nullptr) return false;
    point.host = value;
    point.origin = text(name, " is '", value, "'");
    return true;
  };
  if (take("ZERO_MASTER_ADDR") || launch.hosts == Hosts::one || take("MASTER_ADDR")) return;
  if (!launch.slurm || launch.hosts != Hosts::several) return;
  if (take("SLURM_STEP_NODELIST") || take("SLURM_JOB_NODELIST"))
    point.host = first_host(point.host);
}

Status read_port(const Lookup& lookup, const Launched& launch, Meetpoint& point) {
  if (const char* value = value_of(lookup, "ZERO_MASTER_PORT")) {
    point.port = static_cast<uint16_t>(ZERO_TRY(number("ZERO_MASTER_PORT", value, 1, kMostPort)));
    point.origin += ", and the port ZERO_MASTER_PORT";
    return {};
  }
  // MASTER_PORT itself belongs to torch, whose store may listen there.
  if (const char* value = value_of(lookup, "MASTER_PORT")) {
    const int64_t theirs = ZERO_TRY(number("MASTER_PORT", value, 1, kMostPort));
    point.port = static_cast<uint16_t>(theirs < kMostPort ? theirs + 1 : theirs - 1);
    point.origin += ", and the port is next to MASTER_PORT";
    return {};
  }
  if (launch.job_of_all_hosts.empty()) {
    return {ZERO_ERR_ARGUMENT, text(point.origin,
                                    ", but no variable gives the port where the ranks meet: set "
                                    "ZERO_MASTER_PORT to a free port on that host")};
  }
  point.port =
      static_cast<uint16_t>(kFirstPort + hash64(bytes_of(launch.job_of_all_hosts)) % kPorts);
  point.origin += ", and the port is derived from the job";
  return {};
}

}  // namespace

Result<std::optional<Meetpoint>> read_meetpoint(const Lookup& lookup, const Launched& launch) {
  Meetpoint point;
  read_host(lookup, launch, point);
  if (!point.host.empty()) {
    ZERO_TRY(read_port(lookup, launch, point));
    return std::optional(std::move(point));
  }
  if (launch.hosts != Hosts::several) return std::optional<Meetpoint>();
  return Status(ZERO_ERR_ARGUMENT,
                text(launch.launcher, " started ranks on several hosts (", launch.evidence,
                     "), but no variable says where rank 0 is: set ZERO_MASTER_ADDR to its host's "
                     "name or address, and ZERO_MASTER_PORT to a free port there"));
}

std::string first_host(std::string_view list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const size_t end = std::min(list.find(']', at), list.size());
    const std::string_view inside = list.substr(at + 1, end - at - 1);
    host += inside.substr(0, inside.find_first_of(",-"));
    at = end;
  }
  return host;
}

}  // namespace zero

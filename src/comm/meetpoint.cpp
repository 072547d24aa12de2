// SPDX-License-Identifier: Apache-2.0
#include "comm/meetpoint.h"

#include "base/hash.h"
#include "base/text.h"

namespace zero {
namespace {

constexpr int64_t kMostPort = 65535;
// Below the ports that systems give to connections.
constexpr uint64_t kFirstPort = 20'000;
constexpr uint64_t kPorts = 10'000;

/// Sets the host; it stays empty if no variable names it.
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
  // That port itself is torch's, whose store may listen there.
  if (const char* value = value_of(lookup, "MASTER_PORT")) {
    const int64_t theirs = ZERO_TRY(number("MASTER_PORT", value, 1, kMostPort));
    point.port = static_cast<uint16_t>(theirs < kMostPort ? theirs + 1 : theirs - 1);
    point.origin += ", and the port is next to MASTER_PORT";
    return {};
  }
  if (launch.job_of_all_hosts.empty()) {
    return {ZERO_ERR_ARGUMENT, text(point.origin,
                                    ", but no variable says at which port the ranks meet: set "
                                    "ZERO_MASTER_PORT to one that is free on that host")};
  }
  point.port =
      static_cast<uint16_t>(kFirstPort + hash64(bytes_of(launch.job_of_all_hosts)) % kPorts);
  point.origin += ", and the port is made from the job";
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
                     "), and no variable says where rank 0 is: set ZERO_MASTER_ADDR to its host's "
                     "name or address, and ZERO_MASTER_PORT to a port that is free there"));
}

std::string first_host(std::string_view list) {
  std::string host;
  bool in_brackets = false;
  bool past_first = false;  // of what the brackets hold
  for (const char c : list) {
    if (c == '[') {
      in_brackets = true;
      past_first = false;
    } else if (c == ']') {
      in_brackets = false;
    } else if (in_brackets) {
      past_first = past_first || c == ',' || c == '-';
      if (!past_first) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  return host;
}

}  // namespace zero

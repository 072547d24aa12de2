// SPDX-License-Identifier: Apache-2.0
// Variables of launchers, one per line: "WORLD_SIZE=2".
#include <map>
#include <string>

#include "comm/launch.h"
#include "fuzz/input.h"

using namespace zero;

namespace {

void check_launch(const Lookup& lookup, const Launched& launch) {
  fuzz::must(launch.world >= 1 && launch.rank >= 0 && launch.rank < launch.world,
             "a rank is below the number of ranks");
  fuzz::must(launch.local_rank >= -1, "a place on the host is a number, or unknown");
  fuzz::must(comm_name(launch.job).size() <= 64, "a comm's name has at most 64 bytes");
  const Result<std::optional<Meetpoint>> point = read_meetpoint(lookup, launch);
  if (!point.ok()) return fuzz::must_refuse(point.failure(), {ZERO_ERR_ARGUMENT});
  fuzz::must(!*point || ((*point)->port != 0 && !(*point)->host.empty()),
             "a meeting place has a host and a port");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::map<std::string, std::string, std::less<>> variables;
  std::string_view left(reinterpret_cast<const char*>(data), size);
  while (!left.empty()) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    const size_t sign = std::min(line.find('='), line.size() - 1);
    if (!line.empty()) variables[std::string(line.substr(0, sign))] = line.substr(sign + 1);
  }
  const Lookup lookup = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const Result<Launched> launch = read_launch(lookup);
  if (launch.ok())
    check_launch(lookup, *launch);
  else
    fuzz::must_refuse(launch.failure(), {ZERO_ERR_ARGUMENT});
  Result<CommOptions> times = read_timeouts(lookup, {-1, -1, -1});
  if (!times.ok()) return fuzz::must_refuse(times.failure(), {ZERO_ERR_ARGUMENT}), 0;
  for (const int64_t ms : {times->timeout_ms, times->late_ms, times->rendezvous_ms})
    fuzz::must(ms > 0 && ms <= 1'000'000'000'000, "sums of times cannot overflow");
  return 0;
}

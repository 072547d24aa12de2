// SPDX-License-Identifier: Apache-2.0
#include "habits.h"

#include <algorithm>
#include <iterator>

namespace zero_run {
namespace {

constexpr std::string_view kCountRanks[] = {
    "n",   "np",       "ranks",         "ntasks",   "ntasks-per-node", "nproc-per-node",
    "ppn", "npernode", "num-processes", "num-gpus",
};

constexpr std::string_view kAskForNothing[] = {
    "standalone", "no-python",  "label",         "l",          "unbuffered",
    "u",          "tag-output", "oversubscribe", "overcommit", "allow-run-as-root",
};

constexpr char kOneHost[] =
    "zero-run starts ranks on this host only: use mpirun, srun or torchrun for several hosts";
constexpr char kNoAddress[] =
    "ranks of zero-run are on one host and find each other without an address: leave it out";
constexpr char kNoPinning[] =
    "zero-run does not pin ranks: leave it out, or start PROGRAM through taskset or numactl";
constexpr char kEnvironment[] =
    "ranks of zero-run get its whole environment: set variables as in NAME=VALUE zero-run -n 4 ...";
constexpr char kModule[] = "zero-run starts programs, not modules: use python -m MODULE as PROGRAM";

constexpr char kNoFiles[] =
    "zero-run writes no files: redirect its output, as in zero-run -n 4 PROGRAM > log";

constexpr Habit kHabits[] = {
    {"N", "", "srun counts hosts with it, and mpirun ranks per host: use -n RANKS"},
    {"c", "", "srun counts processors per rank with it, and mpirun ranks: use -n RANKS"},
    {"nnodes", "1", kOneHost},
    {"nodes", "1", kOneHost},
    {"num-machines", "1", kOneHost},
    {"node-rank", "0", kOneHost},
    {"H", "", kOneHost},
    {"host", "localhost", kOneHost},
    {"hostfile", "", kOneHost},
    {"machinefile", "", kOneHost},
    {"f", "", kOneHost},
    {"w", "", kOneHost},
    {"nodelist", "", kOneHost},
    {"rdzv-backend", "", kNoAddress},
    {"rdzv-endpoint", "", kNoAddress},
    {"rdzv-id", "", kNoAddress},
    {"rdzv-conf", "", kNoAddress},
    {"master-addr", "", kNoAddress},
    {"master-port", "", kNoAddress},
    {"bind-to", "none", kNoPinning},
    {"map-by", "", kNoPinning},
    {"cpu-bind", "none", kNoPinning},
    {"cpus-per-task", "", kNoPinning},
    {"x", "", kEnvironment},
    {"env", "", kEnvironment},
    {"genv", "", kEnvironment},
    {"export", "ALL", kEnvironment},
    {"log-dir", "", kNoFiles},
    {"redirects", "0", kNoFiles},
    {"tee", "0", kNoFiles},
    {"output", "", kNoFiles},
    {"error", "", kNoFiles},
    {"o", "", kNoFiles},
    {"e", "", kNoFiles},
    {"output-filename", "", kNoFiles},
    {"m", "", kModule},
    {"module", "", kModule},
    {"max-restarts", "0", "zero-run starts ranks once: start it again to resume from a checkpoint"},
    {"mca", "", "zero-run is not part of an MPI: use mpirun for options of Open MPI"},
    {"mpi", "", "zero-run is not part of an MPI: use srun --mpi for ranks of an MPI"},
};

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

TypedOption::TypedOption(std::string_view typed) {
  const bool two_dashes = typed.starts_with("--");
  typed.remove_prefix(two_dashes ? 2 : 1);
  const bool digits = !two_dashes && typed.size() > 1 && typed[1] >= '0' && typed[1] <= '9';
  const size_t end = digits ? 1 : std::min(typed.find('='), typed.size());
  name = typed.substr(0, end);
  std::replace(name.begin(), name.end(), '_', '-');
  has_value = end < typed.size();
  if (has_value) value = typed.substr(digits ? end : end + 1);
}

bool counts_ranks(std::string_view name) { return contains(kCountRanks, name); }

bool asks_for_nothing(std::string_view name) { return contains(kAskForNothing, name); }

const Habit* find_habit(std::string_view name) {
  const Habit* habit = std::find_if(std::begin(kHabits), std::end(kHabits),
                                    [&](const Habit& one) { return one.name == name; });
  return habit == std::end(kHabits) ? nullptr : habit;
}

}  // namespace zero_run

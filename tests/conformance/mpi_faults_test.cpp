// SPDX-License-Identifier: Apache-2.0
// Ranks that an mpirun has started train until one of them is struck, or its host is lost. Each
// rank writes its error to a file for tests/cluster/faults_test.py. The clock is the system's,
// which hosts that are namespaces share.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "api/handles.h"
#include "comm/create.h"
#include "fault/struck_training.h"
#include "support/mpi_ranks.h"

namespace zero::test {
namespace {

std::string folder;

void write(const std::string& name, const std::string& words) {
  const std::string path = folder + "/" + name, part = folder + "/." + name;
  std::ofstream(part) << words << "\n";
  std::filesystem::rename(part, path);
}

void note_and_signal(int signal) {
  write("struck", std::to_string(now_ms()));
  kill(getpid(), signal);
}

/// MPICH 5.0.2 may crash if a message goes to a rank that has died.
void note_crash(int) {
  void* frames[3] = {};  // this function, the signal frame, the function that crashed
  Dl_info info{};
  if (backtrace(frames, 3) == 3 && dladdr(frames[2], &info) != 0 &&
      std::string(info.dli_fname).find("libmpi") != std::string::npos)
    write(text("told.", launched().rank), "MPI crashed");
  _exit(1);
}

/// Leaves a worker process behind.
void fork_and_die() {
  if (fork() == 0)
    for (;;) pause();
  note_and_signal(SIGKILL);
}

/// Parses "2 die gather.transfer 1". Without words, no rank is struck.
Strike strike_in(const char* words) {
  Strike read{.from = From::joined};
  std::istringstream stream(words);
  std::string action;
  if (!(stream >> read.rank >> action >> read.point.name >> read.point.occurrence)) return read;
  read.action = action == "fork"  ? fork_and_die
                : action == "die" ? [] { note_and_signal(SIGKILL); }
                                  : [] { note_and_signal(SIGSTOP); };
  return read;
}

class MpiFaults : public StruckTraining {
 protected:
  Join prepare_join(int, const std::string&) override {
    return [](int, int64_t, zero_comm** comm) {
      const int64_t timeout_ms = std::atoi(getenv("ZERO_TEST_DEADLINE_MS"));
      auto made = create_mpi(nullptr, 0, {.timeout_ms = timeout_ms, .late_ms = timeout_ms}, true);
      if (made.ok()) *comm = api::add_handle(std::move(*made));
      return made.failure().code();
    };
  }
};

TEST_F(MpiFaults, each_rank_writes_what_it_is_told) {
  const char* const given = std::getenv("ZERO_TEST_FOLDER");
  if (given == nullptr || launched().world < 2) GTEST_SKIP() << "tests/cluster did not start this";
  folder = given;
  const int rank = launched().rank;
  const char* const blow = std::getenv("ZERO_TEST_STRIKE");
  strike = strike_in(blow == nullptr ? "" : blow);
  strike.endless = std::getenv("ZERO_TEST_ENDLESS") != nullptr;
  const Join join = prepare_join(launched().world, "");
  signal(SIGSEGV, note_crash);
  std::string said = TrainingRun(rank, launched().world, join, folder + "/checkpoint").go();
  if (said != "done")
    said = text(told->at_ms[rank], "|", told->rank[rank], "|", told->consistent[rank], "|",
                told->params[rank], "|", said);
  std::string points;
  for (const Point& point : passed_points())
    points += text(point.name, " ", point.occurrence, "\n");
  write(text("points.", rank), points);
  write(text("told.", rank), said);
  // Waits until the host ends. An exit without MPI_Finalize may end the others, and MPI_Finalize
  // waits for dead ranks.
  while (said != "done") pause();
}

}  // namespace
}  // namespace zero::test

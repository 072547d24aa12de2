// SPDX-License-Identifier: Apache-2.0
// Implements zero top: shows what the ranks of a job do now, from the traces that they are writing.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "base/os.h"
#include "base/refusals.h"
#include "base/text.h"
#include "commands.h"
#include "output.h"
#include "trace_file.h"
#include "trace_sum.h"

namespace zero::tool {
namespace {

volatile sig_atomic_t ended_by_signal = 0;
void end(int) { ended_by_signal = 1; }

/// Returns the directory of the traces that a process is writing.
Result<std::string> directory_of(int64_t pid) {
  const std::filesystem::path open = text("/proc/", pid, "/fd");
  std::error_code error;
  for (std::filesystem::directory_iterator at(open, error), last; !error && at != last;
       at.increment(error)) {
    std::error_code ignored;
    const std::filesystem::path target = std::filesystem::read_symlink(at->path(), ignored);
    if (names_trace(target)) return target.parent_path().string();
  }
  if (error == std::errc::no_such_file_or_directory)
    return wrong_state("there is no process ", pid, ", and no directory of that name");
  if (error) return Status(ZERO_ERR_SYSTEM, text("process ", pid, ": ", errno_text(error.value())));
  return wrong_state("process ", pid,
                     " is not writing a trace: start it with ZERO_TRACE=DIRECTORY");
}

Result<std::string> find_directory(const std::string& given) {
  int64_t pid = 0;
  const auto [rest, error] = std::from_chars(given.data(), given.data() + given.size(), pid);
  const bool is_number = error == std::errc() && *rest == '\0' && pid > 0;
  return is_number && !std::filesystem::is_directory(given) ? directory_of(pid)
                                                            : Result<std::string>(given);
}

/// The trace files of a job, and of a job that replaces it.
class Job {
 public:
  explicit Job(std::string directory) : directory_(std::move(directory)) {}

  Status open() {
    files_ = ZERO_TRY(open_traces(directory_));
    for (TraceFile& file : files_) ZERO_TRY(file.skip());
    return {};
  }
  bool ended() const { return std::ranges::all_of(files_, &TraceFile::ended); }

  /// Returns what the ranks have done since the previous call.
  Result<GroupSums> look() {
    std::vector<TraceFile> there = ZERO_TRY(open_traces(directory_));
    for (TraceFile& file : there) {
      const auto known = std::ranges::find_if(files_, [&](auto& one) { return one.same_as(file); });
      if (known != files_.end()) file = std::move(*known);  // continues where it was
    }
    files_ = std::move(there);
    GroupSums groups;
    for (TraceFile& file : files_) {
      RankSum& sum = groups[file.group()][file.rank()];
      double& before = ends_[file.path()];
      ZERO_TRY(file.read([&](std::string_view, const Json& event) {
        sum.add(event, file.rank());
        return Status();
      }));
      // Time continues from the end of the previous look.
      if (sum.end == 0) continue;
      if (before > 0) sum.begin = before;
      before = sum.end;
    }
    return groups;
  }

 private:
  const std::string directory_;
  std::vector<TraceFile> files_;
  std::map<std::string, double> ends_;
};

std::string per_step(double time, int64_t steps) {
  return seconds_text(time / static_cast<double>(std::max<int64_t>(steps, 1)));
}

/// Returns a sentence that says which rank the others wait for.
std::string waiting_text(const RankSums& ranks, int64_t steps) {
  if (std::ranges::all_of(ranks, [](const auto& of) { return of.second.end == 0; }))
    return "nothing has ended since the last update: one rank may hold up the others";
  const Slowest slowest = slowest_of(ranks);
  if (slowest.rank < 0) return "no rank waits for another";
  return text("rank ", slowest.rank, " holds up the others most: ", per_step(slowest.waited, steps),
              " per step");
}

void add_group(Rows& rows, const std::string& group, const RankSums& ranks) {
  constexpr const char* kPhases[] = {"enter", "ready", "gather", "vote", "apply", "publish"};
  int64_t steps = 0;
  for (const auto& [rank, sum] : ranks) steps = std::max(steps, sum.steps);
  rows.push_back({group_text(group) + ": " + waiting_text(ranks, steps)});
  rows.push_back({"rank", "steps/s", "waits", "for"});
  for (const char* phase : kPhases) rows.back().push_back(phase);
  for (const auto& [rank, sum] : ranks) {
    const int64_t other = sum.waited_for(rank);
    const double rate = sum.seconds() > 0 ? static_cast<double>(sum.steps) / sum.seconds() : 0;
    rows.push_back({text(rank), fixed(rate, 1), per_step(sum.waited(), sum.steps),
                    other < 0 ? "none" : text("rank ", other)});
    for (const char* phase : kPhases) {
      const auto found = sum.phases.find(phase);
      rows.back().push_back(found == sum.phases.end() ? "-" : per_step(found->second, sum.steps));
    }
  }
}

/// Shows each table over the previous one on a terminal, and below it elsewhere.
class Screen {
 public:
  void show(const GroupSums& groups) {
    Rows rows;
    for (const auto& [group, ranks] : groups) add_group(rows, group, ranks);
    std::vector<std::string> lines = table_lines(rows);
    if (!on_terminal_) {
      for (const std::string& line : lines) print_line(line);
      print_line("");
      return;
    }
    const winsize size = terminal_size(STDOUT_FILENO);
    if (shown_ > 0) std::printf("\033[%zuA\033[J", shown_);
    lines.resize(std::min<size_t>(lines.size(), std::max(size.ws_row - 1, 1)));
    for (const std::string& line : lines) print_line(line.substr(0, size.ws_col - 1u));
    shown_ = lines.size();
  }

 private:
  const bool on_terminal_ = isatty(STDOUT_FILENO) == 1;
  size_t shown_ = 0;  // lines of the latest table
};

}  // namespace

Result<bool> top(const Request& request) {
  Job job(ZERO_TRY(find_directory(request.checkpoint)));
  ZERO_TRY(job.open());
  if (job.ended()) return wrong_state("the traces have ended: zero trace merge summarizes them");
  struct sigaction action {};
  action.sa_handler = end;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  Screen screen;
  for (int64_t shown = 0; request.count == 0 || shown < request.count; shown++) {
    const auto pause_ms = static_cast<int>(request.interval_s * 1000);
    for (const Deadline deadline(pause_ms); !deadline.passed() && ended_by_signal == 0;)
      // Wait: the interval, and until a signal comes.
      poll(nullptr, 0, static_cast<int>(deadline.left_ms()));
    if (ended_by_signal != 0) break;
    const bool last = job.ended();
    const GroupSums groups = ZERO_TRY(job.look());
    if (last) break;
    if (request.json)
      print_line(json_of(groups).dump());
    else
      screen.show(groups);
    std::fflush(stdout);
  }
  return true;
}

}  // namespace zero::tool

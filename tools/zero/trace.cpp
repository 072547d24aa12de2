// SPDX-License-Identifier: Apache-2.0
// Implements zero trace merge: writes one file of all ranks' events, and prints their totals.
#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "base/hash.h"
#include "base/refusals.h"
#include "base/text.h"
#include "commands.h"
#include "output.h"
#include "output_file.h"
#include "trace_file.h"
#include "trace_sum.h"

namespace zero::tool {
namespace {

constexpr std::string_view kHead = "[\n", kBetween = ",\n", kTail = "\n]\n";
constexpr size_t kMostWaits = 3;         // that fit into a line
constexpr int32_t kGroupPids = 100'000;  // more than a comm can have ranks

/// Returns a line with a process ID that no rank of another comm has, because viewers group events
/// by process ID.
std::string renumbered(std::string_view line, const TraceFile& file, int32_t group) {
  std::string own(line);
  const std::string before = text("\"pid\":", file.rank(), ",");
  if (const size_t at = own.find(before); group > 0 && at != own.npos)
    own.replace(at, before.size(), text("\"pid\":", group * kGroupPids + file.rank(), ","));
  return own;
}

/// Calls take(line) for each event of all files, in its form in the merged file.
Status for_each_line(std::vector<TraceFile>& files, GroupSums* sums,
                     const std::function<Status(std::string_view)>& take) {
  int32_t group = 0;
  for (size_t i = 0; i < files.size(); i++) {
    TraceFile& file = files[i];
    if (i > 0 && files[i - 1].group() != file.group()) group++;
    RankSum* const sum = sums == nullptr ? nullptr : &(*sums)[file.group()][file.rank()];
    ZERO_TRY(file.read([&](std::string_view line, const Json& event) {
      if (sum != nullptr) sum->add(event, file.rank());
      return take(renumbered(line, file, group));
    }));
  }
  return {};
}

/// Writes the events that have been read so far.
Status write(std::vector<TraceFile>& files, const Request& request, uint64_t bytes) {
  const auto file = ZERO_TRY(OutputFile::create(request.other, request.replace, bytes));
  std::string_view before = kHead;
  for (TraceFile& one : files) one.rewind();
  ZERO_TRY(for_each_line(files, nullptr, [&](std::string_view line) -> Status {
    ZERO_TRY(file->append(bytes_of(std::exchange(before, kBetween))));
    return file->append(bytes_of(line));
  }));
  ZERO_TRY(file->append(bytes_of(kTail)));
  return file->publish();
}

/// Names the ranks for which this one waited longest.
std::string waits_text(const RankSum& sum, int32_t own) {
  std::vector<std::pair<double, int64_t>> waits;
  for (const auto& [rank, time] : sum.waits)
    if (rank != own) waits.emplace_back(time, rank);
  std::ranges::sort(waits, std::greater());
  std::string out;
  double rest = 0;
  for (size_t i = 0; i < waits.size(); i++) {
    const auto [time, rank] = waits[i];
    if (i < kMostWaits)
      out += text(i == 0 ? "" : ", ", "rank ", rank, " ", seconds_text(time));
    else
      rest += time;
  }
  if (rest > 0) out += ", others " + seconds_text(rest);
  return out.empty() ? "none" : out;
}

void print_group(const std::string& group, const RankSums& ranks) {
  Rows rows = {{"rank", "steps", "seconds", "in calls", "waits", "for", "transfers"}};
  Rows phases = {{"rank"}};
  std::map<std::string, double> names;
  for (const auto& [rank, sum] : ranks) names.insert(sum.phases.begin(), sum.phases.end());
  for (const auto& [name, time] : names) phases[0].push_back(name);
  for (const auto& [rank, sum] : ranks) {
    rows.push_back({text(rank), text(sum.steps), fixed(sum.seconds(), 3), seconds_text(sum.calls),
                    seconds_text(sum.waited()), waits_text(sum, rank),
                    seconds_text(sum.transfers)});
    auto& row = phases.emplace_back(Rows::value_type{text(rank)});
    for (const auto& [name, time] : names) {
      const auto found = sum.phases.find(name);
      row.push_back(found == sum.phases.end() ? "-" : seconds_text(found->second));
    }
  }
  const Slowest slowest = slowest_of(ranks);
  print_line(text(group_text(group), ": ",
                  slowest.rank < 0
                      ? "no rank waited for another"
                      : text("rank ", slowest.rank, " is the slowest: the others waited ",
                             seconds_text(slowest.waited), " for it")));
  print_table(rows);
  if (names.empty()) return;
  print_line("");
  print_table(phases);
}

}  // namespace

Result<bool> merge_traces(const Request& request) {
  if (names_trace(request.other))
    return bad_argument("'", request.other,
                        "' has the name of a rank's own trace: choose another, such as all.json");
  std::vector<TraceFile> files = ZERO_TRY(open_traces(request.checkpoint));
  GroupSums groups;
  uint64_t bytes = kHead.size() + kTail.size() - kBetween.size();
  ZERO_TRY(for_each_line(files, &groups, [&](std::string_view line) {
    bytes += line.size() + kBetween.size();
    return Status();
  }));
  if (!request.other.empty()) ZERO_TRY(write(files, request, bytes));
  if (request.json) {
    print_json(Json{{"directory", request.checkpoint}, {"comms", json_of(groups)}});
    return true;
  }
  for (const auto& [group, ranks] : groups) {
    if (group != groups.begin()->first) print_line("");
    print_group(group, ranks);
  }
  for (const auto& [group, ranks] : groups)
    for (const auto& [rank, sum] : ranks)
      if (sum.dropped > 0)
        print_line(text(group_text(group), ", rank ", rank, ": ", sum.dropped,
                        " events did not fit and are missing"));
  return true;
}

}  // namespace zero::tool

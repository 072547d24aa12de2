// SPDX-License-Identifier: Apache-2.0
#include "trace_sum.h"

#include <algorithm>

#include "base/text.h"
#include "trace_event.h"

namespace zero::tool {
namespace {

double seconds(double microseconds) { return microseconds * 1e-6; }

Json json_of_rank(int32_t rank, const RankSum& sum) {
  Json phases = Json::object(), waits = Json::object();
  for (const auto& [name, time] : sum.phases) phases[name] = seconds(time);
  for (const auto& [other, time] : sum.waits)
    if (other != rank) waits[text(other)] = seconds(time);
  return {{"rank", rank},
          {"steps", sum.steps},
          {"seconds", sum.seconds()},
          {"in_calls", seconds(sum.calls)},
          {"exposed", seconds(sum.waited())},
          {"waits_for", waits},
          {"phases", phases},
          {"transfers", seconds(sum.transfers)},
          {"transfer_bytes", sum.bytes},
          {"dropped", sum.dropped}};
}

}  // namespace

void RankSum::add(const Json& event, int32_t own) {
  const Json& arguments = arguments_of(event);
  if (is(event, "name", "libzero end")) dropped += field<int64_t>(arguments, "dropped", 0);
  if (!is(event, "ph", "X")) return;
  const auto from = field<double>(event, "ts", 0), length = field<double>(event, "dur", 0);
  if (begin == 0 || from < begin) begin = from;
  end = std::max(end, from + length);
  const std::string name = field<std::string>(event, "name", "");
  if (is(event, "cat", "call")) {
    calls += length;
    if (name == "zero_step") steps++;
  } else if (is(event, "cat", "phase")) {
    phases[name] += length;
  } else if (is(event, "cat", "transfer")) {
    transfers += length;
    bytes += field<int64_t>(arguments, "bytes", 0);
  } else if (is(event, "cat", "wait")) {
    waits[field<int64_t>(arguments, "rank", own)] += length;
  }
}

double RankSum::waited() const {
  double all = 0;
  for (const auto& [rank, time] : waits) all += time;
  return all;
}

int64_t RankSum::waited_for(int32_t own) const {
  int64_t found = -1;
  double longest = 0;
  for (const auto& [rank, time] : waits) {
    if (rank == own || time <= longest) continue;
    found = rank;
    longest = time;
  }
  return found;
}

Slowest slowest_of(const RankSums& ranks) {
  std::map<int64_t, double> waited;
  for (const auto& [rank, sum] : ranks)
    for (const auto& [other, time] : sum.waits)
      if (other != rank) waited[other] += time;
  Slowest slowest;
  for (const auto& [rank, time] : waited)
    if (time > slowest.waited) slowest = {rank, time};
  return slowest;
}

std::string group_text(const std::string& group) {
  return group.empty() ? "comm" : group.substr(0, group.size() - 1);
}

Json json_of(const GroupSums& groups) {
  Json out = Json::array();
  for (const auto& [group, ranks] : groups) {
    const Slowest slowest = slowest_of(ranks);
    Json rows = Json::array();
    for (const auto& [rank, sum] : ranks) rows.push_back(json_of_rank(rank, sum));
    out.push_back({{"comm", group_text(group)},
                   {"slowest", slowest.rank},
                   {"waited_for_slowest", seconds(slowest.waited)},
                   {"ranks", rows}});
  }
  return out;
}

}  // namespace zero::tool

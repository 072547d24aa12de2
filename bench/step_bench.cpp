// SPDX-License-Identifier: Apache-2.0
// Times libzero's steps on forked ranks, compared with the rate at which this machine moves memory
// in the same run. Uses only the public header.
#include <fcntl.h>

#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>

#include "bench_comm.h"
#include "report.h"
#include "streams.h"
#include "subjects.h"

namespace bench {
namespace {

constexpr int kFirstStream = 16, kPlainWrite = 31;  // series; those of subjects come before
constexpr size_t kMaxSubjects = 8;                  // that take turns

struct Settings {
  std::vector<int> ranks = {1, 2};
  // The cases of one row take turns.
  std::vector<std::vector<Case>> cases = {{Case::direct, Case::traced},
                                          {Case::direct_clip, Case::lamb},
                                          {Case::direct_master},
                                          {Case::foreign},
                                          {Case::direct_remainder},
                                          {Case::collective},
                                          {Case::reduce},
                                          {Case::clip},
                                          {Case::save}};
  std::vector<std::string> workloads = {"gpt2", "flat", "small"};
  int steps = 20;
  int warmup = 5;
  int saves = 5;
  int threads = 0;
  size_t stream_mib = 256;
  std::string directory;
  std::string json;
};

struct Entry {
  Case which;
  const Workload* work;
};

/// The subjects that take turns in one run, so that they can be compared.
using Group = std::vector<Entry>;

bool saves(const Group& group) { return group[0].which == Case::save; }

void write_plainly(const std::string& path, const std::vector<char>& block, size_t bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool sound = fd >= 0;
  for (size_t at = 0; sound && at < bytes; at += block.size()) {
    const size_t piece = std::min(block.size(), bytes - at);
    sound = write(fd, block.data(), piece) == static_cast<ssize_t>(piece);
  }
  if (!sound || fsync(fd) != 0 || close(fd) != 0) {
    std::perror(path.c_str());
    _exit(1);
  }
}

/// One rank's part in a group: rounds of every subject, and of what they are compared with.
void measure(Rank& rank, const Settings& settings, const Group& group, const BounceMemory& bounce,
             int serial) {
  const std::string base = settings.directory + "/" + std::to_string(getppid());
  const std::string plain = base + ".plain." + std::to_string(rank.rank);
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const auto& [which, work] : group) {
    subjects.push_back(
        std::make_unique<Subject>(rank, bounce, *work, which, base + "." + work->name, serial++));
  }
  Streams streams(rank, (saves(group) ? 4 : settings.stream_mib) << 18);
  std::vector<char> block(size_t{4} << 20, 'x');
  const int warmup = saves(group) ? 1 : settings.warmup;
  const int rounds = warmup + (saves(group) ? settings.saves : settings.steps);
  for (int round = 0; round < rounds; round++) {
    const bool keep = round >= warmup;
    for (size_t s = 0; s < subjects.size(); s++) {
      rank.time(static_cast<int>(s), keep, [&] { subjects[s]->run(); });
      subjects[s]->settle();
    }
    if (saves(group)) {
      const auto bytes = static_cast<size_t>(12 * group[0].work->elements / rank.world);
      rank.time(kPlainWrite, keep, [&] { write_plainly(plain, block, bytes); });
    } else {
      streams.round(kFirstStream, keep);
    }
  }
  for (size_t s = 0; s < subjects.size(); s++) {
    rank.count(static_cast<int>(s), saves(group) ? 0 : subjects[s]->counted_bytes());
  }
  subjects.clear();
  unlink(plain.c_str());
}

/// Takes the best median rate of the streaming kernels.
void take_reference(const Board& board, const Settings& settings, int ranks, Row& row) {
  for (int i = 0; i < kStreams; i++) {
    const double bytes = Streams::bytes(static_cast<Stream>(i), settings.stream_mib << 18, ranks);
    const double rate = bytes / spread(board.series[kFirstStream + i]).median;
    if (i == kRead) row.read_rate = rate;
    if (i == kMix) row.mix_rate = rate;
    if (i == kStreamingCopy || i == kCopy) row.copy_rate = std::max(row.copy_rate, rate);
    if (!kStreamInfo[i].is_reference || rate <= row.reference_rate) continue;
    row.reference_rate = rate;
    row.reference = kStreamInfo[i].name;
  }
}

/// Prints how much longer the other subjects take than the first, by round.
void print_ratios(const Board& board, const Group& group, int ranks) {
  const Series& base = board.series[0];
  for (size_t s = 1; s < group.size(); s++) {
    Series ratios = board.series[s];
    for (int i = 0; i < ratios.rounds; i++) ratios.seconds[i] /= base.seconds[i];
    std::printf("%s %s against %s %s, %d ranks: %.2fx\n", group[s].work->name.c_str(),
                case_info(group[s].which).name, group[0].work->name.c_str(),
                case_info(group[0].which).name, ranks, spread(ratios).median);
  }
}

bool run_group(const Settings& settings, const Group& group, int ranks, std::vector<Row>& rows) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = settings.threads > 0 ? settings.threads : std::clamp(cores / ranks, 1, 4);
  auto* board = share<Board>();
  const BounceMemory bounce(ranks);
  static int serial = 0;
  const int first = serial;
  serial += static_cast<int>(kMaxSubjects);
  const bool sound = fork_ranks(board, ranks, threads,
                                [&](Rank& rank) { measure(rank, settings, group, bounce, first); });
  for (size_t s = 0; sound && s < group.size(); s++) {
    const auto& [which, entry_work] = group[s];
    const Workload& work = *entry_work;
    Row row{};
    row.workload = work.name;
    row.name = case_info(which).name;
    row.ranks = ranks;
    row.elements = work.elements;
    row.rounds = board->series[s].rounds;
    row.seconds = spread(board->series[s]);
    row.modelled = modelled_bytes(which, ranks);
    row.counted = board->series[s].counted_bytes / static_cast<double>(work.elements);
    if (which == Case::save) {
      const double bytes = 12.0 * static_cast<double>(work.elements);
      row.reference = "plain write and fsync";
      row.reference_rate = bytes / spread(board->series[kPlainWrite]).median;
    } else {
      take_reference(*board, settings, ranks, row);
    }
    print_row(row);
    rows.push_back(row);
  }
  if (sound) print_ratios(*board, group, ranks);
  munmap(board, sizeof *board);
  for (const Entry& entry : group) {
    std::filesystem::remove_all(settings.directory + "/" + std::to_string(getpid()) + "." +
                                entry.work->name);
  }
  return sound;
}

/// Times a plan of 200,000 parameters on 10,000 ranks.
Planning time_planning() {
  constexpr int64_t kParams = 200'000, kRanks = 10'000;
  Workload work{.name = "many"};
  const Workload tensors = small();
  for (int64_t i = 0; i < kParams; i++) {
    work.add("p", tensors.tensors[static_cast<size_t>(i % 20'000)].shape);
  }
  const std::vector<zero_param> params = make_params(work);
  std::vector<int64_t> offsets(params.size()), elements(kRanks);
  std::vector<int32_t> owners(params.size());
  Series series{};
  for (int round = 0; round < 7; round++) {
    zero_plan plan;
    ZERO_INIT(plan);
    plan.offsets = offsets.data();
    plan.owners = owners.data();
    plan.elements = elements.data();
    const double start = now();
    check(zero_partition_plan(params.data(), params.size(), kRanks, nullptr, &plan),
          "zero_partition_plan");
    series.seconds[series.rounds++] = now() - start;
  }
  return {kParams, kRanks, spread(series).median};
}

std::vector<std::string> split(const std::string& list, char by = ',') {
  std::vector<std::string> words;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(by, at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

constexpr const char* kUsage =
    "step_bench [--ranks 1,2] [--cases "
    "direct,direct-clip+lamb,bf16-master,foreign,bf16-remainder,collective,reduce,clip,save]\n"
    "           [--workloads gpt2,flat,small] [--steps 20] [--warmup 5] [--saves 5] [--threads 0]\n"
    "           [--stream-mib 256] [--directory DIR] [--json FILE]\n";

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "step_bench: %s\n%s", why.c_str(), kUsage);
  std::exit(2);
}

std::vector<Case> parse_cases(const std::string& together) {
  std::vector<Case> cases;
  for (const std::string& word : split(together, '+')) {
    int found = -1;
    for (int i = 0; i <= static_cast<int>(Case::save); i++) {
      if (word == case_info(static_cast<Case>(i)).name) found = i;
    }
    if (found < 0) refuse("unknown case '" + word + "'");
    cases.push_back(static_cast<Case>(found));
  }
  const bool alone = cases.size() == 1;
  if (!alone && std::find(cases.begin(), cases.end(), Case::save) != cases.end())
    refuse("'save' takes no turns");
  if (cases.size() > kMaxSubjects) refuse("'" + together + "': too many take turns");
  return cases;
}

Settings parse(int count, char** words) {
  Settings settings;
  const char* temporary = std::getenv("TMPDIR");
  settings.directory = temporary != nullptr ? temporary : "/tmp";
  for (int i = 1; i < count; i++) {
    const std::string_view name = words[i];
    if (name == "--help") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    if (i + 1 == count) refuse("'" + std::string(name) + "' is unknown, or its value is missing");
    const std::string value = words[++i];
    const auto number = [&](int from, int to) {
      const int parsed = std::atoi(value.c_str());
      if (parsed < from || parsed > to) refuse(std::string(name) + " " + value + ": out of range");
      return parsed;
    };
    if (name == "--ranks") {
      settings.ranks.clear();
      for (const std::string& word : split(value))
        settings.ranks.push_back(std::atoi(word.c_str()));
    } else if (name == "--cases") {
      settings.cases.clear();
      for (const std::string& word : split(value)) settings.cases.push_back(parse_cases(word));
    } else if (name == "--workloads") {
      settings.workloads = split(value);
    } else if (name == "--steps") {
      settings.steps = number(1, kMaxRounds);
    } else if (name == "--warmup") {
      settings.warmup = number(0, 1000);
    } else if (name == "--saves") {
      settings.saves = number(1, kMaxRounds);
    } else if (name == "--threads") {
      settings.threads = number(0, 64);
    } else if (name == "--stream-mib") {
      settings.stream_mib = static_cast<size_t>(number(1, 65536));
    } else if (name == "--directory") {
      settings.directory = value;
    } else if (name == "--json") {
      settings.json = value;
    } else {
      refuse("unknown option '" + std::string(name) + "'");
    }
  }
  for (const int ranks : settings.ranks) {
    if (ranks < 1 || ranks > kMaxRanks) refuse("--ranks: 1 to 64 each");
  }
  return settings;
}

/// The small tensors and the flat one take turns. GPT-2 runs alone, because it fills the memory.
std::vector<Group> make_groups(const Settings& settings, const std::vector<Workload>& all) {
  std::vector<const Workload*> alone, together;
  for (const std::string& name : settings.workloads) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Workload& w) { return w.name == name; });
    if (found == all.end()) refuse("unknown workload '" + name + "'");
    (name == "gpt2" ? alone : together).push_back(&*found);
  }
  std::vector<Group> groups;
  const auto add = [&](const std::vector<Case>& cases, const std::vector<const Workload*>& works) {
    Group group;
    for (const Case which : cases) {
      for (const Workload* work : works) group.push_back({which, work});
    }
    if (!group.empty()) groups.push_back(group);
  };
  for (const std::vector<Case>& cases : settings.cases) {
    for (const Workload* work : alone) add(cases, {work});
  }
  for (const std::vector<Case>& cases : settings.cases) {
    if (cases[0] != Case::save) add(cases, together);  // a few megabytes show nothing about storage
  }
  return groups;
}

int run(int count, char** words) {
  const Settings settings = parse(count, words);
  const std::vector<Workload> workloads = {gpt2(), small(), flat()};
  const std::string library = std::string("libzero; ") + zero_build_info();
  std::printf("%s\n", library.c_str());
  print_head();
  std::vector<Row> rows;
  for (const int ranks : settings.ranks) {
    for (const Group& group : make_groups(settings, workloads)) {
      if (!run_group(settings, group, ranks, rows)) return 1;
    }
  }
  const Planning planning = time_planning();
  std::printf("planning %lld parameters over %lld ranks: %.1f ms\n",
              static_cast<long long>(planning.params), static_cast<long long>(planning.ranks),
              planning.median_seconds * 1e3);
  if (!settings.json.empty() && !write_json(settings.json, library, rows, planning)) {
    std::perror(settings.json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace bench

int main(int count, char** words) { return bench::run(count, words); }

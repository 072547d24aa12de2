// SPDX-License-Identifier: Apache-2.0
#include "base/container.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include "base/hash.h"
#include "base/os.h"
#include "base/text.h"

namespace zero {
namespace {

constexpr size_t kMountsBytes = 256 * 1024;  // the most that is read of the table of mounts
constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // version 1 reports a number for "max"

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(at), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool has(std::string_view list, std::string_view word) {
  return std::ranges::count(split(list, ','), word) > 0;
}

std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t value = 0;
  if (std::from_chars(text.begin(), text.end(), value).ec != std::errc()) return {};  // "max"
  return value;
}

/// Returns the number after a word at the start of a line, as in /proc/meminfo and memory.stat.
uint64_t number_behind(std::string_view text, std::string_view word) {
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() > 1 && words[0] == word) return number_in(words[1]).value_or(0);
  }
  return 0;
}

/// A directory with the limits of a control group.
struct ControlGroup {
  std::string folder;
  bool second;  // cgroup version 2

  std::string path(const char* first_name, const char* second_name) const {
    return text(folder, "/", second ? second_name : first_name);
  }
  std::string read(const char* first_name, const char* second_name) const {
    return read_small_file(path(first_name, second_name).c_str());
  }
  /// Returns the unused part of a limit, or kUnlimited.
  uint64_t left(const char* first_name, const char* second_name, const char* first_used,
                const char* second_used) const {
    const auto limit = number_in(read(first_name, second_name));
    if (!limit || *limit >= kNoLimit) return kUnlimited;
    return *limit - std::min(*limit, number_in(read(first_used, second_used)).value_or(0));
  }
};

/// Returns this process's group from a line of /proc/self/cgroup, which is "4:memory:/path" in
/// version 1 and "0::/path" in version 2.
std::string_view path_of_process(std::string_view groups, std::string_view controller,
                                 bool second) {
  for (const std::string_view line : split(groups, '\n')) {
    const size_t one = line.find(':'), two = line.find(':', one + 1);
    if (two == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(one + 1, two - one - 1);
    if (second ? controllers.empty() : has(controllers, controller)) return line.substr(two + 1);
  }
  return "/";
}

/// Returns the groups whose `controller` limits this process, from its own group upwards. In a
/// container the path may be a path of the host, of which only a part is mounted.
std::vector<ControlGroup> groups_by(std::string_view controller) {
  const std::string of_process = read_small_file("/proc/self/cgroup");
  const std::string mounts = read_small_file("/proc/self/mountinfo", kMountsBytes);
  std::vector<ControlGroup> found;
  for (const std::string_view line : split(mounts, '\n')) {
    // The format is "32 31 0:29 /root /mounted/at rw,relatime - cgroup cgroup rw,memory".
    const auto words = split(line, ' ');
    const auto dash = std::ranges::find(words, "-") - words.begin();
    if (words.size() < static_cast<size_t>(dash) + 4 || dash < 5) continue;
    const bool second = words[dash + 1] == "cgroup2";
    if (!second && (words[dash + 1] != "cgroup" || !has(words[dash + 3], controller))) continue;
    std::string_view path = path_of_process(of_process, controller, second);
    const std::string_view root = words[3] == "/" ? "" : words[3];
    const bool below =
        path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
    if (!below || path.find("/..") != std::string_view::npos) path = root;
    path.remove_prefix(root.size());
    for (; path.size() > 1; path = path.substr(0, path.rfind('/')))
      found.push_back({text(words[4], path), second});
    found.push_back({std::string(words[4]), second});
  }
  return found;
}

/// Returns how much memory the limits of a group leave, including reclaimable file cache.
uint64_t memory_left(const ControlGroup& group, uint64_t swap_left) {
  const uint64_t left =
      group.left("memory.limit_in_bytes", "memory.max", "memory.usage_in_bytes", "memory.current");
  if (left == kUnlimited) return kUnlimited;
  // In version 1 this limit is for memory and swap together.
  const uint64_t swap = group.left("memory.memsw.limit_in_bytes", "memory.swap.max",
                                   "memory.memsw.usage_in_bytes", "memory.swap.current");
  const std::string statistics = group.read("memory.stat", "memory.stat");
  const char* const kinds[] = {group.second ? "active_file" : "total_active_file",
                               group.second ? "inactive_file" : "total_inactive_file"};
  const uint64_t cache = number_behind(statistics, kinds[0]) + number_behind(statistics, kinds[1]);
  if (group.second) return left + cache + std::min(swap, swap_left);
  return std::min(left + swap_left, swap) + cache;
}

}  // namespace

std::vector<MemoryLimit> memory_limits() {
  std::vector<MemoryLimit> limits;
  const std::string boot = read_small_file("/proc/sys/kernel/random/boot_id");
  const auto id = [&](std::string_view of) { return hash64(bytes_of(text(boot, of))); };
  const std::string machine = read_small_file("/proc/meminfo");
  const uint64_t available = number_behind(machine, "MemAvailable:") * 1024;
  const uint64_t swap = number_behind(machine, "SwapFree:") * 1024;
  if (available > 0)
    limits.push_back({id("machine"), available + swap, "the memory available on this machine is"});
  for (const ControlGroup& group : groups_by("memory")) {
    const uint64_t left = memory_left(group, swap);
    if (left == kUnlimited) continue;
    struct stat info;
    // Containers see one group under several paths, and one process may see it in several mounts.
    const bool known = os().fstatat(AT_FDCWD, group.folder.c_str(), &info, 0) == 0;
    const uint64_t number = id(known ? text(info.st_dev, " ", info.st_ino) : group.folder);
    if (std::ranges::find(limits, number, &MemoryLimit::id) != limits.end()) continue;
    limits.push_back(
        {number, left, text(group.path("memory.limit_in_bytes", "memory.max"), " leaves")});
  }
  return limits;
}

Result<uint64_t> check_available(uint64_t bytes, std::string_view what) {
  uint64_t least = kUnlimited;
  for (const MemoryLimit& limit : memory_limits()) {
    if (bytes > limit.left)
      return Status(ZERO_ERR_MEMORY, text("no memory for ", bytes, " bytes of ", what, ": ",
                                          limit.words, " ", limit.left));
    least = std::min(least, limit.left);
  }
  return least;
}

std::optional<int> granted_cores() {
  uint64_t least = kUnlimited;
  for (const ControlGroup& group : groups_by("cpu")) {
    const std::string first = group.read("cpu.cfs_quota_us", "cpu.max");
    const std::string second = group.second ? "" : group.read("cpu.cfs_period_us", "");
    const std::string both = text(first, " ", second);  // "200000 100000"
    const std::vector<std::string_view> words = split(both, ' ');
    if (words.size() < 2) continue;
    const auto quota = number_in(words[0]), period = number_in(words[1]);
    if (quota && period && *period > 0) least = std::min(least, (*quota - 1) / *period + 1);
  }
  if (least > std::numeric_limits<int>::max()) return {};
  return static_cast<int>(least);
}

int usable_cores() {
  cpu_set_t cores[8];
  CPU_ZERO_S(sizeof cores, cores);
  if (os().sched_getaffinity(0, sizeof cores, cores) < 0) return 1;
  const int count = std::min(CPU_COUNT_S(sizeof cores, cores),
                             granted_cores().value_or(std::numeric_limits<int>::max()));
  return std::max(count, 1);
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Implements zero doctor: shows what ranks that are started like this program would find, one line
// per subject, which says "ok" or what to do.
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "base/container.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/launch.h"
#include "comm/mpi/start.h"
#include "comm/nccl/library.h"
#include "comm/tcp/address.h"
#include "commands.h"
#include "device/device.h"
#include "output.h"
#include "sizes.h"

namespace zero::tool {
namespace {

constexpr uint64_t kLeastMemory = uint64_t{256} << 20, kLeastSharedMemory = uint64_t{1} << 30;
constexpr rlim_t kLeastDescriptors = 1024;
constexpr std::pair<int, int> kOldestKernel = {5, 10};

struct Finding {
  const char* subject;
  bool ok;
  std::string words;
};

Finding library() {
  return {"libzero", true,
          text(ZERO_VERSION_MAJOR, '.', ZERO_VERSION_MINOR, '.', ZERO_VERSION_PATCH, "; ",
               zero_build_info())};
}

Finding kernel() {
  utsname names{};
  uname(&names);
  const std::string_view release = names.release;
  std::pair<int, int> version;
  const auto [end, error] = std::from_chars(release.begin(), release.end(), version.first);
  if (error == std::errc() && end != release.end())
    std::from_chars(end + 1, release.end(), version.second);
  const bool ok = version >= kOldestKernel;
  return {"kernel", ok, text(release, ok ? "" : ": libzero needs Linux 5.10 or newer")};
}

Finding launcher() {
  const auto launch = read_launch(getenv);
  if (!launch.ok()) return {"launcher", false, launch.failure().text()};
  const Launched& found = *launch;
  if (found.launcher == nullptr)
    return {"launcher", true, "none: this is a job of one process; zero-run -n 4 starts four"};
  return {"launcher", true,
          text(found.launcher, ": rank ", found.rank, " of ", found.world,
               found.hosts == Hosts::several ? ", on several hosts" : "")};
}

Finding deadlines() {
  const auto options =
      read_timeouts(getenv, {.timeout_ms = -1, .late_ms = -1, .rendezvous_ms = -1});
  if (!options.ok()) return {"deadlines", false, options.failure().text()};
  const CommOptions& found = *options;
  return {"deadlines", true,
          text("a call waits ", found.timeout_ms / 1000, " s for the other ranks, a rendezvous ",
               found.rendezvous_ms / 1000, " s")};
}

Finding memory() {
  const auto left = check_available(0, "nothing");
  const uint64_t bytes = left.ok() ? *left : 0;
  const bool ok = bytes >= kLeastMemory;
  return {"memory", ok,
          text(bytes_text(static_cast<double>(bytes)), " are left",
               ok ? "" : ": end other programs, or raise the limit of the container")};
}

Finding processors() {
  const int cores = usable_cores();
  const auto granted = granted_cores();
  return {"processors", true,
          text(counted(static_cast<uint64_t>(cores), "core"), " for all ranks of this host",
               granted ? text(", of which control groups grant ", *granted) : "")};
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "no limit" : text(uint64_t{limit});
}

/// Checks whether a limit is at least `least`. `advice` says what to do if it is not.
Finding limit(const char* subject, decltype(RLIMIT_AS) resource, rlim_t least, const char* advice) {
  rlimit limits{};
  getrlimit(resource, &limits);
  const bool ok = limits.rlim_cur >= least;
  return {subject, ok, text(limit_text(limits.rlim_cur), ok ? "" : advice)};
}

bool has_driver() { return !read_small_file("/proc/driver/nvidia/version").empty(); }

Finding shared_memory() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0)
    return {"/dev/shm", !has_driver(), "is not there; only NCCL needs it"};
  const uint64_t bytes = uint64_t{info.f_bavail} * info.f_frsize;
  const bool ok = !has_driver() || bytes >= kLeastSharedMemory;
  return {"/dev/shm", ok,
          text(bytes_text(static_cast<double>(bytes)), " are left",
               ok ? "; libzero's arenas need none" : ": NCCL needs more, as by --shm-size=1g")};
}

Finding huge_pages() {
  const std::string enabled = read_small_file("/sys/kernel/mm/transparent_hugepage/enabled");
  const bool ok = enabled.find("[never]") == std::string::npos;
  return {
      "huge pages", ok,
      ok ? "large memory gets them, if the kernel has any"
         : "none, which costs speed: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding driver() {
  const std::string info = cuda_info();
  const bool ok = !has_driver() || info.starts_with("driver ");
  return {
      "CUDA", ok,
      text(info, ok ? ""
                    : ", but a GPU driver is installed: build libzero with -Dcuda=enabled, or make "
                      "sure that libcuda.so.1 can be found")};
}

Finding nccl_library() {
  const auto found = nccl::library();
  if (found.ok())
    return {"NCCL", true, text(nccl::version_text((*found)->version), ", ", (*found)->path)};
  return {"NCCL", !has_driver(),
          has_driver() ? found.failure().text() : "not found; only ranks on GPUs need it"};
}

bool on_several_hosts() {
  const auto launch = read_launch(getenv);
  return launch.ok() && (*launch).hosts == Hosts::several;
}

Finding mpi_library() {
  const auto found = mpi::open();
  if (found.ok())
    return {
        "MPI", true,
        text((*found)->path, (*found)->shim.empty() ? ", of the standard ABI" : ", by the shim ",
             (*found)->shim)};
  const bool needed = on_several_hosts() || value_of(getenv, "ZERO_MPI_PATH") != nullptr;
  return {"MPI", !needed,
          text(needed ? "" : "only zero_comm_create_mpi and ranks on several hosts need it: ",
               found.failure().text())};
}

Finding network() {
  constexpr size_t kMost = 8;  // as many as a rank sends to the others
  const auto found = tcp::own_addresses(kMost);
  if (!found.ok()) return {"network", false, found.failure().text()};
  if ((*found).front().is_loopback())
    return {"network", !on_several_hosts(),
            "only the loopback: a job on this host cannot include others"};
  std::string words = "ranks of other hosts try ";
  for (const tcp::Address& address : *found)
    if (!address.is_loopback()) words += text(tcp::to_text(address), " ");
  words.pop_back();
  return {"network", true, words};
}

std::vector<Finding> examine() {
  return {
      library(),
      kernel(),
      launcher(),
      deadlines(),
      memory(),
      processors(),
      limit("descriptors", RLIMIT_NOFILE, kLeastDescriptors, ": raise ulimit -n for many ranks"),
      limit("file size", RLIMIT_FSIZE, RLIM_INFINITY,
            " bytes, which ends larger checkpoints: ulimit -f unlimited"),
      limit("address space", RLIMIT_AS, RLIM_INFINITY,
            " bytes, of which arenas reserve much: ulimit -v unlimited"),
      shared_memory(),
      huge_pages(),
      driver(),
      nccl_library(),
      mpi_library(),
      network()};
}

}  // namespace

Result<bool> doctor(const Request& request) {
  const std::vector<Finding> findings = examine();
  bool all_ok = true;
  Json out = Json::array();
  Rows rows;
  for (const auto& [subject, ok, words] : findings) {
    all_ok = all_ok && ok;
    out.push_back({{"subject", subject}, {"ok", ok}, {"words", words}});
    rows.push_back({ok ? "ok" : "--", subject, printable(words)});
  }
  if (request.json)
    print_json(Json{{"ok", all_ok}, {"findings", out}});
  else
    print_table(rows);
  return all_ok;
}

}  // namespace zero::tool

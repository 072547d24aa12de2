// SPDX-License-Identifier: Apache-2.0
#include "support/mpi_ranks.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "comm/comm.h"
#include "comm/create.h"
#include "support/ranks.h"

namespace zero::test {
namespace {

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::abort();
}

void (*finalize)();

/// Opens and initializes MPI. All threads may call it if ZERO_TEST_MPI_LEVEL is at least 3. Returns
/// a comm of all ranks, or null.
std::shared_ptr<Comm> begin_mpi() {
  const char* const path = std::getenv("ZERO_TEST_MPI");
  if (path == nullptr) return nullptr;
  void* const library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) fail(path, dlerror());
  const auto init =
      reinterpret_cast<int (*)(int*, char***, int, int*)>(dlsym(library, "MPI_Init_thread"));
  finalize = reinterpret_cast<void (*)()>(dlsym(library, "MPI_Finalize"));
  // Thread levels have other numbers in the standard ABI.
  const char* const asked = std::getenv("ZERO_TEST_MPI_LEVEL");
  const int number = asked != nullptr ? std::atoi(asked) : 3;
  const bool standard = dlsym(library, "MPI_Abi_get_version") != nullptr &&
                        std::string_view(path).find("abi") != std::string_view::npos;
  int given = 0;
  const int level = standard ? number * 1024 + (number == 3 ? 1024 : 0) : number;
  if (init(nullptr, nullptr, level, &given) != 0 || given != level)
    fail(path, "it does not give that level of threads");
  std::atexit([] { finalize(); });
  Result<std::shared_ptr<Comm>> all = create_mpi(nullptr, 0, {}, false);
  if (!all.ok()) fail(path, all.failure().text().c_str());
  return std::move(all).value();
}

/// Never freed, because MPI is finalized after static objects are destroyed.
Comm* all_ranks() {
  static const auto* const comm = new std::shared_ptr<Comm>(begin_mpi());
  return comm->get();
}

std::vector<std::string> run_and_gather(const std::function<std::string(int rank)>& body) {
  const std::string mine = body(all_ranks()->rank());
  Result<Call> call = all_ranks()->begin(Operation::barrier);
  if (!call.ok()) fail("gathering", call.failure().text().c_str());
  Result<std::vector<std::string>> all = call->gather("results", mine);
  if (!all.ok()) fail("gathering", all.failure().text().c_str());
  return std::move(*all);
}

/// Numbers hosts in the order of their lowest ranks.
std::vector<int> hosts_of_ranks() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const std::vector<std::string> names = run_and_gather([&](int) { return std::string(name); });
  std::vector<std::string> seen;
  std::vector<int> hosts;
  for (const std::string& one : names) {
    const auto found = std::find(seen.begin(), seen.end(), one);
    hosts.push_back(static_cast<int>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(one);
  }
  return hosts;
}

}  // namespace

LaunchedRank launched() {
  Comm* const comm = all_ranks();
  if (comm == nullptr) return {};
  run_among_launched = run_and_gather;
  static const std::vector<int> hosts = hosts_of_ranks();
  return {comm->rank(), comm->world(), hosts};
}

}  // namespace zero::test

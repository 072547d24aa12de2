// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/start.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/os.h"
#include "base/text.h"
#include "comm/mpi/duplicates.h"
#include "comm/mpi/library.h"

namespace zero::mpi {
namespace {

constexpr const char* kOpenMpi = "libmpi.so.40";
constexpr const char* kNames[] = {"libmpi_abi.so.1", "libmpi_abi.so.0", kOpenMpi, "libmpi.so.12"};

/// Opens an MPI with global symbols, because components that it loads may look for them.
Status open_one() {
  constexpr int kForAll = RTLD_NOW | RTLD_GLOBAL;
  const char* const named = secure_getenv("ZERO_MPI_PATH");
  if (named != nullptr && named[0] != 0) {
    if (dlopen(named, kForAll) != nullptr) return {};
    const char* const words = dlerror();
    return Status(ZERO_ERR_UNSUPPORTED, text("ZERO_MPI_PATH: ", words != nullptr ? words : named));
  }
  std::vector<const char*> names(std::begin(kNames), std::end(kNames));
  if (getenv("OMPI_COMM_WORLD_SIZE") != nullptr)  // its launcher's ranks need that MPI
    std::stable_partition(names.begin(), names.end(),
                          [](std::string_view name) { return name == kOpenMpi; });
  for (const char* const name : names)
    if (dlopen(name, kForAll) != nullptr) return {};
  return Status(ZERO_ERR_UNSUPPORTED,
                "no MPI was found: link the program to one, or name its library in ZERO_MPI_PATH");
}

/// Finalizes MPI in process `pid` only, because a child process has a copy of this handler. After a
/// failure, MPI_Finalize would wait forever for unfinished work. If the program exits with an
/// error, it would wait for the other ranks. The launcher ends the ranks in these cases.
void finish(int exit_status, void* pid) {
  if (reinterpret_cast<intptr_t>(pid) != os().getpid()) return;
  const Result<const Library*> library = loaded_library();
  if (exit_status == 0 && library.ok() && check_running(**library).ok() && are_sound())
    (*library)->calls->finish();
}

}  // namespace

Result<const Library*> open() {
  if (!is_any_loaded()) ZERO_TRY(open_one());
  return loaded_library();
}

Status start(bool may_open) {
  const Library& library = *ZERO_TRY(may_open ? open() : loaded_library());
  int initialized = 0, finalized = 0;
  ZERO_TRY(outcome(library, "MPI_Initialized", library.calls->state(&initialized, &finalized)));
  if (initialized != 0 || !may_open) return check_running(library);
  ZERO_TRY(outcome(library, "MPI_Init_thread", library.calls->start()));
  on_exit([](int status, void* pid) { (void)succeeds([&] { return finish(status, pid), true; }); },
          reinterpret_cast<void*>(intptr_t{os().getpid()}));
  return {};
}

}  // namespace zero::mpi

// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/os.h"
#include "base/text.h"
#include "comm/mpi/standard.h"
#include "zero.h"

namespace zero::mpi {
namespace {

// ---- Loaded libraries.

/// A loaded object of this process that has MPI's functions.
struct Loaded {
  void* handle;  // from dlopen
  std::string path;
  const void* base;
};

/// Returns the base address and path of the object that contains `address`.
Dl_info object_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return {};
  return info;
}

std::vector<std::string> paths_of_objects() {
  std::vector<std::string> paths;
  const auto add = [](dl_phdr_info* info, size_t, void* to) {
    static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(add, &paths);
  return paths;
}

/// Returns every loaded MPI, whatever its name. Tools may define the MPI functions that programs
/// call, but not those with the prefix PMPI.
std::vector<Loaded> find_loaded() {
  std::vector<Loaded> all;
  for (const std::string& path : paths_of_objects()) {
    void* const handle =
        dlopen(path.empty() ? nullptr : path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const void* const found = dlsym(handle, "PMPI_Initialized");
    const Dl_info object = found != nullptr ? object_of(found) : Dl_info{};
    const bool is_new =
        object.dli_fbase != nullptr && std::none_of(all.begin(), all.end(), [&](const Loaded& one) {
          return one.base == object.dli_fbase;
        });
    if (is_new)
      all.push_back({handle, object.dli_fname, object.dli_fbase});
    else
      dlclose(handle);
  }
  return all;
}

Result<Loaded> find_one() {
  std::vector<Loaded> all = find_loaded();
  if (all.empty())
    return Status(
        ZERO_ERR_UNSUPPORTED,
        "no MPI is loaded in this process: link the program to one, or load one, and call "
        "MPI_Init_thread");
  if (all.size() > 1)
    return Status(ZERO_ERR_UNSUPPORTED,
                  text("two MPIs are loaded in this process, ", all[0].path, " and ", all[1].path,
                       ": libzero cannot tell which one a communicator belongs to"));
  return std::move(all[0]);
}

// ---- Functions.

/// Returns true if handles and constants are those of the standard ABI.
bool is_standard(const Loaded& loaded) {
  const auto get =
      reinterpret_cast<int (*)(int*, int*)>(dlsym(loaded.handle, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  return get != nullptr && get(&major, &minor) == 0 && major == 1;
}

/// Returns the folder of the file that contains this library, or "". A program's own name, which
/// its caller chooses, and relative paths, which may have a new meaning, are not used.
std::string own_folder() {
  const Dl_info self = object_of(reinterpret_cast<const void*>(&zero_version));
  const Dl_info program = object_of(reinterpret_cast<const void*>(os().getauxval(AT_PHDR)));
  std::string path = self.dli_fname != nullptr ? self.dli_fname : "";
  if (self.dli_fbase == program.dli_fbase) {
    char file[4096];
    const ssize_t bytes = os().readlinkat(AT_FDCWD, "/proc/self/exe", file, sizeof file);
    path.assign(file, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  }
  return path.starts_with('/') ? path.substr(0, path.rfind('/')) : "";
}

/// Returns the soname of an MPI, or the name of its file if it has none. They may differ: mpi4py
/// loads libmpi.so, which is a link to libmpi.so.12 or, in Intel's package, a copy of it.
std::string name_of(const Loaded& loaded) {
  Dl_info info{};
  link_map* object = nullptr;
  uintptr_t texts = 0;
  size_t place = 0;
  if (dladdr1(loaded.base, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) != 0 &&
      object != nullptr && object->l_ld != nullptr) {
    for (const ElfW(Dyn)* entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
      if (entry->d_tag == DT_STRTAB) texts = entry->d_un.d_ptr;
      if (entry->d_tag == DT_SONAME) place = entry->d_un.d_val;
    }
  }
  if (texts != 0 && place != 0) {
    // Some loaders, such as glibc's, replace the offset by the address.
    if (texts < object->l_addr) texts += object->l_addr;
    return reinterpret_cast<const char*>(texts + place);
  }
  return loaded.path.substr(loaded.path.rfind('/') + 1);
}

/// Returns the paths where a shim may be. Its file is named after the MPI that it is for.
std::vector<std::string> places_of_shim(const Loaded& loaded) {
  const char* const named = secure_getenv("ZERO_MPI_SHIM");
  if (named != nullptr && named[0] != 0) return {named};
  const std::string file = text("libzero_mpi-", name_of(loaded));
  std::vector<std::string> places;
  if (const std::string own = own_folder(); !own.empty()) places.push_back(text(own, "/", file));
  const char* const data = secure_getenv("XDG_DATA_HOME");
  const char* const home = secure_getenv("HOME");
  if (data != nullptr && data[0] == '/')
    places.push_back(text(data, "/libzero/", file));
  else if (home != nullptr && home[0] == '/')
    places.push_back(text(home, "/.local/share/libzero/", file));
  return places;
}

/// Returns the table of a shim, if it was built for exactly this MPI.
Result<const mpi_functions*> take_shim(void* shim, const std::string& place, const Loaded& loaded) {
  const auto get = reinterpret_cast<mpi_shim_function>(dlsym(shim, MPI_SHIM_SYMBOL));
  const mpi_functions* const table = get != nullptr ? get() : nullptr;
  if (table == nullptr || table->version != MPI_SHIM_VERSION)
    return Status(ZERO_ERR_UNSUPPORTED,
                  text(place, " was built for another libzero: run zero-mpi-shim again"));
  // A shim loads the MPI that it was linked to, although its calls may go to another one.
  std::string other;
  for (const Loaded& one : find_loaded()) {
    dlclose(one.handle);
    if (one.base != loaded.base) other = one.path;
  }
  if (other.empty()) return table;
  return Status(ZERO_ERR_UNSUPPORTED,
                text(place, " was built for ", other, ", but this process has loaded ", loaded.path,
                     ": run zero-mpi-shim with the compiler of that MPI"));
}

Result<const mpi_functions*> find_shim(const Loaded& loaded) {
  std::string tried;
  for (const std::string& place : places_of_shim(loaded)) {
    if (void* const shim = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      Result<const mpi_functions*> taken = take_shim(shim, place, loaded);
      if (!taken.ok()) dlclose(shim);
      return taken;
    }
    const char* const words = dlerror();  // begins with the path
    tried += text("; ", words != nullptr ? words : place.c_str());
  }
  return Status(ZERO_ERR_UNSUPPORTED,
                text(loaded.path,
                     " does not have MPI's standard ABI, and libzero has no shim for "
                     "it: run zero-mpi-shim, which builds one with mpicc",
                     tried));
}

Result<const mpi_functions*> take_functions(const Loaded& loaded) {
  if (!is_standard(loaded)) return find_shim(loaded);
  const char* missing = nullptr;
  const mpi_functions* const table = mpi_standard(loaded.handle, &missing);
  if (table == nullptr)
    return Status(ZERO_ERR_UNSUPPORTED, text(loaded.path, " has no function ", missing));
  return table;
}

std::mutex opening;
std::atomic<const Library*> opened{nullptr};

}  // namespace

bool is_any_loaded() { return !find_loaded().empty(); }

/// The result is kept after success. After a failure, the next call searches again.
Result<const Library*> loaded_library() {
  if (const Library* const ready = opened.load(std::memory_order_acquire)) return ready;
  const std::lock_guard lock(opening);
  if (const Library* const ready = opened.load(std::memory_order_acquire)) return ready;
  Loaded loaded = ZERO_TRY(find_one());
  const mpi_functions* const calls = ZERO_TRY(take_functions(loaded));
  std::string shim = is_standard(loaded) ? "" : object_of(calls).dli_fname;
  auto made = std::make_unique<Library>(Library{calls, std::move(loaded.path), std::move(shim)});
  opened.store(made.get(), std::memory_order_release);
  return static_cast<const Library*>(made.release());
}

Result<const Library*> library() {
  const Library* const found = ZERO_TRY(loaded_library());
  ZERO_TRY(check_running(*found));
  return found;
}

Status check_running(const Library& library) {
  int initialized = 0, finalized = 0;
  ZERO_TRY(outcome(library, "MPI_Initialized", library.calls->state(&initialized, &finalized)));
  if (finalized != 0)
    return Status(
        ZERO_ERR_STATE,
        "MPI_Finalize was already called: free everything that uses MPI before calling it");
  if (initialized == 0)
    return Status(ZERO_ERR_STATE, "MPI is not initialized: call MPI_Init_thread first");
  return {};
}

Status outcome(const Library& library, const char* what, int error) {
  if (error == 0) return {};
  char words[512];
  library.calls->describe(error, words, sizeof words);
  return Status(ZERO_ERR_COMM, text(what, ": MPI says '", as_utf8(words), "'"));
}

Status await(const Library& library, const char* what, mpi_handle& request, const Bounds& bounds) {
  constexpr int64_t kBusyNs = 200'000;  // polls without a pause at first, for low latency
  constexpr int64_t kPauseNs = 200'000;
  constexpr int64_t kLookNs = 2'000'000;
  const Deadline deadline(bounds.limit_ms);
  const int64_t start_ns = now_ns();
  for (int64_t looked_ns = start_ns;;) {
    int done = 0;
    ZERO_TRY(outcome(library, what, library.calls->test(&request, &done)));
    if (done != 0) return {};
    const int64_t now = now_ns();
    if (now - looked_ns >= kLookNs) {
      ZERO_TRY(bounds.check());
      if (deadline.passed())
        return Status(ZERO_ERR_RENDEZVOUS,
                      text(what, ": MPI did not finish within ", bounds.limit_ms,
                           " ms; it does not say which rank is late"));
      looked_ns = now;
    }
    // Wait: a slice of bounds.limit_ms.
    if (now - start_ns > kBusyNs) pause_between_looks(now - start_ns, 0, kPauseNs);
  }
}

}  // namespace zero::mpi

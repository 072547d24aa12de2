// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/os.h"
#include "base/text.h"

namespace zero::nccl {
namespace {

constexpr const char* kPlainNames[] = {"libnccl.so.2", "libnccl.so"};

std::mutex opening;
std::atomic<const Library*> opened{nullptr};
std::atomic<const Library*> replaced{nullptr};

std::string loader_words() {
  const char* const words = dlerror();
  return words != nullptr ? words : "no reason given";
}

/// Finds a function, and stores its address in the pointer at `place`.
Status take_function(void* handle, const char* name, void* place) {
  void* const found = dlsym(handle, name);
  if (found == nullptr)
    return Status(ZERO_ERR_UNSUPPORTED, text("it has no function ", name, ": is it NCCL?"));
  memcpy(place, &found, sizeof found);
  return {};
}

Status take_functions(void* handle, Library& out) {
  const struct {
    const char* name;
    void* function;
  } rows[] = {
      {"ncclGetUniqueId", &out.get_unique_id},
      {"ncclGetErrorString", &out.error_string},
      {"ncclGetLastError", &out.last_error},
      {"ncclCommInitRankConfig", &out.init_rank},
      {"ncclCommSplit", &out.split},
      {"ncclCommFinalize", &out.finalize},
      {"ncclCommDestroy", &out.destroy},
      {"ncclCommAbort", &out.abort},
      {"ncclCommGetAsyncError", &out.async_error},
      {"ncclCommCount", &out.count},
      {"ncclCommUserRank", &out.user_rank},
      {"ncclCommCuDevice", &out.device},
      {"ncclReduceScatter", &out.reduce_scatter},
      {"ncclAllGather", &out.all_gather},
      {"ncclBroadcast", &out.broadcast},
      {"ncclReduce", &out.reduce},
      {"ncclGroupStart", &out.group_start},
      {"ncclGroupEnd", &out.group_end},
      {"ncclCommWindowRegister", &out.window_register},
      {"ncclCommWindowDeregister", &out.window_deregister},
  };
  for (const auto& row : rows) ZERO_TRY(take_function(handle, row.name, row.function));
  return {};
}

/// Loads all functions of a library. Checks the version first, as old ones may lack functions.
Result<Library> take_library(void* handle, const std::string& name) {
  Library found;
  found.path = name;
  ZERO_TRY(take_function(handle, "ncclGetVersion", &found.get_version));
  if (found.get_version(&found.version) != kSuccess)
    return Status(ZERO_ERR_UNSUPPORTED, "it does not report its version");
  if (found.version < kOldestVersion)
    return Status(ZERO_ERR_UNSUPPORTED,
                  text("it is version ", version_text(found.version), ", but libzero needs ",
                       version_text(kOldestVersion), " or later"));
  ZERO_TRY(take_functions(handle, found));
  return found;
}

/// Adds the library in lib/python3.*/site-packages/nvidia/nccl/lib of an environment.
void add_package(const char* variable, std::vector<std::string>& names) {
  const char* const prefix = secure_getenv(variable);
  if (prefix == nullptr || prefix[0] != '/') return;
  const std::string libraries = text(prefix, "/lib");
  Fd fd = Fd::open([&] {
    return os().openat(AT_FDCWD, libraries.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  });
  DIR* const folder = fd.valid() ? os().fdopendir(fd.get()) : nullptr;
  if (folder == nullptr) return;
  while (const dirent* const entry = os().readdir(folder))
    if (std::strncmp(entry->d_name, "python3.", 8) == 0)
      names.push_back(text(libraries, "/", static_cast<const char*>(entry->d_name),
                           "/site-packages/nvidia/nccl/lib/libnccl.so.2"));
  (void)fd.close([&](int) { return os().closedir(folder); });
}

Result<Library> find_library() {
  for (const char* name : kPlainNames)
    if (void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD))
      return take_library(handle, name);
  const std::vector<std::string> names = library_names();
  return open_library(names);
}

}  // namespace

std::string version_text(int version) {
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::vector<std::string> library_names() {
  std::vector<std::string> names;
  if (const char* const path = secure_getenv("ZERO_NCCL_PATH"); path != nullptr && path[0] != 0)
    names.emplace_back(path);
  names.insert(names.end(), std::begin(kPlainNames), std::end(kPlainNames));
  add_package("VIRTUAL_ENV", names);
  add_package("CONDA_PREFIX", names);
  return names;
}

Result<Library> open_library(std::span<const std::string> names) {
  std::string tried;
  for (const std::string& name : names) {
    if (void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      Result<Library> taken = take_library(handle, name);
      if (!taken.ok()) return std::move(taken).status().within(text("NCCL, found as ", name));
      return taken;
    }
    tried += text("; ", name, ": ", loader_words());
  }
  return Status(
      ZERO_ERR_UNSUPPORTED,
      text("NCCL was not found: install it, or name libnccl.so.2 in ZERO_NCCL_PATH", tried));
}

Result<const Library*> library() {
  // This variable overrides any configuration that libzero passes.
  const char* const blocking = secure_getenv("NCCL_COMM_BLOCKING");
  if (blocking != nullptr && std::string_view(blocking) == "1")
    return Status(
        ZERO_ERR_UNSUPPORTED,
        "NCCL_COMM_BLOCKING=1 makes NCCL wait for other ranks without a deadline: unset it");
  if (const Library* const other = replaced.load(std::memory_order_acquire)) return other;
  if (const Library* const ready = opened.load(std::memory_order_acquire)) return ready;
  const std::lock_guard lock(opening);
  if (const Library* const ready = opened.load(std::memory_order_acquire)) return ready;
  auto made = std::make_unique<Library>(ZERO_TRY(find_library()));
  opened.store(made.get(), std::memory_order_release);
  return static_cast<const Library*>(made.release());
}

void replace_library(const Library* replacement) {
  replaced.store(replacement, std::memory_order_release);
}

}  // namespace zero::nccl

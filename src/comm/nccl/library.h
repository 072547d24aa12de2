// SPDX-License-Identifier: Apache-2.0
// The NCCL library, opened at run time. libzero does not link to it, and never closes it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/nccl/abi.h"

namespace zero::nccl {

/// NCCL's functions. All but those that return texts block according to the communicator's Config.
/// Two threads must not use one communicator at the same time.
struct Library {
  int version = 0;
  std::string path;

  int (*get_version)(int* version);
  int (*get_unique_id)(UniqueId* id);
  const char* (*error_string)(int outcome);
  const char* (*last_error)(Handle comm);
  int (*init_rank)(Handle* out, int world, UniqueId id, int rank, Config* config);
  int (*split)(Handle comm, int color, int key, Handle* out, Config* config);
  int (*finalize)(Handle comm);
  int (*destroy)(Handle comm);
  int (*abort)(Handle comm);
  int (*async_error)(Handle comm, int* outcome);
  int (*count)(Handle comm, int* world);
  int (*user_rank)(Handle comm, int* rank);
  int (*device)(Handle comm, int* ordinal);
  int (*reduce_scatter)(const void* send, void* recv, size_t count, int type, int reduction,
                        Handle comm, void* stream);
  int (*all_gather)(const void* send, void* recv, size_t count, int type, Handle comm,
                    void* stream);
  int (*broadcast)(const void* send, void* recv, size_t count, int type, int root, Handle comm,
                   void* stream);
  int (*reduce)(const void* send, void* recv, size_t count, int type, int reduction, int root,
                Handle comm, void* stream);
  int (*group_start)();
  int (*group_end)();
  int (*window_register)(Handle comm, void* memory, size_t bytes, Window* out, int flags);
  int (*window_deregister)(Handle comm, Window window);

  /// Returns true if NCCL has windows, and gathers with copy engines, which need windows.
  bool has_windows() const { return version >= kOldestWindows; }
};

/// Returns the NCCL of this process: a loaded one or, if there is none, the first of
/// library_names() that opens. A success is kept, and after a failure the next call tries again.
/// Fails with ZERO_ERR_UNSUPPORTED and a list of all names with the loader's messages, or if NCCL
/// is older than 2.27.3, or if the environment disables non-blocking calls.
Result<const Library*> library();

/// Returns the names to try, which depend on the environment: $ZERO_NCCL_PATH, libnccl.so.2 and
/// libnccl.so in the loader's search path, and the Python package nvidia-nccl in $VIRTUAL_ENV and
/// $CONDA_PREFIX.
std::vector<std::string> library_names();

/// Opens the first of `names` that can be opened and has all functions.
Result<Library> open_library(std::span<const std::string> names);

/// Returns a version as text, such as "2.27.3".
std::string version_text(int version);

/// Replaces the result of library() for tests. nullptr restores the process's own library.
void replace_library(const Library* replacement);

}  // namespace zero::nccl

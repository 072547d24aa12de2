// SPDX-License-Identifier: Apache-2.0
// NCCL, opened while the program runs: never linked, never closed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/nccl/abi.h"

namespace zero::nccl {

/// NCCL's functions. All but those that return words block as the communicator's Config says. No
/// two threads give them one communicator at the same time.
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

  /// True if there are windows, and gathers by copy engines, which need them.
  bool has_windows() const { return version >= kOldestWindows; }
};

/// Returns the NCCL of this process: one that is already loaded or, if none is, the first of
/// library_names() that opens. It is opened once; after a failure the next call tries anew. Fails
/// with ZERO_ERR_UNSUPPORTED, which lists every name tried with the loader's words, or both
/// versions if NCCL is older than 2.27.3, or says that the environment takes its deadlines away.
Result<const Library*> library();

/// Returns the names by which NCCL is looked for, by the environment: $ZERO_NCCL_PATH, libnccl.so.2
/// and libnccl.so as the loader finds them, and the Python package nvidia-nccl of $VIRTUAL_ENV and
/// $CONDA_PREFIX.
std::vector<std::string> library_names();

/// Returns the first of `names` that opens, with all its functions.
Result<Library> open_library(std::span<const std::string> names);

/// Returns "2.27.3" and the like.
std::string version_text(int version);

/// Sets what library() returns from now on; nullptr for the process's own. For tests.
void replace_library(const Library* replacement);

}  // namespace zero::nccl

// SPDX-License-Identifier: Apache-2.0
// The functions that the library exports.
#include "support/fake_nccl.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl/abi.h"
#include "support/fake_nccl_collectives.h"
#include "support/fake_nccl_groups.h"

using namespace zero;
using namespace zero::test::fake_nccl;
using nccl::Config;
using nccl::Handle;
using nccl::UniqueId;
using nccl::Window;

constexpr uintptr_t kWindowAlignment = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT zero::test::FakeNcclKnobs* fake_nccl_knobs() { return &knobs; }

EXPORT int ncclGetVersion(int* version) {
  *version = knobs.version;
  return nccl::kSuccess;
}

EXPORT const char* ncclGetErrorString(int outcome) {
  const char* const names[] = {"no error",
                               "unhandled cuda error",
                               "unhandled system error",
                               "internal error",
                               "invalid argument",
                               "invalid usage",
                               "remote process exited or there was a network error",
                               "NCCL operation in progress"};
  return outcome >= 0 && outcome < 8 ? names[outcome] : "unknown result code";
}

EXPORT const char* ncclGetLastError(Handle) {
  const std::lock_guard lock(mutex);
  return words.empty() ? "the fake has no more to say" : words.c_str();
}

EXPORT int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int64_t> count{0};
  const std::string name = "fake " + std::to_string(count++);
  *id = UniqueId{};
  name.copy(id->bytes, sizeof id->bytes - 1);
  return nccl::kSuccess;
}

EXPORT int ncclCommInitRankConfig(Handle* out, int world, UniqueId id, int rank, Config* config) {
  const std::lock_guard lock(mutex);
  if (config->bytes != sizeof *config || config->magic != 0xcafebeef || world < 1 || rank < 0 ||
      rank >= world || (config->max_ctas != nccl::kUnset && config->max_ctas < 1) ||
      (config->blocking != 0 && !knobs.allows_blocking))
    return nccl::kInvalidArgument;
  if (const int failed = judge(rank, nullptr)) return failed;
  knobs.reduce_ctas = config->max_ctas;
  std::shared_ptr<Group>& group = groups[id.bytes];
  if (group == nullptr) group = std::make_shared<Group>(world);
  ++group->joined;
  if (group->world != world || !group->ranks.insert(rank).second) ++knobs.misused;
  Communicator* const made = make(group, rank, knobs.current_device());
  made->blocking = config->blocking != 0;
  *out = reinterpret_cast<Handle>(made);
  return nccl::kInProgress;
}

/// Waits until the communicator has accepted the operation, or has ended.
static int block(std::unique_lock<std::mutex>& lock, Communicator* one) {
  ++knobs.blocked;
  while (communicators.count(one) != 0 && is_busy(*one)) {
    lock.unlock();
    usleep(1000);
    lock.lock();
  }
  --knobs.blocked;
  return communicators.count(one) != 0 ? nccl::kSuccess : nccl::kInternalError;
}

EXPORT int ncclCommSplit(Handle handle, int color, int key, Handle* out, Config* config) {
  std::unique_lock lock(mutex);
  Communicator* const parent = find(handle);
  if (parent == nullptr || color < nccl::kNoColor || config->split_share != 0 ||
      (config->cta_policy == nccl::kZeroCtas && knobs.version < nccl::kOldestWindows))
    return nccl::kInvalidArgument;
  if (is_busy(*parent)) ++knobs.misused;
  if (const int failed = judge(parent->rank, parent)) return failed;
  const Group& group = *parent->group;
  std::shared_ptr<Split>& split = parent->group->splits[parent->splits++];
  const size_t ranks = static_cast<size_t>(group.world);
  if (split == nullptr)
    split = std::make_shared<Split>(Split{
        0, std::vector<int>(ranks), std::vector<int>(ranks), std::vector<Communicator*>(ranks),
        std::vector<Handle*>(ranks), std::vector<int>(ranks), std::vector<int>(ranks)});
  split->color[static_cast<size_t>(parent->rank)] = color;
  split->key[static_cast<size_t>(parent->rank)] = key;
  split->policy[static_cast<size_t>(parent->rank)] = config->cta_policy;
  split->device[static_cast<size_t>(parent->rank)] = knobs.current_device();
  parent->split = split;
  split->out[static_cast<size_t>(parent->rank)] = out;
  parent->busy = knobs.busy_polls;
  if (++split->arrived == group.world) make_children(group, *split);
  return parent->blocking ? block(lock, parent) : nccl::kInProgress;
}

EXPORT int ncclCommWindowRegister(Handle handle, void* data, size_t bytes, Window* out, int flags) {
  const std::lock_guard lock(mutex);
  Communicator* const found = find(handle);
  if (found == nullptr || flags != nccl::kSymmetric || bytes == 0 ||
      reinterpret_cast<uintptr_t>(data) % kWindowAlignment != 0)
    return nccl::kInvalidArgument;
  if (is_busy(*found)) ++knobs.misused;
  if (const int failed = judge(found->rank, found)) return failed;
  *out = nullptr;
  if (!knobs.has_windows) return nccl::kSuccess;
  const auto* const begin = static_cast<const std::byte*>(data);
  for (const FakeWindow* const one : windows)
    if (begin < one->data + one->bytes && one->data < begin + bytes) ++knobs.misused;
  std::shared_ptr<Opening>& opening = found->group->openings[found->openings++];
  if (opening == nullptr) opening = std::make_shared<Opening>();
  ++opening->arrived;
  found->opening = opening;
  found->opened = new FakeWindow{found, found->openings, begin, bytes};
  found->window = out;
  windows.insert(found->opened);
  ++knobs.windows;
  found->busy = knobs.busy_polls;
  return nccl::kInProgress;
}

EXPORT int ncclCommWindowDeregister(Handle handle, Window window) {
  const std::lock_guard lock(mutex);
  Communicator* const found = find(handle);
  auto* const closed = reinterpret_cast<FakeWindow*>(window);
  if (knobs.keeps_windows) return nccl::kInternalError;
  if (found == nullptr || windows.erase(closed) == 0) return nccl::kInvalidArgument;
  if (is_busy(*found) || closed->of != found) ++knobs.misused;
  --knobs.windows;
  delete closed;
  return nccl::kSuccess;
}

/// Reads only the communicator's own memory, so that any device may be current.
EXPORT int ncclCommGetAsyncError(Handle handle, int* outcome) {
  const std::lock_guard lock(mutex);
  auto* const found = reinterpret_cast<Communicator*>(handle);
  if (communicators.count(found) == 0) {
    ++knobs.misused;
    return nccl::kInvalidArgument;
  }
  if (knobs.broken_now != 0 && (knobs.rank < 0 || knobs.rank == found->rank))
    found->error = knobs.broken_now;
  *outcome = found->error != nccl::kSuccess ? found->error
             : is_busy(*found)              ? int{nccl::kInProgress}
                                            : int{nccl::kSuccess};
  return nccl::kSuccess;
}

EXPORT int ncclCommFinalize(Handle handle) {
  {
    const std::lock_guard lock(mutex);
    Communicator* const found = find(handle);
    if (found == nullptr) return nccl::kInvalidArgument;
    found->finalized = true;
  }
  return knobs.finalize_fails ? nccl::kInternalError : nccl::kSuccess;
}

EXPORT int ncclCommDestroy(Handle handle) {
  ++knobs.destroyed;
  return end(handle, true);
}

EXPORT int ncclCommAbort(Handle handle) {
  while (knobs.abort_hangs) usleep(1000);
  ++knobs.aborted;
  return end(handle, false);
}

EXPORT int ncclCommCount(Handle handle, int* world) {
  const std::lock_guard lock(mutex);
  Communicator* const found = find(handle);
  if (found == nullptr) return nccl::kInvalidArgument;
  *world = found->group->world;
  return nccl::kSuccess;
}

EXPORT int ncclCommUserRank(Handle handle, int* rank) {
  const std::lock_guard lock(mutex);
  Communicator* const found = find(handle);
  if (found == nullptr) return nccl::kInvalidArgument;
  *rank = found->rank;
  return nccl::kSuccess;
}

EXPORT int ncclCommCuDevice(Handle, int* ordinal) {
  *ordinal = 0;
  return nccl::kSuccess;
}

EXPORT int ncclReduceScatter(const void* send, void* recv, size_t count, int type, int reduction,
                             Handle handle, void* stream) {
  if (reduction != nccl::kSum) return nccl::kInvalidArgument;
  return collective("reduce_scatter", send, recv, count, type, 0, handle, stream);
}

EXPORT int ncclAllGather(const void* send, void* recv, size_t count, int type, Handle handle,
                         void* stream) {
  return collective("all_gather", send, recv, count, type, 0, handle, stream);
}

EXPORT int ncclBroadcast(const void* send, void* recv, size_t count, int type, int root,
                         Handle handle, void* stream) {
  return collective("broadcast", send, recv, count, type, root, handle, stream);
}

EXPORT int ncclReduce(const void* send, void* recv, size_t count, int type, int reduction, int root,
                      Handle handle, void* stream) {
  if (reduction != nccl::kSum) return nccl::kInvalidArgument;
  return collective("reduce", send, recv, count, type, root, handle, stream);
}

EXPORT int ncclGroupStart() {
  begin_group();
  return nccl::kSuccess;
}

EXPORT int ncclGroupEnd() { return end_group(); }

// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/nccl/abi.h"
#include "support/chaos_device.h"
#include "support/halves.h"

namespace zero::test {
namespace {

using nccl::Config;
using nccl::Handle;
using nccl::UniqueId;
using nccl::Window;

FakeNcclKnobs knobs;
std::mutex mutex;  // over all below
std::string words;

/// Where a rank's part of a collective is: the number of a window of its group, from 1, and bytes
/// in there; 0: in none.
struct Place {
  int64_t window = 0;
  ptrdiff_t at = 0;
  bool operator==(const Place&) const = default;
};

/// A collective of one group, begun by its first rank.
struct Collective {
  std::string what;
  size_t bytes;  // of one chunk
  int type, root;
  std::vector<const std::byte*> send;
  std::vector<std::byte*> recv;
  std::vector<bool> at_head;
  std::vector<Place> places;  // of each rank's part
  bool done = false;
};

struct Communicator;

struct Split {
  int arrived = 0;
  std::vector<int> color, key;
  std::vector<Communicator*> made;
  std::vector<int> policy;
};

struct FakeWindow {
  Communicator* of;
  int64_t number;
  const std::byte* data;
  size_t bytes;
};

/// The opening of a window by all ranks.
struct Opening {
  int arrived = 0;
};

struct Group {
  explicit Group(int world) : world(world) {}
  const int world;
  int joined = 0;
  std::map<int64_t, std::shared_ptr<Opening>> openings;
  std::map<int64_t, std::shared_ptr<Collective>> collectives;
  std::map<int64_t, std::shared_ptr<Split>> splits;
};

struct Communicator {
  std::shared_ptr<Group> group;
  int rank;
  int busy;  // polls until the last call is taken in
  std::shared_ptr<Split> split = {};
  Handle* child = nullptr;  // where to put it
  int error = nccl::kSuccess;
  std::shared_ptr<Opening> opening = {};
  FakeWindow* opened = nullptr;  // by that
  Window* window = nullptr;      // where to put it
  bool by_engines = false;       // gathers in windows
  int64_t collectives = 0, splits = 0, openings = 0;
  bool runs = false;  // its part of a collective is at the head of a stream, and has not ended
};

std::map<std::string, std::shared_ptr<Group>> groups;
std::set<Communicator*> communicators;
std::set<FakeWindow*> windows;

Communicator* find(Handle handle) {
  auto* const found = reinterpret_cast<Communicator*>(handle);
  if (communicators.count(found) != 0) return found;
  ++knobs.misused;
  return nullptr;
}

Communicator* make(std::shared_ptr<Group> group, int rank) {
  auto* const made = new Communicator{std::move(group), rank, knobs.busy_polls};
  communicators.insert(made);
  ++knobs.living;
  return made;
}

/// What becomes of a call by the knobs; kSuccess: it goes on.
int judge(int rank, Communicator* communicator) {
  if (knobs.rank >= 0 && knobs.rank != rank) return nccl::kSuccess;
  const int64_t number = knobs.calls++;
  if (knobs.broken_from_call >= 0 && number >= knobs.broken_from_call && communicator != nullptr)
    communicator->error = knobs.broken_outcome;
  return number == knobs.failing_call ? knobs.failing_outcome.load() : int{nccl::kSuccess};
}

bool is_busy(Communicator& one) {
  if (one.busy != 0) {
    if (one.busy > 0) --one.busy;
    return true;
  }
  if (one.group->joined < one.group->world) return true;
  if (one.opening != nullptr) {
    if (one.opening->arrived < one.group->world) return true;
    *one.window = reinterpret_cast<Window>(one.opened);
    one.opening = nullptr;
  }
  if (one.split == nullptr) return false;
  if (one.split->arrived < one.group->world) return true;
  *one.child = reinterpret_cast<Handle>(one.split->made[static_cast<size_t>(one.rank)]);
  one.split = nullptr;
  return false;
}

/// Once all have come: children by color, in order of their keys.
void make_children(const Group& group, Split& split) {
  for (int r = 0; r < group.world; ++r) {
    const int color = split.color[static_cast<size_t>(r)];
    if (color < 0 || split.made[static_cast<size_t>(r)] != nullptr) continue;
    std::vector<int> members;
    for (int m = 0; m < group.world; ++m)
      if (split.color[static_cast<size_t>(m)] == color) members.push_back(m);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return split.key[static_cast<size_t>(a)] < split.key[static_cast<size_t>(b)];
    });
    auto child = std::make_shared<Group>(static_cast<int>(members.size()));
    child->joined = child->world;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto member = static_cast<size_t>(members[i]);
      split.made[member] = make(child, static_cast<int>(i));
      split.made[member]->by_engines = split.policy[member] == nccl::kZeroCtas;
    }
  }
}

size_t size_of(int type) {
  switch (type) {
    case nccl::kUint8:
      return 1;
    case nccl::kFloat16:
    case nccl::kBfloat16:
      return 2;
    case nccl::kFloat32:
      return 4;
    case nccl::kFloat64:
      return 8;
    default:
      return 0;
  }
}

/// The formats of 16 bits; under the mutex.
HalfFormat& format(int type) {
  static HalfFormat f16 = f16_format(), bf16 = bf16_format();
  return type == nccl::kFloat16 ? f16 : bf16;
}

template <class Number>
Number take(const std::byte* data, size_t i) {
  Number value;
  memcpy(&value, data + i * sizeof value, sizeof value);
  return value;
}

template <class Number>
void put(std::byte* data, size_t i, Number value) {
  memcpy(data + i * sizeof value, &value, sizeof value);
}

float load(const std::byte* data, int type, size_t i) {
  if (type == nccl::kFloat32) return take<float>(data, i);
  return static_cast<float>(format(type).value(take<uint16_t>(data, i)));
}

void store(std::byte* data, int type, size_t i, float sum) {
  if (type == nccl::kFloat32) return put(data, i, sum);
  put(data, i, format(type).nearest(sum, HalfFormat::Ties::to_even));
}

/// In rank order, in float or wider, rounded once.
void reduce(const std::vector<const std::byte*>& send, std::byte* recv, int type, size_t first,
            size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (type == nccl::kFloat64) {
      double sum = take<double>(send[0], first + i);
      for (size_t r = 1; r < send.size(); ++r) sum += take<double>(send[r], first + i);
      put(recv, i, sum);
      continue;
    }
    float sum = load(send[0], type, first + i);
    for (size_t r = 1; r < send.size(); ++r) sum += load(send[r], type, first + i);
    store(recv, type, i, sum);
  }
}

void perform(Collective& one) {
  const size_t ranks = one.send.size();
  if (one.what == "broadcast") {
    const std::vector<std::byte> data(one.send[static_cast<size_t>(one.root)],
                                      one.send[static_cast<size_t>(one.root)] + one.bytes);
    for (std::byte* recv : one.recv) memcpy(recv, data.data(), one.bytes);
    return;
  }
  if (one.what == "reduce") {
    std::vector<std::byte> sum(one.bytes);
    reduce(one.send, sum.data(), one.type, 0, one.bytes / size_of(one.type));
    memcpy(one.recv[static_cast<size_t>(one.root)], sum.data(), one.bytes);
    return;
  }
  if (one.what == "all_gather") {
    std::vector<std::byte> all;
    for (const std::byte* send : one.send) all.insert(all.end(), send, send + one.bytes);
    for (std::byte* recv : one.recv) memcpy(recv, all.data(), all.size());
    return;
  }
  // Apart first: a rank's result may lie in what it sends.
  const size_t count = one.bytes / size_of(one.type);
  std::vector<std::vector<std::byte>> sums(ranks, std::vector<std::byte>(one.bytes));
  for (size_t r = 0; r < ranks; ++r) reduce(one.send, sums[r].data(), one.type, r * count, count);
  for (size_t r = 0; r < ranks; ++r) memcpy(one.recv[r], sums[r].data(), one.bytes);
}

/// A rank's part is at the head of its stream; true once it has ended.
bool proceed(Communicator* communicator, size_t rank, Collective& one) {
  const std::lock_guard lock(mutex);
  if (communicators.count(communicator) == 0) return true;  // aborted
  if (!one.at_head[rank]) {
    for (const Communicator* const other : communicators)
      if (other != communicator && other->rank == communicator->rank && other->runs) ++knobs.met;
  }
  one.at_head[rank] = communicator->runs = true;
  if (!one.done && std::find(one.at_head.begin(), one.at_head.end(), false) == one.at_head.end()) {
    perform(one);
    one.done = true;
  }
  communicator->runs = !one.done || knobs.stuck_rank == static_cast<int>(rank);
  return !communicator->runs;
}

struct Part {
  const char* what;
  const void* send;
  void* recv;
  size_t bytes;
  int type, root;
};

/// What a library may look at only where all ranks' parts are in windows.
Place place_of(const Communicator& communicator, const void* data) {
  for (const FakeWindow* const one : windows) {
    const auto at = static_cast<const std::byte*>(data) - one->data;
    if (one->of == &communicator && at >= 0 && at < static_cast<ptrdiff_t>(one->bytes))
      return {one->number, at};
  }
  return {};
}

void count_in_windows(const Communicator& communicator, const Collective& one, Place place) {
  if (place.window == 0 || one.what == "broadcast" || one.what == "reduce") return;
  if (one.what == "reduce_scatter")
    ++knobs.reduced_in_windows;
  else
    ++(communicator.by_engines ? knobs.gathered_by_engines : knobs.gathered_in_windows);
}

/// This rank's part of the next collective; null where the ranks made different calls. With the
/// mutex locked.
std::shared_ptr<Collective> join(Communicator& communicator, const Part& part) {
  Group& group = *communicator.group;
  std::shared_ptr<Collective>& one = group.collectives[communicator.collectives++];
  const size_t ranks = static_cast<size_t>(group.world);
  if (one == nullptr)
    one = std::make_shared<Collective>(Collective{part.what,
                                                  part.bytes,
                                                  part.type,
                                                  part.root,
                                                  std::vector<const std::byte*>(ranks),
                                                  std::vector<std::byte*>(ranks),
                                                  std::vector<bool>(ranks),
                                                  {}});
  if (one->what != part.what || one->bytes != part.bytes || one->type != part.type ||
      one->root != part.root) {
    words = "the ranks made different calls";
    return nullptr;
  }
  const size_t rank = static_cast<size_t>(communicator.rank);
  one->send[rank] = static_cast<const std::byte*>(part.send);
  one->recv[rank] = static_cast<std::byte*>(part.recv);
  // Kernels in windows find the others' memory by their own place.
  const bool sends = one->what == "reduce_scatter";
  const Place place = place_of(communicator, sends ? part.send : part.recv);
  const bool in_windows = one->what == "reduce_scatter" || one->what == "all_gather";
  if (in_windows && !one->places.empty() && one->places.back() != place) ++knobs.misused;
  one->places.push_back(place);
  if (one->what == "reduce") ++knobs.to_owners;
  count_in_windows(communicator, *one, place);
  return one;
}

ChaosWork work_of(Communicator* communicator, size_t rank, std::shared_ptr<Collective> one) {
  return {[=] { return proceed(communicator, rank, *one); }, {}};
}

/// The part of a launch of a graph: it never ends where the ranks' graphs differ.
ChaosWork launched(Communicator* communicator, const Part& part) {
  const std::lock_guard lock(mutex);
  if (communicators.count(communicator) == 0) return {};
  const std::shared_ptr<Collective> one = join(*communicator, part);
  if (one == nullptr) return {[] { return false; }, {}};
  return work_of(communicator, static_cast<size_t>(communicator->rank), one);
}

/// What a thread has begun since ncclGroupStart: one launch.
struct OpenGroup {
  int depth = 0;
  Communicator* communicator = nullptr;
  size_t rank = 0;
  ChaosStream* on = nullptr;
  std::vector<Part> parts;
  std::vector<std::shared_ptr<Collective>> joined;  // unless it is captured
};
thread_local OpenGroup open_group;

/// Ends when all of it has; each part is begun before any has to end.
ChaosWork all_of(std::vector<ChaosWork> parts) {
  return {[parts = std::move(parts)] {
            bool all = true;
            for (const ChaosWork& part : parts) all = (!part.ready || part.ready()) && all;
            return all;
          },
          {}};
}

void launch_group(OpenGroup group) {
  Communicator* const communicator = group.communicator;
  std::vector<ChaosWork> works;
  for (const auto& one : group.joined) works.push_back(work_of(communicator, group.rank, one));
  group.on->queue("nccl group", [=, parts = group.parts] {
    if (!works.empty()) return all_of(works);
    std::vector<ChaosWork> anew;
    for (const Part& part : parts) anew.push_back(launched(communicator, part));
    return all_of(std::move(anew));
  });
}

int collective(const char* what, const void* send, void* recv, size_t count, int type, int root,
               Handle handle, void* stream) {
  ChaosStream& on = *static_cast<ChaosStream*>(stream);
  const bool captured = on.captured();
  const Part part{what, send, recv, count * size_of(type), type, root};
  std::shared_ptr<Collective> one;
  Communicator* communicator;
  {
    const std::lock_guard lock(mutex);
    communicator = find(handle);
    if (communicator == nullptr) return nccl::kInvalidArgument;
    if (is_busy(*communicator)) ++knobs.misused;
    if (const int failed = judge(communicator->rank, communicator)) return failed;
    if (!captured && (one = join(*communicator, part)) == nullptr) return nccl::kInvalidUsage;
    if (open_group.depth > 0) {
      open_group.communicator = communicator;
      open_group.rank = static_cast<size_t>(communicator->rank);
      open_group.on = &on;
      open_group.parts.push_back(part);
      if (one != nullptr) open_group.joined.push_back(one);
      return nccl::kInProgress;
    }
    communicator->busy = knobs.busy_polls;
    ++knobs.launches;
  }
  const std::string name = std::string("nccl ") + what;
  if (captured) {
    on.queue(name, [=] { return launched(communicator, part); });
  } else {
    on.queue(name, [work = work_of(communicator, static_cast<size_t>(communicator->rank), one)] {
      return work;
    });
  }
  return nccl::kInProgress;
}

/// The communicator is gone; work of it that is queued ends without effect.
int end(Handle handle, bool sound) {
  const std::lock_guard lock(mutex);
  Communicator* const found = find(handle);
  if (found == nullptr) return nccl::kInvalidArgument;
  for (auto one = windows.begin(); one != windows.end();) {
    if ((*one)->of != found) {
      ++one;
      continue;
    }
    --knobs.windows;
    if (sound) ++knobs.misused;
    delete *one;
    one = windows.erase(one);
  }
  communicators.erase(found);
  delete found;
  --knobs.living;
  return nccl::kSuccess;
}

}  // namespace
}  // namespace zero::test

using namespace zero;
using namespace zero::test;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT FakeNcclKnobs* fake_nccl_knobs() { return &knobs; }

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
  if (config->magic != 0xcafebeef || config->blocking != 0) return nccl::kInvalidArgument;
  if (const int failed = judge(rank, nullptr)) return failed;
  knobs.reduce_ctas = config->max_ctas;
  std::shared_ptr<Group>& group = groups[id.bytes];
  if (group == nullptr) group = std::make_shared<Group>(world);
  ++group->joined;
  *out = reinterpret_cast<Handle>(make(group, rank));
  return nccl::kInProgress;
}

EXPORT int ncclCommSplit(Handle handle, int color, int key, Handle* out, Config* config) {
  const std::lock_guard lock(mutex);
  Communicator* const parent = find(handle);
  if (parent == nullptr || config->split_share != 0 ||
      (config->cta_policy == nccl::kZeroCtas && knobs.version < nccl::kOldestWindows))
    return nccl::kInvalidArgument;
  if (is_busy(*parent)) ++knobs.misused;
  if (const int failed = judge(parent->rank, parent)) return failed;
  const Group& group = *parent->group;
  std::shared_ptr<Split>& split = parent->group->splits[parent->splits++];
  const size_t ranks = static_cast<size_t>(group.world);
  if (split == nullptr)
    split =
        std::make_shared<Split>(Split{0, std::vector<int>(ranks), std::vector<int>(ranks),
                                      std::vector<Communicator*>(ranks), std::vector<int>(ranks)});
  split->color[static_cast<size_t>(parent->rank)] = color;
  split->key[static_cast<size_t>(parent->rank)] = key;
  split->policy[static_cast<size_t>(parent->rank)] = config->cta_policy;
  parent->split = split;
  parent->child = out;
  parent->busy = knobs.busy_polls;
  if (++split->arrived == group.world) make_children(group, *split);
  return nccl::kInProgress;
}

EXPORT int ncclCommWindowRegister(Handle handle, void* data, size_t bytes, Window* out, int flags) {
  const std::lock_guard lock(mutex);
  Communicator* const found = find(handle);
  if (found == nullptr || flags != nccl::kSymmetric) return nccl::kInvalidArgument;
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

EXPORT int ncclCommGetAsyncError(Handle handle, int* outcome) {
  const std::lock_guard lock(mutex);
  Communicator* const found = find(handle);
  if (found == nullptr) return nccl::kInvalidArgument;
  *outcome = found->error != nccl::kSuccess ? found->error
             : is_busy(*found)              ? int{nccl::kInProgress}
                                            : int{nccl::kSuccess};
  return nccl::kSuccess;
}

EXPORT int ncclCommFinalize(Handle) {
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
  ++open_group.depth;
  return nccl::kSuccess;
}

EXPORT int ncclGroupEnd() {
  if (open_group.depth == 0) return nccl::kInvalidUsage;
  if (--open_group.depth > 0) return nccl::kSuccess;
  OpenGroup group = std::exchange(open_group, {});
  if (group.parts.empty()) return nccl::kSuccess;
  {
    const std::lock_guard lock(mutex);
    if (communicators.count(group.communicator) == 0) return nccl::kInvalidArgument;
    group.communicator->busy = knobs.busy_polls;
    ++knobs.launches;
  }
  launch_group(std::move(group));
  return nccl::kInProgress;
}

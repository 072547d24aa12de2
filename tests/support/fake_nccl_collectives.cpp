// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl_collectives.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/chaos_device.h"
#include "support/fake_nccl_groups.h"
#include "support/halves.h"

namespace zero::test::fake_nccl {
namespace {

using nccl::Handle;

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

const HalfFormat& format(int type) { return type == nccl::kFloat16 ? kF16 : kBf16; }

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

/// Adds in rank order, in float or wider, and rounds once.
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
  // Sums are stored separately first, because a rank's result may overlap its input.
  const size_t count = one.bytes / size_of(one.type);
  std::vector<std::vector<std::byte>> sums(ranks, std::vector<std::byte>(one.bytes));
  for (size_t r = 0; r < ranks; ++r) reduce(one.send, sums[r].data(), one.type, r * count, count);
  for (size_t r = 0; r < ranks; ++r) memcpy(one.recv[r], sums[r].data(), one.bytes);
}

/// Notes that a rank's part is at the head of its stream. Returns true once the part has ended.
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

/// Returns where `data` is in a window. A library may use that only if the parts of all ranks are
/// in windows.
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

/// Returns true if input and output are disjoint, or at the one position that is in place.
bool lies_well(const Communicator& communicator, const Part& part) {
  const std::string_view what = part.what;
  const auto ranks = static_cast<size_t>(communicator.group->world);
  const auto rank = static_cast<size_t>(communicator.rank);
  const auto* const send = static_cast<const std::byte*>(part.send);
  const auto* const recv = static_cast<const std::byte*>(part.recv);
  const bool roots = what == "reduce" && communicator.rank != part.root;  // then recv is unused
  if (send == nullptr || (recv == nullptr && !roots)) return false;
  if (roots) return true;
  const size_t sent = what == "reduce_scatter" ? ranks * part.bytes : part.bytes;
  const size_t received = what == "all_gather" ? ranks * part.bytes : part.bytes;
  const bool in_place = what == "reduce_scatter" ? recv == send + rank * part.bytes
                        : what == "all_gather"   ? send == recv + rank * part.bytes
                                                 : send == recv;
  return in_place || send + sent <= recv || recv + received <= send;
}

/// Adds this rank's part to the next collective. Returns null if the ranks made different calls.
/// The mutex must be locked.
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
  // Kernels in windows locate the memory of other ranks by their own offset.
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

/// Returns the work for one launch of a graph. It never ends if the ranks' graphs differ.
ChaosWork launched(Communicator* communicator, const Part& part) {
  const std::lock_guard lock(mutex);
  if (communicators.count(communicator) == 0) return {};
  const std::shared_ptr<Collective> one = join(*communicator, part);
  if (one == nullptr) return {[] { return false; }, {}};
  return work_of(communicator, static_cast<size_t>(communicator->rank), one);
}

/// The operations of a thread since ncclGroupStart, which form one launch.
struct OpenGroup {
  int depth = 0;
  Communicator* communicator = nullptr;
  size_t rank = 0;
  ChaosStream* on = nullptr;
  std::vector<Part> parts;
  std::vector<std::shared_ptr<Collective>> joined;  // empty in a capture
};
// Initial-exec TLS, because the loader frees the TLS of a loaded library unseen by thread
// sanitizer.
[[gnu::tls_model("initial-exec")]] thread_local OpenGroup open_group;

/// Called with the mutex locked. `queue` puts the operations on their stream; the mutex need not be
/// locked for it.
std::function<void()> taken_in(Communicator& communicator, std::function<void()> queue) {
  communicator.busy = knobs.busy_polls;
  ++knobs.launches;
  const int takes_us = knobs.takes_us;
  if (takes_us == 0) return queue;
  communicator.taking = std::make_shared<std::atomic<bool>>(true);
  return [=, taking = communicator.taking] {
    std::thread([=] {
      usleep(static_cast<useconds_t>(takes_us));
      queue();
      *taking = false;
    }).detach();
  };
}

/// Ends after all parts. Each part begins before any has to end.
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

}  // namespace

int collective(const char* what, const void* send, void* recv, size_t count, int type, int root,
               Handle handle, void* stream) {
  ChaosStream& on = *static_cast<ChaosStream*>(stream);
  const bool captured = on.captured();
  const Part part{what, send, recv, count * size_of(type), type, root};
  std::shared_ptr<Collective> one;
  std::function<void()> queue;
  {
    const std::lock_guard lock(mutex);
    Communicator* const communicator = find(handle);
    if (communicator == nullptr) return nccl::kInvalidArgument;
    if (part.bytes == 0 || root < 0 || root >= communicator->group->world)
      return nccl::kInvalidArgument;
    if (is_busy(*communicator) || !lies_well(*communicator, part)) ++knobs.misused;
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
    const ChaosWork work =
        captured ? ChaosWork()
                 : work_of(communicator, static_cast<size_t>(communicator->rank), one);
    queue = taken_in(*communicator, [=, &on] {
      on.queue(std::string("nccl ") + part.what,
               [=] { return captured ? launched(communicator, part) : work; });
    });
  }
  queue();
  return nccl::kInProgress;
}

void begin_group() { ++open_group.depth; }

int end_group() {
  if (open_group.depth == 0) return nccl::kInvalidUsage;
  if (--open_group.depth > 0) return nccl::kSuccess;
  OpenGroup group = std::exchange(open_group, {});
  if (group.parts.empty()) return nccl::kSuccess;
  std::function<void()> queue;
  {
    const std::lock_guard lock(mutex);
    if (communicators.count(group.communicator) == 0) return nccl::kInvalidArgument;
    queue = taken_in(*group.communicator, [group] { launch_group(group); });
  }
  queue();
  return nccl::kInProgress;
}

}  // namespace zero::test::fake_nccl

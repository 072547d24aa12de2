// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl_groups.h"

#include <algorithm>

namespace zero::test::fake_nccl {

using nccl::Handle;
using nccl::Window;

FakeNcclKnobs knobs;
std::mutex mutex;
std::string words;
std::map<std::string, std::shared_ptr<Group>> groups;
std::set<Communicator*> communicators;
std::set<FakeWindow*> windows;

Communicator* find(Handle handle, bool ends) {
  auto* const found = reinterpret_cast<Communicator*>(handle);
  if (communicators.count(found) == 0) {
    ++knobs.misused;
    return nullptr;
  }
  if (knobs.current_device() != found->device || (found->finalized && !ends)) ++knobs.misused;
  return found;
}

Communicator* make(std::shared_ptr<Group> group, int rank, int device) {
  if (device < 0) ++knobs.misused;  // NCCL would use device 0
  auto* const made = new Communicator{std::move(group), rank, knobs.busy_polls, device};
  communicators.insert(made);
  ++knobs.living;
  return made;
}

int judge(int rank, Communicator* communicator) {
  if (knobs.rank >= 0 && knobs.rank != rank) return nccl::kSuccess;
  const int64_t number = knobs.calls++;
  if (knobs.broken_from_call >= 0 && number >= knobs.broken_from_call && communicator != nullptr)
    communicator->error = knobs.broken_outcome;
  return number == knobs.failing_call ? knobs.failing_outcome.load() : int{nccl::kSuccess};
}

bool is_busy(Communicator& one) {
  if (one.taking != nullptr && *one.taking) return true;
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
  one.split = nullptr;
  return false;
}

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
      split.made[member] = make(child, static_cast<int>(i), split.device[member]);
      split.made[member]->by_engines = split.policy[member] == nccl::kZeroCtas;
      std::atomic_ref(*split.out[member]).store(reinterpret_cast<Handle>(split.made[member]));
    }
  }
}

int end(Handle handle, bool sound) {
  const std::lock_guard lock(mutex);
  Communicator* const found = find(handle, true);
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

}  // namespace zero::test::fake_nccl

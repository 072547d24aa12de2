// SPDX-License-Identifier: Apache-2.0
// zero_broadcast_params. Where several ranks hold a parameter in the same shared memory, one of
// them writes it, or none if it is the root's own.
#include <algorithm>

#include "base/os.h"
#include "base/text.h"
#include "step/enter.h"
#include "step/step.h"
#include "step/tables.h"

namespace zero {
namespace {

Status check(const Optimizer& optim, int32_t root) {
  ZERO_TRY(optim.check_params());
  ZERO_TRY(optim.check_open());
  if (root < ZERO_ROOT_NONE || root >= optim.world())
    return Status(ZERO_ERR_ARGUMENT,
                  text("root ", root, " is no rank of a world of ", optim.world()));
  return Status();
}

bool in_shared_memory(const Comm& comm, const Location& location) {
  const std::shared_ptr<Arena> arena = comm.arena(location);
  return arena != nullptr && arena->kind() == ZERO_MEMORY_SHARED;
}

/// A parameter's place on every rank.
Result<std::vector<Location>> locations_of(const Optimizer& optim, const StepMemory& memory,
                                           int64_t param) {
  std::vector<Location> locations;
  for (int32_t rank = 0; rank < optim.world(); rank++)
    locations.push_back(ZERO_TRY(placement_of(optim, memory, rank, param)).data);
  return locations;
}

struct Writers {
  bool mine = true;  // this rank writes its memory, or is the root
  bool any = true;   // some rank does not hold the root's own memory
};

/// Of the ranks that hold the same bytes, the root writes, else the lowest.
Result<std::vector<Writers>> find_writers(const Optimizer& optim, const StepMemory& memory,
                                          int32_t root) {
  std::vector<Writers> writers(optim.params.size());
  for (size_t i = 0; i < writers.size() && optim.comm->direct(); i++) {
    const auto locations = ZERO_TRY(locations_of(optim, memory, static_cast<int64_t>(i)));
    const Location at_root = locations[static_cast<size_t>(root)];
    const auto own = locations.begin() + optim.comm->rank();
    if (in_shared_memory(*optim.comm, at_root))
      writers[i].any = std::count(locations.begin(), locations.end(), at_root) != optim.world();
    if (optim.comm->rank() == root || !in_shared_memory(*optim.comm, *own)) continue;
    writers[i].mine = *own != at_root && std::find(locations.begin(), own, *own) == own;
  }
  return writers;
}

Status broadcast(Call& call, Optimizer& optim, int32_t root) {
  StepMemory& memory = step_memory(optim);
  Entry entry;
  entry.local = check(optim, root);
  entry.args = text("root ", root, "\n");
  ZERO_TRY(enter(call, optim, memory, std::move(entry)));
  if (root == ZERO_ROOT_NONE || optim.world() == 1) return Status();
  Result<std::vector<Writers>> found = find_writers(optim, memory, root);
  ZERO_TRY(call.vote("placements", found.ok() ? Status() : found.failure()));
  const std::vector<Writers> writers = std::move(found).value();
  optim.comm->publishing = true;
  for (size_t i = 0; i < optim.params.size(); i++) {
    const Param& param = optim.params[i];
    if (!writers[i].any || param.count == 0) continue;
    os().reached("broadcast.param");
    std::byte* const to = writers[i].mine ? param.data : nullptr;
    ZERO_TRY(call.broadcast(param.name, {to, param.bytes()}, root));
  }
  // Who did not write must not read before the writer has.
  ZERO_TRY(call.vote("written", Status()));
  optim.comm->publishing = false;
  return Status();
}

}  // namespace

Status broadcast_params(Call& call, Optimizer& optim, int32_t root) {
  ZERO_TRY(broadcast(call, optim, root));
  return retake_masters(call, optim);
}

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// zero_broadcast_params. Where several ranks hold a parameter in the same shared memory, one of
// them writes it, or none if it is the root's own.
#include "base/os.h"
#include "base/text.h"
#include "step/buffers.h"
#include "step/enter.h"
#include "step/one_copy.h"
#include "step/seal.h"
#include "step/step.h"
#include "step/tables.h"
#include "step/walk.h"
#include "step/writers.h"

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

/// A parameter's place on every rank.
Result<std::vector<Location>> locations_of(const Optimizer& optim, const StepMemory& memory,
                                           int64_t param) {
  const Location own = memory.placements[static_cast<size_t>(param)].data;
  std::vector<Location> locations;
  for (int32_t rank = 0; rank < optim.world(); rank++) {
    locations.push_back(ZERO_TRY(placement_of(optim, memory, rank, param)).data);
    ZERO_TRY(check_same_place(optim, param, own, rank, locations.back()));
  }
  return locations;
}

Result<std::vector<Writers>> writers_of_all(const Optimizer& optim, const StepMemory& memory,
                                            int32_t root) {
  std::vector<Writers> writers(optim.params.size());
  for (size_t i = 0; i < writers.size() && optim.comm->direct(); i++) {
    const auto locations = ZERO_TRY(locations_of(optim, memory, static_cast<int64_t>(i)));
    writers[i] = find_writers(*optim.comm, locations, root);
  }
  return writers;
}

}  // namespace

Status copy_params(Call& call, Optimizer& optim, int32_t root) {
  Result<std::vector<Writers>> found = writers_of_all(optim, step_memory(optim), root);
  ZERO_TRY(call.vote("placements", found.ok() ? Status() : found.failure()));
  const std::vector<Writers> writers = std::move(found).value();
  optim.comm->publishing++;
  for (size_t i = 0; i < optim.params.size(); i++) {
    const Param& param = optim.params[i];
    if (!writers[i].any || param.count == 0) continue;
    os().reached("broadcast.param");
    std::byte* const to = writers[i].mine ? param.data : nullptr;
    ZERO_TRY(call.broadcast(param.name, {to, param.bytes()}, root));
  }
  // Who did not write must not read before the writer has.
  ZERO_TRY(call.vote("written", Status()));
  optim.comm->publishing--;
  return Status();
}

Status broadcast_params(Call& call, Optimizer& optim, int32_t root) {
  Entry entry;
  entry.local = check(optim, root);
  entry.args = text("root ", root, "\n");
  ZERO_TRY(enter(call, optim, step_memory(optim), std::move(entry)));
  if (root != ZERO_ROOT_NONE && optim.world() > 1)
    ZERO_TRY(make_walk(call, optim)->broadcast_params(root));
  ZERO_TRY(retake_masters(call, optim));
  optim.alike_params = optim.sealed_params();
  return Status();
}

}  // namespace zero

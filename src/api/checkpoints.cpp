// SPDX-License-Identifier: Apache-2.0
// Calls on folders of checkpoints, which need no optimizer.
#include <cstring>
#include <vector>

#include "api/guard.h"
#include "api/options.h"
#include "state/find.h"
#include "state/prune.h"

namespace {

using namespace zero;
using namespace zero::api;

zero_checkpoint described(const ListedCheckpoint& listed) {
  zero_checkpoint out{};
  out.step = listed.step;
  out.bytes = static_cast<int64_t>(listed.bytes);
  out.world = listed.world;
  listed.name.copy(out.name, sizeof out.name - 1);
  return out;
}

Status check_folder(const char* directory) {
  ZERO_TRY(check_out(directory, "directory"));
  return *directory != '\0' ? Status() : bad_argument("directory is empty");
}

}  // namespace

zero_status zero_state_list(const char* directory, zero_checkpoint* checkpoints, size_t capacity,
                            size_t* count) {
  return guard([&]() -> Status {
    ZERO_TRY(check_folder(directory));
    ZERO_TRY(check_out(count, "count"));
    if (capacity > 0) ZERO_TRY(check_out(checkpoints, "checkpoints"));
    const std::vector<ListedCheckpoint> listed = ZERO_TRY(list_checkpoints(directory));
    std::vector<zero_checkpoint> out;
    for (size_t i = 0; i < std::min(capacity, listed.size()); i++)
      out.push_back(described(listed[i]));
    ZERO_TRY(write_array(checkpoints, out, "checkpoints"));
    *count = listed.size();
    return Status();
  });
}

zero_status zero_state_prune(const char* directory, int64_t keep_last, int64_t keep_every,
                             size_t* deleted) {
  return guard([&]() -> Status {
    ZERO_TRY(check_folder(directory));
    const size_t done = ZERO_TRY(prune_checkpoints(directory, keep_last, keep_every));
    if (deleted != nullptr) *deleted = done;
    return Status();
  });
}

// SPDX-License-Identifier: Apache-2.0
// Implements the calls for checkpoints: saves, loads, extras and folders of checkpoints.
#include <cstring>
#include <vector>

#include "api/commands.h"
#include "api/options.h"
#include "state/extras.h"
#include "state/find.h"
#include "state/prune.h"
#include "state/save_behind.h"

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

/// Checks the arguments of a save or a load.
template <class Options>
Status check_path(const char* directory, const Options* options, int32_t known) {
  const Options read = ZERO_TRY(read_struct(options));
  const char* const name = Sized<Options>::kName;
  if (directory == nullptr) return bad_argument("directory is NULL");
  if (*directory == '\0') return bad_argument("directory is empty");
  if (read.reserved != 0) return bad_argument(name, ".reserved is ", read.reserved, ", not 0");
  if ((read.flags & ~known) == 0) return Status();
  return bad_argument(name, ".flags ", read.flags, " are unknown");
}

Status check_folder(const char* directory) {
  ZERO_TRY(check_out(directory, "directory"));
  return *directory != '\0' ? Status() : bad_argument("directory is empty");
}

}  // namespace

// ---- Saves and loads.

zero_status zero_state_save(zero_optim* optim, const char* directory,
                            const zero_save_options* options) {
  const int32_t flags = peek(options, &zero_save_options::flags);
  return guard(command(optim, Operation::save, {.flags = flags, .words = directory}, [&] {
    return Own{.local = check_path(directory, options, ZERO_SAVE_REPLACE)};
  }));
}

zero_status zero_state_save_begin(zero_optim* optim, const char* directory,
                                  const zero_save_options* options) {
  const int32_t flags = peek(options, &zero_save_options::flags);
  return guard(command(optim, Operation::save_begin, {.flags = flags, .words = directory}, [&] {
    return Own{.local = check_path(directory, options, ZERO_SAVE_REPLACE)};
  }));
}

zero_status zero_state_save_poll(zero_optim* optim, int32_t* done) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    if (done == nullptr) return bad_argument("done is NULL");
    *done = ZERO_TRY(poll_save(found));
    return {};
  });
}

zero_status zero_state_save_wait(zero_optim* optim) {
  return guard(command(optim, Operation::save_wait, {}, nullptr));
}

zero_status zero_state_load(zero_optim* optim, const char* directory,
                            const zero_load_options* options) {
  const int32_t flags = peek(options, &zero_load_options::flags);
  return guard(command(optim, Operation::load, {.flags = flags, .words = directory}, [&] {
    return Own{.local = check_path(directory, options, ZERO_LOAD_KEEP_SETTINGS)};
  }));
}

zero_status zero_state_extra_set(zero_optim* optim, const char* name, const void* bytes,
                                 size_t count) {
  const auto set = [&](Optimizer& found) -> Status {
    ZERO_TRY(check_out(name, "name"));
    return set_extra(found, name, bytes, count);
  };
  return on_optim(optim, set, Steps::queued);
}

zero_status zero_state_extra_get(const zero_optim* optim, int32_t rank, const char* name,
                                 void* bytes, size_t capacity, size_t* count) {
  const auto get = [&](const Optimizer& found) -> Status {
    ZERO_TRY(check_out(name, "name"));
    ZERO_TRY(check_out(count, "count"));
    if (bytes == nullptr && capacity > 0) return bad_argument("bytes is NULL");
    const std::string_view saved = ZERO_TRY(find_extra(found, rank, name));
    saved.copy(static_cast<char*>(bytes), capacity);
    *count = saved.size();
    return Status();
  };
  return on_query(optim, get, Steps::queued);
}

zero_status zero_state_extra_list(const zero_optim* optim, int32_t* ranks, const char** names,
                                  size_t capacity, size_t* count) {
  const auto list = [&](const Optimizer& found) -> Status {
    ZERO_TRY(check_out(count, "count"));
    if (capacity > 0) ZERO_TRY(check_out(ranks, "ranks"));
    if (capacity > 0) ZERO_TRY(check_out(names, "names"));
    size_t there = 0;
    for (const auto& [rank, extras] : found.loaded_extras.by_rank) {
      for (const auto& [name, bytes] : extras) {
        if (there < capacity) ranks[there] = rank, names[there] = name.c_str();
        there++;
      }
    }
    *count = there;
    return Status();
  };
  return on_query(optim, list, Steps::queued);
}

// ---- Folders of checkpoints. These calls need no optimizer.

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

// SPDX-License-Identifier: Apache-2.0
#include "api/handles.h"

#include <mutex>
#include <vector>

#include "base/os.h"
#include "base/refusals.h"
#include "comm/arena.h"

namespace zero::api {
namespace {

enum class Type : uint64_t { comm = 0xC0, optim = 0x0B };

struct Entry {
  Type type{};
  uint32_t generation = 0;
  std::shared_ptr<void> object;
  bool taken = false;  // no other handle may take this place
};

// The table is never destroyed, so that calls at exit find it intact.
std::mutex table_mutex;
std::vector<Entry>* table = nullptr;
std::atomic<size_t> open_handles{0};
std::atomic<size_t> calls{0};   // calls that threads are inside
std::atomic<pid_t> process{0};  // the process to which all this belongs

// {type: 8, generation: 32, place: 24}. With the type, the token is an address that cannot be
// dereferenced.
constexpr int kPlaceBits = 24;

uint64_t token_of(Type type, uint32_t generation, size_t place) {
  return static_cast<uint64_t>(type) << 56 | static_cast<uint64_t>(generation) << kPlaceBits |
         place;
}

/// Returns where the generations of a place begin. This differs between copies of the library in
/// one process, so that no copy accepts a handle of another.
uint32_t first_generation() {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&table) >> 4) * 0x9E3779B1u;
}

size_t reserve_place() {
  const std::lock_guard lock(table_mutex);
  if (table == nullptr) table = new std::vector<Entry>;
  size_t place = 0;
  while (place < table->size() && (*table)[place].taken) place++;
  if (place == table->size()) table->emplace_back().generation = first_generation();
  (*table)[place].taken = true;
  return place;
}

uint64_t hold_at(size_t place, Type type, std::shared_ptr<void> object) noexcept {
  const std::lock_guard lock(table_mutex);
  Entry& entry = (*table)[place];
  entry.type = type;
  entry.generation++;
  entry.object = std::move(object);
  process = os().getpid();  // tests also make handles outside of calls
  open_handles++;
  return token_of(type, entry.generation, place);
}

Status bad_handle(Type type, const char* why) {
  return bad_argument(type == Type::comm ? "the comm" : "the optimizer", " handle ", why);
}

Result<std::shared_ptr<void>> find(Type type, const void* handle, bool take) {
  const auto token = reinterpret_cast<uint64_t>(handle);
  if (token == 0) return bad_handle(type, "is NULL");
  const std::lock_guard lock(table_mutex);
  const size_t place = token & ((uint64_t{1} << kPlaceBits) - 1);
  const auto given = static_cast<Type>(token >> 56);
  if (given != type) {
    const bool other = given == Type::comm || given == Type::optim;
    return bad_handle(type, other ? "is of the wrong type" : "was not created by libzero");
  }
  Entry nothing;
  Entry& entry = table != nullptr && place < table->size() ? (*table)[place] : nothing;
  if (entry.object == nullptr || entry.type != type ||
      token != token_of(type, entry.generation, place)) {
    return bad_handle(type, "was already freed, or belongs to another copy of libzero");
  }
  if (!take) return entry.object;
  open_handles--;
  entry.taken = false;
  return std::move(entry.object);
}

}  // namespace

NewHandle::NewHandle() : place_(reserve_place()) {}

NewHandle::~NewHandle() {
  if (held_) return;
  const std::lock_guard lock(table_mutex);
  (*table)[place_].taken = false;
}

zero_comm* NewHandle::hold(std::shared_ptr<Comm> comm) noexcept {
  held_ = comm != nullptr;
  return held_ ? reinterpret_cast<zero_comm*>(hold_at(place_, Type::comm, std::move(comm)))
               : nullptr;
}
zero_optim* NewHandle::hold(std::shared_ptr<OptimHandle> optim) noexcept {
  held_ = true;
  return reinterpret_cast<zero_optim*>(hold_at(place_, Type::optim, std::move(optim)));
}

Result<std::shared_ptr<Comm>> find_handle(const zero_comm* handle) {
  return std::static_pointer_cast<Comm>(ZERO_TRY(find(Type::comm, handle, false)));
}
Result<std::shared_ptr<OptimHandle>> find_handle(const zero_optim* handle) {
  return std::static_pointer_cast<OptimHandle>(ZERO_TRY(find(Type::optim, handle, false)));
}
Result<std::shared_ptr<Comm>> take_handle(const zero_comm* handle) {
  return std::static_pointer_cast<Comm>(ZERO_TRY(find(Type::comm, handle, true)));
}
Result<std::shared_ptr<OptimHandle>> take_handle(const zero_optim* handle) {
  return std::static_pointer_cast<OptimHandle>(ZERO_TRY(find(Type::optim, handle, true)));
}

Status Inside::check() {
  const pid_t self = os().getpid();
  const pid_t owner = process;
  if (owner == self) return Status();
  // A thread inside a call may have held any lock, even that of the arenas.
  const bool free = owner == 0 || (calls == 0 && open_handles == 0 && claimed_arenas() == 0);
  if (!free && process != self)  // another thread of this process may have been first
    return Status(ZERO_ERR_FORKED,
                  "this process was forked from one that uses libzero: exec first");
  process = self;
  return Status();
}

Inside::Inside() : forked_(check()) { calls++; }
Inside::~Inside() { calls--; }

}  // namespace zero::api

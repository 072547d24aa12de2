// SPDX-License-Identifier: Apache-2.0
// Arenas: memory allocated by a comm that can be looked up by address anywhere in the process.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace zero {

class Comm;

/// Returns the name of a ZERO_MEMORY_*.
const char* memory_kind_name(int32_t kind);

/// The location of a rank's memory in a form that other ranks can resolve. Arena 0 means that other
/// ranks cannot address the memory.
struct Location {
  uint32_t arena = 0;
  uint32_t unused = 0;
  uint64_t offset = 0;
  auto operator<=>(const Location&) const = default;
};

/// An arena as one rank sees it. It keeps its comm alive.
class Arena {
 public:
  virtual ~Arena() = default;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int32_t kind() const { return kind_; }
  /// Returns true if all ranks of the comm share the same bytes, and false if each rank has its
  /// own.
  virtual bool one_copy() const { return false; }
  const std::shared_ptr<Comm>& comm() const { return comm_; }
  /// Returns the arena number, which is the same on every rank. Numbers start at 1, in order of
  /// allocation.
  uint32_t number() const { return number_; }

  /// Marks the memory as never freed, because queued work may use it indefinitely.
  void stay() { stays_ = true; }

 protected:
  bool stays() const { return stays_; }

  Arena(std::shared_ptr<Comm> comm, uint32_t number, std::byte* data, size_t bytes, int32_t kind)
      : comm_(std::move(comm)), number_(number), data_(data), bytes_(bytes), kind_(kind) {}

 private:
  std::shared_ptr<Comm> comm_;
  uint32_t number_;
  std::byte* data_;
  size_t bytes_;
  int32_t kind_;
  std::atomic<bool> stays_{false};
};

/// Registers `arena` for lookup by address, and keeps it alive until each claim is released. Ranks
/// that are threads claim a SHARED arena at the same address, each through its own Arena object.
void claim_arena(const std::shared_ptr<Arena>& arena);

/// Releases one claim. Fails with ZERO_ERR_ARGUMENT unless `data` is the start of a claimed arena.
Status give_up_arena(const void* data);

/// Returns the number of claims in the whole process.
size_t claimed_arenas();

/// Returns the first claimed arena of any comm that overlaps [data, data + bytes), or nullptr. Sets
/// `whole` to whether the range lies inside the arena. If several comms claim the same address, the
/// arena of `comm` takes precedence.
std::shared_ptr<Arena> find_arena(const void* data, size_t bytes, const Comm* comm, bool* whole);

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Arenas: memory that a comm gave out, found again by address anywhere in the process.
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

/// The place of a rank's memory, in words that other ranks understand. Arena 0: they cannot address
/// it.
struct Location {
  uint32_t arena = 0;
  uint32_t unused = 0;
  uint64_t offset = 0;
  auto operator<=>(const Location&) const = default;
};

/// An arena, as one rank sees it. The comm lives as long as its arenas.
class Arena {
 public:
  virtual ~Arena() = default;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int32_t kind() const { return kind_; }
  /// True if the ranks of its comm all have the same bytes in it, not each its own.
  virtual bool one_copy() const { return false; }
  const std::shared_ptr<Comm>& comm() const { return comm_; }
  /// Returns its number, which is the same on every rank, from 1 on in order of allocation.
  uint32_t number() const { return number_; }

  /// Says that its memory is never given back, because queued work may use it for ever.
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

/// Makes `arena` findable by address, and keeps it until it is given up once for each claim. Ranks
/// that are threads claim a SHARED arena at the same address, each with its own Arena.
void claim_arena(const std::shared_ptr<Arena>& arena);

/// Gives up one claim. Fails with ZERO_ERR_ARGUMENT unless `data` is the start of a claimed arena.
Status give_up_arena(const void* data);

/// Returns the number of claims in the whole process.
size_t claimed_arenas();

/// Returns the first claimed arena of any comm that [data, data + bytes) touches, or nullptr.
/// `whole` tells whether the range lies inside. Of several claims on the same address, that of
/// `comm` comes first.
std::shared_ptr<Arena> find_arena(const void* data, size_t bytes, const Comm* comm, bool* whole);

}  // namespace zero

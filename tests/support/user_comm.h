// SPDX-License-Identifier: Apache-2.0
// The collectives of a training engine, for tests of user comms: between threads, or between
// processes that are forked after the Engine was created.
#pragma once

#include <cstddef>
#include <functional>

#include "comm/create.h"
#include "support/ranks.h"
#include "zero.h"

namespace zero::test {

class Engine;

/// Returns the same functions as a struct of the public header.
zero_comm_functions as_public(const UserFunctions& functions);

/// The ctx of one rank. `before`, if set, runs at the start of each function. If it returns
/// anything but ZERO_OK, the function returns that. It may also throw.
struct EngineSeat {
  Engine* engine;
  int group;
  int32_t rank;
  int32_t world;
  std::function<Code(const char* function)> before;
};

class Engine {
 public:
  static constexpr int kMostRanks = 8;

  explicit Engine(int32_t world);

  /// With `sums` the engine reduces by itself, from the last rank to the first. Otherwise it has
  /// all_to_all.
  static UserFunctions functions(bool sums = false);

  /// Returns a new seat, which `free` deletes.
  EngineSeat* seat(int32_t rank);

  /// Returns the number of seats in all processes that have not been freed.
  int seats() const;

  int32_t world() const { return world_; }

  // The implementation of the functions. Each is collective in its group.
  bool barrier(const EngineSeat& seat);
  bool exchange(const EngineSeat& seat, const void* send, void* recv, size_t bytes);
  bool all_to_all(const EngineSeat& seat, const void* send, void* recv, size_t bytes);
  bool split(const EngineSeat& seat, int32_t color, int32_t rank, int32_t world,
             EngineSeat** child);
  void freed(EngineSeat* seat);

 private:
  struct Group;
  struct Shared;

  int32_t world_;
  SharedMemory memory_;
  Shared* shared_;
};

}  // namespace zero::test

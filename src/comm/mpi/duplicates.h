// SPDX-License-Identifier: Apache-2.0
// Duplicates of callers' communicators, which separate libzero's messages from those of the
// program. A comm uses one duplicate exclusively, and a later comm can reuse it. MPI_Finalize frees
// the duplicates, because freeing one is collective, and freeing a comm is not.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "comm/mpi/library.h"

namespace zero::mpi {

struct Duplicate {
  enum State {
    idle,
    used,
    broken,  // MPI may have messages for it that were not received; never reused or freed
  };
  mpi_handle handle = 0;
  std::atomic<State> state{idle};
  Duplicate* next = nullptr;  // in the list of all duplicates

  void end_use() {
    State now = used;
    state.compare_exchange_strong(now, idle);
  }
};

/// An MPI operation on a communicator of the program. MPI uses the object, which does not move.
struct Begun {
  mpi_handle request = 0;

  Begun() { ++going_on; }
  ~Begun() { end(); }
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;
  void end() {
    if (!std::exchange(ended_, true)) --going_on;
  }
  static inline std::atomic<int64_t> going_on{0};  // number of operations that have not ended

 private:
  bool ended_ = false;
};

struct Meeting;  // of a rendezvous

/// The duplicates of one communicator, in the same order on all its ranks. Never freed, because
/// comms may outlive the communicator.
class Duplicates : public mpi_attached {
 public:
  /// The meeting of an earlier call that created no comm.
  std::shared_ptr<Meeting> meeting;

  /// Returns the duplicates of `comm`, which are attached to it.
  static Result<Duplicates*> of(const Library& library, mpi_handle comm);

  /// Completes a duplication that an earlier take() left unfinished. The new duplicate is idle.
  Status finish(const Bounds& bounds);
  /// Returns a bit mask of the first 64 duplicates, with a bit for each that is idle on this rank.
  uint64_t idle() const;
  /// Takes the first duplicate whose bit is set, which is idle on all ranks, or creates one.
  /// Collective, called after finish().
  Result<Duplicate*> take(uint64_t idle_on_all, const Bounds& bounds);

 private:
  struct Making : Begun {
    mpi_handle made = 0;
  };

  Duplicates(const Library& library, mpi_handle comm) : library_(library), comm_(comm) {
    end = [](mpi_attached*) {};
  }

  const Library& library_;
  const mpi_handle comm_;
  std::vector<Duplicate*> all_;
  std::unique_ptr<Making> making_;
};

/// Returns true if MPI has no unfinished work of libzero, so that MPI_Finalize can complete.
bool are_sound();

}  // namespace zero::mpi

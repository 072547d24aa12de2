// SPDX-License-Identifier: Apache-2.0
// Duplicates of callers' communicators, which carry libzero's messages apart from the program's. A
// comm has one for itself, and a later comm may have it after that. MPI_Finalize frees them,
// because to free one is collective, and to free a comm is not.
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
    broken,  // MPI may have messages for it that nobody takes: never used again, nor freed
  };
  mpi_handle handle = 0;
  std::atomic<State> state{idle};
  Duplicate* next = nullptr;  // of all

  void end_use() {
    State now = used;
    state.compare_exchange_strong(now, idle);
  }
};

/// What MPI has begun on a communicator of the program's. It lies where it is while MPI uses it.
struct Begun {
  mpi_handle request = 0;

  Begun() { ++going_on; }
  ~Begun() { end(); }
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;
  void end() {
    if (!std::exchange(ended_, true)) --going_on;
  }
  static inline std::atomic<int64_t> going_on{0};  // how many have not ended

 private:
  bool ended_ = false;
};

struct Meeting;  // of a rendezvous

/// The duplicates of one communicator, numbered alike on all its ranks. Lives for ever, because
/// comms may outlive the communicator.
class Duplicates : public mpi_attached {
 public:
  /// That of an earlier call that made no comm.
  std::shared_ptr<Meeting> meeting;

  /// Returns those of `comm`. They are attached to it.
  static Result<Duplicates*> of(const Library& library, mpi_handle comm);

  /// Ends the making of one, if an earlier take() has left it unfinished: then it is idle.
  Status finish(const Bounds& bounds);
  /// Returns a bit for each of the first 64 that is idle here.
  uint64_t idle() const;
  /// Collective, behind finish(). Takes the first one whose bit is set, which is idle on all ranks,
  /// or makes one.
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

/// True if MPI has no work of libzero's left, so that MPI_Finalize can end.
bool are_sound();

}  // namespace zero::mpi

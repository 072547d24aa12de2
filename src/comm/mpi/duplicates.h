// SPDX-License-Identifier: Apache-2.0
// Duplicates of callers' communicators, which carry libzero's messages apart from the program's. A
// comm has one for itself, and a later comm may have it after that. MPI_Finalize frees them,
// because to free one is collective, and to free a comm is not.
#pragma once

#include <atomic>
#include <cstdint>
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
  std::atomic<State> state{used};
  Duplicate* next = nullptr;  // of all
};

/// The duplicates of one communicator, numbered alike on all its ranks. Lives for ever, because
/// comms may outlive the communicator.
class Duplicates : public mpi_attached {
 public:
  /// Returns those of `comm`. They are attached to it.
  static Result<Duplicates*> of(const Library& library, mpi_handle comm);

  /// Returns a bit for each of the first 64 that is idle here.
  uint64_t idle() const;
  /// Collective. Takes the first one whose bit is set, which is idle on all ranks, or makes one.
  Result<Duplicate*> take(uint64_t idle_on_all, const Bounds& bounds);

 private:
  Duplicates(const Library& library, mpi_handle comm) : library_(library), comm_(comm) {
    end = [](mpi_attached*) {};
  }

  const Library& library_;
  const mpi_handle comm_;
  std::vector<Duplicate*> all_;
};

/// True if MPI has no work left for any of them, so that MPI_Finalize can end.
bool are_sound();

/// Keeps a communicator of libzero's own until MPI_Finalize.
Result<Duplicate*> keep(const Library& library, mpi_handle own);

}  // namespace zero::mpi

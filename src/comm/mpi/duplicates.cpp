// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/duplicates.h"

#include <bit>
#include <memory>
#include <mutex>

#include "base/keep.h"

namespace zero::mpi {
namespace {

/// All that there are, in the order in which they were made, which is the same on the ranks of
/// each.
struct All : mpi_attached {
  const Library* library = nullptr;
  std::mutex mutex;
  Duplicate* first = nullptr;
};

All& all();

void free_all(mpi_attached*) {
  const std::lock_guard lock(all().mutex);
  for (Duplicate* one = all().first; one != nullptr; one = one->next)
    if (one->state != Duplicate::broken) (void)all().library->calls->free(one->handle);
}

All& all() {
  static constinit All duplicates{{free_all}, nullptr, {}, nullptr};
  return duplicates;
}

}  // namespace

bool are_sound() {
  const std::lock_guard lock(all().mutex);
  for (const Duplicate* one = all().first; one != nullptr; one = one->next)
    if (one->state == Duplicate::broken) return false;
  return true;
}

Result<Duplicate*> keep(const Library& library, mpi_handle own) {
  ZERO_TRY(outcome(library, "MPI_Comm_set_errhandler", library.calls->return_errors(own)));
  const std::lock_guard lock(all().mutex);
  if (all().library == nullptr) {
    ZERO_TRY(outcome(library, "MPI_Comm_set_attr", library.calls->attach(0, &all())));
    all().library = &library;
  }
  auto* const made = new Duplicate{.handle = own};
  Duplicate** last = &all().first;
  while (*last != nullptr) last = &(*last)->next;
  *last = made;
  return made;
}

Result<Duplicates*> Duplicates::of(const Library& library, mpi_handle comm) {
  mpi_attached* found = nullptr;
  ZERO_TRY(outcome(library, "MPI_Comm_get_attr", library.calls->attached(comm, &found)));
  if (found != nullptr) return static_cast<Duplicates*>(found);
  std::unique_ptr<Duplicates> made(new Duplicates(library, comm));
  ZERO_TRY(outcome(library, "MPI_Comm_set_attr", library.calls->attach(comm, made.get())));
  return made.release();
}

uint64_t Duplicates::idle() const {
  uint64_t bits = 0;
  for (size_t i = 0; i < all_.size() && i < 64; ++i)
    if (all_[i]->state == Duplicate::idle) bits |= uint64_t{1} << i;
  return bits;
}

Result<Duplicate*> Duplicates::take(uint64_t idle_on_all, const Bounds& bounds) {
  if (idle_on_all != 0) {
    Duplicate* const found = all_[static_cast<size_t>(std::countr_zero(idle_on_all))];
    found->state = Duplicate::used;
    return found;
  }
  struct Making {
    mpi_handle made = 0, request = 0;
  };
  auto making = std::make_unique<Making>();
  ZERO_TRY(outcome(library_, "MPI_Comm_idup",
                   library_.calls->duplicate(comm_, &making->made, &making->request)));
  Status done = await(library_, "MPI_Comm_idup", making->request, bounds);
  if (!done.ok()) {
    keep_for_ever(std::move(making));
    return done;
  }
  all_.push_back(ZERO_TRY(keep(library_, making->made)));
  return all_.back();
}

}  // namespace zero::mpi

// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/duplicates.h"

#include <bit>
#include <memory>
#include <mutex>

namespace zero::mpi {
namespace {

/// All duplicates in order of creation, which is the same on all ranks of each duplicate.
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

/// MPI_Finalize frees the duplicate, unless it is broken by then.
Result<Duplicate*> add(const Library& library, mpi_handle handle) {
  const std::lock_guard lock(all().mutex);
  if (all().library == nullptr) {
    ZERO_TRY(outcome(library, "MPI_Comm_set_attr", library.calls->attach(0, &all())));
    all().library = &library;
  }
  auto* const made = new Duplicate{.handle = handle};
  Duplicate** last = &all().first;
  while (*last != nullptr) last = &(*last)->next;
  *last = made;
  return made;
}

}  // namespace

bool are_sound() {
  if (Begun::going_on > 0) return false;
  const std::lock_guard lock(all().mutex);
  for (const Duplicate* one = all().first; one != nullptr; one = one->next)
    if (one->state == Duplicate::broken) return false;
  return true;
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
  Duplicate* taken = nullptr;
  if (idle_on_all != 0) {
    taken = all_[static_cast<size_t>(std::countr_zero(idle_on_all))];
  } else {
    auto begun = std::make_unique<Making>();
    ZERO_TRY(outcome(library_, "MPI_Comm_idup",
                     library_.calls->duplicate(comm_, &begun->made, &begun->request)));
    making_ = std::move(begun);
    ZERO_TRY(finish(bounds));
    taken = all_.back();
  }
  taken->state = Duplicate::used;
  return taken;
}

Status Duplicates::finish(const Bounds& bounds) {
  if (making_ == nullptr) return {};
  ZERO_TRY(await(library_, "MPI_Comm_idup", making_->request, bounds));
  const std::unique_ptr<Making> ended = std::move(making_);
  ZERO_TRY(
      outcome(library_, "MPI_Comm_set_errhandler", library_.calls->return_errors(ended->made)));
  all_.push_back(ZERO_TRY(add(library_, ended->made)));
  return {};
}

}  // namespace zero::mpi

// SPDX-License-Identifier: Apache-2.0
// Messages over MPI on a duplicate of the caller's communicator. A comm and the comms split off it
// share a duplicate, and have different tags.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/hosts/messages.h"
#include "comm/mpi/duplicates.h"
#include "comm/mpi/library.h"

namespace zero::mpi {

/// Returns OK, or why this thread must not call MPI.
Status check_thread(const Library& library);

class MpiMessages final : public hosts::Messages {
 public:
  /// Takes `own`, which becomes idle when the last of its users is freed.
  MpiMessages(const Library& library, Duplicate& own, int32_t world);

  const char* kind() const override { return "mpi"; }
  Status check_caller() const override;
  Result<Request> send(int32_t to, std::span<const std::byte> data) override;
  Result<Request> receive(int32_t from, std::span<std::byte> data) override;
  Result<bool> has_ended(Request& request) override;
  void progress() override;
  void give_up() override { shared_->duplicate.state = Duplicate::broken; }
  Result<std::unique_ptr<Messages>> of_some(Call& call,
                                            std::span<const int32_t> members) const override;

 private:
  /// State shared by the comms that use one duplicate.
  struct Shared {
    const Library& library;
    Duplicate& duplicate;
    std::atomic<int32_t> last_tag{0};  // the highest tag of any comm of this rank
    ~Shared() { duplicate.end_use(); }
  };

  template <class Begin>
  Result<Request> begin(const char* what, int32_t with, const Begin& begin);
  MpiMessages(std::shared_ptr<Shared> shared, int32_t tag, std::vector<int32_t> ranks)
      : shared_(std::move(shared)), tag_(tag), ranks_(std::move(ranks)) {}

  const std::shared_ptr<Shared> shared_;
  const int32_t tag_;
  const std::vector<int32_t> ranks_;       // ranks in the duplicate, by rank of the comm
  std::atomic<std::thread::id> caller_{};  // last user, which may call MPI
};

}  // namespace zero::mpi

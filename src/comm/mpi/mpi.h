// SPDX-License-Identifier: Apache-2.0
// The comm of the ranks of a caller's MPI communicator, on any number of hosts: MPI carries
// gradients and parameters, connections to rank 0 carry the rest, because MPI tells of no death and
// waits without a deadline.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/comm.h"
#include "comm/mpi/duplicates.h"
#include "comm/mpi/library.h"
#include "comm/rank_sum.h"
#include "comm/tcp/tcp.h"
#include "device/memory.h"

namespace zero::mpi {

/// Memory for one part of a transfer. MPI may use it until it has ended `request`, whatever becomes
/// of the comm.
struct Room {
  Memory send, recv;
  mpi_handle request = 0;
  bool pending = false;
};

class MpiComm final : public tcp::TcpComm {
 public:
  MpiComm(const Library& library, int32_t rank, int32_t world, const CommOptions& options,
          std::vector<tcp::Peer> peers)
      : TcpComm(rank, world, options, nullptr, std::move(peers)), library_(library), sum_(world) {}
  ~MpiComm() override;

  const char* kind() const override { return "mpi"; }
  Status check_caller() override;
  void heed_interrupt(std::string_view where) override;

  Status all_gather(Call& call, const void* send, void* recv, size_t bytes) override;
  Status reduce_scatter(Call& call, SumTypes types, const void* send, void* recv, size_t count,
                        void* scratch) override;

  /// Local. Makes the memory of the data plane, which uses `own` from now on.
  Status open(Duplicate& own);

 protected:
  Status gather_some(Call& call, const Ranks& among, const std::byte* send, std::byte* recv,
                     size_t bytes, std::span<std::byte> scratch) override;
  Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                           int32_t place, int32_t color) override;

 private:
  using Begin = int (*)(const void* send, void* recv, int bytes, mpi_handle comm,
                        mpi_handle* request);
  /// Ranks among which something travels, and the communicator that is theirs.
  struct Travellers {
    Ranks ranks;
    Duplicate* own;
  };
  template <class Pack, class Unpack>
  Status move(Call& call, const char* what, Begin begin, const Travellers& among, size_t bytes,
              const Pack& pack, const Unpack& unpack);
  Travellers everyone() const { return {{0, 1, world()}, duplicate_}; }
  Result<Travellers> travellers(Call& call, const Ranks& ranks);
  Status gather(Call& call, const Travellers& among, const void* send, void* recv, size_t bytes);
  size_t part_bytes(int32_t ranks) const;
  Bounds bounds();
  Status broken(Status problem, std::string_view phase);

  const Library& library_;
  RankSum sum_;
  Duplicate* duplicate_ = nullptr;
  std::vector<Travellers> some_;  // that have travelled
  std::array<Room, 2> rooms_;
  std::atomic<std::thread::id> caller_{};  // of the last transfer
};

/// Returns why this thread may not call MPI.
Status check_thread(const Library& library);

/// Collective over `world` ranks, which have rank 0's Offer. Returns the seat without a data plane.
Result<std::shared_ptr<MpiComm>> take_seat(const Library& library, int32_t rank, int32_t world,
                                           const CommOptions& options,
                                           Result<std::vector<tcp::Peer>> peers);

}  // namespace zero::mpi

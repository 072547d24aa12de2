// SPDX-License-Identifier: Apache-2.0
// Comms through the public header, of every kind that a test asks for, and what their last error
// said.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "support/chaos_device.h"
#include "support/hosts_ranks.h"
#include "support/mpi_ranks.h"
#include "support/nccl_ranks.h"
#include "support/ranks.h"
#include "support/user_comm.h"
#include "zero.h"

namespace zero::test {

/// Where ranks are and how they reach each other. `user_sums`: the engine reduces by itself.
/// `clustered`: ranks that believe to be on several hosts. `mpi`: the ranks that an mpirun started,
/// each in a process of its own. From `device` on tensors
/// are on devices: of one rank alone; over NCCL; of a local comm whose devices reach each other's
/// memory and wait at gates; whose hosts wait there; where all goes through the host.
enum class CommKind {
  solo,
  local,
  user,
  user_sums,
  clustered,
  mpi,
  device,
  nccl,
  gates,
  hosts,
  staged
};
constexpr CommKind kCommKinds[] = {CommKind::local, CommKind::user};
constexpr bool on_devices(CommKind kind) { return kind >= CommKind::device; }
const char* name_of(CommKind kind);

/// How the devices of a comm behave, and the comm itself.
struct Devices {
  uint64_t seed = 1;                  // of the order in which they do what is queued
  bool guarded = false;               // nothing but queued work can touch their memory
  const char* forgotten = "no rule";  // whose waits are dropped
  CommOptions options = {};
};

/// Devices that run their work in an order drawn from the seed, reaching each other's memory and
/// waiting for words as the kind says.
std::shared_ptr<ChaosWorld> chaos(const Devices& devices, CommKind kind = CommKind::device);

/// What the ranks of one comm share before they start; made before they are forked.
class Meeting {
 public:
  /// No wait of these ranks is longer than `patience_ms`, wherever it is.
  Meeting(CommKind kind, int world, int64_t patience_ms = 30'000);
  Meeting(CommKind kind, int world, const Devices& devices);

  /// This rank's seat, or null and a failed expectation. `before` runs ahead of each of the
  /// engine's functions (see EngineSeat); a local comm has none.
  zero_comm* join(int rank, std::function<Code(const char* function)> before = {}) const;
  /// The seat of `rank` in group `number`: groups with other numbers are other comms of the same
  /// ranks.
  Result<std::shared_ptr<Comm>> seat(int rank, int number, const CommOptions& options) const;

  CommKind kind() const { return kind_; }
  int world() const { return world_; }
  ChaosWorld& chaos() const { return nccl_ ? nccl_->chaos() : *chaos_; }
  const NcclRanks& nccl() const { return *nccl_; }
  /// Of user comms: seats that are not freed yet.
  int seats_left() const { return engine_ ? engine_->seats() : 0; }

 private:
  const CommKind kind_;
  const int world_;
  CommOptions options_;
  const std::string name_;
  const std::unique_ptr<Engine> engine_;
  const std::unique_ptr<HostsRanks> clustered_;
  std::unique_ptr<NcclRanks> nccl_;
  std::shared_ptr<ChaosWorld> chaos_;
  std::vector<std::shared_ptr<ChaosDevice>> devices_;
};

/// What body(comm, rank) says on each rank; the comms are freed behind it.
std::vector<std::string> results_of(const Meeting& meeting,
                                    const std::function<std::string(zero_comm*, int rank)>& body,
                                    RankKind ranks = RankKind::threads);
/// body(comm, rank) on threads.
void on_ranks(const Meeting& meeting, const std::function<void(zero_comm*, int rank)>& body);
void on_ranks(CommKind kind, int world, const std::function<void(zero_comm*, int rank)>& body);
/// The same on each kind of comm of the host, one behind the other.
void on_each_comm(int world, const std::function<void(zero_comm*, int rank)>& body);

zero_comm* solo();
/// The comm of a rank alone, on the host or a device, freed with the last that holds it.
std::shared_ptr<zero_comm> alone();
std::shared_ptr<zero_comm> alone(const Devices& devices);

/// Where the comm's tensors are; null: on the host.
std::shared_ptr<Device> device_of(const zero_comm* comm);

/// zero_last_error of this thread.
std::string last();
/// Does the last error have these words in it?
::testing::AssertionResult says(const std::string& words);

}  // namespace zero::test

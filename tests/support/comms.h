// SPDX-License-Identifier: Apache-2.0
// Creates comms of every kind through the public header, and returns their last error.
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
/// `clustered`: the ranks act as if they were on several hosts. `mpi`: an mpirun started each rank
/// as a process. From `device` on, tensors are on devices. `device`: a rank alone. `nccl`: over
/// NCCL. `gates`: a local comm whose devices reach each other's memory and wait at gates. `hosts`:
/// the same, but the hosts wait. `staged`: all data goes through the host.
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

/// How the devices of a comm behave, and the options of the comm.
struct Devices {
  uint64_t seed = 1;                  // of the order in which they run queued work
  bool guarded = false;               // only queued work can touch their memory
  const char* forgotten = "no rule";  // the rule whose waits are dropped
  CommOptions options = {};
};

/// Creates devices that run their work in an order drawn from the seed. The kind determines whether
/// they reach each other's memory and wait for words.
std::shared_ptr<ChaosWorld> chaos(const Devices& devices, CommKind kind = CommKind::device);

/// What the ranks of one comm share before they start. It must be created before ranks are forked.
class Meeting {
 public:
  /// No wait of these ranks takes longer than `patience_ms`.
  Meeting(CommKind kind, int world, int64_t patience_ms = 30'000);
  Meeting(CommKind kind, int world, const Devices& devices);

  /// Returns the comm of this rank, or null after a failed expectation. `before` runs before each
  /// of the engine's functions (see EngineSeat). A local comm has no engine.
  zero_comm* join(int rank, std::function<Code(const char* function)> before = {}) const;
  /// Returns the comm of `rank` in group `number`. Groups with different numbers are different
  /// comms of the same ranks.
  Result<std::shared_ptr<Comm>> seat(int rank, int number, const CommOptions& options) const;

  CommKind kind() const { return kind_; }
  int world() const { return world_; }
  ChaosWorld& chaos() const { return nccl_ ? nccl_->chaos() : *chaos_; }
  const NcclRanks& nccl() const { return *nccl_; }
  /// Returns the number of seats of user comms that have not been freed.
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

/// Returns what body(comm, rank) returns on each rank. The comms are freed afterwards.
std::vector<std::string> results_of(const Meeting& meeting,
                                    const std::function<std::string(zero_comm*, int rank)>& body,
                                    RankKind ranks = RankKind::threads);
/// Runs body(comm, rank) on threads.
void on_ranks(const Meeting& meeting, const std::function<void(zero_comm*, int rank)>& body);
void on_ranks(CommKind kind, int world, const std::function<void(zero_comm*, int rank)>& body);
/// Does the same on each kind of host comm, one after the other.
void on_each_comm(int world, const std::function<void(zero_comm*, int rank)>& body);

zero_comm* solo();
/// Returns the comm of a rank alone, on the host or a device. The last owner frees it.
std::shared_ptr<zero_comm> alone();
std::shared_ptr<zero_comm> alone(const Devices& devices);

/// Returns the device with the comm's tensors, or null if they are on the host.
std::shared_ptr<Device> device_of(const zero_comm* comm);

/// Returns zero_last_error of this thread.
std::string last();
/// Succeeds if the last error contains these words.
::testing::AssertionResult says(const std::string& words);

}  // namespace zero::test

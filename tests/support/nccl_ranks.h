// SPDX-License-Identifier: Apache-2.0
// NCCL comms over the fake library, on chaos devices. Only one may exist, because the knobs belong
// to the library.
#pragma once

#include <memory>

#include "comm/create.h"
#include "comm/nccl/library.h"
#include "support/chaos_device.h"
#include "support/fake_nccl.h"

namespace zero::test {

class NcclRanks {
 public:
  /// Some seeds have an NCCL with windows. `guarded`: only queued work can touch the devices'
  /// memory, which makes tests slow. `reaches`: devices can map each other's memory.
  explicit NcclRanks(int32_t world, uint64_t seed = 1, bool guarded = false, bool reaches = true);
  /// Checks that no communicator is left, and that none was used while it was busy.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  FakeNcclKnobs& knobs() const { return *knobs_; }
  ChaosWorld& chaos() const { return *chaos_; }
  const nccl::Library& library() const { return library_; }
  const std::shared_ptr<ChaosDevice>& device(int32_t rank) const {
    return devices_[static_cast<size_t>(rank)];
  }

  /// Returns the comm of `rank` in group `number`.
  Result<std::shared_ptr<Comm>> join(int32_t rank, const CommOptions& options = {},
                                     int number = 0) const;
  NcclId id(int number = 0) const;
  /// Returns a communicator of all ranks for `rank`, made as an engine would make it. All ranks
  /// must call this at the same time.
  nccl::Handle engines(int32_t rank, bool blocking) const;
  void end_engines(int32_t rank, nccl::Handle engines, bool sound) const;

  /// Allows the test to leave communicators behind.
  void leaves_some() { leaves_some_ = true; }

 private:
  const int32_t world_;
  FakeNcclKnobs* knobs_ = nullptr;  // set when the library opens
  nccl::Library library_;
  const std::shared_ptr<ChaosWorld> chaos_;
  std::vector<std::shared_ptr<ChaosDevice>> devices_;
  const std::string name_;
  bool leaves_some_ = false;
};

/// Opens the fake library.
nccl::Library open_fake_nccl(FakeNcclKnobs** knobs);

}  // namespace zero::test

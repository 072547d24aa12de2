// SPDX-License-Identifier: Apache-2.0
// Nccl comms over the fake library, on chaos devices: one of a kind at a time, as the knobs are the
// library's.
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
  /// memory. It takes time. `reaches`: devices can map each other's.
  explicit NcclRanks(int32_t world, uint64_t seed = 1, bool guarded = false, bool reaches = true);
  /// Nothing is left of communicators, and none was used while it was busy.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  FakeNcclKnobs& knobs() const { return *knobs_; }
  ChaosWorld& chaos() const { return *chaos_; }
  const nccl::Library& library() const { return library_; }
  const std::shared_ptr<ChaosDevice>& device(int32_t rank) const {
    return devices_[static_cast<size_t>(rank)];
  }

  /// `rank`'s seat in group `number`.
  Result<std::shared_ptr<Comm>> join(int32_t rank, const CommOptions& options = {},
                                     int number = 0) const;
  NcclId id(int number = 0) const;
  /// `rank`'s communicator as an engine would make it, of all ranks, which call this at once.
  nccl::Handle engines(int32_t rank, bool blocking) const;
  void end_engines(int32_t rank, nccl::Handle engines, bool sound) const;

  /// The test leaves communicators behind on purpose.
  void leaves_some() { leaves_some_ = true; }

 private:
  const int32_t world_;
  FakeNcclKnobs* knobs_ = nullptr;  // found while the library opens
  nccl::Library library_;
  const std::shared_ptr<ChaosWorld> chaos_;
  std::vector<std::shared_ptr<ChaosDevice>> devices_;
  const std::string name_;
  bool leaves_some_ = false;
};

/// The fake library, opened.
nccl::Library open_fake_nccl(FakeNcclKnobs** knobs);

}  // namespace zero::test

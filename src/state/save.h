// SPDX-License-Identifier: Apache-2.0
// The parts of a save on one rank, in their order: agree; rank 0 makes the temporary directory;
// vote; every rank writes its files to stable storage; vote; rank 0 writes index and manifest,
// decides and renames; vote.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state/commit.h"
#include "state/shards.h"

namespace zero {

/// Adds to a failure that ended a save what this rank's own was, if it had another.
Status with_own(Status failure, const Status& own);

class Save {
 public:
  Save(const Optimizer& optim, std::string_view directory, int32_t flags);

  /// Votes when all that can fail before anything is written is done. `also`: more of that, for
  /// which `wants` says how many bytes it takes. Collective.
  Status begin(Call& call, Optimizer& optim, const std::function<Status()>& also,
               const std::function<uint64_t()>& wants = {});
  /// Writes this rank's files, on any thread.
  Status write(const Show& show, const Progress& progress);
  /// Agrees that all ranks have written, and brings what they wrote to rank 0. Collective.
  Status agree_written(Call& call, const Status& written);
  Status gather_records(Call& call);
  /// Makes it a checkpoint, on any thread of rank 0, unless it is given up or the comm is broken
  /// just before the rename. Other ranks have nothing to do.
  Status publish(const Progress& progress);
  Status agree_published(Call& call, const Status& published);

  /// Gives the save up, while a thread may be inside write() or publish(). Returns `why`, and says
  /// in its text if the checkpoint is there, or may appear, all the same.
  Status give_up(Status why);
  bool given_up() const { return decision_.state() == CommitDecision::State::given_up; }
  /// Takes note that all ranks know of the checkpoint.
  void note_complete() { decision_.end(true); }

  const Shards& shards() const { return shards_; }
  const std::vector<int32_t>& writers() const { return writers_; }
  const std::string& target() const { return target_; }

 private:
  Status prepare(const Optimizer& optim, const Progress& progress);
  Status check_present() const;
  Status write_manifest(const Progress& progress);
  bool commits();

  const std::string target_;
  const bool replace_;
  const int32_t rank_;
  const int64_t timeout_ms_;
  const std::weak_ptr<const Comm> comm_;
  CommitDecision decision_;
  bool may_be_published_ = false;  // rank 0 may have what it needs for that
  std::vector<int32_t> writers_;
  Shards shards_;
  HostMemory block_;
  Digest save_id_{};
  Result<Directory> directory_;
  // Of rank 0.
  std::optional<Staging> staging_;  // removed with this object unless it was published
  Manifest manifest_;
  std::vector<std::string> records_;
};

}  // namespace zero

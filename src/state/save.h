// SPDX-License-Identifier: Apache-2.0
// Implements the parts of a save on one rank, each of which ends with a vote: rank 0 makes the
// temporary directory; every rank writes its files to stable storage; rank 0 writes the index and
// the manifest, decides whether to commit, and renames the directory.
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

/// Adds this rank's own failure to the text of a failure that ended a save, if the two differ.
Status with_own(Status failure, const Status& own);

class Save {
 public:
  Save(const Optimizer& optim, std::string_view directory, int32_t flags);

  /// Does everything that can fail before anything is written, and votes. `also` does more of that,
  /// and `wants` returns the bytes of memory that it needs. Collective.
  Status begin(Call& call, Optimizer& optim, const std::function<Status()>& also,
               const std::function<uint64_t()>& wants = {});
  /// Writes this rank's files. May run on any thread.
  Status write(const Show& show, const Progress& progress);
  /// Agrees that all ranks have written, and gathers their records on rank 0. Collective.
  Status agree_written(Call& call, const Status& written);
  Status gather_records(Call& call);
  /// Completes the checkpoint on rank 0, on any thread, unless the save has been given up or the
  /// comm is broken just before the rename. Does nothing on other ranks.
  Status publish(const Progress& progress);
  Status agree_published(Call& call, const Status& published);

  /// Gives up the save, even while a thread is inside write() or publish(). Returns `why`, and adds
  /// to its text if the checkpoint exists or may still appear.
  Status give_up(Status why);
  bool given_up() const { return decision_.state() == CommitDecision::State::given_up; }
  /// Records that all ranks know of the checkpoint.
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
  bool may_be_published_ = false;  // rank 0 may have all that publish() needs
  std::vector<int32_t> writers_;
  Shards shards_;
  HostMemory block_;
  Digest save_id_{};
  Result<Directory> directory_;
  // Only on rank 0.
  std::optional<Staging> staging_;  // removed with this object unless it has been published
  Manifest manifest_;
  std::vector<std::string> records_;
};

}  // namespace zero

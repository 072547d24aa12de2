// SPDX-License-Identifier: Apache-2.0
// Makes a checkpoint appear completely or not at all. A save writes it to a locked directory with a
// temporary name, beside the target, and moves it into place with a single rename. Only rank 0
// creates, renames and removes that directory. Its files move with it, so no other rank ever
// deletes anything.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "state/file.h"

namespace zero {

/// The decision whether a save renames its directory into place. The thread that is about to rename
/// it and the call that gives up the save both try to decide. The first one wins.
class CommitDecision {
 public:
  enum class State {
    open,
    given_up,    // the save has no more visible effects
    committing,  // the rename can happen at any moment
    failed,      // the rename did not happen
    complete,
  };
  /// Sets the state to `wanted`, unless the decision was made before. Returns the resulting state.
  State decide(State wanted) {
    State seen = State::open;
    return state_.compare_exchange_strong(seen, wanted) ? wanted : seen;
  }
  void end(bool complete) { state_ = complete ? State::complete : State::failed; }
  State state() const { return state_; }

 private:
  std::atomic<State> state_{State::open};
};

/// Returns the failure with which work stops after its save was given up.
Status save_given_up();

class Staging {
 public:
  /// Checks the target, creates missing parent directories, removes what dead saves left there, and
  /// creates the temporary directory for `files`. Fails with ZERO_ERR_STATE if `directory` exists
  /// and `replace` is not set, or if it holds more than a checkpoint. Opens the checkpoint that is
  /// to be replaced, because publish() replaces only that one.
  static Result<Staging> begin(std::string_view directory, bool replace,
                               std::vector<std::string> files, const Progress& progress);
  Staging(Staging&&) = default;
  /// Removes the directory and `files` in it, unless it was published or may still be. Allocates no
  /// memory.
  ~Staging();

  const Digest& save_id() const { return save_id_; }
  const Directory& directory() const { return directory_; }
  /// Returns true once the directory has its final name, even if publish() failed afterwards.
  bool published() const { return published_; }
  /// Returns false if the rename failed with an error after which it may still have happened, or
  /// may happen later.
  bool outcome_known() const { return outcome_known_; }

  /// Renames the directory to its final name, durably, unless `commits` returns false just before
  /// the rename. Waits at most `wait_ms` for another save or prune of the same name. If only the
  /// last sync fails, the checkpoint stays published, and the text of the failure says so.
  Status publish(const Progress& progress, int64_t wait_ms, const std::function<bool()>& commits);

 private:
  Staging() = default;
  Status make();
  Result<bool> take(const Digest& id);
  Status take_name(const Progress& progress, int64_t wait_ms, const std::function<bool()>& commits);
  Result<bool> finds_replaced() const;
  Status rename_into_place(bool exchanges);
  Status keep_others();
  Status was_replaced() const;
  bool is_ours(const std::string& name) const;  // the directory that this save made

  std::string target_path() const { return parent_.path_of(target_); }

  std::string target_, temporary_;  // names in the parent
  std::vector<std::string> files_;
  std::string left_behind_;  // logged if the directory cannot be removed
  bool published_ = false, outcome_known_ = true;
  Digest save_id_{};
  Directory parent_;
  Directory directory_;                // locked
  Directory replaced_;                 // the target as begin() found it; not open if missing
  std::optional<Digest> replaced_id_;  // the save id of replaced_, if it had one
};

/// Deletes the checkpoint `name` if it has the save id `id`. First gives it, durably, a temporary
/// name that the next save sweeps, so that no partial checkpoint ever has its name. Returns false,
/// and logs the reason, if something else is at that name or in that directory.
Result<bool> delete_checkpoint(const Directory& parent, const std::string& name, const Digest& id);

/// Opens the temporary directory that rank 0 created for the save `id` to `directory`.
Result<Directory> enter_staging(std::string_view directory, const Digest& id);

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Makes a checkpoint appear complete or not at all. It is written in a locked directory with a name
// of its own, beside the final one, and gets its final name by one rename. Only rank 0 makes,
// publishes and removes it. A directory keeps its files when it is renamed, so no other rank ever
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

/// Whether a save renames its directory into place. The thread that is about to rename and the call
/// that gives the save up both try to decide, and the first one does.
class CommitDecision {
 public:
  enum class State {
    open,
    given_up,    // nothing that the save does is seen outside any more
    committing,  // the rename may be made at any moment
    failed,      // it was not made
    complete,
  };
  /// Decides, unless that is done already. Returns what stands.
  State decide(State wanted) {
    State seen = State::open;
    return state_.compare_exchange_strong(seen, wanted) ? wanted : seen;
  }
  void end(bool complete) { state_ = complete ? State::complete : State::failed; }
  State state() const { return state_; }

 private:
  std::atomic<State> state_{State::open};
};

/// Returns the failure of work that stops because its save was given up.
Status save_given_up();

class Staging {
 public:
  /// Checks the place, makes missing parents, removes what dead saves left there, and makes the
  /// directory for `files`. Fails with ZERO_ERR_STATE if `directory` exists and `replace` is not
  /// set, or if it holds more than a checkpoint. Opens a checkpoint that is to be replaced:
  /// publish() exchanges no other.
  static Result<Staging> begin(std::string_view directory, bool replace,
                               std::vector<std::string> files, const Progress& progress);
  Staging(Staging&&) = default;
  /// Removes the directory and `files` in it, unless it was published or may yet be. Needs no
  /// memory.
  ~Staging();

  const Digest& save_id() const { return save_id_; }
  const Directory& directory() const { return directory_; }
  /// True once it has its final name, even if publish() failed after that.
  bool published() const { return published_; }
  /// False if the rename failed in a way that does not tell whether it was made, or will be.
  bool outcome_known() const { return outcome_known_; }

  /// Gives it its final name, durably, unless `commits` returns false just before the rename. Waits
  /// at most `wait_ms` for another save or prune of the same name. If only the last
  /// sync fails, it stays published, and the text says so.
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
  std::string left_behind_;  // text for the log if the directory stays
  bool published_ = false, outcome_known_ = true;
  Digest save_id_{};
  Directory parent_;
  Directory directory_;                // locked
  Directory replaced_;                 // what stood at the target at the beginning, if anything
  std::optional<Digest> replaced_id_;  // its save id, if it had one
};

/// Deletes the checkpoint with that save id. Its name changes first, durably, to one that the next
/// save sweeps, so that it is never there in part. Returns false, and logs why, if something else
/// is there or in it.
Result<bool> delete_checkpoint(const Directory& parent, const std::string& name, const Digest& id);

/// Opens the directory that rank 0 made for the save `id` of `directory`.
Result<Directory> enter_staging(std::string_view directory, const Digest& id);

}  // namespace zero

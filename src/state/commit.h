// SPDX-License-Identifier: Apache-2.0
// Makes a checkpoint appear complete or not at all. It is written in a locked directory with a name
// of its own, beside the final one, and gets its final name by one rename. Only rank 0 makes,
// publishes and removes it. A directory keeps its files when it is renamed, so no other rank ever
// deletes anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "state/file.h"

namespace zero {

class Staging {
 public:
  /// Checks the place, makes missing parents, removes what dead saves left there, and makes the
  /// directory for `files`. Fails with ZERO_ERR_STATE if `directory` exists and `replace` is not
  /// set, or if it holds more than a checkpoint.
  static Result<Staging> begin(std::string_view directory, bool replace,
                               std::vector<std::string> files, const Progress& progress);
  Staging(Staging&&) = default;
  /// Removes the directory and `files` in it, unless it was published. Needs no memory.
  ~Staging();

  const Digest& save_id() const { return save_id_; }
  const Directory& directory() const { return directory_; }

  /// Gives it its final name, durably. If only the last sync fails, it stays published, and the
  /// text says so.
  Status publish(const Progress& progress);

 private:
  Staging() = default;
  Status make();
  Result<bool> take(const Digest& id);
  Status rename_into_place();
  bool is_ours(const std::string& name) const;  // the directory that this save made
  void remove_replaced(const Progress& progress) const;

  std::string target_path() const { return parent_.path_of(target_); }

  std::string target_, temporary_;  // names in the parent
  std::vector<std::string> files_;
  std::string left_behind_;  // text for the log if the directory stays
  bool replace_ = false, exchanged_ = false, published_ = false;
  Digest save_id_{};
  Directory parent_;
  Directory directory_;  // holds the lock
};

/// Deletes the checkpoint with that save id. Its name changes first, durably, to one that the next
/// save sweeps, so that it is never there in part. Returns false, and logs why, if something else
/// is there or in it.
Result<bool> delete_checkpoint(const Directory& parent, const std::string& name, const Digest& id);

/// Opens the directory that rank 0 made for the save `id` of `directory`.
Result<Directory> enter_staging(std::string_view directory, const Digest& id);

}  // namespace zero

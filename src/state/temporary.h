// SPDX-License-Identifier: Apache-2.0
// Manages directories beside checkpoints whose names start with ".tmp-". Saves write to them, they
// serve as locks on checkpoint names, and checkpoints that are being deleted are renamed to them. A
// process that uses one holds a lock on it. If that process dies, the next save sweeps it.
#pragma once

#include <string>
#include <string_view>

#include "base/hash.h"
#include "state/file.h"

namespace zero {

/// Returns the name of the temporary directory of a save.
std::string temporary_name(const Digest& id);
/// Returns true for ".tmp-" followed by 32 hexadecimal digits.
bool is_temporary_name(std::string_view name);

Result<Digest> draw_id();

int remove_entry(const Directory& directory, const std::string& name, int flags);
int rename_entry(const Directory& directory, const std::string& from, const std::string& to,
                 unsigned flags);

/// Returns true if `name` in `parent` is known to be the directory that is open as `directory`.
bool is_same(const Directory& parent, const std::string& name, const Directory& directory);

/// Creates the directory `name`, unless it exists, and locks it. Returns a Directory that is not
/// open if another process holds the lock, or removed the directory before it was locked.
Result<Directory> make_locked(const Directory& parent, const std::string& name);

/// The lock on a checkpoint's name. A save or a prune holds it from its last check of the
/// checkpoint until it has renamed the checkpoint. The lock is a directory beside the checkpoint,
/// because any program can move or remove the checkpoint itself.
class NameLock {
 public:
  NameLock(const Directory& parent, const std::string& name);
  NameLock(const NameLock&) = delete;
  ~NameLock();
  /// Returns false if another process holds the lock.
  Result<bool> try_take();

 private:
  const Directory& parent_;
  const std::string name_;
  Directory held_;
};

/// Deletes a checkpoint's files. Deletes the directory, whose current name is `name`, if nothing
/// else is in it. Logs what it cannot delete. The next save tries again.
void remove_checkpoint(const Directory& parent, const std::string& name, const Directory& directory,
                       const Progress& progress);

/// Renames an open directory to a new temporary name, so that the next save sweeps it if this
/// process dies. Returns that name.
Result<std::string> set_aside(const Directory& parent, const std::string& name,
                              Directory& directory);

/// Removes what dead saves have left in `parent`. Considers only directories that have temporary
/// names and are not locked, and removes only files of a checkpoint from them.
void sweep(const Directory& parent, const Progress& progress);

}  // namespace zero

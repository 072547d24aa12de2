// SPDX-License-Identifier: Apache-2.0
// Directories beside checkpoints whose names start with ".tmp-": what a save writes, the lock on a
// checkpoint's name, and what is being deleted. Who uses one holds a lock on it. If that process
// dies, the next save sweeps it.
#pragma once

#include <string>
#include <string_view>

#include "base/hash.h"
#include "state/file.h"

namespace zero {

/// Returns the temporary name of a save.
std::string temporary_name(const Digest& id);
/// True for ".tmp-" and 32 hexadecimal digits.
bool is_temporary_name(std::string_view name);

Result<Digest> draw_id();

int remove_entry(const Directory& directory, const std::string& name, int flags);
int rename_entry(const Directory& directory, const std::string& from, const std::string& to,
                 unsigned flags);

/// True if `name` in `parent` is known to be the directory that is open as `directory`.
bool is_same(const Directory& parent, const std::string& name, const Directory& directory);

/// Makes the directory `name`, unless it exists, and locks it. Returns one that is not open if
/// another process has it, or removed it before it was locked.
Result<Directory> make_locked(const Directory& parent, const std::string& name);

/// The lock on a checkpoint's name, which a save or a prune holds from its last look at the
/// checkpoint until it has renamed. It is a directory beside the checkpoint, because the checkpoint
/// itself may be moved or removed by any program. If its process dies, the next save sweeps it.
class NameLock {
 public:
  NameLock(const Directory& parent, const std::string& name);
  NameLock(const NameLock&) = delete;
  ~NameLock();
  /// Returns false if another process has it.
  Result<bool> try_take();

 private:
  const Directory& parent_;
  const std::string name_;
  Directory held_;
};

/// Deletes a checkpoint's files, and the directory, which has `name` now, if nothing else is in it.
/// Logs what it cannot delete; the next save sweeps that again.
void remove_checkpoint(const Directory& parent, const std::string& name, const Directory& directory,
                       const Progress& progress);

/// Gives an open directory the name of one that a dead save has left, by which the next save knows
/// it. Returns that name.
Result<std::string> set_aside(const Directory& parent, const std::string& name,
                              Directory& directory);

/// Removes what dead saves have left in `parent`: only directories that have exactly our kind of
/// name and that nobody has locked, and in them only a checkpoint's files.
void sweep(const Directory& parent, const Progress& progress);

}  // namespace zero

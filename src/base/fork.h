// SPDX-License-Identifier: Apache-2.0
// Closes libzero's descriptors in forked children. The descriptors show that this process is alive,
// or hold locks and names. fork() closes them in the child, whichever thread calls it. Children of
// vfork and _Fork keep them until they exec.
#pragma once

namespace zero {

/// Exists while a descriptor is opened or closed. No other thread forks between the system call and
/// the note of it, unless one of the two takes so long that the other stops waiting.
class DescriptorChange {
 public:
  DescriptorChange();
  ~DescriptorChange();
  DescriptorChange(const DescriptorChange&) = delete;
  DescriptorChange& operator=(const DescriptorChange&) = delete;
};

/// Notes that a descriptor belongs to libzero.
void note_descriptor(int fd);
/// Removes the note. Returns false if there was none, because a forked child has closed the
/// descriptor.
bool forget_descriptor(int fd);

}  // namespace zero

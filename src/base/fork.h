// SPDX-License-Identifier: Apache-2.0
// What a forked child must not keep. Descriptors of the library mean that this process lives, or
// hold locks and names; fork() closes them in the child, whichever thread called it. Children of
// vfork and _Fork keep them until they exec.
#pragma once

namespace zero {

/// Stands while a descriptor is made or closed. No other thread forks between the system's change
/// and the note of it, unless one of both takes so long that the other gives up waiting for it.
class DescriptorChange {
 public:
  DescriptorChange();
  ~DescriptorChange();
  DescriptorChange(const DescriptorChange&) = delete;
  DescriptorChange& operator=(const DescriptorChange&) = delete;
};

/// Notes that a descriptor is the library's.
void note_descriptor(int fd);
/// Notes that it no longer is. Returns false if it was not: a forked child has closed it.
bool forget_descriptor(int fd);

}  // namespace zero

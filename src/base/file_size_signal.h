// SPDX-License-Identifier: Apache-2.0
// The limit of the size of files (ulimit -f), which also holds for memory that processes share.
#pragma once

namespace zero {

/// Blocks SIGXFSZ on this thread, and takes away one that was raised. So what goes past the
/// limit is an error, not the signal that ends a program.
class FileSizeSignal {
 public:
  FileSizeSignal();
  ~FileSizeSignal();
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  bool held_ = false;  // by us, not by the caller before
};

}  // namespace zero

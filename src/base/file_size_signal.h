// SPDX-License-Identifier: Apache-2.0
// The file size limit (ulimit -f), which also applies to shared memory.
#pragma once

namespace zero {

/// Blocks SIGXFSZ on this thread, and discards one that was raised. Exceeding the limit is then an
/// error instead of a signal that ends the program.
class FileSizeSignal {
 public:
  FileSizeSignal();
  ~FileSizeSignal();
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  bool held_ = false;  // by this object, not by the caller before
};

}  // namespace zero

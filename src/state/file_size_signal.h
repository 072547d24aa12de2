// SPDX-License-Identifier: Apache-2.0
// A write past the file size limit (ulimit -f) is an error here, not the signal that ends a
// program.
#pragma once

#include <signal.h>

namespace zero {

/// Holds SIGXFSZ back on this thread, where a write would raise it, and takes back what was raised.
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

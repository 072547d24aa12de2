// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

namespace zero_run {
namespace {

constexpr size_t kFullQueue = 1 << 20;

}  // namespace

bool Output::full() const { return queue_.size() - written_ > kFullQueue; }

void Output::add(std::string_view bytes) {
  if (!broken_) queue_ += bytes;
}

void Output::write_some() {
  // A pipe that polls as writable takes PIPE_BUF bytes. Writes whole lines if one ends in them.
  std::string_view next = std::string_view(queue_).substr(written_, PIPE_BUF);
  const size_t last_end = next.rfind('\n');
  if (last_end != std::string_view::npos) next = next.substr(0, last_end + 1);
  const ssize_t count = write(fd_, next.data(), next.size());
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    broken_ = true;
    queue_.clear();
    written_ = 0;
    return;
  }
  written_ += static_cast<size_t>(count);
  if (written_ == queue_.size() || written_ > kFullQueue) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

bool same_destination(int one, int other) {
  struct stat first, second;
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace zero_run

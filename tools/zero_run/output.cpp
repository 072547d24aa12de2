// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace zero_run {
namespace {

constexpr size_t kFullQueue = 1 << 20;
constexpr size_t kLongestLine = 16 << 20;  // longer ones are cut: memory is not for ranks to fill

}  // namespace

bool Output::full() const { return queue_.size() - written_ > kFullQueue; }

void Output::add_line(std::string_view prefix, std::string_view line) {
  if (broken_) return;
  queue_ += prefix;
  queue_ += line;
  queue_ += '\n';
}

void Output::write_some() {
  // A pipe that polls as writable takes PIPE_BUF bytes. Whole lines, if one ends within them.
  std::string_view next = std::string_view(queue_).substr(written_, PIPE_BUF);
  const size_t last_end = next.rfind('\n');
  if (last_end != std::string_view::npos) next = next.substr(0, last_end + 1);
  const ssize_t count = write(fd_, next.data(), next.size());
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    broken_ = true;
    inside_line_ = false;
    queue_.clear();
    written_ = 0;
    return;
  }
  written_ += static_cast<size_t>(count);
  if (count > 0) inside_line_ = queue_[written_ - 1] != '\n';
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

bool LineSource::read_some() {
  char bytes[65536];
  const ssize_t count = read(fd_, bytes, sizeof bytes);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count <= 0) {
    close();
    return false;
  }
  std::string_view rest(bytes, static_cast<size_t>(count));
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    partial_ += rest.substr(0, end);
    output_->add_line(prefix_, partial_);
    partial_.clear();
    rest.remove_prefix(end + 1);
  }
  partial_ += rest;
  if (partial_.size() > kLongestLine) {
    output_->add_line(prefix_, partial_);
    partial_.clear();
  }
  return true;
}

void LineSource::close() {
  if (fd_ < 0) return;
  if (!partial_.empty()) output_->add_line(prefix_, partial_);
  partial_.clear();
  ::close(fd_);
  fd_ = -1;
}

}  // namespace zero_run

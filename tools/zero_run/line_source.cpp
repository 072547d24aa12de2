// SPDX-License-Identifier: Apache-2.0
#include "line_source.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace zero_run {
namespace {

constexpr size_t kLongestLine = 16 << 20;  // longer ones are cut, to limit the memory used
constexpr int64_t kUnfinishedMs = 100;     // the end of a line usually follows at once
constexpr int64_t kLongWriteMs = 1000;     // a write longer than PIPE_BUF may be half done

/// Returns the length that can be shown, which ends at a line end or before a '\r', or 0.
size_t finished(std::string_view text, size_t from) {
  const std::string_view fresh = text.substr(from);
  const size_t end = fresh.rfind('\n');
  // A '\r' at the end may belong to a line end.
  const size_t back = fresh.substr(0, fresh.size() - 1).rfind('\r');
  return std::max(end == fresh.npos ? 0 : from + end + 1, back == fresh.npos ? 0 : from + back);
}

}  // namespace

bool LineSource::read_some(int64_t now_ms) {
  char bytes[65536];
  const ssize_t count = read(fd_, bytes, sizeof bytes);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count <= 0) {  // a pty that nobody has open any more returns EIO
    close();
    return false;
  }
  const auto length = static_cast<size_t>(count);
  const size_t known = waiting_.empty() ? 0 : waiting_.size() - 1;  // no line ends in these
  if (waiting_.empty()) due_ms_ = now_ms + kUnfinishedMs;
  waiting_.append(bytes, length);
  const bool is_long = std::max(waiting_.size(), length) > PIPE_BUF;
  if (const size_t ready = finished(waiting_, known)) {
    show(ready);
    due_ms_ = now_ms + kUnfinishedMs;
  }
  if (is_long) due_ms_ = now_ms + kLongWriteMs;
  if (waiting_.size() > kLongestLine) show(waiting_.size());
  return true;
}

int64_t LineSource::due_ms() const {
  // If the reader lags, the rest of the line may have been written and not read.
  if (waiting_.empty() || lines_->output().full()) return Lines::kNever;
  return due_ms_;
}

void LineSource::show_if_due(int64_t now_ms) {
  if (due_ms() <= now_ms) show(waiting_.size());
}

void LineSource::show(size_t count) {
  lines_->add(id_, prefix_, std::string_view(waiting_).substr(0, count));
  waiting_.erase(0, count);
}

void LineSource::close() {
  if (fd_ < 0) return;
  show(waiting_.size());
  lines_->end(id_);
  ::close(fd_);
  fd_ = -1;
}

}  // namespace zero_run

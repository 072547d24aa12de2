// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/os.h"
#include "base/text.h"
#include "output.h"
#include "sizes.h"

namespace zero::tool {
namespace {

constexpr int64_t kPauseNs = 100'000'000;
constexpr size_t kWidestBar = 40, kNarrowestBar = 10;

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return whole < 120 ? text(whole, " s") : text(whole / 60, " min ", whole % 60, " s");
}

/// Returns the words after a bar if there is room for it. Cuts the words if there is not even room
/// for them.
std::string line(double share, const std::string& words, size_t room) {
  const size_t bar = std::min(room - std::min(room, words.size() + 4), kWidestBar);
  if (bar < kNarrowestBar) return words.substr(0, room);
  const auto full = static_cast<size_t>(share * static_cast<double>(bar));
  return "[" + std::string(full, '#') + std::string(bar - full, ' ') + "]  " + words;
}

}  // namespace

ProgressBar::ProgressBar(uint64_t total_bytes)
    : total_(total_bytes), start_ns_(now_ns()), on_terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (shown_ns_ != 0) std::fputs("\r\033[K", stderr);
}

double ProgressBar::seconds() const { return static_cast<double>(now_ns() - start_ns_) * 1e-9; }

void ProgressBar::show(uint64_t done_bytes) {
  if (!on_terminal_ || now_ns() - shown_ns_ < kPauseNs) return;
  shown_ns_ = now_ns();
  const auto done = static_cast<double>(std::min(done_bytes, total_));
  const auto total = static_cast<double>(total_);
  const double share = total > 0 ? done / total : 1, rate = done / seconds();
  std::string words =
      text(static_cast<int>(share * 100), " %, ", bytes_text(done), " of ", bytes_text(total));
  if (rate > 0)
    words += text(", ", bytes_text(rate), "/s, ", duration((total - done) / rate), " left");
  std::fprintf(stderr, "\r%s\033[K",
               line(share, words, terminal_size(STDERR_FILENO).ws_col - 1u).c_str());
}

}  // namespace zero::tool

// SPDX-License-Identifier: Apache-2.0
// The callback is copied under a lock and called without it, so a callback that blocks delays only
// its own caller. The level is a separate variable, so a disabled log costs one load.
#include "base/log.h"

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/callers_time.h"
#include "base/os.h"
#include "base/text.h"

namespace zero {
namespace {

constexpr size_t kLongestBytes = 4095;
constexpr size_t kPipeBytes = 4096;  // PIPE_BUF; longer writes could interleave
constexpr int kPrintMs = 1'000;
constexpr int32_t kAsAsked = -1;                                // use ZERO_LOG
constexpr const char* kWords[] = {"error", "warning", "info"};  // for the levels, starting at 1

std::mutex sink_mutex;
zero_log_fn callback = nullptr;
void* callback_ctx = nullptr;
std::atomic<int32_t> highest_level{kAsAsked};
thread_local int32_t speaker = -1;

/// Prints one line with one write, so that lines of several ranks do not interleave. A line that
/// cannot be written is lost, because no rank may hang, or die of SIGPIPE, because of its log.
void print(int32_t level, std::string_view message) {
  char line[kPipeBytes];
  const char* const word = kWords[level - ZERO_LOG_ERROR];
  auto length = static_cast<size_t>(
      speaker < 0 ? std::snprintf(line, sizeof line, "libzero: %s: ", word)
                  : std::snprintf(line, sizeof line, "libzero: rank %d: %s: ", speaker, word));
  const std::string_view shown = utf8_prefix(message, sizeof line - length - 1);
  // File names and texts of other processes must not end the line or control a terminal.
  for (size_t at = 0; at < shown.size();) {
    const size_t control = control_character_bytes(shown.substr(at));
    line[length++] = control > 0 ? '?' : shown[at];
    at += std::max<size_t>(control, 1);
  }
  line[length++] = '\n';
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  // Wait: kPrintMs.
  const int ready = uninterrupted([&] { return os().poll(&out, 1, kPrintMs); }, kPrintMs);
  if (ready == 1 && out.revents == POLLOUT) (void)os().write(STDERR_FILENO, line, length);
}

/// Returns the level in ZERO_LOG, or 0 if it is not set.
int32_t read_variable() {
  const char* const given = secure_getenv("ZERO_LOG");
  const std::string_view word = given != nullptr ? given : "";
  if (word.empty()) return 0;
  const auto found = std::find(std::begin(kWords), std::end(kWords), word);
  if (found != std::end(kWords))
    return ZERO_LOG_ERROR + static_cast<int32_t>(found - std::begin(kWords));
  const auto shown = static_cast<int>(utf8_prefix(word, 100).size());
  char said[200];  // not a string, because memory may have run out
  std::snprintf(said, sizeof said, "ZERO_LOG is '%.*s'; it must be error, warning or info", shown,
                given);
  print(ZERO_LOG_WARNING, said);
  return 0;
}

int32_t wanted_level() {
  const int32_t level = highest_level.load(std::memory_order_relaxed);
  if (level != kAsAsked) return level;
  static const int32_t asked = read_variable();
  return asked;
}

}  // namespace

void set_log(zero_log_fn log, void* ctx, int32_t max_level) {
  const std::lock_guard lock(sink_mutex);
  callback = log;
  callback_ctx = ctx;
  highest_level.store(log != nullptr ? std::max(max_level, 0) : kAsAsked,
                      std::memory_order_relaxed);
}

void log(int32_t level, std::string_view message) {
  if (level > wanted_level()) return;
  std::unique_lock lock(sink_mutex);
  if (level > wanted_level()) return;
  const auto [log, ctx] = std::pair(callback, callback_ctx);
  lock.unlock();
  if (log == nullptr) return print(level, message);
  // Not a string, because destructors log too, and memory may have run out.
  char terminated[kLongestBytes + 1];
  const std::string_view shown = utf8_prefix(message, kLongestBytes);
  shown.copy(terminated, shown.size());
  terminated[shown.size()] = '\0';
  const CallersTime spent;
  log(ctx, level, terminated);
}

void log_as(int32_t rank) { speaker = rank; }

}  // namespace zero

// SPDX-License-Identifier: Apache-2.0
// Implements zero verify: several threads take consecutive ranges of blocks, so that one thread
// reads while another computes checksums.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <vector>

#include "base/container.h"
#include "base/text.h"
#include "checkpoint.h"
#include "commands.h"
#include "output.h"
#include "progress.h"
#include "sizes.h"
#include "state/load.h"

namespace zero::tool {
namespace {

constexpr uint64_t kRangeBlocks = 16;
constexpr int kMostThreads = 8;

struct Findings {
  std::set<std::string> faults;
  double seconds;
};

class Verification {
 public:
  explicit Verification(const Checkpoint& of)
      : of_(of), total_(total_blocks(of.manifest())), bar_(of.bytes()) {}

  Result<Findings> run() {
    std::vector<std::future<Status>> threads;
    for (int i = std::clamp(usable_cores(), 2, kMostThreads); i > 0; i--)
      threads.push_back(std::async(std::launch::async, [this] { return take_ranges(); }));
    for (std::future<Status>& thread : threads) {
      while (thread.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) show();
    }
    show();
    for (std::future<Status>& thread : threads) ZERO_TRY(thread.get());
    return Findings{std::move(faults_), bar_.seconds()};
  }

 private:
  void show() { bar_.show(done_ * (of_.bytes() / std::max<uint64_t>(total_, 1))); }

  Status take_ranges() {
    const HostMemory block = ZERO_TRY(allocate_block());
    const BlockFiles files{of_.directory(), block.data(), [this] { return done_++, Status(); }};
    const auto verify = [&](uint64_t begin, uint64_t end) {
      return verify_blocks(files, of_.manifest(), begin, end);
    };
    for (;;) {
      const uint64_t begin = next_.fetch_add(kRangeBlocks);
      const uint64_t end = std::min(begin + kRangeBlocks, total_);
      if (begin >= end) return {};
      if (verify(begin, end).ok()) continue;
      for (uint64_t block_number = begin; block_number < end; block_number++)
        note(verify(block_number, block_number + 1));
    }
  }

  void note(const Status& status) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    faults_.insert(status.text());
  }

  const Checkpoint& of_;
  const uint64_t total_;
  ProgressBar bar_;
  std::atomic<uint64_t> next_{0}, done_{0};
  std::mutex mutex_;
  std::set<std::string> faults_;
};

}  // namespace

Result<bool> verify(const Request& request) {
  const Checkpoint checkpoint = ZERO_TRY(Checkpoint::open(request.checkpoint));
  const auto [faults, seconds] = ZERO_TRY(Verification(checkpoint).run());
  if (!faults.empty()) ZERO_TRY(checkpoint.check_in_place());
  const auto bytes = static_cast<double>(checkpoint.bytes());
  if (request.json) {
    print_json(Json{{"checkpoint", checkpoint.path()},
                    {"step", checkpoint.manifest().step},
                    {"sound", faults.empty()},
                    {"faults", faults},
                    {"files", checkpoint.manifest().files.size()},
                    {"bytes", checkpoint.bytes()},
                    {"seconds", seconds}});
    return faults.empty();
  }
  for (const std::string& fault : faults) print_line(fault);
  print_line(text(printable(checkpoint.path()), ": ",
                  faults.empty() ? "sound" : counted(faults.size(), "fault"), ", step ",
                  checkpoint.manifest().step, ", ",
                  counted(checkpoint.manifest().files.size(), "file"), ", ", bytes_text(bytes),
                  " at ", bytes_text(bytes / seconds), "/s"));
  return faults.empty();
}

}  // namespace zero::tool

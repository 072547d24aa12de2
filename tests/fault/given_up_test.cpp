// SPDX-License-Identifier: Apache-2.0
// Saves on a disk whose calls take longer than the deadline, and then succeed. A save that was
// reported as given up never appears, never replaces a newer checkpoint, and writes at most
// one more block.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "support/clock.h"
#include "support/expect.h"
#include "support/failing_calls.h"
#include "support/nightly.h"
#include "support/optim.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

constexpr int64_t kDeadlineMs = 100;

/// How the program gives up a save.
enum class Way { wait, free, interrupt, abort };
constexpr Way kWays[] = {Way::wait, Way::free, Way::interrupt, Way::abort};

/// One rank's training. Every step produces different parameters.
class Trainer {
 public:
  Trainer(const std::string& name, int rank, int world, int64_t deadline_ms = kDeadlineMs) {
    auto options = initialized<zero_comm_options>();
    options.timeout_ms = options.late_ms = deadline_ms;
    if (world == 1)
      EXPECT_OK(zero_comm_create_solo(&comm_, &options));
    else
      EXPECT_OK(zero_comm_create_local(&comm_, name.c_str(), rank, world, &options));
    optim_ = std::make_unique<Optim>(comm_);
    optim_->add(parameter("w", size_, data_.data(), grad_.data()));
    EXPECT_OK(zero_broadcast_params(optim_->optim(), 0, nullptr));
  }
  ~Trainer() {
    optim_.reset();
    zero_comm_free(comm_);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  zero_optim* optim() const { return optim_->optim(); }
  zero_comm* comm() const { return comm_; }
  void free_optim() { optim_.reset(); }
  zero_status step() { return zero_step(optim(), nullptr); }
  const std::vector<float>& data() const { return data_; }

 private:
  int64_t size_ = 700;
  std::vector<float> data_ = std::vector<float>(700, 1), grad_ = std::vector<float>(700, 0.5f);
  zero_comm* comm_ = nullptr;
  std::unique_ptr<Optim> optim_;
};

const auto kReplace = [] {
  auto options = initialized<zero_save_options>();
  options.flags = ZERO_SAVE_REPLACE;
  return options;
}();

std::string said(zero_status status) {
  return status == ZERO_OK ? "" : text(zero_status_name(status), ": ", zero_last_error());
}

/// Returns the contents of the checkpoint at a path, or nothing if there is none.
std::vector<float> held(const std::string& path) {
  Trainer reader("", 0, 1);
  if (!std::filesystem::exists(path)) return {};
  EXPECT_OK(zero_state_load(reader.optim(), path.c_str(), nullptr));
  return reader.data();
}

int64_t threads() { return entries_of("/proc/self/task"); }

bool is_failure(const std::string& words) {
  return !words.empty() && words.find("outcome unknown") == words.npos &&
         words.find("is complete") == words.npos;
}

/// What exists at the target, and whether the save may replace it.
enum class Place { empty, empty_to_replace, old };

struct Trial {
  Way way;
  int world, giver;
  Place place;
  bool newer_behind;  // a thread also writes the newer save
  bool wakes_soon;    // the stalled call continues just before the newer save commits
  bool moved;         // the old one is moved away before the newer save
  int64_t at;         // the call that stalls, among those of the library's threads; -1: none
};

/// A folder, a save that stalls in it, and a newer save.
class Ghost {
 public:
  explicit Ghost(const Trial& trial) : trial_(trial) {
    Trainer first("", 0, 1);
    EXPECT_OK(first.step());
    if (trial.place != Place::old) return;
    EXPECT_OK(zero_state_save(first.optim(), target().c_str(), nullptr));
    old_ = first.data();
  }

  /// Returns the calls of the library's threads.
  std::vector<std::string> run() {
    const int64_t threads_before = threads();
    zero_set_log_callback(
        [](void* ctx, int32_t, const char* line) { static_cast<Ghost*>(ctx)->note(line); }, this,
        ZERO_LOG_WARNING);
    const Clock clock;
    // On a busy machine a thread with low priority might not run while time passes.
    const ReplacedCall equal(&SystemCalls::setpriority, [](int, id_t, int) { return 0; });
    const FailingCalls failing(
        {.kind = trial_.at < 0 ? Fault::none : Fault::stall, .at = trial_.at, .aside = true});
    failing_ = &failing;
    set_rank(0);
    active_ = true;
    std::jthread time = Clock::run_once([&] { return failing.stalled() || !active_; },
                                        [&] { return active_ ? lookers_.load() : 0; });
    const std::string name = unique_name();
    std::thread other;
    if (trial_.world == 2)
      other = std::thread([&] { set_rank(1), one_rank(name, 1 - trial_.giver); });
    one_rank(name, trial_.giver);
    if (other.joinable()) other.join();
    save_newer();
    active_ = false;
    time.join();
    const bool stalled = failing.stalled();
    std::vector<std::string> calls = calls_of_threads();
    FailingCalls::wake();
    for (int i = 0; threads() > threads_before && i < 10'000; i++) usleep(1000);
    // A joined thread stays in /proc for an instant, so the count before may include one.
    EXPECT_LE(threads(), threads_before);
    zero_set_log_callback(nullptr, nullptr, 0);
    judge();
    // With two ranks, the thread of the other one may still be writing.
    if (stalled && trial_.world == 1) {
      EXPECT_LE(std::ranges::count(calls_of_threads(), "pwrite"),
                std::ranges::count(calls, "pwrite") + 1)
          << "call " << trial_.at;
    }
    return calls;
  }

 private:
  std::string target() const { return scratch_ / "last"; }
  std::vector<std::string> calls_of_threads() const {
    std::vector<std::string> calls;
    for (const FileCall& call : failing_->log())
      if (call.rank < 0) calls.push_back(call.operation);
    return calls;
  }
  void note(const std::string& line) {
    if (line.find("was freed before the save") == line.npos) return;
    const std::lock_guard lock(mutex_);
    reports_.push_back(line);
  }

  /// The rank that gives up runs on the main thread, because only that can be interrupted.
  void one_rank(const std::string& name, int rank) {
    Trainer trainer(name, rank, trial_.world);
    for (int i = 0; i < 3; i++) EXPECT_OK(trainer.step());
    const bool gives = rank == trial_.giver;
    if (gives) ghost_ = trainer.data();
    const auto* const options = trial_.place == Place::empty ? nullptr : &kReplace;
    EXPECT_OK(zero_state_save_begin(trainer.optim(), target().c_str(), options));
    if (trial_.way != Way::wait) go_on_until_stalled(trainer);
    const bool interrupts = gives && trial_.way == Way::interrupt;
    if (interrupts) zero_set_interrupt_callback([](void*) { return int32_t{1}; }, nullptr);
    if (gives && trial_.way == Way::abort) zero_comm_abort(trainer.comm(), "the test");
    if (gives && trial_.way == Way::free) return trainer.free_optim();
    std::string words = said(zero_state_save_wait(trainer.optim()));
    if (interrupts) zero_set_interrupt_callback(nullptr, nullptr);
    const std::lock_guard lock(mutex_);
    saved_ = saved_ || words.empty();
    reports_.push_back(std::move(words));
  }

  /// Takes steps while the threads proceed to the stalled call.
  void go_on_until_stalled(Trainer& trainer) {
    int32_t done = 0;
    for (int i = 0; i < 200 && done == 0 && !failing_->stalled(); i++) {
      if (trainer.step() != ZERO_OK) return;
      if (zero_state_save_poll(trainer.optim(), &done) != ZERO_OK) return;
      usleep(300);
    }
  }

  void save_newer() {
    Trainer trainer("", 0, 1, 5 * kDeadlineMs);  // passing time is not a failure
    for (int i = 0; i < 300; i++) EXPECT_OK(trainer.step());
    newer_ = trainer.data();
    const auto* const options = trial_.place == Place::empty && !saved_ ? nullptr : &kReplace;
    if (trial_.moved) std::filesystem::rename(target(), scratch_ / "moved");
    if (trial_.wakes_soon)
      FailingCalls::on_point([](const char* point) {
        if (std::string_view(point) == "save.committing") FailingCalls::wake();
      });
    // Time passes only for a thread that waits for the older save, not for one that a busy machine
    // keeps from writing.
    lookers_ = trial_.newer_behind ? 2 : 1;
    const auto save = trial_.newer_behind ? zero_state_save_begin : zero_state_save;
    newer_said_ = said(save(trainer.optim(), target().c_str(), options));
    if (trial_.newer_behind && newer_said_.empty())
      newer_said_ = said(zero_state_save_wait(trainer.optim()));
  }

  void judge() const {
    SCOPED_TRACE(text(
        "way ", static_cast<int>(trial_.way), " world ", trial_.world, " giver ", trial_.giver,
        " place ", static_cast<int>(trial_.place), trial_.newer_behind ? " newer behind" : "",
        trial_.wakes_soon ? " wakes soon" : "", trial_.moved ? " moved" : "", " call ", trial_.at));
    std::string all;
    for (const std::string& words : reports_) all += text("[", words, "] ");
    SCOPED_TRACE(text(all, "newer: ", newer_said_));
    const std::vector<float> found = held(target());
    if (newer_said_.empty()) {
      EXPECT_TRUE(found == newer_) << "the newer one was lost";
    } else {
      const bool named = newer_said_.find("another save or prune") != std::string::npos ||
                         newer_said_.find("during this save") != std::string::npos ||
                         newer_said_.find("exists: save elsewhere") != std::string::npos;
      EXPECT_TRUE(named);
      EXPECT_TRUE(found == (trial_.moved ? std::vector<float>() : old_) || found == ghost_);
    }
    for (const std::string& words : reports_) {
      EXPECT_FALSE(is_failure(words) && found == ghost_) << "it appeared: " << words;
    }
    Trainer next("", 0, 1);
    EXPECT_OK(zero_state_save(next.optim(), (scratch_ / "next").c_str(), nullptr));
    EXPECT_EQ(entries_of(scratch_.path()), 1 + !found.empty() + trial_.moved);
  }

  const Trial trial_;
  const Scratch scratch_;
  const FailingCalls* failing_ = nullptr;
  std::atomic<bool> active_{false};
  std::atomic<int> lookers_{1};
  std::mutex mutex_;
  std::vector<std::string> reports_;
  bool saved_ = false;
  std::string newer_said_;
  std::vector<float> old_, ghost_, newer_;
};

/// Returns true for the rename of a save, and for the last fsync before it.
bool decides(const std::vector<std::string>& calls, size_t at) {
  const auto rename = std::ranges::find(calls, "renameat2");
  const auto sync = std::find(std::make_reverse_iterator(rename), calls.rend(), "fsync");
  return calls.begin() + static_cast<ptrdiff_t>(at) == rename ||
         calls.rend() - static_cast<ptrdiff_t>(at) - 1 == sync;
}

/// Stalls every call of a save's threads, with every way to give it up. Without nightly runs, only
/// those that decide between two checkpoints, and some others.
void stall_each_call(int world, int giver) {
  int64_t number = 0;
  for (const Place place : {Place::old, Place::empty_to_replace, Place::empty}) {
    const auto calls = Ghost({Way::wait, world, giver, place, false, false, false, -1}).run();
    EXPECT_GT(calls.size(), 20u);
    for (size_t at = 0; at < calls.size(); at++)
      for (const Way way : kWays)
        for (const bool behind : {false, true})
          for (const bool soon : {false, true}) {
            const bool near = place == Place::old && decides(calls, at);
            Trial trial{way, world, giver, place, behind, soon, false, static_cast<int64_t>(at)};
            if (nightly_run() || number++ % 179 == 0 || (near && !behind)) Ghost(trial).run();
            trial.moved = true;
            if (near && (nightly_run() || way == Way::free)) Ghost(trial).run();
          }
  }
}

TEST(GivenUp, a_save_of_one_rank_never_acts_later) { stall_each_call(1, 0); }
TEST(GivenUp, a_save_that_rank_0_gives_up_never_acts_later) { stall_each_call(2, 0); }
TEST(GivenUp, a_save_that_another_rank_gives_up_never_acts_later) { stall_each_call(2, 1); }

}  // namespace
}  // namespace zero::test

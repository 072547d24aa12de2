// SPDX-License-Identifier: Apache-2.0
// A save with every single fault: a call that fails, once or always, is cut short, or does not
// return. The newest complete checkpoint always loads bitwise exactly, training continues, and the
// next save removes everything that is left.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/failing_calls.h"
#include "support/nightly.h"
#include "support/place.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/trials.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

/// Returns the ways in which a call can fail.
std::vector<Fault> faults_at(int64_t at, int rank) {
  return {{.kind = Fault::error, .at = at, .error_number = EIO, .rank = rank},
          {.kind = Fault::error, .at = at, .error_number = ENOSPC, .for_ever = true, .rank = rank},
          {.kind = Fault::error, .at = at, .error_number = EIO, .done_first = true, .rank = rank},
          {.kind = Fault::error, .at = at, .error_number = EINTR, .rank = rank},
          {.kind = Fault::short_transfer, .at = at, .rank = rank}};
}

std::string name_of(const Fault& fault, const std::string& where) {
  return text(where, ": call ", fault.at, " of rank ", fault.rank, " kind ",
              static_cast<int>(fault.kind), " errno ", fault.error_number,
              fault.for_ever ? " for ever" : "", fault.done_first ? " after it was done" : "");
}

bool may_fail_with(Code code) {
  return code == ZERO_OK || code == ZERO_ERR_CKPT_IO || code == ZERO_ERR_CKPT_INVALID ||
         code == ZERO_ERR_STATE;
}

/// Returns a model that saves at once, or begins a save and waits for it.
ModelSpec saved(bool behind) {
  ModelSpec spec = small_model();
  spec.saves_behind = behind;
  return spec;
}

void fail_each_call_of_a_solo_save(const ModelSpec& spec, const char* target, int32_t flags,
                                   int64_t stride = 1) {
  Place run(spec);
  auto model = run.solo();
  const std::string new_state = model->state();
  int64_t calls = 1;
  int failed = 0;
  for (int64_t at = 0; at < calls; at += stride) {
    for (const Fault& fault : faults_at(at, -1)) {
      const std::string what = name_of(fault, target);
      const std::string folder = run.folder();
      const int64_t descriptors = entries_of("/proc/self/fd");
      Status status;
      {
        FailingCalls failing(fault);
        status = model->save(folder + "/" + target, flags);
        if (fault.kind == Fault::short_transfer) calls = std::max(calls, failing.calls());
        EXPECT_FALSE(failing.synced_again()) << what;
      }
      EXPECT_TRUE(may_fail_with(status.code())) << what << ": " << told(status);
      if (fault.kind == Fault::short_transfer || fault.error_number == EINTR) {
        EXPECT_EQ(told(status), "") << what;
      }
      failed += !status.ok();
      EXPECT_EQ(entries_of("/proc/self/fd"), descriptors) << what;
      EXPECT_TRUE(model->state() == new_state) << what;
      // One fault does not keep a failed save from cleaning up, unless it hides that mkdir worked,
      // or the new checkpoint may not be durable, so that the replaced one is kept.
      const bool published = status.text().find("is complete, but") != std::string::npos;
      if (!status.ok() && !published && !fault.for_ever && !fault.done_first) {
        EXPECT_EQ(temporary_in(folder), 0) << what;
      }
      const std::string found = run.check_after(folder, new_state, what);
      EXPECT_TRUE(!status.ok() || found == new_state) << what;
    }
  }
  EXPECT_GT(calls, 40);
  EXPECT_GT(failed, calls / stride);
  EXPECT_EQ(told(model->step()), "");
}

TEST(Save, any_failing_call_of_one_rank_leaves_a_complete_checkpoint) {
  for (const bool behind : {false, true})
    fail_each_call_of_a_solo_save(saved(behind), "new", 0, nightly_run() || !behind ? 1 : 3);
}

/// Large files bypass the page cache, with whole blocks and a remainder.
TEST(Save, any_failing_call_of_one_of_large_files_leaves_a_complete_checkpoint) {
  ModelSpec spec = saved(true);
  spec.groups.push_back({{.name = "large", .shape = {1'300'001}}});
  spec.rule = "sgd";  // without state: one large file
  fail_each_call_of_a_solo_save(spec, "new", 0, nightly_run() ? 1 : 11);
}

TEST(Save, any_failing_call_of_a_replacement_leaves_a_complete_checkpoint) {
  for (const bool behind : {false, true})
    fail_each_call_of_a_solo_save(saved(behind), "old", ZERO_SAVE_REPLACE,
                                  nightly_run() || !behind ? 1 : 3);
}

/// Returns the numbered points of a save.
std::vector<std::string> points_of_a_save(Place& run) {
  std::vector<std::string> points;
  auto model = run.solo();
  FailingCalls calls;
  FailingCalls::on_point([&](const char* point) { points.emplace_back(point); });
  EXPECT_EQ(told(model->save(run.folder() + "/new")), "");
  return points;
}

void kill_each_call_of_a_solo_save(bool behind, const char* target, int32_t flags) {
  Place run(saved(behind));
  auto reference = run.solo();
  const std::string new_state = reference->state();
  int kills = 0;
  for (int64_t at = 0;; at++) {
    const std::string folder = run.folder();
    const auto ends = run_ranks(RankKind::processes, 1, [&](int) {
      auto model = run.solo();
      const FailingCalls failing({.kind = Fault::kill, .at = at});
      return told(model->save(folder + "/" + target, flags));
    });
    run.check_after(folder, new_state, text(target, ": killed at call ", at));
    if (ends[0].returned) break;
    EXPECT_EQ(ends[0].signal, SIGKILL);
    kills++;
  }
  EXPECT_GT(kills, 40);
}

TEST(Save, a_kill_at_any_call_leaves_a_complete_checkpoint) {
  for (const bool behind : {false, true}) kill_each_call_of_a_solo_save(behind, "new", 0);
}

TEST(Save, a_kill_at_any_call_of_a_replacement_leaves_a_complete_checkpoint) {
  for (const bool behind : {false, true})
    kill_each_call_of_a_solo_save(behind, "old", ZERO_SAVE_REPLACE);
}

/// One rank's part of a run in which one call after the other fails. Ranks are threads.
class FailingGroup {
 public:
  FailingGroup(Place& run, int world) : run_(run), world_(world), name_(unique_name()) {}

  void run() {
    const int64_t descriptors = entries_of("/proc/self/fd");
    const auto ends = run_sound_ranks(
        RankKind::threads, world_, [&](int rank) { return one_rank(rank); }, 300'000);
    for (const std::string& end : ends) EXPECT_EQ(end, "");
    EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
    EXPECT_GT(failed_, world_ * 10);
  }

 private:
  std::string one_rank(int rank) {
    set_rank(rank);
    auto model = local_model(run_.spec(), name_, rank, world_);
    if (!model || !model->step().ok() || !model->step().ok()) return "no model";
    new_state_of_all(*model, rank);
    for (int culprit = 0; culprit < world_; culprit++) {
      for (int64_t at = 0;; at++) {
        for (const Fault& fault : faults_at(at, culprit)) {
          if (!trial(*model, rank, fault)) return "the group broke";
        }
        if (at + 1 >= calls_[static_cast<size_t>(culprit)]) break;
      }
    }
    return told(model->step());
  }

  void new_state_of_all(Model& model, int rank) {
    std::string state = model.state();
    if (rank == 0) new_state_ = std::move(state);
  }

  bool trial(Model& model, int rank, const Fault& fault) {
    if (rank == 0) {
      folder_ = run_.folder();
      failing_ = std::make_unique<FailingCalls>(fault);
    }
    if (!barrier(model)) return false;
    const Status status = model.save(folder_ + "/new");
    statuses_[static_cast<size_t>(rank)] = status;
    if (!barrier(model)) return false;
    if (rank == 0) judge(fault);
    return barrier(model);
  }

  void judge(const Fault& fault) {
    const std::string what = name_of(fault, text("world ", world_));
    SCOPED_TRACE(what);
    const auto culprit = static_cast<size_t>(fault.rank);
    if (fault.kind == Fault::short_transfer) {
      calls_[culprit] = std::max(calls_[culprit], failing_->calls());
    }
    EXPECT_FALSE(failing_->synced_again()) << what;
    failing_.reset();
    const Status& own = statuses_[culprit];
    failed_ += !own.ok();
    EXPECT_TRUE(may_fail_with(own.code())) << what << ": " << told(own);
    for (int r = 0; r < world_; r++) {
      const Status& status = statuses_[static_cast<size_t>(r)];
      if (r == fault.rank) continue;
      if (own.ok()) {
        EXPECT_EQ(told(status), "") << what;
      } else {
        expect_failure(status, ZERO_ERR_PEER,
                       text("rank ", fault.rank, " in zero_state_save: ", told(own)));
      }
    }
    const std::string found = run_.check_after(folder_, new_state_, what);
    EXPECT_TRUE(!own.ok() || found == new_state_) << what;
  }

  Place& run_;
  const int world_;
  const std::string name_;
  // Rank 0 writes these between barriers.
  std::string folder_, new_state_;
  std::unique_ptr<FailingCalls> failing_;
  Status statuses_[8];
  int64_t calls_[8] = {};
  int failed_ = 0;
};

TEST(Save, any_failing_call_of_any_rank_fails_on_all_and_the_group_goes_on) {
  ModelSpec spec = small_model();
  spec.groups[0][0].shape = {5, 5};
  Place run(spec);
  for (int world = 2; world <= (nightly_run() ? 3 : 2); world++) FailingGroup(run, world).run();
}

/// Saves of groups of processes. One process, or all at once, are killed when one reaches a point
/// or a file call.
class KilledGroup {
 public:
  KilledGroup(Place& run, int world, bool all)
      : run_(run), world_(world), all_(all), new_state_(state_of_two_steps()) {}

  void run(const std::vector<std::string>& points) {
    int kills = 0;
    for (int trigger = 0; trigger < world_; trigger++) {
      for (const std::string& point : points) kills += kill_at(trigger, 0, point);
      const int64_t stride = nightly_run() ? 1 : 4;
      for (int64_t at = trigger; kill_at(trigger, at, ""); at += stride) kills++;
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(kills, world_ * (nightly_run() ? 20 : 8));
  }

 private:
  std::unique_ptr<Model> stepped(const std::string& name, int rank) const {
    auto model = local_model(run_.spec(), name, rank, world_);
    if (!model || !model->step().ok() || !model->step().ok()) return nullptr;
    return model;
  }
  std::string state_of_two_steps() const {
    return run_sound_ranks(RankKind::threads, world_, [&, name = unique_name()](int rank) {
      const auto model = stepped(name, rank);
      return model ? model->state() : "no model";
    })[0];
  }

  /// Returns false if `trigger` does not reach it.
  bool kill_at(int trigger, int64_t at, const std::string& point) {
    SCOPED_TRACE(text(all_ ? "all" : "one", " of ", world_, " killed as rank ", trigger,
                      " comes to call ", at, " or ", point));
    if (!point.empty()) count_trial();
    const std::string folder = run_.folder(), name = unique_name();
    const SharedMemory memory(sizeof(std::atomic<pid_t>) * 8);
    auto* const pids = memory.as<std::atomic<pid_t>>();
    const auto kill_others = [&] {
      for (int rank = 0; all_ && rank < world_; rank++)
        if (rank != trigger) kill(pids[rank], SIGKILL);
    };
    const auto ends = run_ranks(RankKind::processes, world_, [&](int rank) -> std::string {
      pids[rank] = getpid();
      const auto model = stepped(name, rank);
      if (!model) return "no model";
      const bool by_call = rank == trigger && point.empty();
      const FailingCalls failing(by_call ? Fault{.kind = Fault::kill, .at = at} : Fault{});
      FailingCalls::on_kill(kill_others);
      FailingCalls::on_point([&](const char* passed) {
        if (rank != trigger || point != passed) return;
        kill_others();
        raise(SIGKILL);
      });
      return told(model->save(folder + "/new"));
    });
    const bool reached = ends[static_cast<size_t>(trigger)].signal == SIGKILL;
    bool saved = false;
    for (const RankEnd& end : ends) {
      // A rank that finished before has saved. A slow signal may arrive after the result.
      const bool may_be_killed = reached && (all_ || &end == &ends[static_cast<size_t>(trigger)]);
      EXPECT_TRUE(end.returned || (may_be_killed && end.signal == SIGKILL));
      EXPECT_TRUE(end.result.empty() || end.result.rfind("ZERO_ERR_PEER_DEAD: ", 0) == 0)
          << end.result;
      saved = saved || (end.returned && end.result.empty());
    }
    const std::string found = run_.check_after(folder, new_state_, "killed");
    EXPECT_TRUE(!saved || found == new_state_);
    return reached;
  }

  Place& run_;
  const int world_;
  const bool all_;
  const std::string new_state_;
};

TEST(Save, a_kill_of_any_rank_at_any_point_leaves_a_complete_checkpoint) {
  for (const bool behind : {false, true}) {
    Place run(saved(behind));
    const std::vector<std::string> points = points_of_a_save(run);
    EXPECT_GE(points.size(), behind ? 5u : 8u);
    for (const int world : nightly_run() ? std::vector{2, 3} : std::vector{2})
      KilledGroup(run, world, false).run(points);
  }
}

TEST(Save, a_kill_of_all_ranks_at_once_leaves_a_complete_checkpoint) {
  Place run(small_model());
  const std::vector<std::string> points = points_of_a_save(run);
  for (const int world : {2, 3}) KilledGroup(run, world, true).run(points);
}

TEST(Save, a_full_disk_is_an_error_that_names_it_and_training_goes_on) {
  Scratch scratch;
  const auto ends = run_ranks(RankKind::processes, 1, [&](int) -> std::string {
    const std::string mount_point = scratch / "small";
    fs::create_directory(mount_point);
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", mount_point.c_str(), "tmpfs", 0, "size=192k") != 0) {
      return "not allowed to mount";
    }
    ModelSpec spec;
    spec.groups = {
        {{"w", {9000}}}};  // 36 kB and 72 kB of state: the first save fits, a second does not
    auto model = solo_model(spec);
    EXPECT_EQ(told(model->step()), "");
    EXPECT_EQ(told(model->save(mount_point + "/first")), "");
    const std::string first = model->state();
    EXPECT_EQ(told(model->step()), "");
    const Status status = model->save(mount_point + "/second");
    expect_failure(status, ZERO_ERR_CKPT_IO, "safetensors': reserve ",
                   "No space left on device (ENOSPC)");
    EXPECT_EQ(names_in(mount_point), std::vector<std::string>{"first"});
    EXPECT_TRUE(loaded(mount_point, spec) == first);
    EXPECT_EQ(told(model->step()), "");
    fs::remove_all(mount_point + "/first");
    EXPECT_EQ(told(model->save(mount_point + "/second")), "");
    EXPECT_TRUE(loaded(mount_point, spec) == model->state());
    return "";
  });
  ASSERT_TRUE(ends[0].returned);
  EXPECT_EQ(ends[0].exit_status, 0);
  if (!ends[0].result.empty()) GTEST_SKIP() << ends[0].result;
}

}  // namespace
}  // namespace zero::test

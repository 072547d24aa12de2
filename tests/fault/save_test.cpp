// SPDX-License-Identifier: Apache-2.0
// A save under every single fault: a call that fails, once or for ever, is cut short, or never returns. The
// newest complete checkpoint always loads bit for bit, training goes on, and nothing is left behind that the
// next save does not remove.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/os.h"
#include "base/text.h"
#include "support/failing_calls.h"
#include "support/model.h"
#include "support/ranks.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

ModelSpec small_model() {
  ModelSpec spec;
  spec.groups = {{{"w", {33, 40}}, {"b", {1}}}, {{"none", {0}}, {"cut", {2500}}}};
  return spec;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

int temporary_in(const std::string& directory) {
  int count = 0;
  for (const std::string& name : names_in(directory)) count += name.rfind(".tmp-", 0) == 0;
  return count;
}

/// The state that the newest checkpoint in `directory` holds, or the reason why there is none.
std::string loaded(const std::string& directory, const ModelSpec& spec) {
  auto model = solo_model(spec);
  const Status status = model->load(directory);
  return status.ok() ? model->state() : told(status);
}

/// A folder with the checkpoint "old" of one step.
class Place {
 public:
  explicit Place(ModelSpec spec) : spec_(std::move(spec)) {
    auto model = solo_model(spec_);
    EXPECT_EQ(told(model->step()), "");
    EXPECT_EQ(told(model->save(scratch_ / "template/old")), "");
    old_state_ = model->state();
  }
  /// A fresh copy.
  std::string folder() {
    const std::string path = scratch_ / std::to_string(count_++);
    fs::copy(scratch_ / "template", path, fs::copy_options::recursive);
    return path;
  }
  std::unique_ptr<Model> solo() {
    auto model = solo_model(spec_);
    EXPECT_EQ(told(model->step()), "");
    EXPECT_EQ(told(model->step()), "");
    return model;
  }
  /// What must hold in the folder of a save that ended in any way; returns what the newest checkpoint is.
  std::string check_after(const std::string& folder, const std::string& new_state, const std::string& what) {
    const std::string found = loaded(folder, spec_);
    EXPECT_TRUE(found == old_state_ || found == new_state) << what << ": " << found.substr(0, 300);
    EXPECT_LE(temporary_in(folder), 1) << what;
    // The next save removes what is left, whatever this one has published.
    auto next = solo();
    EXPECT_EQ(told(next->save(folder + "/next")), "") << what;
    EXPECT_EQ(temporary_in(folder), 0) << what;
    fs::remove_all(folder);
    return found;
  }
  const std::string& old_state() const { return old_state_; }
  const ModelSpec& spec() const { return spec_; }

 private:
  Scratch scratch_;
  ModelSpec spec_;
  std::string old_state_;
  int count_ = 0;
};

/// The ways in which a call can go wrong.
std::vector<Fault> faults_at(int64_t at, int rank) {
  return {{.kind = Fault::error, .at = at, .error_number = EIO, .rank = rank},
          {.kind = Fault::error, .at = at, .error_number = ENOSPC, .for_ever = true, .rank = rank},
          {.kind = Fault::error, .at = at, .error_number = EIO, .done_first = true, .rank = rank},
          {.kind = Fault::error, .at = at, .error_number = EINTR, .rank = rank},
          {.kind = Fault::short_transfer, .at = at, .rank = rank}};
}

std::string name_of(const Fault& fault, const std::string& where) {
  return text(where, ": call ", fault.at, " of rank ", fault.rank, " kind ", static_cast<int>(fault.kind),
              " errno ", fault.error_number, fault.for_ever ? " for ever" : "",
              fault.done_first ? " after it was done" : "");
}

bool may_fail_with(Code code) {
  return code == ZERO_OK || code == ZERO_ERR_CKPT_IO || code == ZERO_ERR_CKPT_INVALID || code == ZERO_ERR_STATE;
}

void fail_each_call_of_a_solo_save(const char* target, int32_t flags) {
  Place run(small_model());
  auto model = run.solo();
  const std::string new_state = model->state();
  int64_t calls = 1;
  int failed = 0;
  for (int64_t at = 0; at < calls; at++) {
    for (const Fault& fault : faults_at(at, -1)) {
      const std::string what = name_of(fault, target);
      const std::string folder = run.folder();
      const int descriptors = open_descriptors();
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
      EXPECT_EQ(open_descriptors(), descriptors) << what;
      EXPECT_TRUE(model->state() == new_state) << what;
      // One fault is not enough to keep a failed save from cleaning up, unless nobody knows that mkdir worked.
      if (!status.ok() && !fault.for_ever && !fault.done_first) {
        EXPECT_EQ(temporary_in(folder), 0) << what;
      }
      const std::string found = run.check_after(folder, new_state, what);
      EXPECT_TRUE(!status.ok() || found == new_state) << what;
    }
  }
  EXPECT_GT(calls, 40);
  EXPECT_GT(failed, calls);
  EXPECT_EQ(told(model->step()), "");
}

TEST(Save, any_failing_call_of_one_rank_leaves_a_complete_checkpoint) {
  fail_each_call_of_a_solo_save("new", 0);
}

TEST(Save, any_failing_call_of_a_replacement_leaves_a_complete_checkpoint) {
  fail_each_call_of_a_solo_save("old", ZERO_SAVE_REPLACE);
}

/// The numbered points that a save passes.
std::vector<std::string> points_of_a_save(Place& run) {
  std::vector<std::string> points;
  auto model = run.solo();
  FailingCalls calls;
  FailingCalls::on_point([&](const char* point) { points.emplace_back(point); });
  EXPECT_EQ(told(model->save(run.folder() + "/new")), "");
  return points;
}

void kill_each_call_of_a_solo_save(const char* target, int32_t flags) {
  Place run(small_model());
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

TEST(Save, a_kill_at_any_call_leaves_a_complete_checkpoint) { kill_each_call_of_a_solo_save("new", 0); }

TEST(Save, a_kill_at_any_call_of_a_replacement_leaves_a_complete_checkpoint) {
  kill_each_call_of_a_solo_save("old", ZERO_SAVE_REPLACE);
}

/// One rank's part of a run in which one call after the other fails, on ranks that are threads.
class FailingGroup {
 public:
  FailingGroup(Place& run, int world) : run_(run), world_(world), name_(unique_name()) {}

  void run() {
    const int descriptors = open_descriptors();
    const auto ends = run_sound_ranks(RankKind::threads, world_, [&](int rank) { return one_rank(rank); }, 300'000);
    for (const std::string& end : ends) EXPECT_EQ(end, "");
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_GT(failed_, world_ * 10);
  }

 private:
  bool barrier(Model& model) {
    auto call = model.optim().comm->begin(Operation::barrier);
    return call.ok() && call->vote("test", Status()).ok();
  }

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
        EXPECT_EQ(status.code(), ZERO_ERR_PEER) << what << ": " << told(status);
        EXPECT_NE(status.text().find(text("rank ", fault.rank, " in zero_state_save: ", told(own))), std::string::npos)
            << what << ": " << told(status) << " but " << told(own);
      }
    }
    const std::string found = run_.check_after(folder_, new_state_, what);
    EXPECT_TRUE(!own.ok() || found == new_state_) << what;
  }

  Place& run_;
  const int world_;
  const std::string name_;
  // Written by rank 0 between barriers.
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
  FailingGroup(run, 2).run();
  FailingGroup(run, 3).run();
}

/// Kill `victim` in a save of `world` processes: at its `at`-th file call, or at a point.
void kill_one_of_a_group(Place& run, const std::string& new_state, int world, int victim, int64_t at,
                         const std::string& point, bool* reached) {
  const std::string what = text("world ", world, ", rank ", victim, " at call ", at, " or ", point);
  const std::string folder = run.folder(), name = unique_name();
  const auto ends = run_ranks(RankKind::processes, world, [&](int rank) -> std::string {
    auto model = local_model(run.spec(), name, rank, world);
    if (!model || !model->step().ok() || !model->step().ok()) return "no model";
    const bool by_call = rank == victim && point.empty();
    const FailingCalls failing(by_call ? Fault{.kind = Fault::kill, .at = at} : Fault{});
    FailingCalls::on_point([&](const char* passed) {
      if (rank == victim && point == passed) raise(SIGKILL);
    });
    const Status status = model->save(folder + "/new");
    if (status.ok() || status.code() == ZERO_ERR_PEER_DEAD) return status.ok() ? "saved" : "dead";
    return told(status);
  });
  *reached = ends[static_cast<size_t>(victim)].signal == SIGKILL;
  bool saved = false;
  for (int rank = 0; rank < world; rank++) {
    if (*reached && rank == victim) continue;
    const RankEnd& end = ends[static_cast<size_t>(rank)];
    EXPECT_TRUE(end.returned && !end.hung) << what;
    EXPECT_TRUE(end.result == "dead" || end.result == "saved") << what << ": " << end.result;
    saved = saved || end.result == "saved";
  }
  const std::string found = run.check_after(folder, new_state, what);
  EXPECT_TRUE(!saved || found == new_state) << what;
}

TEST(Save, a_kill_of_any_rank_at_any_point_leaves_a_complete_checkpoint) {
  Place run(small_model());
  const std::vector<std::string> points = points_of_a_save(run);
  EXPECT_GE(points.size(), 8u);
  for (const int world : full_run() ? std::vector{2, 3} : std::vector{2}) {
    const std::string new_state = run_sound_ranks(RankKind::threads, world, [&, name = unique_name()](int rank) {
      auto model = local_model(run.spec(), name, rank, world);
      return model && model->step().ok() && model->step().ok() ? model->state() : "no model";
    })[0];
    int kills = 0;
    for (int victim = 0; victim < world; victim++) {
      bool reached = false;
      for (const std::string& point : points) {
        kill_one_of_a_group(run, new_state, world, victim, 0, point, &reached);
        kills += reached;
      }
      const int64_t stride = full_run() ? 1 : 4;
      reached = true;
      for (int64_t at = 0; reached; at += stride) {
        kill_one_of_a_group(run, new_state, world, victim, at, "", &reached);
        kills += reached;
      }
    }
    EXPECT_GT(kills, world * (full_run() ? 20 : 8));
  }
}

TEST(Save, is_on_stable_storage_when_it_returns) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  FailingCalls calls;
  ASSERT_EQ(told(model->save(folder + "/new")), "");
  // After its last write each file is synced; after the last file is, the directory; only then the manifest's
  // directory gets its name; and after that the parent is synced.
  std::map<std::string, size_t> written, synced;
  size_t renamed = 0, parent_synced = 0;
  const std::vector<FileCall> log = calls.log();
  std::string temporary;
  for (size_t i = 0; i < log.size(); i++) {
    const FileCall& call = log[i];
    if (call.operation == "pwrite") written[call.name] = i;
    if (call.operation == "fsync") synced[call.name] = i;
    if (call.operation == "mkdirat") temporary = call.name;
    if (call.operation == "renameat2") {
      EXPECT_EQ(renamed, 0u);
      EXPECT_EQ(call.name, temporary + ">new");
      renamed = i;
    }
    if (call.operation == "fsync" && call.name == folder) parent_synced = i;
  }
  EXPECT_EQ(written.size(), 4u);
  for (const auto& [name, at] : written) {
    EXPECT_LT(at, synced[name]) << name;
    EXPECT_LT(synced[name], synced[temporary]) << name;
    EXPECT_LE(at, written["zero.json"]) << "the manifest is last, not " << name;
  }
  EXPECT_LT(synced[temporary], renamed);
  EXPECT_LT(renamed, parent_synced);
}

TEST(Save, says_so_when_it_is_complete_but_maybe_not_durable) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  int64_t syncs = 0;
  {
    FailingCalls counting({.operation = "fsync"});
    ASSERT_EQ(told(model->save(folder + "/first")), "");
    syncs = counting.calls();
  }
  fs::remove_all(folder + "/first");
  FailingCalls failing({.kind = Fault::error, .at = syncs - 1, .operation = "fsync"});
  const Status status = model->save(folder + "/new");
  EXPECT_EQ(status.code(), ZERO_ERR_CKPT_IO);
  EXPECT_EQ(status.text(), text("the checkpoint '", folder, "/new' is complete, but after a power failure it may be "
                                "gone: '", folder, "': fsync: Input/output error (EIO)"));
  EXPECT_TRUE(loaded(folder + "/new", run.spec()) == model->state());
}

TEST(Save, an_existing_checkpoint_is_refused_and_untouched) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  const Status status = model->save(folder + "/old");
  EXPECT_EQ(status.code(), ZERO_ERR_STATE);
  EXPECT_NE(status.text().find("/old' exists: save elsewhere, or with ZERO_SAVE_REPLACE"), std::string::npos);
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == run.old_state());
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"old"});
}

TEST(Save, a_replacement_leaves_only_the_new_one) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  for (int i = 0; i < 3; i++) ASSERT_EQ(told(model->save(folder + "/old", ZERO_SAVE_REPLACE)), "");
  ASSERT_EQ(told(model->save(folder + "/fresh/deep/er", ZERO_SAVE_REPLACE)), "");
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == model->state());
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"fresh", "old"}));
}

TEST(Save, only_a_checkpoint_is_ever_replaced) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  write_file(folder + "/old/config.json", "{}");
  write_file(folder + "/file", "precious");
  fs::create_directories(folder + "/home/me");
  fs::create_symlink("home", folder + "/link");
  const struct {
    const char *name, *says;
  } cases[] = {{"old", "\"config.json\", which is no file of a checkpoint"},
               {"file", "is not a directory"},
               {"home", "\"me\", which is no file"},
               {"link", "is not a directory"}};
  for (const auto& one : cases) {
    const Status status = model->save(folder + "/" + one.name, ZERO_SAVE_REPLACE);
    EXPECT_EQ(status.code(), ZERO_ERR_STATE) << one.name;
    EXPECT_NE(status.text().find(one.says), std::string::npos) << told(status);
  }
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == run.old_state());
  EXPECT_EQ(read_file(folder + "/file"), "precious");
  EXPECT_TRUE(fs::exists(folder + "/home/me"));
  EXPECT_EQ(temporary_in(folder), 0);
}

TEST(Save, names_that_cannot_be_a_checkpoint_are_arguments) {
  Scratch scratch;
  auto model = solo_model(small_model());
  for (const std::string name : {"", "/", ".", "..", "/..", "/.tmp-0123456789abcdef0123456789abcdef"}) {
    const Status status = model->save(name.empty() ? name : scratch.path() + "/x/" + name);
    if (name == "/") continue;  // "x" itself: a good name
    EXPECT_EQ(status.code(), ZERO_ERR_ARGUMENT) << name << ": " << told(status);
  }
}

TEST(Save, removes_what_dead_saves_left_and_nothing_else) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  const std::string id = "0123456789abcdef0123456789abcdef";
  for (const std::string& name : {".tmp-" + id, ".tmp-" + id + "0", ".tmp-" + id.substr(1), ".tmp-" + id.substr(1) + "A",
                                  "tmp-" + id, std::string(".tmp-mine")}) {
    fs::create_directories(folder + "/" + name);
    write_file(folder + "/" + name + "/optim-00001-of-00001.safetensors", "left");
  }
  const std::string locked = ".tmp-" + std::string(32, 'a'), mixed = ".tmp-" + std::string(32, 'b');
  for (const std::string& name : {locked, mixed}) {
    fs::create_directories(folder + "/" + name);
    write_file(folder + "/" + name + "/model-00001-of-00001.safetensors", "left");
  }
  write_file(folder + "/" + mixed + "/notes.txt", "mine");
  write_file(folder + "/.tmp-" + std::string(32, 'c'), "a file");
  fs::create_directory_symlink("old", folder + "/.tmp-" + std::string(32, 'd'));
  const int lock = open((folder + "/" + locked).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);

  ASSERT_EQ(told(model->save(folder + "/new")), "");
  const std::vector<std::string> names = names_in(folder);
  const std::set<std::string> left(names.begin(), names.end());
  EXPECT_EQ(left.count(".tmp-" + id), 0u);
  EXPECT_EQ(left.count(locked), 1u) << "a live save was removed";
  EXPECT_TRUE(fs::exists(folder + "/" + locked + "/model-00001-of-00001.safetensors"));
  for (const std::string& name : {".tmp-" + id + "0", ".tmp-" + id.substr(1), ".tmp-" + id.substr(1) + "A", "tmp-" + id,
                                  std::string(".tmp-mine"), ".tmp-" + std::string(32, 'c'), ".tmp-" + std::string(32, 'd')}) {
    EXPECT_EQ(left.count(name), 1u) << name;
  }
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == run.old_state());
  bool notes = false;  // where they are now, their directory may have another name
  for (const std::string& name : names) notes = notes || fs::exists(folder + "/" + name + "/notes.txt");
  EXPECT_TRUE(notes) << "somebody's file was removed";
  close(lock);
}

SystemCalls late_calls;
std::string published_from, published_to;
int publish_before_flock(int fd, int operation) {
  if (!published_from.empty()) fs::rename(published_from, published_to);
  published_from.clear();
  return real_system_calls().flock(fd, operation);
}

TEST(Save, a_checkpoint_that_is_published_while_another_save_looks_at_it_is_kept) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  // The other save ends, and with it its lock, between the open and the flock of this one's sweep.
  published_from = folder + "/.tmp-0123456789abcdef0123456789abcdef";
  published_to = folder + "/published";
  fs::rename(folder + "/old", published_from);
  late_calls = real_system_calls();
  late_calls.flock = publish_before_flock;
  replace_system_calls(&late_calls);
  EXPECT_EQ(told(model->save(folder + "/new")), "");
  replace_system_calls(nullptr);
  EXPECT_TRUE(loaded(published_to, run.spec()) == run.old_state());
}

TEST(Save, of_two_jobs_one_wins_and_nothing_is_lost) {
  Place run(small_model());
  auto reference = run.solo();
  const std::string new_state = reference->state();
  for (int round = 0; round < (full_run() ? 1000 : 40); round++) {
    const std::string folder = run.folder();
    const int32_t flags = round % 2 ? ZERO_SAVE_REPLACE : 0;
    const char* const target = round % 4 < 2 ? "new" : "old";
    const auto ends = run_ranks(RankKind::processes, 3, [&](int) {
      auto model = run.solo();
      std::string results;
      for (int i = 0; i < 3; i++) results += std::to_string(model->save(folder + "/" + target, flags).code()) + " ";
      return results;
    });
    int won = 0;
    for (const RankEnd& end : ends) {
      ASSERT_TRUE(end.returned);
      for (size_t at = end.result.find("0 "); at != std::string::npos; at = end.result.find("0 ", at + 1)) {
        won += at == 0 || end.result[at - 1] == ' ';
      }
    }
    const int most = flags != 0 ? 9 : std::string_view(target) == "new" ? 1 : 0;
    EXPECT_GE(won, std::min(most, 1));
    EXPECT_LE(won, most);
    const bool replaced = std::string_view(target) == "new" || flags != 0;
    EXPECT_TRUE(loaded(folder + "/" + target, run.spec()) == (replaced ? new_state : run.old_state()));
    run.check_after(folder, new_state, "two jobs");
  }
}

TEST(Save, ranks_that_disagree_are_told_so) {
  Place run(small_model());
  const std::string folder = run.folder(), name = unique_name();
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    auto model = local_model(run.spec(), name, rank, 2);
    const Status paths = model->save(folder + "/" + std::to_string(rank));
    EXPECT_EQ(paths.code(), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH) << told(paths);
    EXPECT_EQ(told(model->optim().set(0, "lr", 0.5 + rank)), "");
    const Status settings = model->save(folder + "/new");
    EXPECT_EQ(settings.code(), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH) << told(settings);
    EXPECT_NE(settings.text().find("lr"), std::string::npos) << told(settings);
    EXPECT_EQ(told(model->optim().set(0, "lr", 0.5)), "");
    EXPECT_EQ(told(model->save(folder + "/new")), "");
    return "";
  });
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"new", "old"}));
}

TEST(Save, a_parameter_with_the_formats_own_name_is_refused) {
  Scratch scratch;
  ModelSpec spec;
  spec.groups = {{{"__metadata__", {3}}}};
  auto model = solo_model(spec);
  EXPECT_EQ(model->save(scratch / "x").code(), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(names_in(scratch.path()).empty());
}

TEST(Save, a_full_disk_is_an_error_that_names_it_and_training_goes_on) {
  Scratch scratch;
  const auto ends = run_ranks(RankKind::processes, 1, [&](int) -> std::string {
    const std::string mount_point = scratch / "small";
    fs::create_directory(mount_point);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", mount_point.c_str(), "tmpfs", 0, "size=192k") != 0) {
      return "not allowed to mount";
    }
    ModelSpec spec;
    spec.groups = {{{"w", {9000}}}};  // 36 kB and 72 kB of state: the first save fits, a second does not
    auto model = solo_model(spec);
    EXPECT_EQ(told(model->step()), "");
    EXPECT_EQ(told(model->save(mount_point + "/first")), "");
    const std::string first = model->state();
    EXPECT_EQ(told(model->step()), "");
    const Status status = model->save(mount_point + "/second");
    EXPECT_EQ(status.code(), ZERO_ERR_CKPT_IO);
    EXPECT_NE(status.text().find("safetensors': reserve "), std::string::npos) << told(status);
    EXPECT_NE(status.text().find("No space left on device (ENOSPC)"), std::string::npos) << told(status);
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

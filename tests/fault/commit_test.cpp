// SPDX-License-Identifier: Apache-2.0
// How a checkpoint gets its name: durable before it is seen, never over anything that is not a
// checkpoint, and in peace with other saves in the same folder, live or dead.
#include "state/commit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "state/prune.h"
#include "support/failing_calls.h"
#include "support/nightly.h"
#include "support/place.h"
#include "support/ranks.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

TEST(Commit, is_on_stable_storage_when_it_returns) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  FailingCalls calls;
  ASSERT_EQ(told(model->save(folder + "/new")), "");
  // After its last write each file is synced; after the last file is, the directory; only then the
  // manifest's directory gets its name; and after that the parent is synced.
  std::map<std::string, size_t> written, synced;
  size_t renamed = 0, parent_synced = 0;
  const std::vector<FileCall> log = calls.log();
  std::string temporary;
  for (size_t i = 0; i < log.size(); i++) {
    const FileCall& call = log[i];
    if (call.operation == "pwrite") written[call.name] = i;
    if (call.operation == "fsync") synced[call.name] = i;
    if (call.operation == "mkdirat" && temporary.empty()) temporary = call.name;
    if (call.operation == "renameat2") {
      EXPECT_EQ(renamed, 0u);
      EXPECT_EQ(call.name, temporary + ">new");
      renamed = i;
    }
    if (call.operation == "fsync" && call.name == folder) parent_synced = i;
  }
  EXPECT_EQ(written.size(), 5u);
  for (const auto& [name, at] : written) {
    EXPECT_LT(at, synced[name]) << name;
    EXPECT_LT(synced[name], synced[temporary]) << name;
    EXPECT_LE(at, written["zero.json"]) << "the manifest is last, not " << name;
  }
  EXPECT_LT(synced[temporary], renamed);
  EXPECT_LT(renamed, parent_synced);
}

TEST(Commit, files_and_directories_are_as_the_umask_says) {
  Place run(small_model());
  const auto mode_of = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  };
  auto model = run.solo();
  for (const mode_t mask : {0002, 0022, 0027, 0077}) {
    SCOPED_TRACE(mask);
    const mode_t before = umask(mask);
    const std::string parent = run.folder() + "/" + std::to_string(mask), place = parent + "/new";
    const Status status = model->save(place);
    umask(before);
    ASSERT_EQ(told(status), "");
    EXPECT_EQ(mode_of(parent), 0777 & ~mask);
    EXPECT_EQ(mode_of(place), 0777 & ~mask);
    for (const std::string& name : names_in(place))
      EXPECT_EQ(mode_of(place + "/" + name), 0666 & ~mask) << name;
  }
}

TEST(Commit, says_so_when_it_is_complete_but_maybe_not_durable) {
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
  EXPECT_EQ(status.text(), text("the checkpoint '", folder,
                                "/new' is complete, but may be lost in a power "
                                "failure: '",
                                folder, "': fsync: Input/output error (EIO)"));
  EXPECT_TRUE(loaded(folder + "/new", run.spec()) == model->state());
}

TEST(Commit, a_file_whose_close_reports_an_error_is_not_published) {
  Place run(small_model());
  auto model = run.solo();
  int written = 0;
  for (int64_t at = 0;; at++) {
    const std::string folder = run.folder();
    FailingCalls failing({.kind = Fault::error, .at = at, .operation = "close"});
    const Status status = model->save(folder + "/new");
    if (failing.hits() == 0) break;
    const auto log = failing.log();
    const std::string name = std::ranges::find_if(log, &FileCall::failed)->name;
    if (!name.ends_with(".json") && name.find("00001-of-") == name.npos) continue;
    written++;
    expect_failure(status, ZERO_ERR_CKPT_IO, text(name, "': close: Input/output error"));
    EXPECT_EQ(names_in(folder), std::vector<std::string>{"old"}) << name;
  }
  EXPECT_EQ(written, 5);
}

TEST(Commit, an_existing_checkpoint_is_refused_and_untouched) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  const Status status = model->save(folder + "/old");
  expect_failure(status, ZERO_ERR_STATE, "/old' exists: save elsewhere, or with ZERO_SAVE_REPLACE");
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == run.old_state());
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"old"});
}

TEST(Commit, a_replacement_leaves_only_the_new_one) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  for (int i = 0; i < 3; i++) ASSERT_EQ(told(model->save(folder + "/old", ZERO_SAVE_REPLACE)), "");
  ASSERT_EQ(told(model->save(folder + "/fresh/deep/er", ZERO_SAVE_REPLACE)), "");
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == model->state());
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"fresh", "old"}));
}

TEST(Commit, only_what_stood_there_when_a_save_began_is_replaced) {
  Place run(small_model());
  auto model = run.solo(), other = run.solo();
  ASSERT_EQ(told(other->step()), "");
  const std::string other_state = other->state();
  for (const char* const name : {"old", "new"}) {
    const std::string folder = run.folder(), target = folder + "/" + name;
    ASSERT_EQ(told(model->begin_save(target, ZERO_SAVE_REPLACE)), "");
    ASSERT_EQ(told(other->save(target, ZERO_SAVE_REPLACE)), "");
    expect_failure(model->await_save(), ZERO_ERR_STATE, target, "during this save");
    EXPECT_TRUE(loaded(target, run.spec()) == other_state);
    EXPECT_EQ(temporary_in(folder), 0);
  }
}

TEST(Commit, what_is_copied_into_the_checkpoint_that_a_save_replaces_stays_there) {
  Place run(small_model());
  auto model = run.solo(), other = run.solo();
  ASSERT_EQ(told(other->step()), "");
  const std::string folder = run.folder(), target = folder + "/old";
  ASSERT_EQ(told(model->begin_save(target, ZERO_SAVE_REPLACE)), "");
  ASSERT_EQ(told(other->save(folder + "/newer")), "");
  fs::copy(folder + "/newer", target,
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  expect_failure(model->await_save(), ZERO_ERR_STATE, target, "during this save");
  EXPECT_TRUE(loaded(target, run.spec()) == other->state());
}

/// Does something when a save has looked at its target and is about to rename.
class JustBeforeRename {
 public:
  explicit JustBeforeRename(std::function<void()> act) {
    FailingCalls::on_point([act = std::move(act), over = false](const char* point) mutable {
      if (std::string_view(point) == "save.committing" && !std::exchange(over, true)) act();
    });
  }
  ~JustBeforeRename() { FailingCalls::on_point({}); }

 private:
  const FailingCalls calls_;
};

TEST(Commit, no_save_takes_a_name_that_another_is_about_to_take_even_if_its_checkpoint_was_moved) {
  Place run(small_model());
  auto model = run.solo();
  CommOptions impatient;
  impatient.timeout_ms = 100;
  Model other(*create_solo(impatient), run.spec());
  ASSERT_EQ(told(other.seal()), "");
  for (const bool removed : {false, true}) {
    const std::string folder = run.folder(), target = folder + "/old";
    std::string said;
    {
      const JustBeforeRename moves([&] {
        fs::rename(target, folder + "/moved");
        if (removed) fs::remove_all(folder + "/moved");
        said = told(other.save(target, ZERO_SAVE_REPLACE));
      });
      EXPECT_EQ(told(model->save(target, ZERO_SAVE_REPLACE)), "");
    }
    EXPECT_TRUE(contains(said, target, "was locked by another save or prune for 100 ms")) << said;
    EXPECT_EQ(told(other.save(target, ZERO_SAVE_REPLACE)), "");
    EXPECT_EQ(names_in(folder).size(), removed ? 1u : 2u);
  }
}

std::string made_meanwhile;  // by another program, after an exchange that found nothing
int rename_before_another(int from_directory, const char* from, int to_directory, const char* to,
                          unsigned flags) {
  const int answer = real_system_calls().renameat2(from_directory, from, to_directory, to, flags);
  const int error = errno;
  if (flags == RENAME_EXCHANGE && !made_meanwhile.empty()) fs::create_directory(made_meanwhile);
  errno = error;
  return answer;
}

TEST(Commit, a_save_is_published_where_what_it_replaces_was_removed) {
  Place run(small_model());
  auto model = run.solo();
  for (const bool made_anew : {false, true}) {
    const std::string folder = run.folder(), target = folder + "/old";
    const JustBeforeRename removes([&] { fs::remove_all(target); });
    made_meanwhile = made_anew ? target : "";
    const ReplacedCall replaced(&SystemCalls::renameat2, rename_before_another);
    const Status status = model->save(target, ZERO_SAVE_REPLACE);
    if (made_anew)
      expect_failure(status, ZERO_ERR_STATE, target, "was created during this save");
    else
      EXPECT_TRUE(loaded(target, run.spec()) == model->state()) << told(status);
    EXPECT_EQ(names_in(folder), std::vector<std::string>{"old"});
  }
}

TEST(Commit, a_prune_leaves_a_checkpoint_that_a_save_is_about_to_replace) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  fs::copy(folder + "/old", folder + "/older");
  ASSERT_EQ(told(model->step()), "");
  ASSERT_EQ(told(model->save(folder + "/new")), "");
  size_t deleted = 9;
  {
    const JustBeforeRename prunes([&] {
      auto pruned = prune_checkpoints(folder, 1, 0);
      ASSERT_TRUE(pruned.ok());
      deleted = *pruned;
    });
    EXPECT_EQ(told(model->save(folder + "/old", ZERO_SAVE_REPLACE)), "");
  }
  EXPECT_EQ(deleted, 1u);
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"new", "old"}));
}

std::string moved_to;  // by a program that takes no lock, when a prune is about to rename
int rename_after_a_move(int from_directory, const char* from, int to_directory, const char* to,
                        unsigned flags) {
  if (!moved_to.empty()) {
    const std::string place = std::exchange(moved_to, "");
    fs::rename(place, place + "-away");
    fs::create_directories(place + "/precious");
  }
  return real_system_calls().renameat2(from_directory, from, to_directory, to, flags);
}

TEST(Commit, a_directory_that_somebody_moves_to_what_a_prune_deletes_stays_there) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  ASSERT_EQ(told(model->step()), "");
  ASSERT_EQ(told(model->save(folder + "/new")), "");
  moved_to = folder + "/old";
  const ReplacedCall replaced(&SystemCalls::renameat2, rename_after_a_move);
  auto pruned = prune_checkpoints(folder, 1, 0);
  ASSERT_TRUE(pruned.ok());
  EXPECT_EQ(*pruned, 0u);
  EXPECT_TRUE(fs::exists(folder + "/old/precious"));
}

std::string unlockable;  // a directory where flock fails by itself
int flock_that_fails_there(int fd, int operation) {
  struct stat named, held;
  if (stat(unlockable.c_str(), &named) == 0 && fstat(fd, &held) == 0 &&
      named.st_ino == held.st_ino) {
    errno = ENOLCK;
    return -1;
  }
  return real_system_calls().flock(fd, operation);
}

/// The directory that is the lock on a checkpoint's name.
std::string lock_of(const std::string& folder, std::string_view name) {
  return text(folder, "/.tmp-", hex(hash128(bytes_of(name))));
}

TEST(Commit, a_flock_that_fails_by_itself_removes_no_lock_of_another_process) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  const ReplacedCall replaced(&SystemCalls::flock, flock_that_fails_there);
  for (const bool anothers : {false, true}) {
    unlockable = lock_of(folder, "new");
    if (anothers) fs::create_directory(unlockable);
    expect_failure(model->save(folder + "/new"), ZERO_ERR_CKPT_IO, unlockable,
                   "flock: No locks available");
    EXPECT_EQ(fs::exists(unlockable), anothers);
  }
}

TEST(Commit, a_file_in_the_place_of_a_lock_is_named_with_what_to_do) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder(), lock = lock_of(folder, "new");
  write_file(lock, "mine");
  expect_failure(model->save(folder + "/new"), ZERO_ERR_CKPT_IO,
                 text("'", lock,
                      "' is not a directory, so saves and prunes cannot use it as a lock: "
                      "remove it"));
  EXPECT_EQ(read_file(lock), "mine");
  fs::remove(lock);
  EXPECT_EQ(told(model->save(folder + "/new")), "");
}

TEST(Commit, what_another_prune_has_deleted_is_no_failure_of_a_prune) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  const Directory parent =
      std::move(open_directory(start_of_paths(), folder, Links::followed)).value();
  fs::remove_all(folder + "/old");
  const auto deleted = delete_checkpoint(parent, "old", {});
  ASSERT_TRUE(deleted.ok());
  EXPECT_FALSE(*deleted);
}

TEST(Commit, a_directory_that_somebody_moves_to_the_target_during_the_rename_stays_there) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder(), target = folder + "/old";
  {
    const JustBeforeRename moves([&] {
      fs::rename(target, folder + "/moved");
      fs::create_directories(target + "/precious");
    });
    expect_failure(model->save(target, ZERO_SAVE_REPLACE), ZERO_ERR_STATE,
                   "was replaced by another directory during this save");
  }
  EXPECT_TRUE(fs::exists(target + "/precious"));
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"moved", "old"}));
}

TEST(Commit, only_a_checkpoint_is_ever_replaced) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  write_file(folder + "/old/config.json", "{}");
  write_file(folder + "/file", "precious");
  fs::create_directories(folder + "/home/me");
  fs::create_symlink("home", folder + "/link");
  const struct {
    const char *name, *says;
  } cases[] = {{"old", "'config.json', which is not a checkpoint file"},
               {"file", "is not a directory"},
               {"home", "'me', which is not a checkpoint file"},
               {"link", "is not a directory"}};
  for (const auto& one : cases) {
    const Status status = model->save(folder + "/" + one.name, ZERO_SAVE_REPLACE);
    expect_failure(status, ZERO_ERR_STATE, one.says);
  }
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == run.old_state());
  EXPECT_EQ(read_file(folder + "/file"), "precious");
  EXPECT_TRUE(fs::exists(folder + "/home/me"));
  EXPECT_EQ(temporary_in(folder), 0);
}

TEST(Commit, names_that_cannot_be_a_checkpoint_are_arguments) {
  Scratch scratch;
  auto model = solo_model(small_model());
  for (const std::string name :
       {"", "/", ".", "..", "/..", "/.tmp-0123456789abcdef0123456789abcdef"}) {
    const Status status = model->save(name.empty() ? name : scratch.path() + "/x/" + name);
    if (name == "/") continue;  // "x" itself: a good name
    EXPECT_EQ(status.code(), ZERO_ERR_ARGUMENT) << name << ": " << told(status);
  }
}

TEST(Commit, removes_what_dead_saves_left_and_nothing_else) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  const std::string id = "0123456789abcdef0123456789abcdef";
  for (const std::string& name :
       {".tmp-" + id, ".tmp-" + id + "0", ".tmp-" + id.substr(1), ".tmp-" + id.substr(1) + "A",
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
  for (const std::string& name :
       {".tmp-" + id + "0", ".tmp-" + id.substr(1), ".tmp-" + id.substr(1) + "A", "tmp-" + id,
        std::string(".tmp-mine"), ".tmp-" + std::string(32, 'c'), ".tmp-" + std::string(32, 'd')}) {
    EXPECT_EQ(left.count(name), 1u) << name;
  }
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == run.old_state());
  bool notes = false;  // where they are now, their directory may have another name
  for (const std::string& name : names)
    notes = notes || fs::exists(folder + "/" + name + "/notes.txt");
  EXPECT_TRUE(notes) << "somebody's file was removed";
  close(lock);
}

/// Shared with the worker of a save that is killed.
struct Orphan {
  std::atomic<bool> runs, ends;
};

/// Forks a worker, such as a data loader, which outlives this process, and kills this process.
void die_beside(Orphan& worker) {
  if (fork() == 0) {
    worker.runs = true;
    for (int ms = 0; ms < 60'000 && !worker.ends; ms++) usleep(1000);
    _exit(0);
  }
  while (!worker.runs) usleep(1000);  // it has closed what it must
  raise(SIGKILL);
}

TEST(Commit, a_worker_of_a_save_that_was_killed_locks_neither_its_directory_nor_its_name) {
  Place run(small_model());
  CommOptions impatient;
  impatient.timeout_ms = 100;
  for (const std::string_view at : {"save.staged", "save.committing"}) {
    SCOPED_TRACE(at);
    const std::string folder = run.folder(), target = folder + "/new";
    const SharedMemory memory(sizeof(Orphan));
    Orphan& worker = *memory.as<Orphan>();
    const pid_t saver = fork();
    if (saver == 0) {
      const auto model = run.solo();
      const FailingCalls calls;
      FailingCalls::on_point([&](const char* point) {
        if (point == at) die_beside(worker);
      });
      (void)model->save(target);
      _exit(1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(saver, &status, 0), saver);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_GT(temporary_in(folder), 0);
    Model next(*create_solo(impatient), run.spec());
    EXPECT_EQ(told(next.seal()), "");
    EXPECT_EQ(told(next.save(target)), "");
    EXPECT_EQ(names_in(folder), (std::vector<std::string>{"new", "old"}));
    worker.ends = true;
  }
}

std::string published_from, published_to;
bool pending = false, exchange = false;
int publish_before_flock(int fd, int operation) {
  if (pending) {
    EXPECT_EQ(renameat2(AT_FDCWD, published_from.c_str(), AT_FDCWD, published_to.c_str(),
                        exchange ? RENAME_EXCHANGE : RENAME_NOREPLACE),
              0);
  }
  pending = false;
  return real_system_calls().flock(fd, operation);
}

TEST(Commit, a_checkpoint_that_is_published_while_another_save_looks_at_it_is_kept) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  // The other save ends, and with it its lock, between the open and the flock of this one's sweep.
  published_from = folder + "/.tmp-0123456789abcdef0123456789abcdef";
  published_to = folder + "/published";
  for (const bool replaces : {false, true}) {
    fs::copy(folder + "/old", published_from);
    if (replaces) fs::rename(published_to, folder + "/before");
    if (replaces) fs::copy(folder + "/before", published_to);
    exchange = replaces;
    pending = true;
    {
      const ReplacedCall replaced(&SystemCalls::flock, publish_before_flock);
      EXPECT_EQ(told(model->save(folder + "/new", ZERO_SAVE_REPLACE)), "");
    }
    EXPECT_FALSE(pending);
    EXPECT_TRUE(loaded(published_to, run.spec()) == run.old_state()) << replaces;
  }
}

TEST(Commit, a_rename_that_took_place_although_it_failed_is_a_success) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  for (const int32_t flags : {int32_t{0}, int32_t{ZERO_SAVE_REPLACE}}) {
    const FailingCalls failing(
        {.kind = Fault::error, .done_first = true, .operation = "renameat2"});
    EXPECT_EQ(told(model->save(folder + "/new", flags)), "");
    EXPECT_EQ(failing.hits(), 1);
    EXPECT_EQ(names_in(folder), (std::vector<std::string>{"new", "old"}));
  }
  EXPECT_TRUE(loaded(folder + "/new", run.spec()) == model->state());
}

/// A save whose rename fails as if its server did not answer. Returns what it says.
std::string save_unanswered(Model& model, const std::string& to, int error, bool for_ever) {
  const FailingCalls failing({.kind = Fault::error,
                              .error_number = error,
                              .for_ever = for_ever,
                              .operation = "renameat2"});
  return told(model.save(to));
}

/// The server may make it after the client has given up.
TEST(Commit, a_rename_without_an_answer_cannot_be_made_later_or_is_told_as_unknown) {
  for (const int error : {EIO, ETIMEDOUT}) {
    for (const bool behind : {false, true}) {
      ModelSpec spec = small_model();
      spec.saves_behind = behind;
      Place run(spec);
      auto model = run.solo();
      const std::string folder = run.folder();
      const std::string said = save_unanswered(*model, folder + "/new", error, false);
      EXPECT_TRUE(contains(said, "ZERO_ERR_CKPT_IO: ", "rename to '")) << said;
      EXPECT_FALSE(contains(said, "outcome unknown")) << said;
      EXPECT_EQ(names_in(folder), std::vector<std::string>{"old"});

      const std::string unsure = save_unanswered(*model, folder + "/new", error, true);
      EXPECT_TRUE(contains(unsure, "(outcome unknown: load the directory to find out)")) << unsure;
      std::string temporary;
      for (const std::string& name : names_in(folder))
        if (name.starts_with(".tmp-")) temporary = name;
      ASSERT_NE(temporary, "");
      fs::rename(folder + "/" + temporary, folder + "/new");
      EXPECT_TRUE(loaded(folder + "/new", run.spec()) == model->state());
      EXPECT_EQ(told(model->save(folder + "/next")), "");
    }
  }
}

/// By its first name the directory is not found any more.
TEST(Commit, a_rename_without_an_answer_that_is_made_later_exchanges_nothing) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  FailingCalls failing({.kind = Fault::error, .operation = "renameat2"});
  EXPECT_NE(told(model->save(folder + "/old", ZERO_SAVE_REPLACE)), "");
  std::string asked;
  for (const FileCall& call : failing.log())
    if (call.operation == "renameat2" && call.failed) asked = call.name;
  const std::string temporary = asked.substr(0, asked.find('>'));
  ASSERT_TRUE(temporary.starts_with(".tmp-")) << asked;
  EXPECT_EQ(renameat2(AT_FDCWD, (folder + "/" + temporary).c_str(), AT_FDCWD,
                      (folder + "/old").c_str(), RENAME_EXCHANGE),
            -1);
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == run.old_state());
}

std::string replaced_late;  // by a program that takes no lock, before a late exchange
bool unanswered = false;    // the exchange is asked for, and not made yet
/// An exchange that a server makes after the client has given up, just before the next rename.
int rename_that_is_made_late(int from_directory, const char* from, int to_directory, const char* to,
                             unsigned flags) {
  static std::string asked_from, asked_to;
  if (flags == RENAME_EXCHANGE && !std::exchange(unanswered, true)) {
    asked_from = from;
    asked_to = to;
    errno = ETIMEDOUT;
    return -1;
  }
  if (!replaced_late.empty()) {
    const std::string place = std::exchange(replaced_late, "");
    fs::rename(place, place + "-away");
    fs::create_directories(place + "/precious");
    EXPECT_EQ(renameat2(from_directory, asked_from.c_str(), to_directory, asked_to.c_str(),
                        RENAME_EXCHANGE),
              0);
  }
  return real_system_calls().renameat2(from_directory, from, to_directory, to, flags);
}

TEST(Commit, a_directory_that_a_late_exchange_brings_out_goes_back_to_its_place) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder(), target = folder + "/old";
  replaced_late = target;
  unanswered = false;
  const ReplacedCall replaced(&SystemCalls::renameat2, rename_that_is_made_late);
  expect_failure(model->save(target, ZERO_SAVE_REPLACE), ZERO_ERR_STATE,
                 "was replaced by another directory during this save");
  EXPECT_TRUE(fs::exists(target + "/precious"));
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"old", "old-away"}));
}

TEST(Commit, filesystems_without_locks_or_rename_flags_are_used_as_far_as_they_go) {
  Place run(small_model());
  auto model = run.solo();
  const std::string folder = run.folder();
  {
    const FailingCalls failing(
        {.kind = Fault::error, .error_number = EOPNOTSUPP, .for_ever = true, .operation = "flock"});
    EXPECT_EQ(told(model->save(folder + "/unlocked")), "");
  }
  {
    const FailingCalls failing(
        {.kind = Fault::error, .error_number = EINVAL, .operation = "renameat2"});
    EXPECT_EQ(told(model->save(folder + "/unflagged")), "");
  }
  {
    const FailingCalls failing(
        {.kind = Fault::error, .error_number = EINVAL, .operation = "renameat2"});
    const Status status = model->save(folder + "/old", ZERO_SAVE_REPLACE);
    expect_failure(status, ZERO_ERR_CKPT_IO, "cannot exchange two directories atomically");
  }
  EXPECT_TRUE(loaded(folder + "/unlocked", run.spec()) == model->state());
  EXPECT_TRUE(loaded(folder + "/unflagged", run.spec()) == model->state());
  EXPECT_TRUE(loaded(folder + "/old", run.spec()) == run.old_state());
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"old", "unflagged", "unlocked"}));
}

TEST(Commit, of_two_jobs_one_wins_and_nothing_is_lost) {
  Place run(small_model());
  auto reference = run.solo();
  const std::string new_state = reference->state();
  for (int round = 0; round < (nightly_run() ? 1000 : 40); round++) {
    const std::string folder = run.folder();
    const int32_t flags = round % 2 ? ZERO_SAVE_REPLACE : 0;
    const char* const target = round % 4 < 2 ? "new" : "old";
    const auto ends = run_ranks(RankKind::processes, 3, [&](int) {
      auto model = run.solo();
      std::string results;
      for (int i = 0; i < 3; i++)
        results += std::to_string(model->save(folder + "/" + target, flags).code()) + " ";
      return results;
    });
    int won = 0;
    for (const RankEnd& end : ends) {
      ASSERT_TRUE(end.returned);
      for (size_t at = end.result.find("0 "); at != std::string::npos;
           at = end.result.find("0 ", at + 1)) {
        won += at == 0 || end.result[at - 1] == ' ';
      }
    }
    const int most = flags != 0 ? 9 : std::string_view(target) == "new" ? 1 : 0;
    EXPECT_GE(won, std::min(most, 1));
    EXPECT_LE(won, most);
    const bool replaced = std::string_view(target) == "new" || flags != 0;
    EXPECT_TRUE(loaded(folder + "/" + target, run.spec()) ==
                (replaced ? new_state : run.old_state()));
    run.check_after(folder, new_state, "two jobs");
  }
}

TEST(Commit, ranks_that_disagree_are_told_so) {
  Place run(small_model());
  const std::string folder = run.folder(), name = unique_name();
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    auto model = local_model(run.spec(), name, rank, 2);
    const Status paths = model->save(folder + "/" + std::to_string(rank));
    EXPECT_EQ(paths.code(), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH) << told(paths);
    EXPECT_EQ(told(model->optim().set(0, "lr", 0.5 + rank)), "");
    const Status settings = model->save(folder + "/new");
    EXPECT_EQ(settings.code(), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH) << told(settings);
    EXPECT_TRUE(contains(settings.text(), "lr"));
    EXPECT_EQ(told(model->optim().set(0, "lr", 0.5)), "");
    EXPECT_EQ(told(model->save(folder + "/new")), "");
    return "";
  });
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"new", "old"}));
}

TEST(Commit, a_parameter_with_the_formats_own_name_is_refused) {
  Scratch scratch;
  ModelSpec spec;
  spec.groups = {{{"__metadata__", {3}}}};
  auto model = solo_model(spec);
  EXPECT_EQ(model->save(scratch / "x").code(), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(names_in(scratch.path()).empty());
}

}  // namespace
}  // namespace zero::test

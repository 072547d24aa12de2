// SPDX-License-Identifier: Apache-2.0
// Which checkpoint a load selects while the system refuses calls, and while other saves replace
// what it reads: the newest one, or none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "state/manifest.h"
#include "support/failing_calls.h"
#include "support/place.h"
#include "support/ranks.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

std::string* logged = nullptr;
void keep_log(void*, int32_t, const char* message) { *logged += text(message, "\n"); }

/// A folder with "one" after one step and "two" after two.
class Find : public testing::Test {
 protected:
  void SetUp() override {
    auto model = solo_model(tiny_model());
    for (const char* name : {"one", "two"}) {
      ASSERT_EQ(told(model->step()), "");
      ASSERT_EQ(told(model->save(folder_ + "/" + name)), "");
    }
    newest_ = model->state();
  }
  /// Saves a state of three steps that replaces "two".
  void replace(const ModelSpec& spec = tiny_model()) {
    auto model = solo_model(spec);
    for (int i = 0; i < 3; i++) ASSERT_EQ(told(model->step()), "");
    ASSERT_EQ(told(model->save(folder_ + "/two", ZERO_SAVE_REPLACE)), "");
    replaced_ = model->state();
  }

  Scratch scratch_;
  const std::string folder_ = scratch_ / "runs";
  std::string newest_, replaced_;
};

TEST_F(Find, no_call_that_the_system_refuses_makes_a_load_take_an_older_checkpoint) {
  auto model = solo_model(tiny_model());
  int refused = 0;
  for (const int error : {EMFILE, EIO, ENOMEM, EACCES}) {
    for (int64_t at = 0;; at++) {
      FailingCalls calls({.kind = Fault::error, .at = at, .error_number = error});
      const Status status = model->load(folder_);
      if (calls.hits() == 0) break;
      if (status.ok()) {
        EXPECT_TRUE(model->state() == newest_) << "call " << at << ": " << std::strerror(error);
      } else {
        expect_failure(status, ZERO_ERR_CKPT_IO, folder_);
        refused++;
      }
      model->optim().not_loaded = false;
    }
  }
  EXPECT_GT(refused, 40);
}

TEST_F(Find, what_is_no_checkpoint_is_skipped_with_a_warning_that_names_it) {
  fs::create_directories(folder_ + "/lost+found");
  fs::permissions(folder_ + "/lost+found", fs::perms::none);
  fs::create_directories(folder_ + "/empty");
  write_file(folder_ + "/readme", "x");
  fs::create_directory_symlink("one", folder_ + "/latest");
  fs::create_symlink("loop", folder_ + "/loop");
  fs::create_directories(folder_ + "/half");
  write_file(folder_ + "/half/zero.json", read_file(folder_ + "/two/zero.json").substr(0, 300));
  std::string log;
  logged = &log;
  set_log(keep_log, nullptr, ZERO_LOG_WARNING);
  auto model = solo_model(tiny_model());
  EXPECT_EQ(told(model->load(folder_)), "");
  set_log(nullptr, nullptr, 0);
  EXPECT_TRUE(model->state() == newest_);
  for (const char* name :
       {"lost+found'", "empty/zero.json'", "readme'", "latest'", "loop'", "half/zero.json'"})
    EXPECT_TRUE(contains(log, text("skipped: '", folder_, "/", name)));
}

TEST_F(Find, a_newer_format_fails_the_load_and_names_the_directory) {
  const auto manifest = *parse_manifest(read_file(folder_ + "/two/zero.json"));
  std::string bytes = write_manifest(manifest);
  bytes.replace(bytes.find("\"zero_format\":1"), 15, "\"zero_format\":3");
  bytes.resize(bytes.rfind("\"end\":"));
  write_file(folder_ + "/two/zero.json", bytes + manifest_trailer(bytes));
  auto model = solo_model(tiny_model());
  const Status status = model->load(folder_);
  expect_failure(status, ZERO_ERR_UNSUPPORTED, folder_ + "/two", "format 3");
  EXPECT_EQ(told(model->load(folder_ + "/one")), "");
}

// ---- Next to a save that replaces it.

std::function<void()> before_manifest;
int open_late(int directory, const char* path, int flags, unsigned mode) {
  if (std::strcmp(path, "zero.json") == 0 && (flags & O_CREAT) == 0 && before_manifest)
    std::exchange(before_manifest, nullptr)();
  return real_system_calls().openat(directory, path, flags, mode);
}

TEST_F(Find, one_that_is_replaced_while_a_search_looks_at_it_is_not_skipped) {
  for (const bool itself : {false, true}) {
    SCOPED_TRACE(itself);
    // The directory is open, and its files are removed before its manifest is opened. The manifest
    // of "one" is opened first.
    before_manifest = [&] {
      if (itself) return replace();
      before_manifest = [&] { replace(); };
    };
    auto model = solo_model(tiny_model());
    const ReplacedCall replaced(&SystemCalls::openat, open_late);
    const Status status = model->load(itself ? folder_ + "/two" : folder_);
    EXPECT_EQ(told(status), "");
    EXPECT_FALSE(before_manifest);
    EXPECT_TRUE(model->state() == replaced_);
  }
}

int stat_late(int directory, const char* path, struct stat* info, int flags) {
  if (std::strcmp(path, "zero.json") == 0 && before_manifest)
    std::exchange(before_manifest, nullptr)();
  return real_system_calls().fstatat(directory, path, info, flags);
}

TEST_F(Find, one_that_is_named_and_replaced_as_it_is_opened_is_no_folder_of_checkpoints) {
  before_manifest = [&] { replace(); };
  auto model = solo_model(tiny_model());
  const ReplacedCall replaced(&SystemCalls::fstatat, stat_late);
  const Status status = model->load(folder_ + "/two");
  EXPECT_EQ(told(status), "");
  EXPECT_FALSE(before_manifest);
  EXPECT_TRUE(model->state() == replaced_);
}

TEST_F(Find, a_load_whose_checkpoint_is_replaced_takes_the_new_one) {
  for (const char* where : {"load.begin", "load.verified", "load.voted"}) {
    SCOPED_TRACE(where);
    const std::string name = unique_name();
    FailingCalls calls;
    std::atomic<bool> done{false};
    FailingCalls::on_point([&](const char* point) {
      if (std::strcmp(point, where) == 0 && !done.exchange(true)) replace();
    });
    run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      auto model = local_model(tiny_model(), name, rank, 2);
      EXPECT_EQ(told(model->load(folder_ + "/two")), "");
      EXPECT_FALSE(model->optim().not_loaded);
      EXPECT_TRUE(model->state() == replaced_);
      return "";
    });
    EXPECT_TRUE(done);
  }
}

TEST_F(Find, a_load_whose_checkpoint_is_replaced_by_one_without_extras_has_none) {
  ModelSpec without = tiny_model();
  without.extras = false;
  FailingCalls calls;
  bool done = false;
  FailingCalls::on_point([&](const char* point) {
    if (std::strcmp(point, "load.voted") == 0 && !std::exchange(done, true)) replace(without);
  });
  auto model = solo_model(tiny_model());
  EXPECT_EQ(told(model->load(folder_ + "/two")), "");
  EXPECT_TRUE(done);
  EXPECT_TRUE(model->optim().extras.empty());
  EXPECT_TRUE(model->optim().loaded_extras.by_rank.empty());
}

TEST_F(Find, a_checkpoint_that_is_replaced_again_and_again_ends_the_load_and_says_so) {
  FailingCalls calls;
  bool inside = false;
  int times = 0;
  FailingCalls::on_point([&](const char* point) {
    if (std::strcmp(point, "load.voted") != 0 || inside) return;
    inside = true;
    replace();
    inside = false;
    times++;
  });
  auto model = solo_model(tiny_model());
  const Status status = model->load(folder_ + "/two");
  expect_failure(status, ZERO_ERR_CKPT_INVALID, text("replaced the checkpoint ", times, " times"));
  FailingCalls::on_point(nullptr);
  EXPECT_EQ(told(model->load(folder_ + "/two")), "");
}

// ---- Relative paths.

TEST_F(Find, a_relative_path_of_ranks_in_different_directories_names_them) {
  fs::create_directories(scratch_ / "elsewhere");
  const std::string name = unique_name();
  for (const bool saves : {true, false}) {
    SCOPED_TRACE(saves);
    run_sound_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
      const std::string place = rank == 2 ? scratch_ / "elsewhere" : scratch_.path();
      EXPECT_EQ(chdir(place.c_str()), 0);
      auto model = local_model(tiny_model(), text(name, saves), rank, 3);
      const Status status = saves ? model->save("runs/new") : model->load("runs/two");
      EXPECT_EQ(status.code(),
                rank == 2 ? (saves ? ZERO_ERR_CKPT_IO : status.code()) : ZERO_ERR_PEER)
          << told(status);
      EXPECT_FALSE(status.ok());
      EXPECT_TRUE(
          contains(status.text(),
                   text("is relative, and the working directory of rank 0 is '", scratch_.path(),
                        "', that of rank 2 is '", scratch_.path(), "/elsewhere'")));
      EXPECT_EQ(model->load("/nowhere").text().find("relative"), std::string::npos);
      return "";
    });
  }
}

}  // namespace
}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
// Folders of checkpoints: what is listed, and what is deleted. Whatever fails, and wherever the
// process is killed, each checkpoint is whole or gone, and the newest is there.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/text.h"
#include "state/find.h"
#include "support/expect.h"
#include "support/failing_calls.h"
#include "support/place.h"
#include "support/ranks.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

std::vector<zero_checkpoint> list(const std::string& folder, size_t capacity = 32) {
  std::vector<zero_checkpoint> out(capacity, initialized<zero_checkpoint>());
  size_t count = 0;
  EXPECT_OK(zero_state_list(folder.c_str(), out.data(), capacity, &count));
  EXPECT_LE(count, 32u);
  out.resize(std::min(capacity, count));
  return out;
}

std::vector<std::string> listed(const std::string& folder) {
  std::vector<std::string> names;
  for (const zero_checkpoint& one : list(folder)) names.emplace_back(one.name);
  return names;
}

/// A folder with the checkpoints step-1 to step-6.
class Prune : public testing::Test {
 protected:
  void SetUp() override {
    auto model = solo_model(tiny_model());
    for (int step = 1; step <= 6; step++) {
      ASSERT_EQ(told(model->step()), "");
      ASSERT_EQ(told(model->save(scratch_ / text("template/step-", step))), "");
    }
  }
  /// A fresh copy.
  std::string folder() {
    const std::string path = scratch_ / std::to_string(count_++);
    fs::copy(scratch_ / "template", path, fs::copy_options::recursive);
    return path;
  }
  /// Keeps the names of what is left.
  std::vector<std::string> left(int64_t keep_last, int64_t keep_every) {
    const std::string here = folder();
    size_t deleted = 7;
    EXPECT_OK(zero_state_prune(here.c_str(), keep_last, keep_every, &deleted));
    const std::vector<std::string> names = names_in(here);
    EXPECT_EQ(deleted, 6 - names.size());
    for (const std::string& name : names) expect_whole(here + "/" + name);
    return names;
  }
  void expect_whole(const std::string& path) {
    auto model = solo_model(tiny_model());
    EXPECT_EQ(told(model->load(path)), "");
  }
  /// After a prune to one that was cut short: the newest is there, all are whole, and the next save
  /// and prune remove the rest.
  void check_after(const std::string& here, const std::string& what) {
    const std::vector<std::string> names = listed(here);
    ASSERT_FALSE(names.empty()) << what;
    EXPECT_EQ(names[0], "step-6") << what;
    EXPECT_EQ(names.size() + static_cast<size_t>(temporary_in(here)), names_in(here).size());
    EXPECT_LE(temporary_in(here), kMostTemporary) << what;
    for (const std::string& name : names) expect_whole(here + "/" + name);
    auto model = solo_model(tiny_model());
    EXPECT_EQ(told(model->save(here + "/step-0")), "") << what;
    EXPECT_OK(zero_state_prune(here.c_str(), 1, 0, nullptr));
    EXPECT_EQ(names_in(here), (std::vector<std::string>{"step-6"})) << what;
    fs::remove_all(here);
  }

  const Scratch scratch_;
  int count_ = 0;
};

TEST_F(Prune, a_worker_that_is_forked_while_a_save_goes_on_keeps_no_checkpoint) {
  static std::optional<Worker> worker;
  const std::string here = folder();
  auto model = solo_model(tiny_model());
  {
    const ReplacedCall forks(&SystemCalls::reached, [](const char* point) {
      if (point == std::string_view("save.staged")) worker.emplace();
    });
    EXPECT_EQ(told(model->save(here + "/step-0")), "");
  }
  EXPECT_TRUE(worker.has_value());
  EXPECT_OK(zero_state_prune(here.c_str(), 1, 0, nullptr));
  EXPECT_EQ(names_in(here), (std::vector<std::string>{"step-6"}));
  worker.reset();
}

TEST_F(Prune, the_newest_is_listed_first_with_what_its_manifest_says) {
  const std::string here = folder();
  fs::copy(here + "/step-3", here + "/again-3", fs::copy_options::recursive);
  fs::create_directory(here + "/empty");
  fs::create_directory_symlink("step-6", here + "/latest");
  fs::copy(here + "/step-6", here + "/.tmp-hidden", fs::copy_options::recursive);
  fs::resize_file(here + "/step-5/zero.json", 300);
  write_file(here + "/note", "x");
  EXPECT_EQ(listed(here), (std::vector<std::string>{"step-6", "step-4", "step-3", "again-3",
                                                    "step-2", "step-1"}));
  const zero_checkpoint newest = list(here, 1).at(0);
  EXPECT_EQ(newest.step, 6);
  EXPECT_EQ(newest.world, 1);
  int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(here + "/step-6"))
    bytes += static_cast<int64_t>(file.file_size());
  EXPECT_EQ(newest.bytes, bytes);
}

TEST_F(Prune, the_last_ones_and_multiples_stay) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(left(1, 0), (Names{"step-6"}));
  EXPECT_EQ(left(2, 0), (Names{"step-5", "step-6"}));
  EXPECT_EQ(left(1, 2), (Names{"step-2", "step-4", "step-6"}));
  EXPECT_EQ(left(2, 3), (Names{"step-3", "step-5", "step-6"}));
  EXPECT_EQ(left(5, 1), names_in(scratch_ / "template"));
  EXPECT_EQ(left(6, 0), names_in(scratch_ / "template"));
  EXPECT_EQ(left(INT64_MAX, INT64_MAX), names_in(scratch_ / "template"));
}

TEST_F(Prune, nothing_is_deleted_where_the_newest_is_damaged) {
  for (const auto& file : fs::directory_iterator(scratch_ / "template/step-6")) {
    const std::string here = folder(), name = file.path().filename();
    const std::string path = here + "/step-6/" + name;
    std::string bytes = read_file(path);
    bytes[bytes.size() / 2] ^= 1;
    write_file(path, bytes);
    // Without a manifest it is no checkpoint, and the one before is the newest.
    const bool counts = name != "zero.json";
    EXPECT_EQ(zero_state_prune(here.c_str(), 1, 0, nullptr), counts ? ZERO_ERR_CKPT_INVALID : 0);
    EXPECT_TRUE(!counts || says(name)) << last();
    EXPECT_EQ(names_in(here).size(), counts ? 6u : 2u) << name;
  }
}

TEST_F(Prune, what_is_no_checkpoint_stays) {
  const std::string here = folder(), elsewhere = scratch_ / "elsewhere";
  fs::copy(here + "/step-1", elsewhere, fs::copy_options::recursive);
  write_file(here + "/step-2/config.json", "{}");
  fs::create_directory(here + "/step-3/samples");
  fs::create_directory_symlink(elsewhere, here + "/link");
  fs::resize_file(here + "/step-4/zero.json", 300);
  fs::create_directory(here + "/empty");
  write_file(here + "/note", "x");
  size_t deleted = 0;
  EXPECT_OK(zero_state_prune(here.c_str(), 1, 0, &deleted));
  EXPECT_EQ(deleted, 2u);
  EXPECT_EQ(names_in(here), (std::vector<std::string>{"empty", "link", "note", "step-2", "step-3",
                                                      "step-4", "step-6"}));
  expect_whole(elsewhere);
  expect_whole(here + "/step-2");
  expect_whole(here + "/step-3");
}

TEST_F(Prune, one_that_is_replaced_meanwhile_stays) {
  const std::string here = folder();
  {
    FailingCalls calls;
    bool once = true;
    FailingCalls::on_point([&](const char* point) {
      if (std::string_view(point) != "prune.verified" || !std::exchange(once, false)) return;
      fs::remove_all(here + "/step-2");
      fs::copy(here + "/step-6", here + "/step-2", fs::copy_options::recursive);
    });
    EXPECT_OK(zero_state_prune(here.c_str(), 1, 0, nullptr));
  }
  EXPECT_EQ(names_in(here), (std::vector<std::string>{"step-2", "step-6"}));
}

TEST_F(Prune, any_failing_call_leaves_each_checkpoint_whole_or_gone) {
  int failed = 0;
  for (const int error : {EIO, EINTR}) {
    for (int64_t at = 0;; at++) {
      const std::string here = folder();
      FailingCalls calls({.kind = Fault::error, .at = at, .error_number = error});
      const zero_status status = zero_state_prune(here.c_str(), 1, 0, nullptr);
      if (calls.hits() == 0) break;
      EXPECT_TRUE(status == ZERO_OK || status == ZERO_ERR_CKPT_IO) << at << last();
      EXPECT_TRUE(status == ZERO_OK || error == EIO) << at;
      failed += status != ZERO_OK;
      check_after(here, text("call ", at));
    }
  }
  EXPECT_GT(failed, 30);
}

TEST_F(Prune, a_kill_at_any_call_leaves_each_checkpoint_whole_or_gone) {
  int kills = 0;
  for (int64_t at = 0;; at++) {
    const std::string here = folder();
    const auto ends = run_ranks(RankKind::processes, 1, [&](int) -> std::string {
      const FailingCalls failing({.kind = Fault::kill, .at = at});
      return succeeded(zero_state_prune(here.c_str(), 1, 0, nullptr)) ? "" : last();
    });
    check_after(here, text("killed at call ", at));
    if (ends[0].returned) break;
    EXPECT_EQ(ends[0].signal, SIGKILL);
    kills++;
  }
  EXPECT_GT(kills, 60);
}

TEST_F(Prune, a_name_is_gone_on_stable_storage_before_any_file_is) {
  const std::string here = folder();
  FailingCalls calls;
  EXPECT_OK(zero_state_prune(here.c_str(), 5, 0, nullptr));
  std::vector<std::string> order;
  std::string lock;
  for (const FileCall& call : calls.log()) {
    if (call.operation == "mkdirat") lock = call.name;
    if (call.operation == "renameat2" || (call.operation == "unlinkat" && call.name != lock) ||
        (call.operation == "fsync" && call.name == here))
      order.push_back(call.operation);
  }
  ASSERT_EQ(order.size(), 8u);  // five files, and the directory
  EXPECT_EQ(order[0], "renameat2");
  EXPECT_EQ(order[1], "fsync");
}

TEST_F(Prune, bad_input_is_refused_with_a_sentence_and_deletes_nothing) {
  const std::string here = folder();
  const char* const path = here.c_str();
  size_t count = 7;
  const auto is_refused = [&](zero_status status, const char* words) {
    EXPECT_TRUE(ends(status, ZERO_ERR_ARGUMENT, words));
  };
  is_refused(zero_state_prune(path, 0, 0, &count), "keep_last is 0; it must be at least 1");
  is_refused(zero_state_prune(path, -1, 0, &count), "keep_last is -1");
  is_refused(zero_state_prune(path, 1, -1, &count), "keep_every is -1; it must not be negative");
  is_refused(zero_state_prune(nullptr, 1, 0, &count), "directory is NULL");
  is_refused(zero_state_prune("", 1, 0, &count), "directory is empty");
  is_refused(zero_state_list(nullptr, nullptr, 0, &count), "directory is NULL");
  is_refused(zero_state_list(path, nullptr, 0, nullptr), "count is NULL");
  is_refused(zero_state_list(path, nullptr, 1, &count), "checkpoints is NULL");
  zero_checkpoint out[2];
  ZERO_INIT(out[0]);
  out[1] = zero_checkpoint{};
  is_refused(zero_state_list(path, out, 2, &count), "zero_checkpoint.struct_size is 0");
  EXPECT_EQ(out[0].step, 0);
  EXPECT_EQ(count, 7u);
  EXPECT_EQ(names_in(here).size(), 6u);
  EXPECT_TRUE(ends(zero_state_list((here + "/step-1/zero.json").c_str(), nullptr, 0, &count),
                   ZERO_ERR_CKPT_IO, "ENOTDIR"));

  EXPECT_OK(zero_state_list((here + "/none").c_str(), nullptr, 0, &count));
  EXPECT_EQ(count, 0u);
  EXPECT_OK(zero_state_prune((here + "/none").c_str(), 1, 0, &count));
  EXPECT_EQ(count, 0u);
  EXPECT_FALSE(fs::exists(here + "/none"));
}

TEST_F(Prune, one_that_may_be_the_newest_stops_both) {
  const std::string here = folder();
  fs::remove(here + "/step-6/zero.json");
  fs::create_directory(here + "/step-6/zero.json");
  EXPECT_EQ(listed(here).size(), 5u);  // not a regular file: no checkpoint
  fs::remove(here + "/step-6/zero.json");
  std::string newer = read_file(here + "/step-5/zero.json");
  newer.replace(newer.find("\"zero_format\":1"), 15, "\"zero_format\":3");
  newer.erase(newer.rfind("\"end\":{"));
  write_file(here + "/step-6/zero.json", newer + manifest_trailer(newer));
  size_t count = 0;
  EXPECT_TRUE(ends(zero_state_list(here.c_str(), nullptr, 0, &count), ZERO_ERR_UNSUPPORTED,
                   "step-6' may be the newest checkpoint"));
  EXPECT_EQ(zero_state_prune(here.c_str(), 1, 0, nullptr), ZERO_ERR_UNSUPPORTED);
  EXPECT_EQ(names_in(here).size(), 6u);
}

TEST_F(Prune, ends_where_the_program_ends_it_and_deletes_nothing) {
  const std::string here = folder();
  const ReplacedCall read_slowly(&SystemCalls::pread,
                                 [](int fd, void* data, size_t bytes, int64_t at) {
                                   usleep(60'000);
                                   return real_system_calls().pread(fd, data, bytes, at);
                                 });
  set_interrupt([](void*) { return 1; }, nullptr);
  EXPECT_EQ(zero_state_prune(here.c_str(), 1, 0, nullptr), ZERO_ERR_INTERRUPTED);
  set_interrupt(nullptr, nullptr);
  EXPECT_EQ(zero_last_error(),
            std::string("zero_state_prune: interrupted: nothing was deleted: the "
                        "program interrupted the prune"));
  EXPECT_EQ(names_in(here).size(), 6u);
}

}  // namespace
}  // namespace zero::test

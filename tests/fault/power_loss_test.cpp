// SPDX-License-Identifier: Apache-2.0
// The contents of a disk after a power loss during or after a save: at each call, with each part of
// what was not on stable storage. The file system is a model that keeps less than any real one. The
// test does not show that a real one keeps what it promises.
#include "support/power_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/hash.h"
#include "base/text.h"
#include "support/place.h"
#include "support/ranks.h"
#include "support/trials.h"
#include "zero.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

std::string digest_of(const PowerLoss::Image& image) {
  std::string all;
  for (const auto& [path, data] : image)
    all += text(path, '\n', data ? data->size() : 0, '\n', data.value_or("a directory"));
  return hex(hash128(bytes_of(all)));
}

/// Checks each possible image after a power loss in a run whose calls were recorded.
class Images {
 public:
  using Check = std::function<void(const std::string& folder, const std::string& what)>;
  Images(const PowerLoss& loss, size_t calls) : loss_(loss), calls_(calls) {}

  /// Checks the images at each call.
  void check_all(const Check& check) {
    for (size_t calls = 0; calls <= calls_; calls++) {
      Choices all;
      do {
        check_new(calls, std::ref(all), check);
        if (testing::Test::HasFailure()) return;
      } while (all.next());
    }
  }

 private:
  void check_new(size_t calls, const PowerLoss::Choose& choose, const Check& check) {
    const PowerLoss::Image image = loss_.image(calls, choose);
    if (!seen_.insert(digest_of(image)).second && calls != calls_) return;
    const std::string folder = scratch_ / "disk";
    PowerLoss::write(image, folder);
    count_trial();
    check(folder, text("the power fails behind call ", calls, " of ", calls_));
    fs::remove_all(folder);
  }

  const PowerLoss& loss_;
  const size_t calls_;
  const Scratch scratch_;
  std::set<std::string> seen_;
};

struct Run {
  int world = 1;
  bool behind = false;
  const char* target = "new";
  int32_t flags = 0;
};

/// Makes a save, and then checks what may be left of it.
void lose_power_in(const Run& run) {
  ModelSpec spec = tiny_model();
  spec.saves_behind = run.behind;
  Place place(spec);
  const std::string folder = place.folder(), name = unique_name();
  std::optional<PowerLoss> loss;
  const auto states = run_sound_ranks(RankKind::threads, run.world, [&](int rank) -> std::string {
    auto model = local_model(spec, name, rank, run.world);
    if (!model || !model->step().ok() || !model->step().ok()) return "no model";
    std::string state = model->state();
    if (rank == 0) loss.emplace(folder);
    if (!barrier(*model)) return "no barrier";
    EXPECT_EQ(told(model->save(folder + "/" + run.target, run.flags)), "");
    (void)barrier(*model);
    return state;
  });
  const size_t calls = loss->calls();
  EXPECT_GT(calls, 15u);
  Images images(*loss, calls);
  const std::string parent = fs::path(run.target).parent_path();
  images.check_all([&](const std::string& disk, const std::string& what) {
    const std::string found = loaded(disk, spec);
    const bool anew = loaded(disk + "/" + parent, spec) == states[0];
    EXPECT_TRUE(found == states[0] || found == place.old_state()) << what << ": " << found;
    EXPECT_TRUE(anew || what.find(text(" ", calls, " of")) == what.npos) << what;
  });
}

TEST(PowerLoss, in_a_save_leaves_a_complete_checkpoint_and_after_it_the_new_one) {
  for (const bool behind : {false, true})
    for (const int world : {1, 2, 3}) lose_power_in({.world = world, .behind = behind});
}

TEST(PowerLoss, in_a_save_that_replaces_leaves_one_of_both) {
  for (const bool behind : {false, true})
    lose_power_in({.behind = behind, .target = "old", .flags = ZERO_SAVE_REPLACE});
}

TEST(PowerLoss, takes_no_folder_that_a_save_has_made) {
  lose_power_in({.target = "runs/first/new"});
}

TEST(PowerLoss, in_a_prune_leaves_the_newest) {
  Place place(tiny_model());
  const std::string folder = place.folder();
  const std::string state = [&] {
    auto model = place.solo();
    EXPECT_EQ(told(model->save(folder + "/new")), "");
    return model->state();
  }();
  const PowerLoss loss(folder);
  EXPECT_EQ(zero_state_prune(folder.c_str(), 1, 0, nullptr), ZERO_OK);
  Images(loss, loss.calls()).check_all([&](const std::string& disk, const std::string& what) {
    EXPECT_TRUE(loaded(disk, place.spec()) == state) << what;
    EXPECT_TRUE(!fs::exists(disk + "/old") ||
                loaded(disk + "/old", place.spec()) == place.old_state())
        << what << ": what has its name is whole";
  });
}

/// Tests the model: what it keeps, and what it may lose.
TEST(PowerLoss, is_modelled_as_what_was_not_synced_may_be_lost) {
  const Scratch scratch;
  const Fd folder(::open(scratch.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const PowerLoss loss(scratch.path());
  const Fd file(os().openat(folder.get(), "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  os().pwrite(file.get(), "data", 4, 0);
  const auto contents = [&] {
    std::set<std::string> found;
    Choices all;
    do {
      std::string told;
      for (const auto& [path, data] : loss.image(loss.calls(), std::ref(all)))
        told += path + ":" + data.value_or("") + " ";
      std::replace(told.begin(), told.end(), '\0', '0');
      found.insert(told);
    } while (all.next());
    return found;
  };
  using Contents = std::set<std::string>;
  EXPECT_EQ(contents(), (Contents{"", "/a: ", "/a:da00 ", "/a:14!4 ", "/a:data "}));
  os().fsync(file.get());
  EXPECT_EQ(contents(), (Contents{"", "/a:data "}));
  os().renameat2(folder.get(), "a", folder.get(), "b", 0);
  EXPECT_EQ(contents(), (Contents{"", "/a:data ", "/b:data "}));
  os().fsync(folder.get());
  EXPECT_EQ(contents(), (Contents{"/b:data "}));
  os().unlinkat(folder.get(), "b", 0);
  EXPECT_EQ(contents(), (Contents{"", "/b:data "}));
}

}  // namespace
}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
// Loads from any world into any world are bitwise exact. Every damage is refused with the file's
// name, before anything changes. A load that fails half way is remembered on every rank.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "state/access.h"
#include "support/failing_calls.h"
#include "support/nightly.h"
#include "support/place.h"
#include "support/ranks.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kRules[] = {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                              ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL};

/// Trains and saves on `world` ranks. Returns the state, which is the same on all.
std::string save_on(int world, const ModelSpec& spec, const std::string& directory, int steps = 2) {
  const auto states =
      run_sound_ranks(RankKind::threads, world, [&, name = unique_name()](int rank) -> std::string {
        auto model = local_model(spec, name, rank, world);
        if (!model) return "no model";
        for (int i = 0; i < steps; i++) {
          if (const Status status = model->step(); !status.ok()) return told(status);
        }
        if (const Status status = model->save(directory); !status.ok()) return told(status);
        return model->state();
      });
  for (const std::string& state : states) EXPECT_TRUE(state == states[0]);
  return states[0];
}

/// Loads on `world` ranks, and takes another step. Returns the states after each.
std::pair<std::string, std::string> load_on(int world, const ModelSpec& spec,
                                            const std::string& directory) {
  std::string after_step;
  const auto states =
      run_sound_ranks(RankKind::threads, world, [&, name = unique_name()](int rank) -> std::string {
        auto model = local_model(spec, name, rank, world);
        if (!model) return "no model";
        if (const Status status = model->load(directory); !status.ok()) return told(status);
        std::string state = model->state();
        if (const Status status = model->step(); !status.ok()) return told(status);
        std::string next = model->state();
        if (rank == 0) after_step = std::move(next);
        return state;
      });
  for (const std::string& state : states) EXPECT_TRUE(state == states[0]);
  return {states[0], after_step};
}

/// Returns the beginning of a state, for messages.
std::string start_of(const std::string& state) { return state.substr(0, 200); }

TEST(Load, any_world_and_rule_reads_what_any_other_saved_bit_for_bit) {
  Scratch scratch;
  int pairs = 0;
  for (int saving = 1; saving <= 6; saving++) {
    for (size_t rule = 0; rule < std::size(kRules); rule++) {
      ModelSpec spec = odd_model();
      spec.partition = kRules[rule];
      spec.master = rule % 2 == 0 ? ZERO_MASTER_FLOAT32 : ZERO_MASTER_REMAINDER;
      const std::string directory = scratch / text(saving, "-", rule);
      const std::string saved = save_on(saving, spec, directory);
      ASSERT_TRUE(contains(saved, "step 2")) << start_of(saved);
      for (int loading = 1; loading <= 6; loading++) {
        for (size_t other = 0; other < std::size(kRules); other++) {
          if (!nightly_run() && (static_cast<size_t>(saving + loading) + rule) % 4 != other)
            continue;
          spec.partition = kRules[other];
          spec.bucket_bytes = other % 2 ? 4096 : 1 << 20;
          const auto [loaded, next] = load_on(loading, spec, directory);
          ASSERT_TRUE(loaded == saved) << saving << " ranks, rule " << rule << " to " << loading
                                       << " ranks, rule " << other << ": " << start_of(loaded);
          ASSERT_TRUE(contains(next, "step 3")) << start_of(next);
          pairs++;
        }
      }
    }
  }
  EXPECT_EQ(pairs, nightly_run() ? 576 : 144);
}

TEST(Load, masters_are_stored_whole_however_they_are_kept) {
  Scratch scratch;
  ModelSpec whole = odd_model(), halves = odd_model();
  halves.master = ZERO_MASTER_REMAINDER;
  const std::string saved = save_on(2, whole, scratch / "whole", 3);
  auto model = solo_model(halves);
  ASSERT_EQ(told(model->load(scratch / "whole")), "");
  ASSERT_EQ(told(model->save(scratch / "halves")), "");
  auto back = solo_model(whole);
  ASSERT_EQ(told(back->load(scratch / "halves")), "");
  ASSERT_EQ(told(back->save(scratch / "back")), "");
  auto again = solo_model(whole);
  ASSERT_EQ(told(again->load(scratch / "whole")), "");
  ASSERT_EQ(told(again->save(scratch / "again")), "");
  const std::string name = "/optim-00001-of-00001.safetensors";
  const auto values = [&](const std::string& folder) {
    const std::string file = read_file(scratch / (folder + name));
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    return file.substr(8 + header);
  };
  EXPECT_FALSE(values("again").empty());
  EXPECT_TRUE(values("again") == values("back"));
}

TEST(Load, training_goes_on_as_if_it_had_never_stopped) {
  Scratch scratch;
  const struct {
    const char* rule;
    std::vector<std::pair<std::string, double>> settings;
    std::vector<int> worlds;
  } rows[] = {{"adamw", {{"amsgrad", 1}, {"lr", 0.25}}, {1, 2, 4}},
              {"adam", {{"amsgrad", 1}, {"lr", 0.25}}, {1, 2, 4}},
              {"sgd", {{"momentum", 0.9}}, {1, 2, 4}},
              {"rmsprop", {{"centered", 1}, {"momentum", 0.5}}, {2}},
              {"rmsprop", {{"centered", 1}}, {3}},
              {"adagrad", {{"lr_decay", 0.1}, {"initial_accumulator_value", 0.5}}, {1}},
              {"lion", {{"weight_decay", 0.1}}, {2}},
              {"adamax", {}, {4}},
              {"adadelta", {{"rho", 0.5}}, {2}},
              {"radam", {{"decoupled_weight_decay", 1}, {"weight_decay", 0.1}}, {3}},
              {"nadam", {{"momentum_decay", 0.1}}, {1, 2}},
              {"rprop", {{"lr", 0.25}}, {2}},
              {"lamb", {{"lr", 0.25}}, {1, 3}},
              {"lars", {{"momentum", 0.9}, {"weight_decay", 0.1}}, {2}}};
  for (const auto& row : rows) {
    for (const int world : row.worlds) {
      ModelSpec spec = odd_model();
      spec.rule = row.rule;
      spec.missing_from = 6;  // two parameters have no state
      spec.settings = row.settings;
      const std::string directory = scratch / text(row.rule, row.settings.size(), world);
      const std::string saved = save_on(world, spec, directory, 3);
      const auto [loaded, next] = load_on(world, spec, directory);
      EXPECT_TRUE(loaded == saved) << row.rule << " " << world;
      EXPECT_TRUE(next == save_on(world, spec, directory + "-4", 4)) << row.rule << " " << world;
    }
  }
}

TEST(Load, processes_load_what_threads_saved) {
  Scratch scratch;
  const ModelSpec spec = odd_model();
  const std::string saved = save_on(3, spec, scratch / "a");
  const std::string name = unique_name();
  for (const std::string& state :
       run_sound_ranks(RankKind::processes, 2, [&](int rank) -> std::string {
         auto model = local_model(spec, name, rank, 2);
         const Status status = model->load(scratch / "a");
         return status.ok() ? model->state() : told(status);
       })) {
    EXPECT_TRUE(state == saved) << start_of(state);
  }
}

// ---- The selected checkpoint.

std::string* logged = nullptr;
void keep_log(void*, int32_t, const char* message) { *logged += text(message, "\n"); }

TEST(Load, of_a_folder_the_newest_sound_checkpoint_is_taken_and_skipped_ones_are_logged) {
  Scratch scratch;
  auto model = solo_model(tiny_model());
  std::vector<std::string> states;
  for (int i = 0; i < 4; i++) {
    ASSERT_EQ(told(model->step()), "");
    // Names have another order.
    ASSERT_EQ(told(model->save(scratch / "runs/" + std::string(1, "dbca"[i]))), "");
    states.push_back(model->state());
  }
  fs::create_directory_symlink("a", scratch / "runs/latest");
  fs::create_directories(scratch / "runs/notes");
  write_file(scratch / "runs/readme", "x");
  fs::copy(scratch / "runs/a", scratch / "runs/.tmp-0123456789abcdef0123456789abcdef");

  std::string log;
  logged = &log;
  set_log(keep_log, nullptr, ZERO_LOG_WARNING);
  for (int newest = 3; newest >= 0; newest--) {
    auto fresh = solo_model(tiny_model());
    ASSERT_EQ(told(fresh->load(scratch / "runs")), "");
    EXPECT_TRUE(fresh->state() == states[static_cast<size_t>(newest)]) << newest;
    const std::string name = scratch / "runs/" + std::string(1, "dbca"[newest]);
    std::string bytes = read_file(name + "/zero.json");
    bytes[bytes.size() / 2] ^= 1;
    write_file(name + "/zero.json", bytes);
    EXPECT_EQ(log.find(name), std::string::npos);
    log.clear();
    if (newest == 0) break;
    auto next = solo_model(tiny_model());
    ASSERT_EQ(told(next->load(scratch / "runs")), "");
    EXPECT_TRUE(contains(log, "skipped: '" + name + "/zero.json': its first"));
    log.clear();
  }
  set_log(nullptr, nullptr, 0);
  const Status status = model->load(scratch / "runs");
  expect_failure(status, ZERO_ERR_CKPT_INVALID,
                 "neither it nor a directory in it is a complete checkpoint; '");
}

TEST(Load, links_to_a_checkpoint_and_slashes_are_followed) {
  Scratch scratch;
  auto model = solo_model(tiny_model());
  ASSERT_EQ(told(model->step()), "");
  ASSERT_EQ(told(model->save(scratch / "runs/a//")), "");
  fs::create_directory_symlink("a", scratch / "runs/latest");
  for (const char* name :
       {"runs/latest", "runs/latest/", "runs//a", "runs/", "runs//", "runs/./a"}) {
    auto fresh = solo_model(tiny_model());
    EXPECT_EQ(told(fresh->load(scratch / name)), "") << name;
    EXPECT_TRUE(fresh->state() == model->state()) << name;
  }
}

// ---- A different model.

TEST(Load, all_differences_from_the_registration_are_told_at_once) {
  Scratch scratch;
  ModelSpec spec;
  spec.groups = {{{"same", {3}}, {"shape", {2, 3}}, {"gone", {1}}}, {{"moved", {4}}}};
  spec.settings = {{"amsgrad", 1}};
  save_on(2, spec, scratch / "a");
  spec.groups = {{{"same", {3}}, {"shape", {3, 2}}, {"new", {1}}, {"moved", {4}}}, {{"more", {}}}};
  spec.settings = {};
  const std::string name = unique_name();
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    auto model = local_model(spec, name, rank, 2);
    const std::string before = model->state();
    const Status status = model->load(scratch / "a");
    EXPECT_EQ(status.code(), ZERO_ERR_CKPT_MISMATCH);
    for (const char* says :
         {"'shape' has shape [2, 3] in the checkpoint, but is registered with [3, 2]",
          "parameter 'new' is not in the checkpoint", "parameter 'more' is not in the checkpoint",
          "parameter 'gone' of the checkpoint is not registered",
          "'moved' is in group 1 in the checkpoint, but is registered in group 0",
          "group 0 has amsgrad 1 in the checkpoint, but is registered with 0"}) {
      EXPECT_TRUE(contains(status.text(), says)) << says;
    }
    EXPECT_EQ(status.text().find("'same'"), std::string::npos);
    EXPECT_TRUE(model->state() == before);
    EXPECT_EQ(told(model->step()), "");
    return "";
  });
}

TEST(Load, a_thousand_differences_are_counted_not_all_told) {
  Scratch scratch;
  save_on(1, tiny_model(), scratch / "a");
  ModelSpec spec;
  spec.groups.emplace_back();
  for (int i = 0; i < 1000; i++) spec.groups[0].push_back({text("parameter.number.", i), {1}});
  const Status status = solo_model(spec)->load(scratch / "a");
  EXPECT_EQ(status.code(), ZERO_ERR_CKPT_MISMATCH);
  EXPECT_LT(status.text().size(), 3500u);
  EXPECT_TRUE(contains(status.text(), "; and 9"));
}

TEST(Load, settings_return_as_saved_unless_they_are_to_be_kept) {
  Scratch scratch;
  auto model = solo_model(tiny_model());
  ASSERT_EQ(told(model->optim().set(0, "lr", 0.1 + 0.2)), "");
  ASSERT_EQ(told(model->step()), "");
  ASSERT_EQ(told(model->save(scratch / "a")), "");
  ASSERT_EQ(told(model->optim().set(0, "lr", 0.5)), "");
  ASSERT_EQ(told(model->load(scratch / "a", ZERO_LOAD_KEEP_SETTINGS)), "");
  EXPECT_EQ(*model->optim().get(0, "lr"), 0.5);
  ASSERT_EQ(told(model->load(scratch / "a")), "");
  EXPECT_EQ(*model->optim().get(0, "lr"), 0.1 + 0.2);
}

TEST(Load, state_that_current_settings_do_not_use_comes_back_too) {
  Scratch scratch;
  ModelSpec spec = odd_model();
  spec.rule = "sgd";
  spec.settings = {{"momentum", 0.9}};
  const std::string saved = save_on(2, spec, scratch / "a", 3);
  spec.settings = {};
  auto model = solo_model(spec);
  EXPECT_EQ(model->optim().groups[0].slots_used(), 0u);
  ASSERT_EQ(told(model->load(scratch / "a")), "");
  EXPECT_TRUE(model->state() == saved);
  // In the opposite case, state that the checkpoint does not have is removed.
  save_on(2, spec, scratch / "b", 3);
  ASSERT_EQ(told(model->load(scratch / "b")), "");
  for (const ParamProgress& progress : model->optim().progress) EXPECT_EQ(progress.live_slots, 0u);
  for (const Segment& segment : model->optim().segments()) {
    const std::byte* const values = model->optim().slot(0, segment.section, segment.share);
    const size_t bytes = static_cast<size_t>(segment.count) *
                         size_of(model->optim().plan.section_of(segment.param).sum());
    for (size_t i = 0; i < bytes; i++) ASSERT_EQ(values[i], std::byte{0});
  }
}

TEST(Load, whatever_step_counts_a_program_sets_what_a_save_writes_is_read) {
  Scratch scratch;
  constexpr int64_t kMost = int64_t{1} << 53;
  ModelSpec spec = tiny_model();
  for (const char* rule : {"adamw", "radam", "sgd"}) {
    spec.rule = rule;
    for (const int64_t step : {int64_t{0}, int64_t{1}, kMost - 2, kMost - 1, kMost}) {
      for (const int64_t of_second : {int64_t{0}, step, kMost}) {
        SCOPED_TRACE(text(rule, " ", step, " ", of_second));
        auto model = solo_model(spec);
        Optimizer& optim = model->optim();
        ASSERT_EQ(told(set_scalar(optim, ZERO_ALL_PARAMS, "step", static_cast<double>(step))), "");
        ASSERT_EQ(told(set_scalar(optim, 1, "step", static_cast<double>(of_second))), "");
        optim.state.skipped = step;
        for (int steps = 0; steps < 3; steps++) {
          ASSERT_EQ(told(model->save(scratch / "a", ZERO_SAVE_REPLACE)), "");
          auto other = solo_model(spec);
          ASSERT_EQ(told(other->load(scratch / "a")), "");
          EXPECT_EQ(other->optim().state.steps, std::min(step + steps, kMost));
          EXPECT_EQ(other->optim().progress[1].step, std::min(of_second + steps, kMost));
          ASSERT_EQ(told(other->save(scratch / "b", ZERO_SAVE_REPLACE)), "");
          ASSERT_EQ(told(solo_model(spec)->load(scratch / "b")), "");
          ASSERT_EQ(told(model->step()), "");
        }
      }
    }
    auto model = solo_model(spec);
    for (const double step : {-1.0, 0.5, static_cast<double>(kMost) + 2, 0x1p63, HUGE_VAL})
      EXPECT_EQ(set_scalar(model->optim(), ZERO_ALL_PARAMS, "step", step).code(),
                ZERO_ERR_ARGUMENT);
  }
}

// ---- Failures half way.

TEST(Load, damage_between_the_two_passes_is_remembered_on_every_rank_until_a_load_succeeds) {
  Scratch scratch;
  const ModelSpec spec = odd_model();
  const std::string saved = save_on(2, spec, scratch / "a");
  const std::string name = unique_name(), file = "optim-00002-of-00002.safetensors";
  const std::string sound = read_file(scratch / "a/" + file);
  FailingCalls calls;
  std::once_flag once;
  FailingCalls::on_point([&](const char* point) {
    if (std::string_view(point) != "load.voted") return;
    std::call_once(once, [&] {
      std::string bytes = sound;
      bytes[bytes.size() - 3] ^= 1;
      write_file(scratch / "a/" + file, bytes);
    });
  });
  std::mutex mutex;
  int invalid = 0, peers = 0;
  run_sound_ranks(RankKind::threads, 3, [&](int rank) -> std::string {
    auto model = local_model(spec, name, rank, 3);
    const Status status = model->load(scratch / "a");
    {
      const std::lock_guard lock(mutex);
      invalid += status.code() == ZERO_ERR_CKPT_INVALID;
      peers += status.code() == ZERO_ERR_PEER;
    }
    EXPECT_TRUE(contains(status.text(), file));
    EXPECT_TRUE(model->optim().not_loaded);
    EXPECT_EQ(model->step().code(), ZERO_ERR_NOT_LOADED);
    if (rank == 0) write_file(scratch / "a/" + file, sound);
    (void)model->state();  // also a barrier
    EXPECT_EQ(told(model->load(scratch / "a")), "");
    EXPECT_FALSE(model->optim().not_loaded);
    EXPECT_TRUE(model->state() == saved);
    EXPECT_EQ(told(model->step()), "");
    return "";
  });
  EXPECT_GE(invalid, 1);
  EXPECT_EQ(invalid + peers, 3);
}

/// Makes one call after the other fail on one rank after the other. The group survives all
/// failures.
class FailingLoads {
 public:
  FailingLoads(const std::string& directory, const ModelSpec& spec, std::string saved, int world)
      : directory_(directory),
        spec_(spec),
        saved_(std::move(saved)),
        world_(world),
        name_(unique_name()) {}

  void run() {
    const int64_t descriptors = entries_of("/proc/self/fd");
    for (const std::string& end : run_sound_ranks(
             RankKind::threads, world_, [&](int rank) { return one_rank(rank); }, 300'000)) {
      EXPECT_EQ(end, "");
    }
    EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
    EXPECT_GT(unchanged_, world_ * 4);
    EXPECT_GT(half_way_, world_ * 2);
  }

 private:
  std::string one_rank(int rank) {
    set_rank(rank);
    auto model = local_model(spec_, name_, rank, world_);
    if (!model) return "no model";
    for (int culprit = 0; culprit < world_; culprit++) {
      for (int64_t at = 0;; at++) {
        for (const Fault& fault :
             {Fault{.kind = Fault::error, .at = at, .rank = culprit},
              Fault{.kind = Fault::error, .at = at, .for_ever = true, .rank = culprit},
              Fault{.kind = Fault::error, .at = at, .error_number = EINTR, .rank = culprit},
              Fault{.kind = Fault::short_transfer, .at = at, .rank = culprit}}) {
          if (!trial(*model, rank, fault)) return "the group broke";
        }
        if (hits_ == 0) break;
      }
    }
    const Status status = model->load(directory_);
    EXPECT_TRUE(model->state() == saved_);
    return told(status);
  }

  bool trial(Model& model, int rank, const Fault& fault) {
    const std::string what = text("world ", world_, ": call ", fault.at, " of rank ", fault.rank);
    model.optim().not_loaded = false;
    if (!barrier(model)) return false;
    const std::string before = model.state();
    if (rank == 0) failing_ = std::make_unique<FailingCalls>(fault);
    if (!barrier(model)) return false;
    const Status status = model.load(directory_);
    if (!barrier(model)) return false;
    if (rank == 0) {
      hits_ = failing_->hits();
      failing_.reset();
    }
    const std::string after = model.state();
    const bool harmless = fault.kind == Fault::short_transfer || fault.error_number == EINTR;
    if (status.ok() || harmless) {
      EXPECT_EQ(told(status), "") << what;
      EXPECT_TRUE(after == saved_) << what;
    } else {
      EXPECT_EQ(status.code(), rank == fault.rank ? ZERO_ERR_CKPT_IO : ZERO_ERR_PEER)
          << what << told(status);
      EXPECT_TRUE(contains(status.text(), "Input/output error")) << what;
      EXPECT_TRUE(model.optim().not_loaded || after == before) << what;
      if (rank == 0) (model.optim().not_loaded ? half_way_ : unchanged_)++;
    }
    return barrier(model);
  }

  const std::string directory_;
  const ModelSpec spec_;
  const std::string saved_;
  const int world_;
  const std::string name_;
  std::unique_ptr<FailingCalls> failing_;
  int64_t hits_ = 0;
  int unchanged_ = 0, half_way_ = 0;
};

TEST(Load, any_failing_call_of_any_rank_fails_on_all_without_effect_or_with_a_note) {
  Scratch scratch;
  const ModelSpec spec = tiny_model();
  const std::string saved = save_on(2, spec, scratch / "a");
  for (const int world : {1, 2, 3}) FailingLoads(scratch / "a", spec, saved, world).run();
}

TEST(Load, a_kill_of_any_rank_at_any_point_is_an_error_on_the_others) {
  Scratch scratch;
  const ModelSpec spec = tiny_model();
  const std::string saved = save_on(2, spec, scratch / "a");
  for (const char* point :
       {"load.begin", "load.verified", "load.voted", "load.read", "load.done"}) {
    for (int victim = 0; victim < 3; victim++) {
      const auto ends =
          run_ranks(RankKind::processes, 3, [&, name = unique_name()](int rank) -> std::string {
            auto model = local_model(spec, name, rank, 3);
            if (!model) return "no model";
            const std::string before = model->state();
            FailingCalls calls;
            FailingCalls::on_point([&](const char* passed) {
              if (rank == victim && std::string_view(passed) == point) raise(SIGKILL);
            });
            const Status status = model->load(scratch / "a");
            if (status.ok()) return "loaded";
            if (status.code() != ZERO_ERR_PEER_DEAD) return told(status);
            const bool early = std::string_view(point) == "load.begin" ||
                               std::string_view(point) == "load.verified";
            EXPECT_EQ(model->optim().not_loaded, !early) << point;
            return "dead";
          });
      for (int rank = 0; rank < 3; rank++) {
        const RankEnd& end = ends[static_cast<size_t>(rank)];
        if (rank == victim) {
          EXPECT_EQ(end.signal, SIGKILL) << point;
          continue;
        }
        EXPECT_EQ(end.exit_status, 0) << point;
        EXPECT_TRUE(end.result == "dead" ||
                    (end.result == "loaded" && std::string_view(point) == "load.done"))
            << point << ": " << end.result;
      }
    }
  }
}

TEST(Load, ranks_that_disagree_are_told_so) {
  Scratch scratch;
  const ModelSpec spec = tiny_model();
  const std::string saved = save_on(1, spec, scratch / "a");
  run_sound_ranks(RankKind::threads, 2, [&, name = unique_name()](int rank) -> std::string {
    auto model = local_model(spec, name, rank, 2);
    const Status status = model->load(scratch / (rank == 0 ? "a" : "b"));
    EXPECT_EQ(status.code(), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH) << told(status);
    EXPECT_EQ(told(model->load(scratch / "a")), "");
    EXPECT_TRUE(model->state() == saved);
    return "";
  });
}

}  // namespace
}  // namespace zero::test

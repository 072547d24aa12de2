// SPDX-License-Identifier: Apache-2.0
// A rank's own bytes in checkpoints. What each rank set is loaded on every rank of any world, and
// invalid input changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "state/manifest.h"
#include "support/expect.h"
#include "support/optim.h"
#include "support/scratch.h"
#include "uneven.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

using Extras = std::map<std::pair<int32_t, std::string>, std::string>;  // by rank and name

zero_status set(zero_optim* optim, const std::string& name, const std::string& bytes) {
  return zero_state_extra_set(optim, name.c_str(), bytes.data(), bytes.size());
}

zero_status remove(zero_optim* optim, const char* name) {
  return zero_state_extra_set(optim, name, nullptr, 0);
}

std::string get(zero_optim* optim, int32_t rank, const char* name) {
  size_t count = 0;
  EXPECT_OK(zero_state_extra_get(optim, rank, name, nullptr, 0, &count));
  std::string bytes(count + 1, '#');
  EXPECT_OK(zero_state_extra_get(optim, rank, name, bytes.data(), bytes.size(), &count));
  EXPECT_EQ(bytes.size(), count + 1);
  EXPECT_EQ(bytes.back(), '#');
  bytes.pop_back();
  return bytes;
}

/// Returns all extras that were loaded.
Extras loaded(zero_optim* optim) {
  size_t count = 0;
  EXPECT_OK(zero_state_extra_list(optim, nullptr, nullptr, 0, &count));
  std::vector<int32_t> ranks(count);
  std::vector<const char*> names(count);
  EXPECT_OK(zero_state_extra_list(optim, ranks.data(), names.data(), count, &count));
  Extras extras;
  for (size_t i = 0; i < count; i++) extras[{ranks[i], names[i]}] = get(optim, ranks[i], names[i]);
  EXPECT_EQ(extras.size(), count);
  return extras;
}

/// One rank's optimizer with one parameter, on the device of its comm.
class Rank : public Optim {
 public:
  explicit Rank(zero_comm* comm) : Optim(comm), data_(comm, 4096), size_(1000) {
    add(parameter("w", size_, data_.floats()));
    seal();
  }
  ~Rank() { free(); }

 private:
  Arena data_;
  const int64_t size_;
};

/// Returns what the ranks of a world set: one extra on each, one on rank 0 only, and more than a
/// block of a file on rank 1.
Extras set_in_world(int32_t world) {
  Extras extras{{{0, "config"}, "{\"layers\": 12}"}};
  for (int32_t rank = 0; rank < world; rank++) {
    extras[{rank, "position"}] = std::string("shard\0", 6) + std::to_string(100 * world + rank);
    if (rank == 1)
      extras[{rank, "zufall \u00e4"}] = std::string(kBlockBytes + 5, static_cast<char>(world));
  }
  return extras;
}

void set_own(Rank& rank, const Extras& all) {
  for (const auto& [place, bytes] : all) {
    if (place.first == rank.rank()) {
      EXPECT_OK(set(rank.optim(), place.second, bytes));
    }
  }
}

Extras of_ranks_below(int32_t world, Extras all) {
  std::erase_if(all, [&](const auto& one) { return one.first.first >= world; });
  return all;
}

TEST(Extras, what_each_rank_set_is_read_on_every_rank_of_any_world_without_the_checkpoint) {
  for (const CommKind kind : {CommKind::local, CommKind::user, CommKind::nccl, CommKind::staged}) {
    for (int32_t saved = 1; saved <= 3; saved++) {
      SCOPED_TRACE(text(name_of(kind), " ", saved));
      const Scratch scratch;
      const Extras all = set_in_world(saved);
      on_ranks(kind, saved, [&](zero_comm* comm, int) {
        Rank rank(comm);
        set_own(rank, all);
        rank.save(scratch / "first");
        EXPECT_TRUE(loaded(rank.optim()).empty());
      });
      for (int32_t world = 1; world <= 3; world++) {
        const std::string copy = scratch / std::to_string(world), next = scratch / "next";
        fs::copy(scratch / "first", copy);
        on_ranks(kind, world, [&](zero_comm* comm, int number) {
          Rank rank(comm);
          rank.load(copy);
          EXPECT_OK(zero_comm_barrier(comm));
          if (number == 0) fs::remove_all(copy);
          EXPECT_OK(zero_comm_barrier(comm));
          EXPECT_EQ(loaded(rank.optim()), all);
          // Each rank has the extras of the same rank number, and saves them.
          rank.save(next);
          rank.load(next);
          EXPECT_EQ(loaded(rank.optim()), of_ranks_below(world, all));
        });
        fs::remove_all(next);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// A rank alone, with a directory for saves.
class ExtrasOfOne : public ::testing::Test {
 protected:
  void TearDown() override {
    rank.free();
    EXPECT_OK(zero_comm_free(comm));
  }
  zero_status refused(const std::string& name, const void* bytes, size_t count) {
    return zero_state_extra_set(rank.optim(), name.c_str(), bytes, count);
  }
  /// Returns the extras of the next save.
  Extras saved() {
    const std::string directory = scratch / std::to_string(saves++);
    rank.save(directory);
    rank.load(directory);
    return loaded(rank.optim());
  }

  const Scratch scratch;
  int saves = 0;
  zero_comm* const comm = solo();
  Rank rank{comm};
};

TEST_F(ExtrasOfOne, a_second_set_replaces_and_null_removes) {
  EXPECT_OK(set(rank.optim(), "a", "first"));
  EXPECT_OK(set(rank.optim(), "b", "other"));
  EXPECT_OK(set(rank.optim(), "a", "2nd"));
  EXPECT_EQ(saved(), (Extras{{{0, "a"}, "2nd"}, {{0, "b"}, "other"}}));
  EXPECT_OK(remove(rank.optim(), "a"));
  EXPECT_OK(remove(rank.optim(), "a"));
  EXPECT_OK(remove(rank.optim(), "never set"));
  EXPECT_EQ(get(rank.optim(), 0, "a"), "2nd");  // as loaded
  EXPECT_EQ(saved(), (Extras{{{0, "b"}, "other"}}));
}

TEST_F(ExtrasOfOne, a_load_sets_what_was_saved_in_place_of_what_is_set) {
  EXPECT_OK(set(rank.optim(), "a", "saved"));
  rank.save(scratch / "with");
  EXPECT_OK(remove(rank.optim(), "a"));
  rank.save(scratch / "without");
  EXPECT_OK(set(rank.optim(), "a", "newer"));
  EXPECT_OK(set(rank.optim(), "b", "of this run"));
  rank.load(scratch / "with");
  EXPECT_EQ(saved(), (Extras{{{0, "a"}, "saved"}}));
  rank.load(scratch / "without");
  EXPECT_TRUE(loaded(rank.optim()).empty());
  EXPECT_TRUE(saved().empty());
}

TEST_F(ExtrasOfOne, a_failed_load_leaves_what_is_set_and_what_was_loaded) {
  EXPECT_OK(set(rank.optim(), "a", "saved"));
  const Extras before = saved();
  EXPECT_OK(set(rank.optim(), "b", "set"));
  rank.save(scratch / "damaged");
  const std::string file = scratch / "damaged/extra-00001-of-00001.st";
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  write_file(file, bytes);
  EXPECT_TRUE(ends(zero_state_load(rank.optim(), (scratch / "damaged").c_str(), nullptr),
                   ZERO_ERR_CKPT_INVALID, "extra-00001-of-00001.st"));
  EXPECT_EQ(loaded(rank.optim()), before);
  EXPECT_EQ(saved(), (Extras{{{0, "a"}, "saved"}, {{0, "b"}, "set"}}));
}

TEST_F(ExtrasOfOne, without_any_a_checkpoint_has_the_files_that_older_versions_write) {
  EXPECT_OK(set(rank.optim(), "a", "b"));
  EXPECT_OK(remove(rank.optim(), "a"));
  rank.save(scratch / "none");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(scratch / "none"))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"model-00001-of-00001.safetensors",
                                             "model.safetensors.index.json",
                                             "optim-00001-of-00001.safetensors", "zero.json"}));
  EXPECT_EQ(read_file(scratch / "none/zero.json").find("extra"), std::string::npos);
}

TEST_F(ExtrasOfOne, bad_input_is_refused_with_a_sentence_and_changes_nothing) {
  const std::string most(size_t{16} << 20, 'm');
  EXPECT_OK(set(rank.optim(), "a", "kept"));
  const auto is_refused = [&](zero_status status, const char* words) {
    EXPECT_TRUE(ends(status, ZERO_ERR_ARGUMENT, words));
  };
  is_refused(refused("a", "x", 0), "extra 'a' has 0 bytes: pass NULL to remove it");
  is_refused(refused("a", nullptr, 3), "count is 3, but bytes is NULL");
  is_refused(refused("", "x", 1), "has 0 bytes; it must have 1 to 255");
  is_refused(refused(std::string(256, 'n'), "x", 1), "has 256 bytes; it must have 1 to 255");
  is_refused(refused("\xff", "x", 1), "not valid UTF-8");
  is_refused(refused("__metadata__", "x", 1), "safetensors reserves that name");
  is_refused(refused("a", most.data(), most.size() + 1), "together they may have at most 16777216");
  is_refused(refused("b", most.data(), most.size() - 3), "this rank's others 4");
  is_refused(refused("b", most.data(), SIZE_MAX), "together they may have at most 16777216");
  is_refused(zero_state_extra_set(rank.optim(), nullptr, "x", 1), "name is NULL");
  is_refused(zero_state_extra_set(nullptr, "a", "x", 1), "the optimizer handle is NULL");
  EXPECT_EQ(saved(), (Extras{{{0, "a"}, "kept"}}));

  size_t count = 7;
  char byte = '-';
  is_refused(zero_state_extra_get(rank.optim(), 0, "b", &byte, 1, &count),
             "no extra 'b' of rank 0 was loaded");
  is_refused(zero_state_extra_get(rank.optim(), 1, "a", &byte, 1, &count),
             "no extra 'a' of rank 1 was loaded");
  is_refused(zero_state_extra_get(rank.optim(), -1, "a", &byte, 1, &count), "rank -1");
  is_refused(zero_state_extra_get(rank.optim(), 0, nullptr, &byte, 1, &count), "name is NULL");
  is_refused(zero_state_extra_get(rank.optim(), 0, "a", nullptr, 1, &count), "bytes is NULL");
  is_refused(zero_state_extra_get(rank.optim(), 0, "a", &byte, 1, nullptr), "count is NULL");
  is_refused(zero_state_extra_list(rank.optim(), nullptr, nullptr, 1, &count), "ranks is NULL");
  is_refused(zero_state_extra_list(rank.optim(), nullptr, nullptr, 0, nullptr), "count is NULL");
  EXPECT_EQ(count, 7);
  EXPECT_EQ(byte, '-');
  EXPECT_OK(zero_state_extra_get(rank.optim(), 0, "a", &byte, 1, &count));
  EXPECT_EQ(byte, 'k');  // only as much as fits
  EXPECT_EQ(count, 4);
}

TEST_F(ExtrasOfOne, as_many_as_are_allowed_come_back) {
  Extras all;
  for (int i = 0; i < 256; i++) {
    const std::string name = std::string(252, '\x01') + std::to_string(100 + i);
    all[{0, name}] = std::string(size_t{65536}, static_cast<char>(i));
    EXPECT_OK(set(rank.optim(), name, all[{0, name}]));
  }
  EXPECT_TRUE(ends(set(rank.optim(), "x", "x"), ZERO_ERR_ARGUMENT,
                   "together they may have at most 16777216"));
  EXPECT_OK(set(rank.optim(), all.begin()->first.second, "short"));
  EXPECT_TRUE(ends(set(rank.optim(), "x", "x"), ZERO_ERR_ARGUMENT, "a rank may have at most 256"));
  EXPECT_OK(set(rank.optim(), all.begin()->first.second, all.begin()->second));
  EXPECT_EQ(saved(), all);
}

TEST(Extras, can_be_set_while_gradients_are_reduced_or_a_step_has_begun) {
  const Scratch scratch;
  on_seats(CommKind::local, {.world = 2}, [&](Seat& seat, int rank) {
    seat.fill(0);
    EXPECT_OK(seat.reduce());
    EXPECT_OK(set(seat.optim(), "reduced", "1"));
    EXPECT_OK(seat.step());
    EXPECT_OK(seat.begin());
    EXPECT_OK(set(seat.optim(), "begun", std::to_string(rank)));
    EXPECT_OK(seat.step());
    seat.save(scratch / "it");
    seat.load(scratch / "it");
    EXPECT_EQ(loaded(seat.optim()), (Extras{{{0, "reduced"}, "1"},
                                            {{0, "begun"}, "0"},
                                            {{1, "reduced"}, "1"},
                                            {{1, "begun"}, "1"}}));
  });
}

TEST(Extras, a_rank_that_has_joined_saves_its_own) {
  const Scratch scratch;
  on_seats(CommKind::local, {.world = 2}, [&](Seat& seat, int rank) {
    EXPECT_OK(set(seat.optim(), "position", std::to_string(rank)));
    if (rank == 0) {
      seat.train(0);
      seat.save(scratch / "it");
    }
    EXPECT_EQ(seat.join(), 0);  // the last rank to join
    seat.load(scratch / "it");
    EXPECT_EQ(loaded(seat.optim()), (Extras{{{0, "position"}, "0"}, {{1, "position"}, "1"}}));
  });
}

}  // namespace
}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
// Access to single tensors of the state, and manual steps. A gather returns what a save writes, a
// set restores what was read, and ranks that set different values get an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "replica.h"
#include "state/manifest.h"
#include "state/safetensors.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

constexpr size_t kTrained = 6;  // the others never have a gradient

/// One rank's optimizer of the small tensors, after a broadcast.
class Rank : public Replica {
 public:
  Rank(zero_comm* comm, const StateCase& of) : Replica(comm, of.options(), of.settings()) {
    add_tensors(small_tensors());
    broadcast(0);
  }

  /// Binds all parameters to their current memory.
  void bind() {
    std::vector<void*> pointers;
    for (size_t p = 0; p < size(); p++) pointers.push_back(data(p).at());
    EXPECT_OK(zero_bind_params(optim(), pointers.data(), nullptr, pointers.size()));
  }
  std::vector<const char*> names(size_t p) const {
    int32_t dtype = 0;
    size_t count = 0;
    EXPECT_OK(zero_state_info(optim(), number(p), &dtype, nullptr, 0, &count));
    EXPECT_EQ(dtype, state_dtype(p));
    return state_names(number(p));
  }
  struct Range {
    int64_t first, count;
  };
  std::vector<Range> ranges(size_t p, int32_t rank) const {
    const std::vector<int64_t> triples = owned(rank);
    std::vector<Range> out;
    for (size_t i = 0; i < triples.size(); i += 3) {
      if (triples[i] == number(p)) out.push_back({triples[i + 1], triples[i + 2]});
    }
    return out;
  }
  std::vector<Range> ranges(size_t p) const { return ranges(p, rank()); }
};

void in_every_world(const std::function<void(zero_comm*, const StateCase&, int turn)>& body) {
  int turn = 0;
  for (const CommKind kind : kCommKinds) {
    for (int world = 1; world <= 4; world++) {
      for (const int32_t partition : kPartitions) {
        const int32_t master = ++turn % 2 ? ZERO_MASTER_FLOAT32 : ZERO_MASTER_REMAINDER;
        on_ranks(kind, world, [&](zero_comm* comm, int) {
          SCOPED_TRACE("partition " + std::to_string(partition));
          body(comm, {.partition = partition, .master = master}, turn);
        });
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

/// Returns every whole state tensor of a checkpoint by "parameter.name".
std::map<std::string, std::vector<std::byte>> saved_state(const std::string& directory) {
  std::map<std::string, std::vector<std::byte>> out;
  const auto manifest = parse_manifest(read_file(directory + "/zero.json"));
  EXPECT_TRUE(manifest.ok());
  std::map<std::string, std::string> files;
  for (const FileRecord& file : (*manifest).files)
    files[file.name] = read_file(directory + "/" + file.name);
  for (const ManifestParam& param : (*manifest).params) {
    for (const ManifestSlot& slot : param.slots) {
      std::vector<std::byte>& to = out[param.name + "." + slot.name];
      for (const ManifestSlice& slice : slot.slices) {
        const auto& file = (*manifest).files[static_cast<size_t>(slice.file)];
        const std::string& bytes = files[file.name];
        const uint64_t length = *safetensors_header_bytes(bytes.substr(0, 8), bytes.size());
        const auto header = parse_safetensors_header(bytes.substr(8, length), bytes.size());
        for (const TensorEntry& tensor : (*header).tensors) {
          if (tensor.name != slice.key || slice.count == 0) continue;
          const size_t at = static_cast<size_t>(slice.start) * dtype_bytes(tensor.dtype);
          const size_t size = tensor.end - tensor.begin;
          if (to.size() < at + size) to.resize(at + size);
          std::memcpy(to.data() + at, bytes.data() + (*header).data_start + tensor.begin, size);
        }
      }
    }
  }
  return out;
}

TEST(StateGather, equals_what_a_save_writes) {
  const Scratch scratch;
  in_every_world([&](zero_comm* comm, const StateCase& choices, int turn) {
    Rank rank(comm, choices);
    rank.steps(0, 3);
    const std::string directory = scratch / std::to_string(turn);
    rank.save(directory);
    const auto saved = saved_state(directory);
    size_t told = 0;
    int32_t to = ZERO_ALL_RANKS;
    for (size_t p = 0; p < rank.size(); p++) {
      const Tensor& tensor = rank.tensor(p);
      for (const char* const name : rank.names(p)) {
        told++;
        const std::vector<std::byte> got = rank.gather(p, name, to);
        const bool mine = to == ZERO_ALL_RANKS || to == rank.rank();
        const auto& wanted = saved.at(tensor.name + "." + name);
        EXPECT_TRUE(!mine || got == wanted) << tensor.name << "." << name;
        for (const Rank::Range& range : rank.ranges(p)) {
          const size_t element = element_bytes(rank.state_dtype(p));
          std::vector<std::byte> part(static_cast<size_t>(range.count) * element);
          EXPECT_OK(zero_state_get(rank.optim(), Rank::number(p), name, range.first, range.count,
                                   part.data()));
          EXPECT_TRUE(std::equal(part.begin(), part.end(),
                                 wanted.begin() + range.first * static_cast<int64_t>(element)));
        }
        if (++to == rank.world()) to = ZERO_ALL_RANKS;
      }
      EXPECT_EQ(rank.gather(p, nullptr), element_bytes(tensor.dtype) == 2
                                             ? saved.at(tensor.name + ".master")
                                             : rank.values(p));
    }
    EXPECT_EQ(told, saved.size());  // nothing else is saved
    EXPECT_EQ(told, 2 * kTrained + 3);
  });
}

TEST(StateGather, what_a_parameter_does_not_have_yet_is_told_on_all_ranks) {
  on_each_comm(2, [](zero_comm* comm, int) {
    Rank rank(comm, {});
    float value = 7;
    EXPECT_TRUE(rank.names(1).empty());
    EXPECT_TRUE(ends(zero_state_gather(rank.optim(), 1, "exp_avg", ZERO_ALL_RANKS, &value, 1),
                     ZERO_ERR_STATE, "'exp_avg' of parameter 'one' has no values yet"));
    EXPECT_EQ(value, 7);
    EXPECT_OK(rank.step(0));
    EXPECT_OK(zero_state_gather(rank.optim(), 1, "exp_avg", ZERO_ALL_RANKS, &value, 1));
  });
}

TEST(StateSet, what_was_taken_trains_on_as_if_it_had_been_there) {
  constexpr int32_t kOptimizers[] = {
      ZERO_OPTIMIZER_ADAMW,   ZERO_OPTIMIZER_SGD,  ZERO_OPTIMIZER_NADAM, ZERO_OPTIMIZER_RPROP,
      ZERO_OPTIMIZER_ADAGRAD, ZERO_OPTIMIZER_LAMB, ZERO_OPTIMIZER_LARS};
  in_every_world([&](zero_comm* comm, const StateCase& given, int turn) {
    StateCase choices = given;
    choices.optimizer = kOptimizers[turn % 7];
    if (choices.optimizer == ZERO_OPTIMIZER_SGD || choices.optimizer == ZERO_OPTIMIZER_LARS)
      choices.momentum = 0.5;
    Rank source(comm, choices);
    source.steps(0, 3);
    choices.partition = (choices.partition + 1) % 4;
    Rank copy(comm, choices);
    EXPECT_OK(copy.step(9));  // this is replaced
    move_state(source, copy);
    for (int step = 3; step < 5; step++) {
      expect_same(source.everything(), copy.everything(), "before step " + std::to_string(step));
      ASSERT_OK(source.step(step));
      ASSERT_OK(copy.step(step));
    }
    EXPECT_EQ(copy.scalar(ZERO_ALL_PARAMS), 5);
  });
}

TEST(StateSet, parameters_that_were_updated_alike_part_when_their_steps_do) {
  on_each_comm(2, [](zero_comm* comm, int) {
    Rank kept(comm, {}), bound(comm, {});
    for (Rank* const one : {&kept, &bound}) {
      one->steps(0, 2);
      EXPECT_OK(one->set_scalar(0, "step", 500));
      if (one == &bound) one->bind();  // discards what steps remember
      one->steps(2, 2);
    }
    for (size_t p = 0; p < kept.size(); p++) EXPECT_EQ(kept.values(p), bound.values(p)) << p;
    EXPECT_EQ(kept.scalar(0), 502);
    EXPECT_EQ(kept.scalar(1), 4);
  });
}

TEST(StateGather, passes_large_tensors_in_chunks_and_seals_first) {
  constexpr int64_t kSize = 800'011;  // a rank's part is larger than a chunk
  for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY}) {
    on_each_comm(2, [&](zero_comm* comm, int rank) {
      std::vector<uint16_t> data(kSize, 0x3F80);  // 1
      Optim optim(comm,
                  StateCase{.partition = partition, .master = ZERO_MASTER_REMAINDER}.options());
      optim.add(parameter("large", kSize, data.data(), nullptr, ZERO_BFLOAT16));
      std::vector<float> values(kSize), got(kSize, -1);
      EXPECT_EQ(zero_state_get(optim.optim(), 0, nullptr, 0, 1, got.data()), ZERO_ERR_STATE);
      EXPECT_EQ(optim.gathered(0, nullptr, kSize), std::vector<float>(kSize, 1));
      for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i) + 0.25f;
      EXPECT_OK(zero_state_set(optim.optim(), 0, "master", 0, kSize, values.data()));
      EXPECT_OK(zero_state_gather(optim.optim(), 0, "master", 1, got.data(), kSize));
      EXPECT_EQ(got, rank == 1 ? values : std::vector<float>(kSize, -1));
    });
  }
}

TEST(StateSet, takes_what_is_owned_of_a_range_and_zeros_the_rest) {
  in_every_world([](zero_comm* comm, const StateCase& choices, int) {
    Rank rank(comm, choices);
    const size_t p = 3;
    const int64_t size = rank.tensor(p).size, first = 700, count = size - 1400;
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); i++)
      values[i] = static_cast<float>(rank.rank() * 10000) + static_cast<float>(i + 1);
    EXPECT_OK(zero_state_set(rank.optim(), 3, "exp_avg_sq", first, count, values.data()));
    const auto gathered = rank.gather(p, "exp_avg_sq");
    const std::vector<double> got = decode(ZERO_FLOAT32, gathered.data(), gathered.size() / 4);
    ASSERT_EQ(static_cast<int64_t>(got.size()), size);
    int64_t seen = 0;
    for (int32_t owner = 0; owner < rank.world(); owner++) {
      for (const Rank::Range& range : rank.ranges(p, owner)) {
        for (int64_t i = range.first; i < range.first + range.count; i++, seen++) {
          const bool set = i >= first && i < first + count;
          ASSERT_EQ(got[static_cast<size_t>(i)],
                    set ? owner * 10000 + static_cast<double>(i - first + 1) : 0);
        }
      }
    }
    EXPECT_EQ(seen, size);
    EXPECT_EQ(rank.names(p).size(), 2u);  // and the master
  });
}

TEST(StateSet, ranks_that_set_other_state_are_told_by_name_and_may_make_up_for_it) {
  on_each_comm(3, [](zero_comm* comm, int number) {
    Rank rank(comm, {});
    const auto differs = [&](const char* words) {
      EXPECT_TRUE(ends(rank.step(0), number == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, words));
    };
    const auto set = [&] { EXPECT_OK(zero_state_set(rank.optim(), 0, "exp_avg", 0, 0, nullptr)); };
    if (number == 1) set();
    differs("rank 1 has state set of parameter 'cut': exp_avg, step 0, rank 0 has nothing");
    if (number != 1) set();
    EXPECT_OK(rank.step(0));
    EXPECT_OK(rank.set_scalar(5, "step", number == 1 ? 8 : 7));
    differs("rank 1 has state set of parameter 'f64':, step 8, rank 0 has");
    EXPECT_OK(rank.set_scalar(5, "step", 7));
    EXPECT_OK(rank.step(1));
    EXPECT_EQ(rank.scalar(5), 8);
    EXPECT_EQ(rank.scalar(0), 2);
  });
}

TEST(StateSet, steps_and_products_that_do_not_belong_together_are_refused) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int) {
    Rank rank(comm, {.optimizer = ZERO_OPTIMIZER_NADAM});
    EXPECT_OK(rank.set_scalar(0, "step", 3));
    EXPECT_EQ(rank.step(0), ZERO_ERR_STATE);
    EXPECT_OK(rank.set_scalar(0, "mu_product", 0.5));
    EXPECT_OK(rank.step(0));
    EXPECT_EQ(rank.scalar(0), 4);
  });
}

TEST(StateAccess, wrong_arguments_and_moments_are_refused_without_effect) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank_number) {
    Rank rank(comm, {.partition = ZERO_PARTITION_MANUAL});  // rank 0 owns "cut", rank 1 owns "one"
    std::vector<float> v(8000, 1);
    zero_optim* const o = rank.optim();
    EXPECT_EQ(zero_state_get(o, 0, "momentum", 0, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 8, "exp_avg", 0, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, -1, "exp_avg", 0, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 0, "master", 0, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 0, 1, v.data()), ZERO_ERR_STATE);
    EXPECT_OK(rank.step(0));
    const zero_status owner = rank_number == 0 ? ZERO_OK : ZERO_ERR_ARGUMENT;
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 0, 3082, v.data()), owner);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 1, 3082, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", INT64_MAX, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 0, 1, nullptr), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_set(o, 0, "exp_avg", 0, 3083, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_set(o, 0, "exp_avg", -1, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(rank.set_scalar(0, "step", -1), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(rank.set_scalar(0, "step", 1.5), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(rank.set_scalar(0, "step", 0x1.0000000000001p+53), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(rank.set_scalar(0, "mu_product", 0.5), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_grad_get(o, 1, 0, 0, nullptr), ZERO_ERR_STATE);
    rank.reduce(1);
    EXPECT_EQ(zero_state_set(o, 0, "exp_avg", 0, 1, v.data()), ZERO_ERR_STATE);
    EXPECT_EQ(rank.set_scalar(0, "step", 1), ZERO_ERR_STATE);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 0, 3082, v.data()), owner);
    EXPECT_EQ(zero_grad_get(o, 0, 0, 3082, v.data()), owner);
    EXPECT_EQ(zero_grad_get(o, 6, 0, 40, v.data()), owner == ZERO_OK ? ZERO_ERR_STATE : owner);
    EXPECT_EQ(rank.gather(0, "exp_avg").size(), 4u * 3082);
    EXPECT_OK(zero_step(o, nullptr));
    EXPECT_EQ(zero_state_gather(o, 0, "exp_avg", rank_number, v.data(), 3082),
              rank_number == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER);
    EXPECT_EQ(zero_state_gather(o, 0, "exp_avg", 1, v.data(), 3081),
              rank_number == 1 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_EQ(zero_state_gather(o, 0, "exp_avg", 2, v.data(), 3082), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_share_params(o, 2, nullptr), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(rank.scalar(0), 2);
    EXPECT_OK(rank.step(2));
  });
}

/// Updates an owner's part by plain descent, as a caller would.
template <class Real>
void descend(Rank& rank, size_t p, const Rank::Range& range) {
  std::vector<Real> grads(static_cast<size_t>(range.count));
  EXPECT_OK(zero_grad_get(rank.optim(), Rank::number(p), range.first, range.count, grads.data()));
  auto* const values = reinterpret_cast<Real*>(rank.data(p).at()) + range.first;
  for (size_t i = 0; i < grads.size(); i++) values[i] -= static_cast<Real>(0.0625) * grads[i];
}

TEST(ByHand, plain_descent_equals_the_rule) {
  in_every_world([](zero_comm* comm, const StateCase& given, int) {
    StateCase choices = given;
    choices.optimizer = ZERO_OPTIMIZER_SGD;
    choices.momentum = 0;
    Rank rule(comm, choices), hand(comm, choices);
    for (int step = 0; step < 3; step++) {
      for (Rank* const one : {&rule, &hand}) {
        one->reduce(step);
        if (choices.master == ZERO_MASTER_REMAINDER) {
          EXPECT_GT(one->clip(5, 2), 5);
        }
      }
      EXPECT_OK(zero_step(rule.optim(), nullptr));
      for (const size_t p : {0, 1, 5}) {
        const bool wide = hand.tensor(p).dtype == ZERO_FLOAT64;
        for (const Rank::Range& range : hand.ranges(p))
          wide ? descend<double>(hand, p, range) : descend<float>(hand, p, range);
      }
      for (const Rank::Range& range : hand.ranges(3)) {
        const auto bytes =
            encode(ZERO_BFLOAT16, std::vector<double>(static_cast<size_t>(range.count), step + 2));
        std::memcpy(hand.data(3).at() + 2 * range.first, bytes.data(), bytes.size());
      }
      EXPECT_OK(zero_share_params(hand.optim(), 0, nullptr));
      for (const size_t p : {0, 1, 5}) EXPECT_EQ(rule.values(p), hand.values(p)) << p;
      EXPECT_EQ(hand.values(3), encode(ZERO_BFLOAT16, std::vector<double>(5003, step + 2)));
      EXPECT_EQ(hand.gather(3, "master"),
                encode(ZERO_FLOAT32, std::vector<double>(5003, step + 2)));
    }
    EXPECT_EQ(hand.scalar(ZERO_ALL_PARAMS), 0);
    EXPECT_EQ(hand.scalar(0), 0);
    EXPECT_OK(hand.step(3));
  });
}

}  // namespace
}  // namespace zero::test

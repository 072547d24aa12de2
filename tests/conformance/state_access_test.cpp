// SPDX-License-Identifier: Apache-2.0
// Single tensors of the state, and steps by hand: what a gather gives is what a save writes, what
// is set is what was taken, and ranks that set different things are told.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "state/manifest.h"
#include "state/safetensors.h"
#include "stored.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/scalar.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int32_t kPartitions[] = {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                                   ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL};

struct Tensor {
  std::string name;
  int64_t size;
  int32_t dtype;
  int32_t grad_dtype;
};

/// Cut and whole, of every dtype, one without elements, and one that never gets a gradient.
const std::vector<Tensor>& tensors() {
  static const std::vector<Tensor> all = {
      {"cut", 3082, ZERO_FLOAT32, ZERO_FLOAT32}, {"one", 1, ZERO_FLOAT32, ZERO_FLOAT32},
      {"none", 0, ZERO_FLOAT32, ZERO_FLOAT32},   {"bf16", 5003, ZERO_BFLOAT16, ZERO_BFLOAT16},
      {"f16", 301, ZERO_FLOAT16, ZERO_FLOAT32},  {"f64", 2500, ZERO_FLOAT64, ZERO_FLOAT64},
      {"still", 40, ZERO_FLOAT32, ZERO_FLOAT32}, {"still16", 40, ZERO_BFLOAT16, ZERO_BFLOAT16},
  };
  return all;
}
constexpr size_t kTrained = 6;  // the others never get a gradient

int32_t state_dtype(const Tensor& tensor) {
  return tensor.dtype == ZERO_FLOAT64 ? ZERO_FLOAT64 : ZERO_FLOAT32;
}

double made_up(size_t param, int64_t i, int step) {
  return static_cast<double>((i * 37 + static_cast<int64_t>(param) * 11 + step * 101) % 257 - 128) /
         256;
}

std::vector<double> made_up(size_t param, int step) {
  std::vector<double> values(static_cast<size_t>(tensors()[param].size));
  for (size_t i = 0; i < values.size(); i++)
    values[i] = made_up(param, static_cast<int64_t>(i), step);
  return values;
}

struct Choices {
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  int32_t partition = ZERO_PARTITION_EVEN;
  int32_t master = ZERO_MASTER_FLOAT32;
  double momentum = -1;  // of SGD
};

/// One rank's optimizer of the tensors above.
class Rank {
 public:
  Rank(zero_comm* comm, const Choices& choices) : comm_(comm) {
    auto options = initialized<zero_options>();
    options.optimizer = choices.optimizer;
    options.partition = choices.partition;
    options.master = choices.master;
    options.bucket_bytes = 8192;
    const char* const names[] = {"lr", "momentum"};
    const double values[] = {0.0625, choices.momentum};
    options.names = names;
    options.values = values;
    options.setting_count = choices.momentum < 0 ? 1 : 2;
    must(zero_create(&optim, comm, &options), "zero_create");
    add_all();
    must(zero_broadcast_params(optim, 0, nullptr), "broadcast");
  }
  ~Rank() { zero_free(optim); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  static void must(zero_status status, const char* what) {
    EXPECT_EQ(status, ZERO_OK) << what << ": " << zero_last_error();
  }

  std::vector<void*> gradients(int step) {
    std::vector<void*> pointers;
    for (size_t p = 0; p < tensors().size(); p++) {
      std::vector<double> values = made_up(p, 10 + step);
      for (double& value : values) value *= 1 + zero_comm_rank(comm_);
      const std::vector<std::byte> bytes = encode(tensors()[p].grad_dtype, values);
      grads_[p].resize(bytes.size() + 8);  // stays where it is from then on
      std::copy(bytes.begin(), bytes.end(), grads_[p].begin());
      pointers.push_back(p < kTrained ? grads_[p].data() : nullptr);
    }
    return pointers;
  }
  zero_status step(int number) {
    const std::vector<void*> grads = gradients(number);
    auto options = initialized<zero_step_options>();
    options.grads = grads.data();
    options.grad_count = grads.size();
    return zero_step(optim, &options);
  }
  void reduce(int number) {
    const std::vector<void*> grads = gradients(number);
    must(zero_reduce_grads(optim, grads.data(), grads.size(), ZERO_REDUCE_MEAN, nullptr), "reduce");
  }

  /// To where everything is.
  void bind() {
    std::vector<void*> pointers;
    for (std::vector<std::byte>& data : data_) pointers.push_back(data.data());
    must(zero_bind_params(optim, pointers.data(), nullptr, pointers.size()), "bind");
  }

  std::vector<const char*> names(size_t param) const {
    const char* found[8];
    size_t count = 0;
    int32_t dtype = 0;
    must(zero_state_info(optim, number(param), &dtype, found, 8, &count), "info");
    EXPECT_EQ(dtype, state_dtype(tensors()[param]));
    return {found, found + count};
  }
  /// As bytes; empty where this rank gets nothing.
  std::vector<std::byte> gather(size_t param, const char* name, int32_t to = ZERO_ALL_RANKS) {
    const Tensor& tensor = tensors()[param];
    std::vector<std::byte> out;
    const bool mine = to == ZERO_ALL_RANKS || to == zero_comm_rank(comm_);
    if (mine) out.resize(static_cast<size_t>(tensor.size) * element_bytes(state_dtype(tensor)));
    must(zero_state_gather(optim, number(param), name, to, mine ? out.data() : nullptr,
                           mine ? static_cast<size_t>(tensor.size) : 0),
         "gather");
    return out;
  }
  struct Range {
    int64_t first, count;
  };
  std::vector<Range> owned(size_t param, int32_t rank) const {
    size_t count = 0;
    must(zero_owned_ranges(optim, rank, nullptr, 0, &count), "zero_owned_ranges");
    std::vector<int64_t> ranges(3 * count);
    must(zero_owned_ranges(optim, rank, ranges.data(), count, &count), "zero_owned_ranges");
    std::vector<Range> out;
    for (size_t i = 0; i < count; i++) {
      if (ranges[3 * i] == number(param)) out.push_back({ranges[3 * i + 1], ranges[3 * i + 2]});
    }
    return out;
  }
  std::vector<Range> owned(size_t param) const { return owned(param, zero_comm_rank(comm_)); }
  double scalar(int64_t param, const char* name) const {
    double value = -1;
    must(zero_state_get(optim, param, name, 0, 1, &value), "get_scalar");
    return value;
  }
  std::vector<std::byte>& data(size_t param) { return data_[param]; }
  static int64_t number(size_t param) { return static_cast<int64_t>(param); }

  zero_optim* optim = nullptr;

 private:
  /// One group: parameters are updated together.
  void add_all() {
    std::vector<zero_param> params(tensors().size());
    for (size_t p = 0; p < params.size(); p++) {
      const Tensor& tensor = tensors()[p];
      data_.push_back(encode(tensor.dtype, made_up(p, 0)));
      data_.back().resize(data_.back().size() + 8);  // memory, also for no elements
      grads_.emplace_back();
      ZERO_INIT(params[p]);
      params[p].name = tensor.name.c_str();
      params[p].data = data_.back().data();
      params[p].shape = &tensor.size;
      params[p].ndim = 1;
      params[p].dtype = tensor.dtype;
      params[p].grad_dtype = tensor.grad_dtype;
      params[p].owner = static_cast<int32_t>(p) % zero_comm_world(comm_);
    }
    must(zero_register_params(optim, nullptr, params.data(), params.size(), nullptr), "register");
  }

  zero_comm* comm_;
  std::vector<std::vector<std::byte>> data_, grads_;
};

void in_every_world(const std::function<void(zero_comm*, const Choices&, int turn)>& body) {
  int turn = 0;
  for (const CommKind kind : kCommKinds) {
    for (int world = 1; world <= 4; world++) {
      for (const int32_t partition : kPartitions) {
        const int32_t master = ++turn % 2 ? ZERO_MASTER_FLOAT32 : ZERO_MASTER_REMAINDER;
        const Choices choices{.partition = partition, .master = master};
        SCOPED_TRACE("world " + std::to_string(world) + ", partition " + std::to_string(partition));
        on_ranks(kind, world, [&](zero_comm* comm, int) { body(comm, choices, turn); });
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

/// Every state tensor of a checkpoint, whole, by "parameter.name".
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
  in_every_world([&](zero_comm* comm, const Choices& choices, int turn) {
    Rank rank(comm, choices);
    for (int step = 0; step < 3; step++) ASSERT_EQ(rank.step(step), ZERO_OK);
    const std::string directory = scratch / std::to_string(turn);
    Rank::must(zero_state_save(rank.optim, directory.c_str(), nullptr), "save");
    const auto saved = saved_state(directory);
    size_t told = 0;
    int32_t to = ZERO_ALL_RANKS;
    for (size_t p = 0; p < tensors().size(); p++) {
      const Tensor& tensor = tensors()[p];
      for (const char* const name : rank.names(p)) {
        told++;
        const std::vector<std::byte> got = rank.gather(p, name, to);
        const bool mine = to == ZERO_ALL_RANKS || to == zero_comm_rank(comm);
        const auto& wanted = saved.at(tensor.name + "." + name);
        EXPECT_TRUE(!mine || got == wanted) << tensor.name << "." << name;
        for (const Rank::Range& range : rank.owned(p)) {
          const size_t element = element_bytes(state_dtype(tensor));
          std::vector<std::byte> part(static_cast<size_t>(range.count) * element);
          Rank::must(zero_state_get(rank.optim, Rank::number(p), name, range.first, range.count,
                                    part.data()),
                     "get");
          EXPECT_TRUE(std::equal(part.begin(), part.end(),
                                 wanted.begin() + range.first * static_cast<int64_t>(element)));
        }
        if (++to == zero_comm_world(comm)) to = ZERO_ALL_RANKS;
      }
      const std::vector<std::byte> values = rank.gather(p, nullptr);
      if (element_bytes(tensor.dtype) == 2) {
        EXPECT_EQ(values, saved.at(tensor.name + ".master"));
      } else {
        EXPECT_TRUE(std::equal(values.begin(), values.end(), rank.data(p).begin()));
      }
    }
    EXPECT_EQ(told, saved.size());  // nothing else is saved
    EXPECT_EQ(told, 2 * kTrained + 3);
  });
}

TEST(StateGather, what_a_parameter_does_not_have_yet_is_told_on_all_ranks) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [](zero_comm* comm, int) {
      Rank rank(comm, {});
      float values[1] = {7};
      EXPECT_TRUE(rank.names(1).empty());
      EXPECT_EQ(zero_state_gather(rank.optim, 1, "exp_avg", ZERO_ALL_RANKS, values, 1),
                ZERO_ERR_STATE);
      EXPECT_NE(std::string(zero_last_error()).find("'exp_avg' of parameter 'one' holds nothing"),
                std::string::npos);
      EXPECT_EQ(values[0], 7);
      EXPECT_EQ(rank.step(0), ZERO_OK);
      EXPECT_EQ(zero_state_gather(rank.optim, 1, "exp_avg", ZERO_ALL_RANKS, values, 1), ZERO_OK);
    });
  }
}

/// Take everything out of `from`, whole, and put it into `to`.
void move_state(Rank& from, Rank& to) {
  Rank::must(set_scalar(to.optim, ZERO_ALL_PARAMS, "step", from.scalar(ZERO_ALL_PARAMS, "step")),
             "set_scalar");
  for (size_t p = 0; p < tensors().size(); p++) {
    const int64_t size = tensors()[p].size, number = Rank::number(p);
    const auto values = from.gather(p, nullptr);
    Rank::must(zero_state_set(to.optim, number, nullptr, 0, size, values.data()), "set");
    for (const char* const name : from.names(p)) {
      const auto state = from.gather(p, name);
      Rank::must(zero_state_set(to.optim, number, name, 0, size, state.data()), "set");
    }
    const double step = from.scalar(number, "step");
    Rank::must(set_scalar(to.optim, number, "step", step), "set_scalar");
    double product = 0;
    if (zero_state_get(from.optim, number, "mu_product", 0, 1, &product) == ZERO_OK)
      Rank::must(set_scalar(to.optim, number, "mu_product", product), "set_scalar");
  }
  Rank::must(zero_share_params(to.optim, ZERO_SHARE_KEEP_MASTERS, nullptr), "share");
}

TEST(StateSet, what_was_taken_trains_on_as_if_it_had_been_there) {
  const int32_t optimizers[] = {ZERO_OPTIMIZER_ADAMW, ZERO_OPTIMIZER_SGD,     ZERO_OPTIMIZER_NADAM,
                                ZERO_OPTIMIZER_RPROP, ZERO_OPTIMIZER_ADAGRAD, ZERO_OPTIMIZER_LAMB,
                                ZERO_OPTIMIZER_LARS};
  in_every_world([&](zero_comm* comm, const Choices& given, int turn) {
    Choices choices = given;
    choices.optimizer = optimizers[turn % 7];
    if (choices.optimizer == ZERO_OPTIMIZER_SGD || choices.optimizer == ZERO_OPTIMIZER_LARS)
      choices.momentum = 0.5;
    Rank source(comm, choices);
    for (int step = 0; step < 3; step++) ASSERT_EQ(source.step(step), ZERO_OK);
    choices.partition = kPartitions[(turn + 1) % 4];
    Rank copy(comm, choices);
    EXPECT_EQ(copy.step(9), ZERO_OK);  // what was there is replaced
    move_state(source, copy);
    for (int step = 3; step < 5; step++) {
      for (size_t p = 0; p < tensors().size(); p++) {
        EXPECT_EQ(source.data(p), copy.data(p)) << tensors()[p].name << " before step " << step;
        for (const char* const name : source.names(p))
          EXPECT_EQ(source.gather(p, name), copy.gather(p, name)) << tensors()[p].name << name;
        EXPECT_EQ(source.scalar(Rank::number(p), "step"), copy.scalar(Rank::number(p), "step"));
      }
      ASSERT_EQ(source.step(step), ZERO_OK);
      ASSERT_EQ(copy.step(step), ZERO_OK);
    }
    EXPECT_EQ(copy.scalar(ZERO_ALL_PARAMS, "step"), 5);
  });
}

TEST(StateSet, parameters_that_were_updated_alike_part_when_their_steps_do) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [](zero_comm* comm, int) {
      Rank kept(comm, {}), bound(comm, {});
      for (Rank* const one : {&kept, &bound}) {
        for (int step = 0; step < 2; step++) ASSERT_EQ(one->step(step), ZERO_OK);
        Rank::must(set_scalar(one->optim, 0, "step", 500), "set_scalar");
        if (one == &bound) one->bind();  // nothing that steps remember holds any more
        for (int step = 2; step < 4; step++) ASSERT_EQ(one->step(step), ZERO_OK);
      }
      for (size_t p = 0; p < tensors().size(); p++)
        EXPECT_EQ(kept.data(p), bound.data(p)) << tensors()[p].name;
      EXPECT_EQ(kept.scalar(0, "step"), 502);
      EXPECT_EQ(kept.scalar(1, "step"), 4);
    });
  }
}

TEST(StateGather, passes_large_tensors_in_chunks_and_seals_first) {
  constexpr int64_t kSize = 800'011;  // a rank's part is more than a chunk
  for (const CommKind kind : kCommKinds) {
    for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY}) {
      on_ranks(kind, 2, [&](zero_comm* comm, int rank) {
        auto options = initialized<zero_options>();
        options.partition = partition;
        options.master = ZERO_MASTER_REMAINDER;
        zero_optim* optim = nullptr;
        Rank::must(zero_create(&optim, comm, &options), "zero_create");
        std::vector<uint16_t> data(kSize, 0x3F80);  // 1
        auto param = initialized<zero_param>();
        param.name = "large";
        param.data = data.data();
        param.shape = &kSize;
        param.ndim = 1;
        param.dtype = ZERO_BFLOAT16;
        Rank::must(zero_register_params(optim, nullptr, &param, 1, nullptr), "register");
        std::vector<float> values(kSize), got(kSize, -1);
        EXPECT_EQ(zero_state_get(optim, 0, nullptr, 0, 1, got.data()), ZERO_ERR_STATE);
        Rank::must(zero_state_gather(optim, 0, nullptr, ZERO_ALL_RANKS, got.data(), kSize),
                   "gather");
        EXPECT_EQ(got, std::vector<float>(kSize, 1));
        for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i) + 0.25f;
        Rank::must(zero_state_set(optim, 0, "master", 0, kSize, values.data()), "set");
        Rank::must(zero_state_gather(optim, 0, "master", 1, got.data(), kSize), "gather");
        EXPECT_EQ(got, rank == 1 ? values : std::vector<float>(kSize, 1));
        zero_free(optim);
      });
    }
  }
}

TEST(StateSet, takes_what_is_owned_of_a_range_and_zeros_the_rest) {
  in_every_world([](zero_comm* comm, const Choices& choices, int) {
    Rank rank(comm, choices);
    const size_t p = 3;
    const int64_t size = tensors()[p].size, first = 700, count = size - 1400;
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); i++)
      values[i] = static_cast<float>(zero_comm_rank(comm) * 10000) + static_cast<float>(i + 1);
    Rank::must(zero_state_set(rank.optim, 3, "exp_avg_sq", first, count, values.data()), "set");
    const auto gathered = rank.gather(p, "exp_avg_sq");
    const std::vector<double> got = decode(ZERO_FLOAT32, gathered.data(), gathered.size() / 4);
    ASSERT_EQ(static_cast<int64_t>(got.size()), size);
    int64_t seen = 0;
    for (int32_t owner = 0; owner < zero_comm_world(comm); owner++) {
      for (const Rank::Range& range : rank.owned(p, owner)) {
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
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 3, [](zero_comm* comm, int rank_number) {
      Rank rank(comm, {});
      const auto differs = [&](const char* words) {
        EXPECT_EQ(rank.step(0), rank_number == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER);
        EXPECT_NE(std::string(zero_last_error()).find(words), std::string::npos)
            << zero_last_error();
      };
      const auto set = [&] {
        Rank::must(zero_state_set(rank.optim, 0, "exp_avg", 0, 0, nullptr), "set");
      };
      if (rank_number == 1) set();
      differs("rank 1 has state set of parameter 'cut': exp_avg, step 0, rank 0 has nothing");
      if (rank_number != 1) set();
      EXPECT_EQ(rank.step(0), ZERO_OK);
      const double step = rank_number == 1 ? 8 : 7;
      Rank::must(set_scalar(rank.optim, 5, "step", step), "set_scalar");
      differs("rank 1 has state set of parameter 'f64':, step 8, rank 0 has");
      Rank::must(set_scalar(rank.optim, 5, "step", 7), "set_scalar");
      EXPECT_EQ(rank.step(1), ZERO_OK);
      EXPECT_EQ(rank.scalar(5, "step"), 8);
      EXPECT_EQ(rank.scalar(0, "step"), 2);
    });
  }
}

TEST(StateSet, steps_and_products_that_do_not_belong_together_are_refused) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int) {
    Rank rank(comm, {.optimizer = ZERO_OPTIMIZER_NADAM});
    Rank::must(set_scalar(rank.optim, 0, "step", 3), "set_scalar");
    EXPECT_EQ(rank.step(0), ZERO_ERR_STATE);
    Rank::must(set_scalar(rank.optim, 0, "mu_product", 0.5), "set_scalar");
    EXPECT_EQ(rank.step(0), ZERO_OK);
    EXPECT_EQ(rank.scalar(0, "step"), 4);
  });
}

TEST(StateAccess, wrong_arguments_and_moments_are_refused_without_effect) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank_number) {
    Rank rank(comm, {.partition = ZERO_PARTITION_MANUAL});  // "cut" is rank 0's, "one" rank 1's
    std::vector<float> v(8000, 1);
    zero_optim* const o = rank.optim;
    EXPECT_EQ(zero_state_get(o, 0, "momentum", 0, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 8, "exp_avg", 0, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, -1, "exp_avg", 0, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 0, "master", 0, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 0, 1, v.data()), ZERO_ERR_STATE);
    EXPECT_EQ(rank.step(0), ZERO_OK);
    const zero_status owner = rank_number == 0 ? ZERO_OK : ZERO_ERR_ARGUMENT;
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 0, 3082, v.data()), owner);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 1, 3082, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", INT64_MAX, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 0, 1, nullptr), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_set(o, 0, "exp_avg", 0, 3083, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_state_set(o, 0, "exp_avg", -1, 1, v.data()), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(set_scalar(o, 0, "step", -1), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(set_scalar(o, 0, "step", 1.5), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(set_scalar(o, 0, "step", 0x1.0000000000001p+53), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(set_scalar(o, 0, "mu_product", 0.5), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_grad_get(o, 1, 0, 0, nullptr), ZERO_ERR_STATE);
    rank.reduce(1);
    EXPECT_EQ(zero_state_set(o, 0, "exp_avg", 0, 1, v.data()), ZERO_ERR_STATE);
    EXPECT_EQ(set_scalar(o, 0, "step", 1), ZERO_ERR_STATE);
    EXPECT_EQ(zero_state_get(o, 0, "exp_avg", 0, 3082, v.data()), owner);
    EXPECT_EQ(zero_grad_get(o, 0, 0, 3082, v.data()), owner);
    EXPECT_EQ(zero_grad_get(o, 6, 0, 40, v.data()), owner == ZERO_OK ? ZERO_ERR_STATE : owner);
    EXPECT_EQ(rank.gather(0, "exp_avg").size(), 4u * 3082);
    EXPECT_EQ(zero_step(o, nullptr), ZERO_OK);
    EXPECT_EQ(zero_state_gather(o, 0, "exp_avg", rank_number, v.data(), 3082),
              rank_number == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER);
    EXPECT_EQ(zero_state_gather(o, 0, "exp_avg", 1, v.data(), 3081),
              rank_number == 1 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_EQ(zero_state_gather(o, 0, "exp_avg", 2, v.data(), 3082), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_share_params(o, 2, nullptr), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(rank.scalar(0, "step"), 2);
    EXPECT_EQ(rank.step(2), ZERO_OK);
  });
}

TEST(ByHand, plain_descent_equals_the_rule) {
  in_every_world([](zero_comm* comm, const Choices& given, int turn) {
    Choices choices = given;
    choices.optimizer = ZERO_OPTIMIZER_SGD;
    choices.momentum = 0;
    Rank rule(comm, choices), hand(comm, choices);
    for (int step = 0; step < 3; step++) {
      double norm = 0;
      rule.reduce(step);
      hand.reduce(step);
      if (turn % 3 == 0) {
        zero_clip_grad_norm(rule.optim, nullptr, 0, 5, 2, &norm, nullptr);
        zero_clip_grad_norm(hand.optim, nullptr, 0, 5, 2, &norm, nullptr);
        EXPECT_GT(norm, 5);
      }
      EXPECT_EQ(zero_step(rule.optim, nullptr), ZERO_OK);
      for (const size_t p : {0, 1, 5}) {
        for (const Rank::Range& range : hand.owned(p)) {
          const auto count = static_cast<size_t>(range.count);
          if (tensors()[p].dtype == ZERO_FLOAT64) {
            std::vector<double> grads(count);
            Rank::must(
                zero_grad_get(hand.optim, Rank::number(p), range.first, range.count, grads.data()),
                "grad_get");
            auto* const values = reinterpret_cast<double*>(hand.data(p).data()) + range.first;
            for (size_t i = 0; i < count; i++) values[i] -= 0.0625 * grads[i];
          } else {
            std::vector<float> grads(count);
            Rank::must(
                zero_grad_get(hand.optim, Rank::number(p), range.first, range.count, grads.data()),
                "grad_get");
            auto* const values = reinterpret_cast<float*>(hand.data(p).data()) + range.first;
            for (size_t i = 0; i < count; i++) values[i] -= 0.0625f * grads[i];
          }
        }
      }
      for (const Rank::Range& range : hand.owned(3)) {
        const auto bytes =
            encode(ZERO_BFLOAT16, std::vector<double>(static_cast<size_t>(range.count), step + 2));
        std::memcpy(hand.data(3).data() + 2 * range.first, bytes.data(), bytes.size());
      }
      Rank::must(zero_share_params(hand.optim, 0, nullptr), "share");
      for (const size_t p : {0, 1, 5}) EXPECT_EQ(rule.data(p), hand.data(p)) << tensors()[p].name;
      for (int64_t i = 0; i < tensors()[3].size; i++)
        ASSERT_EQ(decode(ZERO_BFLOAT16, hand.data(3).data() + 2 * i, 1)[0], step + 2);
      EXPECT_EQ(hand.gather(3, "master"),
                encode(ZERO_FLOAT32, std::vector<double>(5003, step + 2)));
    }
    EXPECT_EQ(hand.scalar(ZERO_ALL_PARAMS, "step"), 0);
    EXPECT_EQ(hand.scalar(0, "step"), 0);
    EXPECT_EQ(hand.step(3), ZERO_OK);
  });
}

}  // namespace
}  // namespace zero::test

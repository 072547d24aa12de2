// SPDX-License-Identifier: Apache-2.0
// Parameters that no rule can train: they come along frozen.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/comms.h"
#include "support/expect.h"
#include "support/scalar.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int64_t kSize = 3000;

/// Two parameters of integers around one that is trained, in memory of the rank's own.
struct Mixed {
  explicit Mixed(zero_comm* seat, int32_t partition) : comm(seat) {
    auto options = initialized<zero_options>();
    options.optimizer = ZERO_OPTIMIZER_ADAM;
    options.partition = partition;
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK);
    const int64_t size = kSize, one = 1;
    std::array<zero_param, 3> params;
    for (zero_param& param : params) {
      ZERO_INIT(param);
      param.shape = &size;
      param.ndim = 1;
      param.flags = ZERO_PARAM_FROZEN;
    }
    params[0].name = "ids";
    params[0].data = ids.data();
    params[0].dtype = ZERO_INT64;
    params[1].name = "w";
    params[1].data = w.data();
    params[1].grad = grad.data();
    params[1].flags = 0;
    params[2].name = "count";
    params[2].data = &count;
    params[2].shape = &one;
    params[2].dtype = ZERO_INT32;
    EXPECT_EQ(zero_register_params(optim, nullptr, params.data(), 3, nullptr), ZERO_OK) << last();
  }
  ~Mixed() {
    zero_free(optim);
    zero_comm_free(comm);
  }
  void fill(int rank) {
    for (size_t i = 0; i < ids.size(); i++)
      ids[i] = (int64_t{1} << 60) + static_cast<int64_t>(i) * (rank + 1);
    count = INT32_MAX - rank;
  }
  bool holds(int rank) {
    for (size_t i = 0; i < ids.size(); i++) {
      if (ids[i] != (int64_t{1} << 60) + static_cast<int64_t>(i) * (rank + 1)) return false;
    }
    return count == INT32_MAX - rank;
  }

  zero_comm* comm;
  zero_optim* optim = nullptr;
  std::vector<int64_t> ids = std::vector<int64_t>(kSize);
  std::vector<float> w = std::vector<float>(kSize, 1), grad = std::vector<float>(kSize, 1);
  int32_t count = 0;
};

TEST(Trainable, integers_are_broadcast_saved_and_loaded_but_never_trained) {
  for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
    const Scratch scratch;
    std::vector<float> trained;
    for (const int world : {3, 2}) {  // the first saves, the second loads and goes on
      const Meeting meeting(world == 3 ? CommKind::local : CommKind::user, world);
      run_sound_ranks(RankKind::threads, world, [&](int rank) {
        Mixed model(meeting.join(rank), partition);
        model.fill(rank);
        EXPECT_TRUE(ends(zero_param_set_trainable(model.optim, 0, 1), ZERO_ERR_UNSUPPORTED,
                         "'ids' is int64"));
        EXPECT_EQ(zero_param_set_trainable(model.optim, 0, 0), ZERO_OK);
        if (world == 3) {
          EXPECT_EQ(zero_broadcast_params(model.optim, 1, nullptr), ZERO_OK) << last();
        } else {
          EXPECT_EQ(zero_state_load(model.optim, (scratch / "c").c_str(), nullptr), ZERO_OK)
              << last();
        }
        EXPECT_TRUE(model.holds(1));
        const int32_t count = std::exchange(model.count, 100 + rank);
        EXPECT_EQ(zero_step(model.optim, nullptr), ZERO_OK) << last();
        EXPECT_EQ(model.count, 100 + rank);  // a step writes nothing that is frozen
        model.count = count;
        EXPECT_TRUE(model.holds(1));
        std::vector<int64_t> gathered(kSize);
        EXPECT_EQ(
            zero_state_gather(model.optim, 0, nullptr, ZERO_ALL_RANKS, gathered.data(), kSize),
            ZERO_OK)
            << last();
        EXPECT_EQ(gathered, model.ids);
        EXPECT_EQ(zero_state_set(model.optim, 0, "exp_avg", 0, kSize, gathered.data()),
                  ZERO_ERR_ARGUMENT);
        EXPECT_EQ(set_scalar(model.optim, 0, "step", 5), ZERO_ERR_ARGUMENT);
        EXPECT_EQ(set_scalar(model.optim, ZERO_ALL_PARAMS, "step", world == 3 ? 1 : 2), ZERO_OK)
            << last();
        if (world == 3) {
          EXPECT_EQ(zero_state_save(model.optim, (scratch / "c").c_str(), nullptr), ZERO_OK)
              << last();
          EXPECT_EQ(zero_step(model.optim, nullptr), ZERO_OK) << last();
          if (rank == 0) trained = model.w;
        } else {
          EXPECT_EQ(model.w, trained);
        }
        auto statistics = initialized<zero_statistics>();
        zero_stats(model.optim, &statistics);
        EXPECT_LE(statistics.state_bytes, (kSize + 1024) * 2 * int64_t{sizeof(float)});
        return std::string();
      });
    }
  }
}

}  // namespace
}  // namespace zero::test

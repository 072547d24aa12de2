// SPDX-License-Identifier: Apache-2.0
// Loss scaling, and what is done about gradients that are not finite: all ranks decide the same.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "support/vector_param.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int64_t kElements = 3000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One rank with one tensor of ones and plain SGD.
class Rank {
 public:
  Rank(zero_comm* comm, const zero_options& options) : data_(kElements, 1.0f) {
    grad_.resize(kElements);
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << zero_last_error();
    EXPECT_EQ(register_vector(optim_, data_, grad_), ZERO_OK);
  }
  ~Rank() { zero_free(optim_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  zero_status step(float gradient, float last) {
    std::fill(grad_.begin(), grad_.end(), gradient);
    grad_.back() = last;
    return zero_step(optim_, nullptr);
  }
  zero_result result() const {
    auto result = initialized<zero_result>();
    zero_step_result(optim_, &result);
    return result;
  }
  zero_optim* optim() { return optim_; }
  const std::vector<float>& data() const { return data_; }

 private:
  zero_optim* optim_ = nullptr;
  std::vector<float> data_, grad_;
};

constexpr double kLr = 0.5;

/// Run `body` on every rank, as threads.
void on_ranks(CommKind kind, int world, const zero_options& options,
              const std::function<void(Rank&, int)>& body) {
  on_ranks(kind, world, [&](zero_comm* comm, int rank) {
    Rank self(comm, options);
    body(self, rank);
  });
}

/// torch.amp.GradScaler's rule, in its own words.
struct Scaler {
  double scale, growth, backoff;
  int interval, tracker = 0;
  void update(bool found_inf) {
    if (found_inf) {
      scale *= backoff;
      tracker = 0;
      return;
    }
    tracker += 1;
    if (tracker == interval) {
      scale *= growth;
      tracker = 0;
    }
  }
};

TEST(LossScale, follows_torchs_rule_on_every_rank_and_skipped_steps_change_nothing) {
  for (const CommKind kind : kCommKinds) {
    for (int world = 1; world <= 3; world++) {
      zero_options options = plain_sgd(kLr);
      options.loss_scale = 1024;
      options.growth_factor = 4;
      options.backoff_factor = 0.25;
      options.growth_interval = 3;
      on_ranks(kind, world, options, [&](Rank& self, int rank) {
        std::mt19937 random(5);
        Scaler expected{1024, 4, 0.25, 3};
        float value = 1;
        int64_t skipped = 0;
        for (int step = 0; step < 60; step++) {
          const bool bad = random() % 4 == 0;
          const int culprit = static_cast<int>(random() % static_cast<unsigned>(world));
          const float bad_value = random() % 2 == 0 ? kInfinity : std::nanf("");
          const auto scaled = static_cast<float>(0.25 * expected.scale);
          const zero_status status = self.step(scaled, bad && rank == culprit ? bad_value : scaled);
          EXPECT_EQ(status, bad ? ZERO_SKIPPED : ZERO_OK) << zero_last_error();
          if (!bad) value = value - 0.5f * 0.25f;
          skipped += bad;
          expected.update(bad);
          const zero_result result = self.result();
          EXPECT_EQ(result.loss_scale, expected.scale) << step;
          EXPECT_EQ(result.skipped, skipped);
          EXPECT_EQ(result.nonfinite, bad ? 1 : 0);
          EXPECT_EQ(self.data(), std::vector<float>(kElements, value)) << step;
        }
      });
    }
  }
}

TEST(LossScale, what_every_owner_found_is_added) {
  for (const CommKind kind : kCommKinds) {
    for (const int world : {1, 2, 4}) {  // each owns as many as the others
      zero_options options = plain_sgd(kLr);
      options.nonfinite = ZERO_NONFINITE_SKIP;
      on_ranks(kind, world, options, [](Rank& self, int) {
        EXPECT_EQ(self.step(std::nanf(""), kInfinity), ZERO_SKIPPED) << zero_last_error();
        EXPECT_EQ(self.result().nonfinite, kElements);
      });
    }
  }
}

TEST(LossScale, norms_and_clipping_are_of_unscaled_gradients) {
  zero_options options = plain_sgd(kLr);
  options.max_grad_norm = 0.5;
  on_ranks(CommKind::local, 2, options, [](Rank& self, int) {
    EXPECT_EQ(zero_group_set(self.optim(), ZERO_ALL_GROUPS, "loss_scale", 4096), ZERO_OK);
    EXPECT_EQ(self.step(4096.0f * 0.125f, 4096.0f * 0.125f), ZERO_OK) << zero_last_error();
    const double norm = 0.125 * std::sqrt(static_cast<double>(kElements));
    EXPECT_NEAR(self.result().grad_norm, norm, norm * 1e-12);
    EXPECT_NEAR(self.result().clip_factor, 0.5 / (norm + 1e-6), 1e-12);
    EXPECT_EQ(self.result().loss_scale, 4096);
  });
}

TEST(LossScale, is_saved_and_loaded_with_the_steps_that_were_good) {
  Scratch scratch;
  zero_options options = plain_sgd(kLr);
  options.loss_scale = 8;
  options.growth_interval = 3;
  on_ranks(CommKind::local, 2, options, [&](Rank& self, int) {
    for (int i = 0; i < 5; i++) EXPECT_EQ(self.step(1, 1), ZERO_OK);
    EXPECT_EQ(zero_state_save(self.optim(), (scratch / "a").c_str(), nullptr), ZERO_OK)
        << zero_last_error();
  });
  on_ranks(CommKind::local, 3, options, [&](Rank& self, int) {
    EXPECT_EQ(zero_state_load(self.optim(), (scratch / "a").c_str(), nullptr), ZERO_OK)
        << zero_last_error();
    EXPECT_EQ(self.result().loss_scale, 16);
    EXPECT_EQ(self.step(1, 1), ZERO_OK);  // the sixth: grows again
    EXPECT_EQ(self.result().loss_scale, 32);
  });
}

TEST(LossScale, that_differs_between_ranks_is_named) {
  on_ranks(CommKind::local, 2, plain_sgd(kLr), [](Rank& self, int rank) {
    EXPECT_EQ(zero_group_set(self.optim(), ZERO_ALL_GROUPS, "loss_scale", rank == 0 ? 2 : 3),
              ZERO_OK);
    const zero_status status = self.step(1, 1);
    EXPECT_EQ(status, rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH) << zero_last_error();
    EXPECT_NE(std::string(zero_last_error()).find("loss scale"), std::string::npos)
        << zero_last_error();
  });
}

TEST(LossScale, settings_that_make_no_sense_are_refused) {
  zero_comm* comm = nullptr;
  ASSERT_EQ(zero_comm_create_solo(&comm, nullptr), ZERO_OK);
  const auto refused = [&](const std::function<void(zero_options&)>& change) {
    zero_options options = plain_sgd(kLr);
    options.loss_scale = 8;
    change(options);
    zero_optim* optim = nullptr;
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_ERR_ARGUMENT);
  };
  refused([](zero_options& o) { o.loss_scale = -1; });
  refused([](zero_options& o) { o.loss_scale = std::nan(""); });
  refused([](zero_options& o) { o.loss_scale = INFINITY; });
  refused([](zero_options& o) { o.growth_factor = 0.5; });
  refused([](zero_options& o) { o.backoff_factor = 1.5; });
  refused([](zero_options& o) { o.backoff_factor = -0.5; });
  refused([](zero_options& o) { o.growth_interval = -1; });
  refused([](zero_options& o) { o.nonfinite = ZERO_NONFINITE_ERROR; });
  {
    const zero_options options = plain_sgd(kLr);
    Rank rank(comm, options);
    for (const double scale : {0.0, -1.0, 1e-40, 1e40, static_cast<double>(INFINITY), std::nan("")})
      EXPECT_EQ(zero_group_set(rank.optim(), ZERO_ALL_GROUPS, "loss_scale", scale),
                ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_reduce_grads(rank.optim(), nullptr, 0, ZERO_REDUCE_MEAN, nullptr), ZERO_OK);
    EXPECT_EQ(zero_group_set(rank.optim(), ZERO_ALL_GROUPS, "loss_scale", 2), ZERO_ERR_STATE);
    double scale = 0;
    EXPECT_EQ(zero_group_get(rank.optim(), ZERO_ALL_GROUPS, "loss_scale", &scale), ZERO_OK);
    EXPECT_EQ(scale, 1);
    EXPECT_EQ(zero_clip_grad_value(rank.optim(), 0, nullptr), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(zero_clip_grad_value(rank.optim(), std::nan(""), nullptr), ZERO_ERR_ARGUMENT);
  }
}

TEST(Nonfinite, gradients_are_an_error_on_every_rank_if_asked_for_and_change_nothing) {
  for (const CommKind kind : kCommKinds) {
    zero_options options = plain_sgd(kLr);
    options.nonfinite = ZERO_NONFINITE_ERROR;
    on_ranks(kind, 3, options, [](Rank& self, int rank) {
      EXPECT_EQ(self.step(1, rank == 1 ? kInfinity : 1), ZERO_ERR_NONFINITE);
      EXPECT_NE(std::string(zero_last_error()).find("1 elements"), std::string::npos)
          << zero_last_error();
      EXPECT_EQ(self.result().step, 0);
      EXPECT_EQ(self.data(), std::vector<float>(kElements, 1.0f));
      EXPECT_EQ(self.step(1, 1), ZERO_OK) << zero_last_error();
      EXPECT_EQ(self.data(), std::vector<float>(kElements, 0.5f));
    });
  }
}

}  // namespace
}  // namespace zero::test

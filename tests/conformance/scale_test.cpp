// SPDX-License-Identifier: Apache-2.0
// Loss scaling, and the treatment of gradients that are not finite. All ranks decide the same.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int64_t kElements = 3000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One rank with one tensor of ones, and plain SGD.
class Rank : public Optim {
 public:
  template <class Seat>
  Rank(Seat comm, const zero_options& options) : Optim(comm, options) {
    add(parameter("w", kElements, data_.data(), grad_.data()));
  }
  ~Rank() { free(); }

  zero_status step(float gradient, float last) {
    std::fill(grad_.begin(), grad_.end(), gradient);
    grad_.back() = last;
    return Optim::step();
  }
  const std::vector<float>& data() const { return data_; }

 private:
  std::vector<float> data_ = std::vector<float>(kElements, 1), grad_ = data_;
};

constexpr double kLr = 0.5;

/// Runs `body` on every rank, as threads.
void on_ranks(CommKind kind, int world, const zero_options& options,
              const std::function<void(Rank&, int)>& body) {
  on_ranks(kind, world, [&](zero_comm* comm, int rank) {
    Rank self(comm, options);
    body(self, rank);
  });
}

/// The rule of torch.amp.GradScaler, in its own terms.
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
          const zero_result result = self.found();
          EXPECT_EQ(result.loss_scale, expected.scale) << step;
          EXPECT_EQ(result.skipped, skipped);
          EXPECT_EQ(result.nonfinite, bad ? 1 : 0);
          EXPECT_EQ(self.data(), std::vector<float>(kElements, value)) << step;
        }
      });
    }
  }
}

TEST(LossScale, stays_where_the_next_one_would_be_out_of_range) {
  for (const int sign : {1, -1}) {
    zero_options options = plain_sgd(kLr);
    options.loss_scale = std::ldexp(1, sign * 99);
    options.growth_factor = 2;
    options.backoff_factor = 0.5;
    options.growth_interval = 1;
    on_ranks(CommKind::local, 2, options, [sign](Rank& self, int) {
      for (int step = 0; step < 3; step++) {
        self.step(0, sign > 0 ? 0 : kInfinity);
        EXPECT_EQ(self.found().loss_scale, std::ldexp(1, sign * 100)) << step;
      }
    });
  }
}

TEST(LossScale, what_every_owner_found_is_added) {
  for (const CommKind kind : kCommKinds) {
    for (const int world : {1, 2, 4}) {  // all own the same number of elements
      zero_options options = plain_sgd(kLr);
      options.nonfinite = ZERO_NONFINITE_SKIP;
      on_ranks(kind, world, options, [](Rank& self, int) {
        EXPECT_EQ(self.step(std::nanf(""), kInfinity), ZERO_SKIPPED) << zero_last_error();
        EXPECT_EQ(self.found().nonfinite, kElements);
      });
    }
  }
}

TEST(LossScale, norms_and_clipping_are_of_unscaled_gradients) {
  // p, the norm of 3000 gradients of 1/8, and 1/16 divided by that norm plus 1e-6.
  const std::array<double, 3> rows[] = {{1, 375, 1.6666666622222222e-4},
                                        {2, 6.846531968814576, 9.12870795841963e-3},
                                        {INFINITY, 0.125, 0.49999600003199974}};
  for (const auto& [p, norm, factor] : rows) {
    zero_options options = plain_sgd(kLr);
    options.max_grad_norm = 0.0625;
    options.grad_norm_type = p;
    on_ranks(CommKind::local, 2, options, [p = p, norm = norm, factor = factor](Rank& self, int) {
      self.set("loss_scale", 4096);
      EXPECT_OK(self.step(4096.0f * 0.125f, 4096.0f * 0.125f));
      EXPECT_NEAR(self.found().grad_norm, norm, norm * 1e-12) << p;
      EXPECT_NEAR(self.found().clip_factor, factor, factor * 1e-12) << p;
      EXPECT_EQ(self.found().loss_scale, 4096);
    });
  }
}

TEST(LossScale, is_saved_and_loaded_with_the_steps_that_were_good) {
  Scratch scratch;
  zero_options options = plain_sgd(kLr);
  options.loss_scale = 8;
  options.growth_interval = 3;
  on_ranks(CommKind::local, 2, options, [&](Rank& self, int) {
    for (int i = 0; i < 5; i++) EXPECT_OK(self.step(1, 1));
    self.save(scratch / "a");
  });
  on_ranks(CommKind::local, 3, options, [&](Rank& self, int) {
    self.load(scratch / "a");
    EXPECT_EQ(self.found().loss_scale, 16);
    EXPECT_OK(self.step(1, 1));  // the sixth: the scale grows again
    EXPECT_EQ(self.found().loss_scale, 32);
  });
}

TEST(LossScale, that_differs_between_ranks_is_named) {
  on_ranks(CommKind::local, 2, plain_sgd(kLr), [](Rank& self, int rank) {
    EXPECT_OK(zero_group_set(self.optim(), ZERO_ALL_GROUPS, "loss_scale", rank == 0 ? 2 : 3));
    EXPECT_TRUE(ends(self.step(1, 1), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH, "loss scale"));
  });
}

TEST(LossScale, settings_that_make_no_sense_are_refused) {
  const std::shared_ptr<zero_comm> comm = alone();
  const auto refused = [&](const std::function<void(zero_options&)>& change) {
    zero_options options = plain_sgd(kLr);
    options.loss_scale = 8;
    change(options);
    zero_optim* optim = nullptr;
    EXPECT_EQ(zero_create(&optim, comm.get(), &options), ZERO_ERR_ARGUMENT);
  };
  refused([](zero_options& o) { o.loss_scale = -1; });
  refused([](zero_options& o) { o.loss_scale = std::nan(""); });
  refused([](zero_options& o) { o.loss_scale = INFINITY; });
  refused([](zero_options& o) { o.growth_factor = 0.5; });
  refused([](zero_options& o) { o.backoff_factor = 1.5; });
  refused([](zero_options& o) { o.backoff_factor = -0.5; });
  refused([](zero_options& o) { o.growth_interval = -1; });
  refused([](zero_options& o) { o.nonfinite = ZERO_NONFINITE_ERROR; });
  Rank rank(comm, plain_sgd(kLr));
  for (const double scale : {0.0, -1.0, 1e-40, 1e40, static_cast<double>(INFINITY), std::nan("")})
    EXPECT_EQ(zero_group_set(rank.optim(), ZERO_ALL_GROUPS, "loss_scale", scale),
              ZERO_ERR_ARGUMENT);
  EXPECT_OK(rank.reduce());
  EXPECT_EQ(zero_group_set(rank.optim(), ZERO_ALL_GROUPS, "loss_scale", 2), ZERO_ERR_STATE);
  EXPECT_EQ(rank.setting("loss_scale"), 1);
  EXPECT_EQ(zero_clip_grad_value(rank.optim(), 0, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_clip_grad_value(rank.optim(), std::nan(""), nullptr), ZERO_ERR_ARGUMENT);
}

TEST(Nonfinite, gradients_are_an_error_on_every_rank_if_asked_for_and_change_nothing) {
  for (const CommKind kind : kCommKinds) {
    zero_options options = plain_sgd(kLr);
    options.nonfinite = ZERO_NONFINITE_ERROR;
    on_ranks(kind, 3, options, [](Rank& self, int rank) {
      EXPECT_TRUE(ends(self.step(1, rank == 1 ? kInfinity : 1), ZERO_ERR_NONFINITE, "1 elements"));
      EXPECT_EQ(self.found().step, 0);
      EXPECT_EQ(self.data(), std::vector<float>(kElements, 1.0f));
      EXPECT_OK(self.step(1, 1));
      EXPECT_EQ(self.data(), std::vector<float>(kElements, 0.5f));
    });
  }
}

}  // namespace
}  // namespace zero::test

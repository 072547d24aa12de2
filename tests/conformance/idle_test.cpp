// SPDX-License-Identifier: Apache-2.0
// Ranks that own nothing of a model, and only wait for the end of each step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "support/comms.h"
#include "support/optim.h"
#include "support/scratch.h"
#include "support/watched.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kWorld = 4;
constexpr int kUntilSteady = 3;  // steps
constexpr int64_t kFew = 20;     // elements, which rank 0 owns

/// One parameter, and plain SGD with lr 1. Every gradient is the number of the step.
class Few : public Optim {
 public:
  explicit Few(zero_comm* comm)
      : Optim(comm, plain_sgd(kLr1)), data_(comm, kBytes), grads_(comm, 2 * kBytes) {
    add(parameter("few", kFew, data_.floats(), grads_.floats()));
    for (int i = 0; i < kUntilSteady; i++) train();
    EXPECT_EQ(statistics().owned_elements == 0, rank() > 0);
  }
  ~Few() { free(); }

  /// Takes a step on all ranks.
  void train() {
    step_++;
    fill();
    EXPECT_OK(step());
    expect_trained();
  }
  /// Sets the gradients of the next step.
  void fill() { std::fill_n(grads_.floats(), 2 * kFew, static_cast<float>(step_)); }
  void expect_trained() const {
    const auto sum = static_cast<float>(-step_ * (step_ + 1) / 2);
    EXPECT_EQ(std::count(data_.floats(), data_.floats() + kFew, sum), kFew) << "step " << step_;
  }
  /// Moves the gradients to the other half of their memory.
  void move_grads() {
    void* const data[] = {data_.floats()};
    void* const grads[] = {grads_.floats() + kFew};
    EXPECT_OK(zero_bind_params(optim(), data, grads, 1));
  }

 private:
  static constexpr size_t kBytes = kFew * sizeof(float);
  const Arena data_, grads_;
  int step_ = 0;
};

TEST(Idle, ranks_return_when_the_others_have_written_all) {
  on_ranks(CommKind::local, kWorld, [](zero_comm* comm, int) {
    Few few(comm);
    for (int i = 0; i < 300; i++) few.train();
  });
}

TEST(Idle, ranks_hear_that_another_refuses_the_step_and_make_the_next) {
  on_ranks(CommKind::local, kWorld, [](zero_comm* comm, int rank) {
    Few few(comm);
    for (int i = 0; i < 3; i++) {
      const bool culprit = rank == i;
      EXPECT_EQ(few.step(culprit ? 1 << 20 : ZERO_REDUCE_MEAN),
                culprit ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
      few.expect_trained();
      few.train();
    }
  });
}

TEST(Idle, ranks_hear_that_settings_differ_and_make_the_next) {
  on_ranks(CommKind::local, kWorld, [](zero_comm* comm, int rank) {
    Few few(comm);
    for (int odd = 0; odd < kWorld; odd++) {
      if (rank == odd) few.set("lr", 0.5);
      EXPECT_EQ(few.step(), rank == odd ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER) << last();
      few.expect_trained();
      few.set("lr", 1);
      for (int i = 0; i < kUntilSteady; i++) few.train();
    }
  });
}

/// The exchanges of this thread's rank.
thread_local int exchanges = 0;

TEST(Idle, ranks_make_no_exchange_more_where_another_is_never_ready) {
  const Watched watched([](const char* point) {
    if (std::string_view(point) == "exchange.read") exchanges++;
  });
  on_ranks(CommKind::local, kWorld, [](zero_comm* comm, int rank) {
    Few few(comm);
    std::vector<float> foreign(kFew);
    const auto expect_exchanges = [&](int expected, const std::vector<void*>& grads) {
      for (int i = 0; i < 2 * kUntilSteady; i++) {
        exchanges = 0;
        EXPECT_OK(few.step_with(grads));
        if (i >= kUntilSteady) {
          EXPECT_EQ(exchanges, expected) << "step " << i;
        }
      }
    };
    expect_exchanges(2, {});
    expect_exchanges(3, rank == 0 ? std::vector<void*>{foreign.data()} : std::vector<void*>());
  });
}

TEST(Idle, ranks_follow_where_a_step_is_unlike_the_last) {
  const Scratch scratch;
  on_ranks(CommKind::local, kWorld, [&](zero_comm* comm, int rank) {
    Few few(comm);
    for (int i = 0; i < kWorld; i++) {
      if (rank == i) few.move_grads();
      few.train();
    }
    few.set("lr", 0.5);
    few.set("lr", 1);
    few.train();
    few.save(scratch / "saved");
    few.train();
  });
}

TEST(Idle, ranks_follow_where_one_begins_a_trace) {
  const Scratch scratch;
  on_ranks(CommKind::local, kWorld, [&](zero_comm* comm, int rank) {
    Few few(comm);
    for (int i = 0; i < kWorld; i++) {
      const std::string directory = scratch / text("trace-", i);
      if (rank == i) {
        EXPECT_OK(zero_trace_start(comm, directory.c_str()));
      }
      for (int n = 0; n < 3; n++) few.train();
      if (rank == i) {
        EXPECT_OK(zero_trace_stop(comm));
        const std::string file = read_file(text(directory, "/rank-", i, ".json"));
        EXPECT_NE(file.find("publish\",\"cat\":\"wait\""), file.npos) << file;
      }
      for (int n = 0; n < 3; n++) few.train();
    }
  });
}

}  // namespace
}  // namespace zero::test

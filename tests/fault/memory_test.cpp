// SPDX-License-Identifier: Apache-2.0
// Memory that only one rank does not get, in the seal and during training. All ranks get the error,
// nothing has changed, and training continues.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <deque>

#include "base/text.h"
#include "support/optim.h"
#include "support/ranks.h"
#include "support/system_calls.h"
#include "zero.h"

namespace zero::test {
namespace {

int left_to_pass = -1;  // mmaps before the one that fails; -1: none fails
bool failed_one = false;

void* refuse(void* address, size_t bytes, int protection, int flags, int fd, int64_t offset) {
  if (left_to_pass < 0 || left_to_pass-- > 0)
    return real_system_calls().mmap(address, bytes, protection, flags, fd, offset);
  failed_one = true;
  errno = ENOMEM;
  return MAP_FAILED;
}

struct Plot {
  const char* what;
  int32_t optimizer;
  bool at_seal;  // otherwise in a step that needs memory for momentum switched on before it
  bool foreign;  // memory outside of arenas
  double max_grad_norm;
  bool reduces;        // in a separate call
  bool seals = false;  // in a separate call
};

const std::vector<Plot> kPlots = {
    {"seal in zero_step", ZERO_OPTIMIZER_ADAMW, true, false, 0, false},
    {"seal in zero_step, foreign memory", ZERO_OPTIMIZER_ADAMW, true, true, 0, false},
    {"seal in zero_seal", ZERO_OPTIMIZER_ADAMW, true, false, 0, false, true},
    {"seal in zero_step that clips", ZERO_OPTIMIZER_ADAM, true, true, 0.1, false},
    {"step", ZERO_OPTIMIZER_SGD, false, false, 0, false},
    {"step, foreign memory", ZERO_OPTIMIZER_SGD, false, true, 0, false},
    {"step that clips", ZERO_OPTIMIZER_SGD, false, false, 0.1, false},
    {"step with norms of tensors", ZERO_OPTIMIZER_LARS, false, false, 0, false},
    {"step on reduced gradients", ZERO_OPTIMIZER_SGD, false, false, 0, true},
};

constexpr int64_t kSizes[] = {3001, 1, 70'000};
constexpr size_t kElements = 73'002;
const char* const kNames[] = {"a", "b", "c"};

/// One rank's training, in which the victim gets no memory.
class Trainee : public Optim {
 public:
  Trainee(const Plot& plot, zero_comm* comm, int victim)
      : Optim(comm, options_with([&](zero_options& o) {
                o.optimizer = plot.optimizer;
                o.max_grad_norm = plot.max_grad_norm;
                o.threads = 1;
              })),
        plot_(plot),
        victim_(victim) {
    own_.resize(2 * kElements);
    data_ = own_.data();
    grads_ = own_.data() + kElements;
    if (!plot_.foreign) {
      data_ = arenas_.emplace_back(comm, kElements * 4, ZERO_MEMORY_SHARED).floats();
      grads_ = arenas_.emplace_back(comm, kElements * 4).floats();
    }
    std::vector<zero_param> params;
    size_t at = 0;
    for (size_t i = 0; i < std::size(kSizes); at += static_cast<size_t>(kSizes[i++]))
      params.push_back(parameter(kNames[i], kSizes[i], data_ + at, grads_ + at));
    add(params);
    for (size_t i = 0; i < kElements; i++) data_[i] = 1.0f + static_cast<float>(i % 13);
  }
  ~Trainee() { free(); }

  /// Returns the errors of failed calls, one per line, then an empty line and the parameters.
  std::string go() {
    replace_call(&SystemCalls::mmap, refuse);
    int step = 0;
    if (!plot_.at_seal) {
      while (step < 2) EXPECT_OK(take(step++));
      set("momentum", 0.9);
    }
    fill(step);
    if (plot_.reduces) {
      EXPECT_OK(reduce());
    }
    until_it_succeeds([this] { return plot_.seals ? zero_seal(optim()) : Optim::step(); });
    if (!plot_.seals) step++;
    while (step < 5) EXPECT_OK(take(step++));
    return text(said_, "\n", bytes(data_));
  }

 private:
  static std::string bytes(const float* from) {
    return std::string(reinterpret_cast<const char*>(from), kElements * sizeof(float));
  }
  void fill(int step) {
    for (size_t i = 0; i < kElements; i++) {
      grads_[i] = 0.01f * static_cast<float>((i + 7) % 11 + static_cast<size_t>(3 * step + rank()));
    }
  }

  zero_status take(int step) {
    fill(step);
    return Optim::step();
  }

  /// Repeats the call while the victim's first mmap fails, then its second, and so on.
  template <class Call>
  void until_it_succeeds(const Call& call) {
    const std::string data = bytes(data_), grads = bytes(grads_);
    const int64_t steps = found().step;
    for (int n = 0; n < 50; n++) {
      EXPECT_OK(zero_comm_barrier(comm()));  // all ranks have read the shared memory
      left_to_pass = rank() == victim_ ? n : -1;
      failed_one = false;
      const zero_status status = call();
      left_to_pass = -1;
      if (rank() == victim_) {
        EXPECT_EQ(status != ZERO_OK, failed_one);
      }
      if (status == ZERO_OK) return;
      said_ += text(zero_status_name(status), ": ", zero_last_error(), "\n");
      EXPECT_OK(zero_comm_barrier(comm()));
      EXPECT_TRUE(bytes(data_) == data) << zero_last_error();
      EXPECT_TRUE(bytes(grads_) == grads) << zero_last_error();
      EXPECT_EQ(found().step, steps);
    }
    ADD_FAILURE() << "it never succeeds";
  }

  const Plot& plot_;
  const int victim_;
  std::string said_;
  std::deque<Arena> arenas_;
  std::vector<float> own_;
  float* data_ = nullptr;
  float* grads_ = nullptr;
};

struct Outcome {
  std::vector<std::string> said;
  std::string params;
};

std::vector<Outcome> train(const Plot& plot, int world, int victim) {
  const Meeting meeting(CommKind::local, world);
  const auto go = [&](zero_comm* comm, int) { return Trainee(plot, comm, victim).go(); };
  std::vector<Outcome> outcomes;
  for (const std::string& result : results_of(meeting, go, RankKind::processes)) {
    Outcome outcome;
    size_t at = 0;
    for (size_t end; (end = result.find('\n', at)) != std::string::npos && end > at; at = end + 1)
      outcome.said.push_back(result.substr(at, end - at));
    outcome.params = result.substr(std::min(at + 1, result.size()));
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

TEST(Memory, that_one_rank_does_not_get_changes_nothing_and_all_are_told) {
  for (const Plot& plot : kPlots) {
    for (const int world : {2, 3}) {
      const std::vector<Outcome> sound = train(plot, world, -1);
      for (int victim = 0; victim < world; victim++) {
        const std::string what = text(plot.what, ", rank ", victim, " of ", world);
        const std::vector<Outcome> ranks = train(plot, world, victim);
        const std::vector<std::string>& own = ranks[static_cast<size_t>(victim)].said;
        EXPECT_GE(own.size(), plot.at_seal ? 2u : 1u) << what;
        for (int rank = 0; rank < world; rank++) {
          const Outcome& outcome = ranks[static_cast<size_t>(rank)];
          EXPECT_TRUE(outcome.params == sound[static_cast<size_t>(rank)].params) << what;
          EXPECT_EQ(outcome.params.size(), kElements * sizeof(float)) << what;
          ASSERT_EQ(outcome.said.size(), own.size()) << what;
          for (size_t i = 0; i < own.size(); i++) {
            const std::string call = plot.seals ? "zero_seal" : "zero_step";
            const std::string mine = text("ZERO_ERR_MEMORY: ", call, ": ");
            EXPECT_EQ(own[i].rfind(mine, 0), 0u) << what << ": " << own[i];
            const std::string told = text("ZERO_ERR_PEER: ", call, ": rank ", victim, " in ", call,
                                          ": ZERO_ERR_MEMORY: ", own[i].substr(mine.size()));
            if (rank != victim) {
              EXPECT_EQ(outcome.said[i], told) << what;
            }
          }
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
// A custom update rule between inaccessible pages. The library does not touch these. A rule that
// does ends its own process, and the others get an error.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "support/points.h"
#include "zero.h"

namespace zero::test {
namespace {

enum class Edge { front, end };

/// Memory of the engine that begins or ends next to an inaccessible page.
class Fenced {
 public:
  Fenced(size_t bytes, Edge edge) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inner = (bytes + page - 1) / page * page;
    size_ = inner + 2 * page;
    void* const all = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    begin_ = static_cast<std::byte*>(all);
    EXPECT_EQ(mprotect(begin_ + page, inner, PROT_READ | PROT_WRITE), 0);
    data_ = begin_ + page + (edge == Edge::end ? inner - bytes : 0);
  }
  ~Fenced() { munmap(begin_, size_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* begin_;
  std::byte* data_;
  size_t size_;
};

/// What the rule does on the rank that is to fail, in its second step.
enum class Deed { nothing, reads_nowhere, writes_nowhere };

zero_status update(void* ctx, const zero_update* update) {
  const Deed deed = *static_cast<const Deed*>(ctx);
  auto* const values = static_cast<float*>(update->values);
  const auto* const gradient = static_cast<const float*>(update->gradient);
  auto* const slot = static_cast<float*>(update->slots[0]);
  for (int64_t i = 0; i < update->count; i++) {
    slot[i] += gradient[i];
    values[i] -= slot[i];
  }
  if (update->step < 2) return ZERO_OK;
  volatile float* volatile nowhere = nullptr;
  if (deed == Deed::reads_nowhere) return *nowhere > 0 ? ZERO_OK : ZERO_SKIPPED;
  if (deed == Deed::writes_nowhere) *nowhere = 1;
  return ZERO_OK;
}

/// Takes two steps on one rank. Returns "" or why the second failed.
std::string train(zero_comm* comm, int rank, Deed deed, Edge edge, int32_t dtype, int32_t flags) {
  const int64_t sizes[] = {1, 1027, 33, 5001};
  const size_t element = dtype == ZERO_FLOAT32 ? 4 : 2;
  std::vector<std::unique_ptr<Fenced>> data, grads;
  auto custom = initialized<zero_custom_optimizer>();
  const char* const slots[] = {"sum"};
  custom.name = "fenced";
  custom.update = update;
  custom.ctx = &deed;
  custom.slots = slots;
  custom.slot_count = 1;
  custom.flags = flags;
  auto options = initialized<zero_options>();
  options.optimizer = ZERO_OPTIMIZER_CUSTOM;
  options.custom = &custom;
  options.bucket_bytes = 4096;
  options.partition = flags == 0 ? ZERO_PARTITION_EVEN : ZERO_PARTITION_GREEDY;
  std::vector<zero_param> params;
  const char* const names[] = {"a", "b", "c", "d"};
  for (int i = 0; i < 4; i++) {
    const size_t bytes = static_cast<size_t>(sizes[i]) * element;
    data.push_back(std::make_unique<Fenced>(bytes, edge));
    grads.push_back(std::make_unique<Fenced>(bytes, edge));
    params.push_back(
        parameter(names[i], sizes[i], data.back()->as<void>(), grads.back()->as<void>(), dtype));
  }
  Optim optim(comm, options);
  optim.add(params);
  EXPECT_OK(optim.step()) << rank;
  const zero_status second = optim.step();
  return second == ZERO_OK ? "" : std::string(zero_status_name(second)) + ": " + last();
}

TEST(OwnRuleFault, the_library_touches_nothing_beside_parameters_and_gradients) {
  for (const CommKind kind : kCommKinds) {
    for (const Edge edge : {Edge::front, Edge::end}) {
      for (const int32_t dtype : {ZERO_FLOAT32, ZERO_BFLOAT16}) {
        for (const int32_t flags : {0, int32_t{ZERO_CUSTOM_WHOLE_TENSORS}}) {
          const Meeting meeting(kind, 2);
          const std::vector<std::string> told =
              run_sound_ranks(RankKind::processes, 2, [&](int rank) {
                zero_comm* comm = meeting.join(rank);
                std::string out = train(comm, rank, Deed::nothing, edge, dtype, flags);
                zero_comm_free(comm);
                return out;
              });
          for (const std::string& one : told) EXPECT_EQ(one, "");
        }
      }
    }
  }
}

TEST(OwnRuleFault, a_function_that_faults_ends_its_process_and_the_others_are_told) {
  for (const Deed deed : {Deed::reads_nowhere, Deed::writes_nowhere}) {
    for (int victim = 0; victim < 3; victim++) {
      const Meeting meeting(CommKind::local, 3);
      const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) {
        zero_comm* comm = meeting.join(rank);
        std::string out =
            train(comm, rank, rank == victim ? deed : Deed::nothing, Edge::end, ZERO_FLOAT32, 0);
        auto failure = initialized<zero_failure>();
        zero_comm_failure(comm, &failure);
        out += failure.params_consistent == 1 ? ", consistent" : ", in question";
        zero_comm_free(comm);
        return out;
      });
      EXPECT_FALSE(ends[static_cast<size_t>(victim)].returned);
      for_each_survivor(ends, victim, [&](int, const std::string& said) {
        EXPECT_TRUE(contains(said, "ZERO_ERR_PEER_DEAD", text("rank ", victim), ", consistent"));
      });
    }
  }
}

}  // namespace
}  // namespace zero::test

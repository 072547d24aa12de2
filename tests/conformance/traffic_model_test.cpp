// SPDX-License-Identifier: Apache-2.0
// The predictions of bench/traffic for small clusters equal what their ranks count in a real step.
// Ranks are threads, and sockets carry their data in place of MPI. Control messages use the real
// links.
#include "traffic_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int64_t kSizes[] = {70'000, 3, 1024, 40'001, 16, 9'000, 1};
constexpr int64_t kBucketBytes = 65'536;

/// Tensors of one dtype, in memory that travels packed.
class Model : public Optim {
 public:
  Model(zero_comm* comm, int32_t instances, int32_t wire)
      : Optim(comm, options_with([&](zero_options& o) {
                o.bucket_bytes = kBucketBytes;
                o.instances = instances;
                o.wire_dtype = wire;
              })) {
    std::vector<zero_param> params;
    for (const int64_t& size : kSizes) {
      names_.push_back(std::to_string(names_.size()));
      data_.emplace_back(size, 1.0f);
      grads_.emplace_back(size, 1.0f);
    }
    for (size_t i = 0; i < std::size(kSizes); i++)
      params.push_back(parameter(names_[i].c_str(), kSizes[i], data_[i].data(), grads_[i].data()));
    add(params);
  }
  ~Model() { free(); }

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<float>> data_, grads_;
};

Plan plan_for(const bench::Cluster& cluster) {
  Plan plan({.world = cluster.places(), .bucket_bytes = kBucketBytes});
  std::vector<PlanParam> params;
  for (const int64_t size : kSizes)
    params.push_back({.count = size, .order = static_cast<int64_t>(params.size())});
  const auto end = static_cast<int64_t>(params.size());
  EXPECT_OK(plan.add(params, std::span(&end, 1)));
  return plan;
}

struct Shape {
  int32_t world, instances;
};
// Hosts as in hosts_of(): two with several ranks, or one per rank.
constexpr Shape kShapes[] = {{2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 2},
                             {4, 4}, {5, 1}, {6, 1}, {6, 3}, {8, 1}, {8, 4}};

bench::Cluster cluster_of(const Shape& shape, DType wire) {
  const auto on = hosts_of(shape.world);
  const std::vector<uint64_t> hosts(on.begin(), on.end());
  return {hosts::Layout::of(hosts), shape.instances, wire};
}

bench::Flow between(int64_t bytes_before, int64_t bytes, int64_t messages_before,
                    int64_t messages) {
  return {bytes - bytes_before, messages - messages_before};
}

void expect_same(const bench::Flow& counted, const bench::Flow& modelled, const char* what) {
  EXPECT_EQ(counted.bytes, modelled.bytes) << what;
  EXPECT_EQ(counted.messages, modelled.messages) << what;
}

/// Checks the counts of the rank in a step like the one before it.
void expect_counts(Model& model, std::barrier<>& together, const bench::Traded& sent,
                   const bench::Traded& received) {
  for (int step = 0; step < 2; step++) EXPECT_OK(model.step());
  together.arrive_and_wait();
  const zero_statistics before = model.statistics();
  together.arrive_and_wait();
  EXPECT_OK(model.step());
  together.arrive_and_wait();
  const zero_statistics after = model.statistics();
  together.arrive_and_wait();
  expect_same(between(before.sent_data_bytes, after.sent_data_bytes, before.sent_data_messages,
                      after.sent_data_messages),
              sent.data(), "data that is sent");
  expect_same(between(before.received_data_bytes, after.received_data_bytes,
                      before.received_data_messages, after.received_data_messages),
              received.data(), "data that comes");
  expect_same(between(before.sent_control_bytes, after.sent_control_bytes,
                      before.sent_control_messages, after.sent_control_messages),
              sent.control, "control that is sent");
  expect_same(between(before.received_control_bytes, after.received_control_bytes,
                      before.received_control_messages, after.received_control_messages),
              received.control, "control that comes");
}

TEST(TrafficModel, says_what_ranks_count_in_a_step) {
  for (const Shape& shape : kShapes) {
    for (const DType wire : {DType::none, DType::bf16}) {
      const bench::Cluster cluster = cluster_of(shape, wire);
      const Plan plan = plan_for(cluster);
      std::barrier<> together(shape.world);
      on_ranks(CommKind::clustered, shape.world, [&](zero_comm* comm, int rank) {
        SCOPED_TRACE(text(shape.instances, " instances, wire ", static_cast<int>(wire)));
        Model model(comm, shape.instances, wire == DType::none ? 0 : ZERO_BFLOAT16);
        expect_counts(model, together, bench::sent_by(rank, cluster, plan),
                      bench::received_by(rank, cluster, plan));
      });
    }
  }
}

// A block is the smallest unit with an owner, here rank 0. It travels to and from rank 0 once.
TEST(TrafficModel, ranks_that_own_nothing_send_their_gradients_and_get_parameters_alone) {
  constexpr int32_t kWorld = 6;
  const bench::Cluster cluster = cluster_of({kWorld, 1}, DType::none);
  Plan plan({.world = kWorld, .bucket_bytes = kBucketBytes});
  const PlanParam param{.count = 16};
  const int64_t end = 1;
  ASSERT_OK(plan.add({&param, 1}, {&end, 1}));
  bench::Flow sent, received;
  for (int32_t rank = 0; rank < kWorld; rank++) {
    sent = sent + bench::sent_by(rank, cluster, plan).data();
    received = received + bench::received_by(rank, cluster, plan).data();
  }
  const int64_t others = cluster.layout.hosts() - 1;
  EXPECT_EQ(sent.bytes, 2 * others * kBlock * 4);
  EXPECT_EQ(sent.messages, 2 * others);
  EXPECT_EQ(received.bytes, sent.bytes);
}

}  // namespace
}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
// What bench/traffic says of small clusters is what their ranks count in a real step. Ranks are
// threads here, and sockets carry their data in place of MPI; control goes by the real links.
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
  Model(zero_comm* comm, int32_t wire)
      : Optim(comm, options_with([&](zero_options& o) {
                o.bucket_bytes = kBucketBytes;
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

struct Layout {
  int32_t hosts, ranks;
};
// As hosts_of() makes them.
constexpr Layout kLayouts[] = {{2, 1}, {3, 1}, {5, 1}, {2, 2}, {2, 3}, {2, 4}};

bench::Flow between(int64_t bytes_before, int64_t bytes, int64_t messages_before,
                    int64_t messages) {
  return {bytes - bytes_before, messages - messages_before};
}

void expect_same(const bench::Flow& counted, const bench::Flow& modelled, const char* what) {
  EXPECT_EQ(counted.bytes, modelled.bytes) << what;
  EXPECT_EQ(counted.messages, modelled.messages) << what;
}

TEST(TrafficModel, says_what_ranks_count_in_a_step) {
  for (const Layout& layout : kLayouts) {
    for (const DType wire : {DType::none, DType::bf16}) {
      const bench::Cluster cluster{layout.hosts, layout.ranks, 1, wire};
      const Plan plan = plan_for(cluster);
      std::barrier<> together(cluster.world());
      on_ranks(CommKind::clustered, cluster.world(), [&](zero_comm* comm, int rank) {
        SCOPED_TRACE(text(layout.hosts, " hosts of ", layout.ranks, ", wire ",
                          static_cast<int>(wire), ", rank ", rank));
        Model model(comm, wire == DType::none ? 0 : ZERO_BFLOAT16);
        EXPECT_OK(model.step());
        together.arrive_and_wait();
        const zero_statistics before = model.statistics();
        together.arrive_and_wait();
        EXPECT_OK(model.step());
        together.arrive_and_wait();
        const zero_statistics after = model.statistics();
        together.arrive_and_wait();
        // Ranks take turns on hosts here, in the model they do not.
        const int32_t place = rank / layout.hosts, host = rank % layout.hosts;
        const bench::Sent sent = bench::sent_by(host * layout.ranks + place, cluster, plan);
        expect_same(between(before.sent_data_bytes, after.sent_data_bytes,
                            before.sent_data_messages, after.sent_data_messages),
                    sent.data(), "data that is sent");
        expect_same(between(before.received_data_bytes, after.received_data_bytes,
                            before.received_data_messages, after.received_data_messages),
                    sent.data(), "data that comes");
        expect_same(between(before.sent_control_bytes, after.sent_control_bytes,
                            before.sent_control_messages, after.sent_control_messages),
                    sent.control, "control that is sent");
        expect_same(between(before.received_control_bytes, after.received_control_bytes,
                            before.received_control_messages, after.received_control_messages),
                    sent.control, "control that comes");
      });
    }
  }
}

}  // namespace
}  // namespace zero::test

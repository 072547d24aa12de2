// SPDX-License-Identifier: Apache-2.0
#include "support/comms.h"

#include <array>

#include "api/handles.h"
#include "base/text.h"
#include "comm/create.h"
#include "support/emulated_launches.h"

namespace zero::test {

const char* name_of(CommKind kind) {
  constexpr std::array kNames = {"solo",   "local", "user",  "user_sums", "clustered", "mpi",
                                 "device", "nccl",  "gates", "hosts",     "staged"};
  return kNames[static_cast<size_t>(kind)];
}

/// Some seeds also guard the memory, which is too slow for all of them.
std::shared_ptr<ChaosWorld> chaos(const Devices& devices, CommKind kind) {
  auto world = ChaosWorld::create({.seed = devices.seed,
                                   .eager = devices.seed % 4 == 0,
                                   .patience = INT64_MAX,
                                   .emulate = emulate,
                                   .guarded = devices.guarded || devices.seed % 8 == 1,
                                   .words = kind != CommKind::hosts,
                                   .reaches = kind != CommKind::staged});
  world->forget(devices.forgotten);
  return world;
}

Meeting::Meeting(CommKind kind, int world, const Devices& devices)
    : kind_(kind),
      world_(world),
      options_(devices.options),
      name_(unique_name()),
      engine_(kind == CommKind::user || kind == CommKind::user_sums
                  ? std::make_unique<Engine>(world)
                  : nullptr),
      clustered_(kind == CommKind::clustered ? std::make_unique<HostsRanks>(world) : nullptr) {
  if (kind == CommKind::nccl) {
    nccl_ = std::make_unique<NcclRanks>(world, devices.seed, devices.guarded);
    nccl_->chaos().forget(devices.forgotten);
  } else if (on_devices(kind)) {
    chaos_ = test::chaos(devices, kind);
    for (int rank = 0; rank < world; rank++) devices_.push_back(chaos_->make_device(rank));
  }
}

Meeting::Meeting(CommKind kind, int world, int64_t patience_ms)
    // With this seed the host reaches the devices' memory, and NCCL has windows.
    : Meeting(kind, world, Devices{.seed = 5}) {
  options_.timeout_ms = options_.late_ms = options_.rendezvous_ms = patience_ms;
}

zero_comm* Meeting::join(int rank, std::function<Code(const char*)> before) const {
  zero_comm* comm = nullptr;
  zero_comm_options options;
  ZERO_INIT(options);
  options.timeout_ms = options_.timeout_ms;
  options.late_ms = options_.late_ms;
  options.rendezvous_ms = options_.rendezvous_ms;
  if (kind_ == CommKind::local) {
    EXPECT_EQ(zero_comm_create_local(&comm, name_.c_str(), rank, world_, &options), ZERO_OK)
        << last();
  } else if (kind_ == CommKind::user) {
    const zero_comm_functions functions = as_public(Engine::functions());
    EngineSeat* const seat = engine_->seat(rank);
    seat->before = std::move(before);
    EXPECT_EQ(zero_comm_create_user(&comm, &functions, seat, rank, world_, &options), ZERO_OK)
        << last();
  } else {
    Result<std::shared_ptr<Comm>> joined = seat(rank, 0, options_);
    EXPECT_TRUE(joined.ok()) << joined.failure().text();
    if (joined.ok()) comm = api::add_handle(std::move(joined).value());
  }
  return comm;
}

Result<std::shared_ptr<Comm>> Meeting::seat(int rank, int number,
                                            const CommOptions& options) const {
  const std::shared_ptr<Device> device =
      devices_.empty() ? nullptr : devices_[static_cast<size_t>(rank)];
  switch (kind_) {
    case CommKind::solo:
    case CommKind::device:
      return create_solo(options, device);
    case CommKind::user:
    case CommKind::user_sums:
      return create_user(Engine::functions(kind_ == CommKind::user_sums), engine_->seat(rank), rank,
                         world_, options);
    case CommKind::clustered:
      return clustered_->join(rank, text(name_, "-", number), options);
    case CommKind::mpi:
      return create_mpi(nullptr, 0, options, launched().several_hosts());
    case CommKind::nccl:
      return nccl_->join(rank, options, number);
    default:
      return create_local(text(name_, "-", number), rank, world_, options, device);
  }
}

std::vector<std::string> results_of(const Meeting& meeting,
                                    const std::function<std::string(zero_comm*, int)>& body,
                                    RankKind ranks) {
  if (meeting.kind() == CommKind::mpi) ranks = RankKind::launched;
  return run_sound_ranks(ranks, meeting.world(), [&](int rank) {
    zero_comm* const comm = meeting.join(rank);
    const std::string result = comm != nullptr ? body(comm, rank) : "";
    zero_comm_free(comm);
    return result;
  });
}

void on_ranks(const Meeting& meeting, const std::function<void(zero_comm*, int)>& body) {
  results_of(meeting, [&](zero_comm* comm, int rank) -> std::string {
    body(comm, rank);
    return {};
  });
}

void on_ranks(CommKind kind, int world, const std::function<void(zero_comm*, int)>& body) {
  on_ranks(Meeting(kind, world), [&](zero_comm* comm, int rank) {
    SCOPED_TRACE(text(name_of(kind), ", rank ", rank, " of ", world));
    body(comm, rank);
  });
}

void on_each_comm(int world, const std::function<void(zero_comm*, int)>& body) {
  for (const CommKind kind : kCommKinds) on_ranks(kind, world, body);
}

zero_comm* solo() {
  zero_comm* comm = nullptr;
  EXPECT_EQ(zero_comm_create_solo(&comm, nullptr), ZERO_OK) << last();
  return comm;
}

std::shared_ptr<zero_comm> alone() { return {solo(), zero_comm_free}; }

std::shared_ptr<zero_comm> alone(const Devices& devices) {
  return {Meeting(CommKind::device, 1, devices).join(0), zero_comm_free};
}

std::shared_ptr<Device> device_of(const zero_comm* comm) {
  return api::find_handle(comm).value()->device();
}

std::string last() { return zero_last_error(); }

::testing::AssertionResult says(const std::string& words) {
  if (last().find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << last() << "' does not say '" << words << "'";
}

}  // namespace zero::test

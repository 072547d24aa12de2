// SPDX-License-Identifier: Apache-2.0
// Transfers through host memory between devices that do not reach each other: sums in rank order,
// gathers and broadcasts of any size, on any stream, in any legal order of the devices.
#include "comm/local/staged_plane.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "api/handles.h"
#include "stored.h"
#include "support/comms.h"
#include "support/expect.h"

namespace zero::test {
namespace {

enum class Kind {
  sum,
  sum_in_place,
  sum_doubles,
  sum_halves,  // in the kinds so far, each rank gets a part
  sum_of_one,
  gather,
  gather_in_place,
  broadcast
};
constexpr int kKinds = 8;

/// A transfer of all ranks with `count` elements each. They have four bytes, except in some sums.
struct Transfer {
  Kind kind;
  size_t count;
  int32_t root;
  bool second;  // stream
};

std::vector<Transfer> drawn(uint64_t seed, int32_t world) {
  std::mt19937_64 random(seed);
  std::vector<Transfer> all;
  for (int i = 0; i < 12; i++) {
    const size_t sizes[] = {0, 1, 7, 64, 500 + random() % 1500};
    all.push_back({static_cast<Kind>(random() % kKinds), sizes[random() % 5],
                   static_cast<int32_t>(random() % static_cast<uint64_t>(world)),
                   random() % 2 == 0});
  }
  return all;
}

/// Returns numbers whose sums depend on the order.
float number(size_t transfer, size_t rank, size_t i) {
  const auto mixed = (transfer * 31 + rank * 7 + i) * 2654435761u;
  return std::ldexp(static_cast<float>(mixed % 20011) - 10005, static_cast<int>(mixed % 20) - 10);
}

SumTypes types_of(Kind kind) {
  if (kind == Kind::sum_doubles) return {DType::f64, DType::f64};
  if (kind == Kind::sum_halves) return {DType::bf16, DType::f32};
  return {};
}

/// Returns the input of a rank.
std::vector<std::byte> brought(const Transfer& transfer, size_t number, size_t rank, size_t world) {
  const bool scatters = transfer.kind <= Kind::sum_halves;
  std::vector<double> values(transfer.count * (scatters ? world : 1));
  for (size_t i = 0; i < values.size(); i++) values[i] = test::number(number, rank, i);
  return encode(static_cast<int32_t>(types_of(transfer.kind).from), values);
}

template <class T>
std::vector<std::byte> summed(const Transfer& transfer, size_t number, size_t rank, size_t world) {
  const auto dtype = static_cast<int32_t>(types_of(transfer.kind).from);
  const size_t first = transfer.kind == Kind::sum_of_one ? 0 : rank * transfer.count;
  std::vector<T> sums(transfer.count);
  for (size_t r = 0; r < world; r++) {
    const std::vector<std::byte> all = brought(transfer, number, r, world);
    const std::vector<double> values =
        decode(dtype, all.data() + first * element_bytes(dtype), transfer.count);
    for (size_t i = 0; i < sums.size(); i++)
      sums[i] = r == 0 ? static_cast<T>(values[i]) : sums[i] + static_cast<T>(values[i]);
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(sums.data());
  return {bytes, bytes + sums.size() * sizeof(T)};
}

/// Returns the expected output of a rank.
std::vector<std::byte> expected(const Transfer& transfer, size_t number, size_t rank,
                                size_t world) {
  std::vector<std::byte> out;
  switch (transfer.kind) {
    case Kind::sum_doubles:
      return summed<double>(transfer, number, rank, world);
    case Kind::sum:
    case Kind::sum_in_place:
    case Kind::sum_halves:
      return summed<float>(transfer, number, rank, world);
    case Kind::sum_of_one:
      return rank == static_cast<size_t>(transfer.root)
                 ? summed<float>(transfer, number, rank, world)
                 : out;
    case Kind::broadcast:
      return brought(transfer, number, static_cast<size_t>(transfer.root), world);
    default:
      for (size_t r = 0; r < world; r++) {
        const std::vector<std::byte> one = brought(transfer, number, r, world);
        out.insert(out.end(), one.begin(), one.end());
      }
      return out;
  }
}

/// One rank's memory for a transfer. The constructor queues the transfer.
class Moved {
 public:
  Moved(Comm& comm, const Transfer& transfer, size_t number, StreamHandle stream)
      : device_(*comm.device()) {
    const auto rank = static_cast<size_t>(comm.rank());
    const auto world = static_cast<size_t>(comm.world());
    const std::vector<std::byte> mine = brought(transfer, number, rank, world);
    bytes_ = expected(transfer, number, rank, world).size();
    send_ = memory(comm, mine.size());
    receive_ = memory(comm, bytes_);
    QueuedPlane& plane = *comm.queued();
    const size_t part = mine.size() / world;
    std::byte* own = send_.data();
    at_ = receive_.data();
    if (transfer.kind == Kind::gather_in_place) own = at_ + rank * mine.size();
    EXPECT_OK(device_.copy(stream, own, mine.data(), mine.size()));
    const Status queued = [&]() -> Status {
      switch (transfer.kind) {
        case Kind::gather:
        case Kind::gather_in_place:
          return plane.all_gather(own, at_, mine.size(), stream);
        case Kind::broadcast: {
          at_ = own;
          const Sent one{own, mine.size(), transfer.root};
          return plane.broadcast({&one, mine.empty() ? 0u : 1u}, stream);
        }
        case Kind::sum_of_one: {
          const Summed one{own, at_, transfer.count, transfer.root};
          return plane.reduce({}, {&one, 1}, stream);
        }
        case Kind::sum_in_place:
          at_ = own + rank * part;
          break;
        default:
          break;
      }
      return plane.reduce_scatter(types_of(transfer.kind), own, at_, transfer.count, stream);
    }();
    EXPECT_OK(queued);
  }

  std::vector<std::byte> bytes(StreamHandle stream) const {
    std::vector<std::byte> out(bytes_);
    if (bytes_ > 0) {
      EXPECT_OK(device_.copy(stream, out.data(), at_, bytes_));
    }
    return out;
  }

 private:
  static DeviceMemory memory(Comm& comm, size_t bytes) {
    return DeviceMemory::allocate(comm.device(), bytes + 1, "a test's").value();
  }
  Device& device_;
  DeviceMemory send_, receive_;
  std::byte* at_ = nullptr;
  size_t bytes_ = 0;
};

/// Returns true if all ranks get the right data from transfers on two unordered streams. `moved`
/// receives the bytes that went through host memory.
bool right(uint64_t seed, const char* forgotten, int64_t* moved = nullptr) {
  const int32_t world = seed % 2 == 0 ? 2 : 3;
  Devices devices{.seed = seed, .forgotten = forgotten};
  devices.options.staging_bytes = 2048;
  const Meeting meeting(CommKind::staged, world, devices);
  const auto results = results_of(meeting, [&](zero_comm* comm, int rank) -> std::string {
    const auto seat = api::find_handle(comm).value();
    const auto device = seat->device();
    const Stream streams[] = {make_stream(device).value(), make_stream(device).value()};
    const auto transfers = drawn(seed, world);
    std::vector<Moved> all;
    bool sound = true;
    Call call = seat->begin(Operation::step).value();
    for (size_t i = 0; i < transfers.size(); i++)
      all.emplace_back(*seat, transfers[i], i, streams[transfers[i].second].handle());
    for (size_t i = 0; i < transfers.size(); i++) {
      const StreamHandle stream = streams[transfers[i].second].handle();
      const auto wanted =
          expected(transfers[i], i, static_cast<size_t>(rank), static_cast<size_t>(world));
      sound = sound && all[i].bytes(stream) == wanted;
    }
    EXPECT_OK(call.vote("read", {}));
    if (moved != nullptr && rank == 0) *moved = seat->staged_bytes;
    return sound ? "right" : "wrong";
  });
  EXPECT_EQ(meeting.chaos().living(), 0);
  for (const std::string& result : results)
    if (result != "right") return false;
  return true;
}

TEST(StagedPlane, everybody_gets_the_bytes_and_sums_of_all_in_any_order) {
  for (uint64_t seed = 1; seed <= 300; seed++) ASSERT_TRUE(right(seed, "no rule")) << seed;
}

TEST(StagedPlane, each_rule_that_is_forgotten_is_missed) {
  for (const char* const rule : {local::StagedPlane::kStaged, local::StagedPlane::kTaken}) {
    std::optional<uint64_t> missed;
    for (uint64_t seed = 1; seed <= 1000 && !missed; seed++)
      if (!right(seed, rule)) missed = seed;
    EXPECT_TRUE(missed.has_value()) << "nothing depends on: " << rule;
  }
}

TEST(StagedPlane, the_bytes_that_went_through_the_host_are_counted) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    const size_t world = seed % 2 == 0 ? 2 : 3;
    int64_t moved = 0, wanted = 0;
    ASSERT_TRUE(right(seed, "no rule", &moved));
    const auto transfers = drawn(seed, static_cast<int32_t>(world));
    for (size_t i = 0; i < transfers.size(); i++) {
      const size_t out = brought(transfers[i], i, 0, world).size();
      const size_t in = expected(transfers[i], i, 0, world).size();
      const bool gathers =
          transfers[i].kind == Kind::gather || transfers[i].kind == Kind::gather_in_place;
      const size_t both = transfers[i].kind == Kind::broadcast ? out : gathers ? in : out + in;
      wanted += static_cast<int64_t>(both);
    }
    EXPECT_EQ(moved, wanted) << seed;
  }
}

TEST(StagedPlane, a_sum_of_one_rank_has_a_whole_slot_for_each_piece) {
  Devices devices;
  devices.options.staging_bytes = 2048;  // two slots of 256 floats
  on_ranks(Meeting(CommKind::staged, 2, devices), [&](zero_comm* comm, int rank) {
    const auto seat = api::find_handle(comm).value();
    Call call = seat->begin(Operation::step).value();
    for (const auto& [count, pieces] : {std::pair(256, 1), {257, 2}, {1024, 4}}) {
      const Transfer transfer{Kind::sum_of_one, static_cast<size_t>(count), 1, false};
      const int64_t before = seat->host_waits;
      const Moved moved(*seat, transfer, 0, nullptr);
      EXPECT_EQ(seat->host_waits - before, pieces);
      EXPECT_EQ(moved.bytes(nullptr), expected(transfer, 0, static_cast<size_t>(rank), 2));
    }
    EXPECT_OK(call.vote("summed", {}));
  });
}

}  // namespace
}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
// Comms from a program's MPI communicators, with ranks that an mpirun has started (tests/mpi). All
// ranks are on one host. A test that needs several replaces what distinguishes hosts.
#include <dlfcn.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/os.h"
#include "comm/create.h"
#include "comm/mpi/duplicates.h"
#include "comm/mpi/library.h"
#include "comm_cases.h"
#include "support/mpi_ranks.h"

namespace zero::test {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Conformance);

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (launched().world < 2) GTEST_SKIP() << "no mpirun started this";
    library = mpi::library().value();
    world = library->calls->find(nullptr, 0);
  }

  /// Returns an MPI function, whose handles are integers or pointers.
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }

  mpi_handle split(int color) const {
    mpi_handle part = 0;
    const auto split = function<int (*)(mpi_handle, int, int, mpi_handle*)>("MPI_Comm_split");
    EXPECT_EQ(split(world, color, launched().rank, &part), 0);
    return part;
  }

  const mpi::Library* library = nullptr;
  mpi_handle world = 0;
  // The size of the program's variable: an integer has only the lower half.
  const size_t handle_bytes = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != nullptr ||
                                      dlsym(RTLD_DEFAULT, "MPI_Abi_get_version") != nullptr
                                  ? 8
                                  : 4;
};

Seat create(const void* place = nullptr, size_t bytes = 0, bool local = false,
            const CommOptions& options = {}) {
  Result<Seat> made = create_mpi(place, bytes, options, local);
  EXPECT_TRUE(made.ok()) << made.failure().text();
  return made.ok() ? *made : nullptr;
}

std::string refusal_of(const void* place, size_t bytes) {
  return outcome_of(create_mpi(place, bytes, {}).failure());
}

/// Replaces system calls while it exists.
struct Replaced {
  explicit Replaced(const SystemCalls& calls) : in_force(calls) { replace_system_calls(&in_force); }
  ~Replaced() { replace_system_calls(nullptr); }
  const SystemCalls in_force;
};

TEST_F(Mpi, ranks_of_one_host_get_a_local_comm) {
  const Seat seat = create(nullptr, 0, true);
  ASSERT_NE(seat, nullptr);
  EXPECT_STREQ(seat->kind(), "local");
  EXPECT_EQ(seat->rank(), launched().rank);
  expect_usable(seat);
}

TEST_F(Mpi, ranks_of_several_networks_get_an_mpi_comm) {
  SystemCalls calls = real_system_calls();
  calls.fstatat = [](int folder, const char* path, struct stat* info, int flags) {
    const int outcome = real_system_calls().fstatat(folder, path, info, flags);
    info->st_ino += static_cast<ino_t>(launched().rank);
    return outcome;
  };
  const Replaced replaced(calls);
  const Seat seat = create(nullptr, 0, true);
  ASSERT_NE(seat, nullptr);
  EXPECT_STREQ(seat->kind(), "mpi");
  expect_usable(seat);
}

TEST_F(Mpi, ranks_that_seem_to_be_on_one_host_and_cannot_meet_there_get_an_mpi_comm) {
  SystemCalls calls = real_system_calls();
  calls.memfd_create = [](const char* name, unsigned flags) {
    static bool has_failed = launched().rank != 0;
    const bool fails = std::string_view(name) == "zero.control" && !std::exchange(has_failed, true);
    return fails ? (errno = EMFILE, -1) : real_system_calls().memfd_create(name, flags);
  };
  const Replaced replaced(calls);
  const Seat seat = create(nullptr, 0, true);
  ASSERT_NE(seat, nullptr);
  EXPECT_STREQ(seat->kind(), "mpi");
  expect_usable(seat);
}

TEST_F(Mpi, a_communicator_is_named_by_its_handle_or_its_fortran_integer) {
  const int last = launched().world - 1, rank = launched().rank;
  const mpi_handle part = split(rank == last ? 1 : 0);
  const auto c2f = function<int (*)(mpi_handle)>("MPI_Comm_c2f");
  const auto to_int = function<int (*)(mpi_handle)>("MPI_Comm_toint");
  const int fortran = to_int != nullptr ? to_int(part)
                      : c2f != nullptr  ? c2f(part)
                                        : static_cast<int>(part);  // MPICH 4
  for (const Seat& seat : {create(&part, handle_bytes), create(&fortran, sizeof fortran)}) {
    ASSERT_NE(seat, nullptr);
    EXPECT_EQ(seat->world(), rank == last ? 1 : last);
    EXPECT_EQ(seat->rank(), rank == last ? 0 : rank);
    EXPECT_STREQ(seat->kind(), rank == last ? "solo" : "mpi");
    expect_usable(seat);
  }
  EXPECT_EQ(library->calls->free(part), 0) << "it is still the program's";
}

void heed_nothing(mpi_handle*, int*, ...) {}

TEST_F(Mpi, a_communicator_of_the_program_keeps_its_error_handler) {
  const auto make = function<int (*)(void (*)(mpi_handle*, int*, ...), mpi_handle*)>(
      "MPI_Comm_create_errhandler");
  mpi_handle own = 0, found = 0;
  ASSERT_EQ(make(heed_nothing, &own), 0);
  const mpi_handle part = split(0);
  ASSERT_EQ(library->calls->hand_back(part, own), 0);
  ASSERT_NE(create(&part, handle_bytes), nullptr);
  ASSERT_EQ(library->calls->take_over(part, &found), 0);
  EXPECT_EQ(memcmp(&found, &own, handle_bytes), 0);
  EXPECT_EQ(library->calls->hand_back(part, found), 0);
  EXPECT_EQ(library->calls->free(part), 0);
}

TEST_F(Mpi, what_is_no_communicator_of_a_group_is_refused) {
  EXPECT_EQ(refusal_of(&world, 3), outcome(ZERO_ERR_ARGUMENT,
                                           "the 3 bytes at mpi_comm are neither an MPI_Comm "
                                           "nor the Fortran integer of one"));
  mpi_handle nobody = 0;
  constexpr int kUndefined = -32766;
  nobody = split(kUndefined);
  EXPECT_EQ(refusal_of(&nobody, handle_bytes),
            outcome(ZERO_ERR_ARGUMENT, "the communicator is MPI_COMM_NULL"));
  const int rank = launched().rank;
  const mpi_handle part = split(rank == 0 ? 0 : 1);
  mpi_handle between = 0;
  const auto join =
      function<int (*)(mpi_handle, int, mpi_handle, int, int, mpi_handle*)>("MPI_Intercomm_create");
  ASSERT_EQ(join(part, 0, world, rank == 0 ? 1 : 0, 1, &between), 0);
  EXPECT_EQ(refusal_of(&between, handle_bytes),
            outcome(ZERO_ERR_ARGUMENT,
                    "the communicator is an intercommunicator: merge it with MPI_Intercomm_merge "
                    "first"));
}

TEST_F(Mpi, a_comm_that_was_freed_leaves_its_duplicate_to_the_next) {
  (void)create();
  mpi::Duplicates* const all = *mpi::Duplicates::of(*library, world);
  const uint64_t idle = all->idle();
  EXPECT_NE(idle, 0u);
  (void)create();
  EXPECT_EQ(all->idle(), idle);
  const Seat one = create(), other = create();
  EXPECT_NE(one, nullptr);
  EXPECT_NE(other, nullptr);
  EXPECT_NE(all->idle(), idle);
}

TEST_F(Mpi, a_rendezvous_that_ends_before_all_have_come_goes_on_with_the_next_call) {
  const Seat guide = create();
  ASSERT_NE(guide, nullptr);
  const mpi_handle part = split(0);
  const auto fail = [&] {
    const Status early = create_mpi(&part, handle_bytes, {.rendezvous_ms = 200}, false).failure();
    EXPECT_EQ(early.code(), ZERO_ERR_RENDEZVOUS) << early.text();
  };
  const bool last = launched().rank == launched().world - 1;
  for (int time = 0; time < 2 && !last; ++time) fail();
  EXPECT_EQ(mpi::are_sound(), last) << "MPI_Finalize would wait for the last one";
  expect_usable(guide);
  if (last) fail();  // it arrives after the others have left
  expect_usable(guide);
  std::shared_ptr<mpi::Meeting>& meeting = (*mpi::Duplicates::of(*library, part))->meeting;
  const std::shared_ptr<mpi::Meeting> before = meeting;
  const Seat seat = create(&part, handle_bytes);
  ASSERT_NE(seat, nullptr);
  expect_usable(seat);
  // As if the latest call had failed on rank 0 only.
  if (launched().rank == 0) meeting = before, fail();
  const Seat later = create(&part, handle_bytes);
  ASSERT_NE(later, nullptr);
  expect_usable(later);
}

TEST_F(Mpi, a_duplicate_that_one_rank_did_not_wait_for_has_its_number_on_all_ranks) {
  const Seat guide = create();
  ASSERT_NE(guide, nullptr);
  const mpi_handle part = split(0);
  mpi::Duplicates* const all = *mpi::Duplicates::of(*library, part);
  const auto stays = [] { return Status(); };
  const auto leaves = [] { return Status(ZERO_ERR_PEER, "this rank leaves"); };
  expect_usable(guide);
  if (launched().rank == 0) {
    EXPECT_FALSE(all->take(0, {10'000, leaves}).ok());
    EXPECT_EQ(all->idle(), 0u);
    EXPECT_OK(all->finish({10'000, stays}));
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Result<mpi::Duplicate*> first = all->take(0, {10'000, stays});
    ASSERT_TRUE(first.ok()) << first.failure().text();
    (*first)->end_use();
  }
  EXPECT_EQ(all->idle(), 1u);
  expect_usable(guide);
}

/// A rank does not take part in a transfer. The others detect it by the deadline, and unfinished
/// MPI operations on their memory do no harm.
TEST_F(Mpi, a_transfer_that_a_rank_does_not_make_ends_at_the_deadline) {
  CommOptions options;
  options.timeout_ms = 300;
  {
    const Seat seat = create(nullptr, 0, false, options);
    ASSERT_NE(seat, nullptr);
    std::shared_ptr<Arena> arena;
    const size_t bytes = 100'000 * static_cast<size_t>(seat->world());
    const std::span<std::byte> all = in_arena<std::byte>(seat, bytes, arena);
    Call call = begin(seat, Operation::step, 1);
    EXPECT_OK(call.vote("before", {}));
    const int32_t late = seat->world() - 1;
    const bool absent = seat->rank() == late;
    if (!absent) {
      const Status status = seat->all_gather(call, all.data(), all.data(), 100'000);
      EXPECT_EQ(status.code(), ZERO_ERR_TIMEOUT) << status.text();
      EXPECT_EQ(status.text(), text("zero_step: all_gather: rank ", late,
                                    " neither sent nor received anything for 300 ms"));
      EXPECT_EQ(seat->failure().rank, late);
    } else {
      const Deadline patience(10'000);
      while (!seat->aborted() && !patience.passed()) (void)seat->check();
      EXPECT_EQ(seat->failure().code, ZERO_ERR_TIMEOUT);
    }
    EXPECT_FALSE(mpi::are_sound()) << "MPI_Finalize would wait for ever if the program ended now";
  }
  const Seat later = create();
  ASSERT_NE(later, nullptr);
  std::shared_ptr<Arena> arena;
  const std::span<std::byte> all =
      in_arena<std::byte>(later, 1000 * static_cast<size_t>(later->world()), arena);
  const std::vector<std::byte> mine = bytes_of_rank(later->rank(), 1000);
  Call call = begin(later, Operation::step, 1);
  EXPECT_OK(later->all_gather(call, mine.data(), all.data(), 1000));
  EXPECT_TRUE(std::ranges::equal(all, bytes_of_all(later->world(), 1000)));
  EXPECT_OK(call.vote("done", {}));
}

TEST_F(Mpi, funneled_takes_collective_calls_of_the_main_thread_only) {
  const Seat seat = create();
  ASSERT_NE(seat, nullptr);
  std::thread other([&] {
    const Status refused = seat->begin(Operation::step, 1).failure();
    EXPECT_EQ(refused.code(), ZERO_ERR_STATE);
    EXPECT_EQ(refused.text().find("zero_step: this is not the thread that initialized MPI"), 0u)
        << refused.text();
    EXPECT_EQ(create_mpi(nullptr, 0, {}).failure().code(), ZERO_ERR_STATE);
  });
  other.join();
  expect_usable(seat);
  const Seat local = create(nullptr, 0, true);
  ASSERT_NE(local, nullptr);
  std::thread([&] { expect_usable(local); }).join();
}

}  // namespace
}  // namespace zero::test

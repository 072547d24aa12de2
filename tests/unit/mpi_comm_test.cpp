// SPDX-License-Identifier: Apache-2.0
// The layer between libzero and MPI, on a fake MPI that does what a test sets. tests/mpi uses real
// ones.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "comm/create.h"
#include "comm/mpi/duplicates.h"
#include "comm/mpi/library.h"
#include "support/expect.h"

namespace zero::mpi {
namespace {

/// One communicator, its attributes, and the completion of requests.
struct StandIn {
  mpi_attached* attached = nullptr;
  mpi_attached* attached_to_process = nullptr;
  mpi_handle made = 100;
  std::set<mpi_handle> freed;
  int error = 0;
  int looks_until_done = 0;
} stand_in;

mpi_functions make_functions() {
  mpi_functions calls{};
  calls.describe = [](int error, char* text, size_t bytes) {
    snprintf(text, bytes, "error %d of the stand-in", error);
  };
  calls.return_errors = [](mpi_handle) { return 0; };
  calls.free = [](mpi_handle comm) { return stand_in.freed.insert(comm).second ? 0 : 1; };
  calls.attach = [](mpi_handle comm, mpi_attached* what) {
    (comm == 0 ? stand_in.attached_to_process : stand_in.attached) = what;
    return 0;
  };
  calls.attached = [](mpi_handle, mpi_attached** what) { return *what = stand_in.attached, 0; };
  calls.duplicate = [](mpi_handle, mpi_handle* out, mpi_handle*) {
    return *out = ++stand_in.made, 0;
  };
  calls.test = [](mpi_handle*, int* done) {
    *done = stand_in.looks_until_done-- <= 0 ? 1 : 0;
    return stand_in.error;
  };
  return calls;
}

const mpi_functions functions = make_functions();
const Library library_of_tests{&functions, "libmpi_of_tests.so"};
const Bounds patient{60'000, [] { return Status(); }};

TEST(Mpi, a_process_without_an_mpi_is_told_so) {
  const Result<std::shared_ptr<Comm>> made = create_mpi(nullptr, 0, {});
  EXPECT_EQ(made.failure().code(), ZERO_ERR_UNSUPPORTED);
  EXPECT_EQ(made.failure().text().find("no MPI is loaded in this process"), 0u);
}

TEST(Mpi, a_wait_ends_with_the_request_the_deadline_an_error_or_the_check) {
  mpi_handle request = 0;
  const auto wait = [&](int looks, int error, const Bounds& bounds) {
    stand_in.looks_until_done = looks;
    stand_in.error = error;
    Status status = await(library_of_tests, "MPI_Iallgather", request, bounds);
    stand_in.error = 0;
    return status;
  };
  EXPECT_OK(wait(3, 0, patient));
  const Status late = wait(INT32_MAX, 0, {20, [] { return Status(); }});
  EXPECT_EQ(late.code(), ZERO_ERR_RENDEZVOUS);
  EXPECT_NE(late.text().find("MPI_Iallgather: MPI did not finish within 20 ms"), std::string::npos);
  const Status failed = wait(0, 17, patient);
  EXPECT_EQ(failed.code(), ZERO_ERR_COMM);
  EXPECT_EQ(failed.text(), "MPI_Iallgather: MPI says 'error 17 of the stand-in'");
  const Status ended =
      wait(INT32_MAX, 0, {60'000, [] { return Status(ZERO_ERR_PEER_DEAD, "rank 1 died"); }});
  EXPECT_EQ(ended.text(), "rank 1 died");
}

TEST(Mpi, a_duplicate_is_used_again_only_if_it_is_idle_on_all_ranks) {
  stand_in = {};
  Duplicates* const all = *Duplicates::of(library_of_tests, 7);
  EXPECT_EQ(*Duplicates::of(library_of_tests, 7), all) << "they are attached to the communicator";
  EXPECT_EQ(all->idle(), 0u);
  Duplicate* const first = *all->take(0, patient);
  EXPECT_EQ(all->idle(), 0u) << "it is in use";
  first->state = Duplicate::idle;
  EXPECT_EQ(all->idle(), 1u);
  Duplicate* const second = *all->take(0, patient);
  EXPECT_NE(second, first) << "another rank still uses the first";
  EXPECT_EQ(*all->take(1, patient), first);
  second->state = Duplicate::broken;
  EXPECT_EQ(all->idle(), 0u);
  EXPECT_TRUE(stand_in.freed.empty());
  stand_in.attached->end(stand_in.attached);  // the program has freed its communicator
  EXPECT_TRUE(stand_in.freed.empty());
  stand_in.attached_to_process->end(stand_in.attached_to_process);
  EXPECT_EQ(stand_in.freed, std::set<mpi_handle>{first->handle}) << "MPI still uses the second";
}

}  // namespace
}  // namespace zero::mpi

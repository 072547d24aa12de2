// SPDX-License-Identifier: Apache-2.0
#include "support/user_comm.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "base/os.h"
#include "base/text.h"
#include "comm/comm.h"
#include "comm/create.h"
#include "support/ranks.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

using Seat = std::shared_ptr<Comm>;

struct Place {
  EngineSeat* engine;
  Seat seat;
};

Place join(Engine& engine, int rank, const UserFunctions& functions = Engine::functions()) {
  EngineSeat* const ctx = engine.seat(rank);
  return {ctx, *create_user(functions, ctx, rank, engine.world(), {})};
}

Status barrier(const Seat& seat) {
  Call call = ZERO_TRY(seat->begin(Operation::barrier));
  return call.vote("vote", {});
}

TEST(UserComm, needs_its_functions_and_a_rank_in_its_world) {
  const auto expect = [](Code code, const UserFunctions& functions, int32_t rank, int32_t world) {
    Engine engine(2);
    EngineSeat* const ctx = engine.seat(0);
    Result<Seat> seat = create_user(functions, ctx, rank, world, {});
    EXPECT_EQ(engine.seats(), 1) << "a failed create must leave the ctx to its caller";
    if (!seat.ok()) engine.freed(ctx);
    EXPECT_EQ(seat.failure().code(), code);
  };
  const UserFunctions sound = Engine::functions();
  expect(ZERO_OK, sound, 0, 2);
  expect(ZERO_OK, Engine::functions(true), 0, 2);
  for (const auto& [rank, world] : {std::pair{2, 2}, {-1, 2}, {0, 0}})
    expect(ZERO_ERR_ARGUMENT, sound, rank, world);
  UserFunctions without_exchange = sound, without_gather = sound, without_sums = sound;
  without_exchange.exchange = nullptr;
  without_gather.all_gather = nullptr;
  without_sums.all_to_all = nullptr;
  for (const UserFunctions& lacking : {without_exchange, without_gather, without_sums})
    expect(ZERO_ERR_ARGUMENT, lacking, 0, 2);
}

TEST(UserComm, frees_its_ctx_once_when_the_last_holder_has_gone) {
  Engine engine(1);
  Place place = join(engine, 0);
  std::shared_ptr<Arena> arena =
      *place.seat->begin(Operation::arena_alloc)->allocate(100, ZERO_MEMORY_SHARED);
  place.seat.reset();
  EXPECT_EQ(engine.seats(), 1);
  arena.reset();
  EXPECT_EQ(engine.seats(), 0);
}

TEST(UserComm, lives_without_a_free_function) {
  Engine engine(1);
  UserFunctions functions = Engine::functions();
  functions.free = nullptr;
  Place place = join(engine, 0, functions);
  place.seat.reset();
  EXPECT_EQ(engine.seats(), 1);
  engine.freed(place.engine);
}

void expect_broken(const Seat& seat, const Status& status, const std::string& sentence) {
  EXPECT_EQ(status.code(), ZERO_ERR_COMM);
  EXPECT_EQ(status.text(), sentence);
  EXPECT_TRUE(seat->aborted());
  EXPECT_EQ(seat->failure().code, ZERO_ERR_COMM);
  EXPECT_EQ(barrier(seat).text(), sentence);
}

TEST(UserComm, tells_the_code_or_exception_of_the_function_that_failed) {
  const std::pair<std::function<Code(const char*)>, const char*> ways[] = {
      {[](const char*) { return Code{-4321}; }, "returned -4321"},
      {[](const char*) -> Code { throw std::runtime_error("engine"); }, "threw an exception"}};
  for (const auto& [way, words] : ways) {
    Engine engine(1);
    const Place place = join(engine, 0);
    place.engine->before = way;
    expect_broken(place.seat, barrier(place.seat),
                  text("zero_comm_barrier: vote: the engine's exchange ", words,
                       "; the outcome on other ranks is unknown"));
  }
}

TEST(UserComm, breaks_when_a_function_for_bulk_data_fails) {
  for (const std::string name : {"all_gather", "all_to_all", "reduce_scatter"}) {
    const bool sums = name == "reduce_scatter";
    Engine engine(1);
    const Place place = join(engine, 0, Engine::functions(sums));
    place.engine->before = [&](const char* function) {
      return function == name ? Code{-3} : Code{ZERO_OK};
    };
    float data[4] = {}, scratch[4] = {};
    Call call = place.seat->begin(Operation::step, 1).value();
    EXPECT_EQ(place.seat->all_gather(call, data, scratch, 4).ok(), name != "all_gather");
    const Scattered one{{}, data, data, 4};
    EXPECT_EQ(place.seat->reduce_scatter(call, {&one, 1}, scratch).ok(), false);
    EXPECT_NE(place.seat->failure().text.find("zero_step: "), std::string::npos);
    EXPECT_NE(place.seat->failure().text.find(name + " returned -3"), std::string::npos);
  }
}

TEST(UserComm, calls_no_function_once_it_is_broken) {
  Engine engine(1);
  const Place place = join(engine, 0);
  Call call = place.seat->begin(Operation::step, 1).value();
  EXPECT_EQ(call.abort(Status(ZERO_ERR_SYSTEM, "enough"), "here").code(), ZERO_ERR_SYSTEM);
  int calls = 0;
  place.engine->before = [&](const char*) { return Code{++calls}; };
  EXPECT_EQ(call.vote("vote", {}).code(), ZERO_ERR_SYSTEM);
  float data[1] = {};
  EXPECT_EQ(place.seat->all_gather(call, data, data, 4).code(), ZERO_ERR_SYSTEM);
  EXPECT_EQ(calls, 0);
}

/// Breaks the results of an exchange in the ways that engines do. It is enough if one rank notices.
Code broken_exchange(void* ctx, const void* send, void* recv, size_t bytes) {
  const auto& seat = *static_cast<EngineSeat*>(ctx);
  if (!seat.engine->exchange(seat, send, recv, bytes)) return -1;
  auto* const all = static_cast<std::byte*>(recv);
  const Code way = seat.before("way");
  if (way == 1) std::swap_ranges(all, all + bytes, all + bytes);  // in another order
  if (way == 2) all[bytes * 2 - 1] ^= std::byte{1};               // damages rank 1's own record
  if (way == 3) std::fill(all, all + bytes, std::byte{0});        // one is missing
  return ZERO_OK;
}

TEST(UserComm, notices_an_exchange_that_does_not_do_its_work) {
  const std::pair<Code, const char*> ways[] = {
      {1, "the exchange returned rank 1's record in place of rank 0's"},
      {2, "the exchange did not return rank 1's own record unchanged"},
      {3,
       "rank 0's record in zero_comm_barrier is unreadable: the exchange is broken, or that "
       "rank runs another libzero"}};
  for (const auto& [way, sentence] : ways) {
    Engine engine(2);
    const std::vector<std::string> results =
        run_sound_ranks(RankKind::threads, 2, [&, way = way](int rank) {
          UserFunctions functions = Engine::functions();
          functions.exchange = broken_exchange;
          const Place place = join(engine, rank, functions);
          place.engine->before = [way](const char*) { return way; };
          const Status status = barrier(place.seat);
          return status.ok() ? "" : text(status.code(), " ", status.text());
        });
    EXPECT_EQ(results[1], text(Code{ZERO_ERR_COMM}, " ", sentence));
  }
}

TEST(UserComm, without_split_says_so_on_every_rank) {
  Engine engine(3);
  const std::vector<std::string> results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    UserFunctions functions = Engine::functions();
    if (rank == 1) functions.split = nullptr;
    const Place place = join(engine, rank, functions);
    const Result<Seat> child = place.seat->begin(Operation::split)->split(0, 0);
    EXPECT_EQ(child.failure().code(), rank == 1 ? ZERO_ERR_UNSUPPORTED : ZERO_ERR_PEER);
    EXPECT_TRUE(barrier(place.seat).ok());
    return child.failure().text();
  });
  EXPECT_EQ(results[1], "this user comm has no split function");
  EXPECT_EQ(results[0], "rank 1 in zero_comm_split: ZERO_ERR_UNSUPPORTED: " + results[1]);
  EXPECT_EQ(engine.seats(), 0);
}

Code failing_split(void* ctx, int32_t color, int32_t rank, int32_t world, void** child) {
  const Code code = Engine::functions().split(ctx, color, rank, world, child);
  const auto& seat = *static_cast<EngineSeat*>(ctx);
  if (code != ZERO_OK || seat.rank != 1) return code;
  static_cast<EngineSeat*>(*child)->engine->freed(static_cast<EngineSeat*>(*child));
  return -99;
}

TEST(UserComm, whose_split_fails_on_one_rank_breaks_on_all_and_seats_nobody) {
  Engine engine(3);
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    UserFunctions functions = Engine::functions();
    functions.split = failing_split;
    const Place place = join(engine, rank, functions);
    const Result<Seat> child = place.seat->begin(Operation::split)->split(0, 0);
    expect_broken(place.seat, child.failure(),
                  "zero_comm_split: split: the engine's split returned -99 on rank 1");
    return "";
  });
  EXPECT_EQ(engine.seats(), 0);
}

thread_local bool memory_is_out = false;

TEST(UserComm, gives_an_arena_to_every_rank_or_to_none) {
  const ReplacedCall replaced(&SystemCalls::mmap, [](void* at, size_t bytes, int protection,
                                                     int flags, int fd, int64_t offset) {
    if (!memory_is_out) return real_system_calls().mmap(at, bytes, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
  });
  Engine engine(3);
  const std::vector<std::string> results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    const Place place = join(engine, rank);
    memory_is_out = rank == 2;
    const auto arena =
        place.seat->begin(Operation::arena_alloc)->allocate(12345, ZERO_MEMORY_PER_RANK);
    memory_is_out = false;
    EXPECT_EQ(arena.failure().code(), rank == 2 ? ZERO_ERR_MEMORY : ZERO_ERR_PEER);
    const auto second =
        place.seat->begin(Operation::arena_alloc)->allocate(12345, ZERO_MEMORY_PER_RANK);
    EXPECT_TRUE(second.ok());
    EXPECT_EQ((*second)->number(), 2u);
    return arena.failure().text();
  });
  EXPECT_NE(results[2].find("12345 bytes"), std::string::npos);
  EXPECT_EQ(results[0], "rank 2 in zero_arena_alloc: ZERO_ERR_MEMORY: " + results[2]);
}

}  // namespace
}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
// Saves that are written while training continues. The checkpoint has the state of the beginning,
// whatever calls change before it is written.
#include "state/save_behind.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "state/access.h"
#include "state/collective.h"
#include "state/extras.h"
#include "step/broadcast.h"
#include "step/enter.h"
#include "step/step.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/heard.h"
#include "support/nightly.h"
#include "support/place.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

/// While it exists, writing threads stay in their first call.
class HeldWriters {
 public:
  HeldWriters() { held = true; }
  ~HeldWriters() { release(); }
  static void release() { held = false; }

 private:
  static ssize_t write(int fd, const void* data, size_t bytes, int64_t offset) {
    while (held) usleep(1000);
    return real_system_calls().pwrite(fd, data, bytes, offset);
  }
  static inline std::atomic<bool> held{false};
  const ReplacedCall pwrite_{&SystemCalls::pwrite, write};
};

template <class Body>
Status collective(Model& model, Operation operation, const Body& body) {
  Optimizer& optim = model.optim();
  Call call = ZERO_TRY(optim.comm->begin(operation, optim.object));
  return body(call, optim);
}

Status set_one(Optimizer& optim) {
  for (int64_t param = 0; param < static_cast<int64_t>(optim.params.size()); param++) {
    const Param& one = optim.param(param);
    if (one.dtype != DType::f32 || one.count == 0) continue;
    const std::vector<float> values(static_cast<size_t>(one.count), 7);
    ZERO_TRY(set_state(optim, {param, 0, one.count}, nullptr, values.data()));
  }
  return {};
}

/// Moves all parameters to other memory. The old memory gets other contents at once.
Status move_params(Optimizer& optim, std::vector<std::vector<double>>& room) {
  std::vector<void*> data;
  std::vector<std::span<std::byte>> before;
  for (const Param& param : optim.params) {
    room.emplace_back(param.bytes() / sizeof(double) + 1);
    std::memcpy(room.back().data(), param.data, param.bytes());
    data.push_back(room.back().data());
    before.emplace_back(param.data, param.bytes());
  }
  ZERO_TRY(optim.bind(data, {}));
  for (const std::span<std::byte> old : before) std::ranges::fill(old, std::byte{0x5A});
  return {};
}

/// What a program may do while a save is written. The group stays sound.
struct Change {
  const char* name;
  Status (*make)(Model& model, const std::string& old, std::vector<std::vector<double>>& room);
};
constexpr Change kChanges[] = {
    {"two steps",
     [](Model& model, const std::string&, auto&) {
       ZERO_TRY(model.step());
       return model.step();
     }},
    {"a load",
     [](Model& model, const std::string& old, auto&) {
       return collective(model, Operation::load, [&](Call& call, Optimizer& optim) -> Status {
         ZERO_TRY(enter(call, optim, {}));
         return load_state(call, optim, old, 0);
       });
     }},
    {"parameters set and shared",
     [](Model& model, const std::string&, auto&) {
       ZERO_TRY(set_one(model.optim()));
       return collective(model, Operation::share_params, [](Call& call, Optimizer& optim) {
         return share_by_hand(call, optim, 0);
       });
     }},
    {"parameters broadcast",
     [](Model& model, const std::string&, auto&) {
       const int32_t root = model.optim().world() - 1;
       if (model.optim().comm->rank() == root) {
         for (const Param& param : model.optim().params) {
           model.optim().keep_all();  // as zero_broadcast_params does for changes during the save
           std::memset(param.data, 0, param.bytes());
         }
       }
       return collective(model, Operation::broadcast_params, [&](Call& call, Optimizer& optim) {
         return broadcast_params(call, optim, root);
       });
     }},
    {"new owners",
     [](Model& model, const std::string&, auto&) {
       model.optim().set_trainable(0, false).code();
       ZERO_TRY(collective(model, Operation::rebalance, [](Call& call, Optimizer& optim) {
         return rebalance(call, optim, {});
       }));
       return model.step();
     }},
    {"other memory",
     [](Model& model, const std::string&, auto& room) {
       ZERO_TRY(move_params(model.optim(), room));
       return model.step();
     }},
    {"settings and extras",
     [](Model& model, const std::string&, auto&) {
       ZERO_TRY(model.optim().set(ZERO_ALL_GROUPS, "lr", 0.5));
       ZERO_TRY(set_extra(model.optim(), "seed", "later", 5));
       return model.step();
     }},
};

struct Case {
  CommKind kind;
  int world;
  ModelSpec spec;
};

std::vector<Case> cases() {
  ModelSpec remainders = odd_model();
  remainders.extras = true;
  remainders.master = ZERO_MASTER_REMAINDER;
  ModelSpec trust = odd_model();
  trust.rule = "lamb";
  ModelSpec whole = odd_model();
  whole.partition = ZERO_PARTITION_GREEDY;
  std::vector<Case> all;
  for (const ModelSpec& spec : {remainders, trust, whole}) {
    for (const int world : {1, 2, 3}) all.push_back({CommKind::local, world, spec});
    all.push_back({CommKind::user, 3, spec});
  }
  return all;
}

TEST(SaveBehind, what_loads_is_the_state_of_the_beginning_whatever_changes_after) {
  for (const Case& one : cases()) {
    for (const Change& change : kChanges) {
      SCOPED_TRACE(text(change.name, " on ", one.world, " ranks, ", name_of(one.kind), " comm"));
      const Place place(one.spec);
      const Scratch scratch;
      const std::string old = scratch / "old", made = scratch / "new";
      EXPECT_EQ(told(solo_model(one.spec)->save(old)), "");
      const HeldWriters writers;
      const Meeting meeting(one.kind, one.world);
      std::string expected;
      const auto results = run_sound_ranks(RankKind::threads, one.world, [&](int rank) {
        Result<std::shared_ptr<Comm>> seat = meeting.seat(rank, 0, {});
        if (!seat.ok()) return told(seat.failure());
        std::vector<std::vector<double>> room;
        Model model(*seat, one.spec);
        for (const Status& status : {model.seal(), model.step(), model.step()})
          EXPECT_EQ(told(status), "");
        const std::string state = model.state();
        if (rank == 0) expected = state;
        EXPECT_EQ(told(model.begin_save(made)), "");
        for (const Buffer& buffer : model.optim().buffers)
          std::memset(buffer.data, 0xA5, buffer.bytes());
        EXPECT_EQ(told(change.make(model, old, room)), "");
        EXPECT_TRUE(barrier(model));
        HeldWriters::release();
        const std::string end = told(model.await_save());
        EXPECT_EQ(told(model.step()), "");
        return end;
      });
      for (const std::string& result : results) EXPECT_EQ(result, "");
      EXPECT_TRUE(loaded(made, one.spec) == expected);
    }
  }
}

TEST(SaveBehind, steps_beside_the_writers_change_nothing_of_it) {
  ModelSpec spec;
  spec.groups = {{{"w", {401, 999}}, {"half", {70'001}, DType::bf16, DType::bf16}}};
  spec.buffers = {{"mean", {999}}};
  spec.master = ZERO_MASTER_REMAINDER;
  for (const CommKind kind : kCommKinds) {
    const Scratch scratch;
    const Meeting meeting(kind, 2);
    std::string expected;
    const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
      Model model(*meeting.seat(rank, 0, {}), spec);
      EXPECT_EQ(told(model.seal()), "");
      for (int round = 0; round < 10; round++) {
        EXPECT_EQ(told(model.step()), "");
        const std::string state = model.state();
        if (rank == 0) expected = state;
        EXPECT_EQ(told(model.begin_save(scratch / "new", ZERO_SAVE_REPLACE)), "");
        for (int steps = 0; steps < 3; steps++) EXPECT_EQ(told(model.step()), "");
        EXPECT_EQ(told(model.await_save()), "");
        if (rank == 0) {
          EXPECT_TRUE(loaded(scratch / "new", spec) == expected);
        }
        EXPECT_TRUE(barrier(model));
      }
      return std::string();
    });
    for (const std::string& result : results) EXPECT_EQ(result, "");
  }
}

TEST(SaveBehind, later_steps_make_it_a_checkpoint_without_a_wait) {
  const Scratch scratch;
  const ModelSpec spec = small_model();
  const Meeting meeting(CommKind::local, 3);
  std::string expected;
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    Model model(*meeting.seat(rank, 0, {}), spec);
    for (const Status& status : {model.seal(), model.step()}) EXPECT_EQ(told(status), "");
    const std::string state = model.state();
    if (rank == 0) expected = state;
    EXPECT_EQ(told(model.begin_save(scratch / "new")), "");
    for (int steps = 0; !*poll_save(model.optim()); steps++) {
      EXPECT_EQ(told(model.step()), "");
      usleep(10'000);
      if (steps > 2'000) return std::string("it never ended");
    }
    EXPECT_TRUE(barrier(model));
    EXPECT_TRUE(loaded(scratch / "new", spec) == expected);
    EXPECT_EQ(told(model.begin_save(scratch / "next")), "");  // a finished save is not in the way
    return told(model.await_save());
  });
  EXPECT_EQ(names_in(scratch.path()), (std::vector<std::string>{"new", "next"}));
}

TEST(SaveBehind, a_failure_of_one_rank_is_told_to_all_and_leaves_no_checkpoint) {
  const Scratch scratch;
  const ModelSpec spec = small_model();
  const Meeting meeting(CommKind::local, 2);
  static std::atomic<int> writes;
  writes = 0;
  const ReplacedCall full{&SystemCalls::pwrite,
                          [](int fd, const void* data, size_t bytes, int64_t offset) {
                            if (writes++ > 0)
                              return real_system_calls().pwrite(fd, data, bytes, offset);
                            errno = ENOSPC;
                            return ssize_t{-1};
                          }};
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    Model model(*meeting.seat(rank, 0, {}), spec);
    for (const Status& status : {model.seal(), model.step()}) EXPECT_EQ(told(status), "");
    EXPECT_EQ(told(model.begin_save(scratch / "new")), "");
    while (!*poll_save(model.optim())) {
      EXPECT_EQ(told(model.step()), "");
      usleep(10'000);
    }
    std::string said = told(model.await_save());
    EXPECT_EQ(told(model.step()), "");
    EXPECT_EQ(told(model.await_save()),
              "ZERO_ERR_STATE: no save has begun: call zero_state_save_begin first");
    EXPECT_EQ(told(model.save(scratch / "next")), "");
    return said;
  });
  const auto failed = std::ranges::count_if(results, [](const std::string& said) {
    return said.starts_with("ZERO_ERR_CKPT_IO: ") && contains(said, "(ENOSPC)");
  });
  EXPECT_EQ(failed, 1) << results[0] << results[1];
  for (const std::string& said : results) EXPECT_TRUE(contains(said, "(ENOSPC)")) << said;
  EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{"next"});
}

TEST(SaveBehind, one_that_is_given_up_leaves_nothing) {
  const Scratch scratch;
  {
    auto model = solo_model(small_model());
    const HeldWriters writers;
    EXPECT_EQ(told(model->begin_save(scratch / "new")), "");
    HeldWriters::release();
  }
  EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{});
}

ssize_t full_disk(int, const void*, size_t, int64_t) {
  errno = ENOSPC;
  return -1;
}

TEST(SaveBehind, a_failure_that_nobody_waits_for_is_logged_and_one_that_was_told_is_not) {
  const Scratch scratch;
  const ReplacedCall full{&SystemCalls::pwrite, full_disk};
  for (const bool waits : {false, true}) {
    const Heard heard;
    auto model = solo_model(small_model());
    EXPECT_EQ(told(model->begin_save(scratch / "new")), "");
    if (waits) expect_failure(model->await_save(), ZERO_ERR_CKPT_IO, "(ENOSPC)");
    while (!waits && !*poll_save(model->optim())) EXPECT_EQ(told(model->step()), "");
    model.reset();
    EXPECT_EQ(
        contains(heard.text, text("the save of '", scratch / "new", "' failed: "), "(ENOSPC)"),
        !waits)
        << heard.text;
  }
}

TEST(SaveBehind, a_wait_that_finds_the_comm_broken_also_says_what_this_rank_could_not_write) {
  const Scratch scratch;
  const Meeting meeting(CommKind::local, 2);
  const ReplacedCall full{&SystemCalls::pwrite, full_disk};
  const auto said = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    Model model(*meeting.seat(rank, 0, {}), small_model());
    for (const Status& status : {model.seal(), model.step()}) EXPECT_EQ(told(status), "");
    EXPECT_EQ(told(model.begin_save(scratch / "new")), "");
    while (model.optim().saving->word() == Saving::Word::busy) usleep(1000);
    EXPECT_TRUE(barrier(model));
    Failure cause;
    cause.code = ZERO_ERR_ABORTED;
    cause.text = "ended by the test";
    model.optim().comm->abort(cause);
    return told(give_up_save(model.optim(), model.optim().comm->failure_status()));
  });
  for (const std::string& words : said)
    EXPECT_TRUE(contains(words, "ended by the test", "; before that: ", "(ENOSPC)")) << words;
}

/// Returns the pages of memory without a file, including mappings that malloc did not make.
int64_t anonymous_pages() {
  int64_t mapped = 0, resident = 0, shared = 0;
  std::istringstream(read_file("/proc/self/statm")) >> mapped >> resident >> shared;
  return resident - shared;
}

/// Returns the bytes that all arenas of malloc have from the system, without those that are free.
int64_t bytes_in_use() {
  char* said = nullptr;
  size_t length = 0;
  std::FILE* const stream = open_memstream(&said, &length);
  malloc_info(0, stream);
  std::fclose(stream);
  const std::string words(said, length);
  std::free(said);
  const auto size = [&](const char* of) {
    return std::stoll(words.substr(words.find("size=\"", words.rfind(of)) + 6));
  };
  return size("<system type=\"current\"") - size("<total type=\"fast\"") -
         size("<total type=\"rest\"");
}

TEST(SaveBehind, many_leave_no_descriptor_no_thread_and_no_memory) {
  const Scratch scratch;
  const int64_t threads = entries_of("/proc/self/task");
  auto model = solo_model(small_model());
  const auto save = [&] {
    EXPECT_EQ(told(model->begin_save(scratch / "new", ZERO_SAVE_REPLACE)), "");
    EXPECT_EQ(told(model->step()), "");
    EXPECT_EQ(told(model->await_save()), "");
  };
  for (int warm = 0; warm < 10; warm++) save();
  const int64_t descriptors = entries_of("/proc/self/fd");
  const int64_t pages = anonymous_pages(), bytes = bytes_in_use();
  for (int i = 0; i < (nightly_run() ? 1000 : 100); i++) save();
  for (int patience = 0; entries_of("/proc/self/task") > threads && patience < 1000; patience++)
    usleep(1000);
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_LE(entries_of("/proc/self/task"), threads);
  EXPECT_LE(anonymous_pages(), pages + 4096);
  EXPECT_LE(bytes_in_use(), bytes + (32 << 10));  // 320 bytes per save; 32 in nightly runs
}

}  // namespace
}  // namespace zero::test

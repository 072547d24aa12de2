// SPDX-License-Identifier: Apache-2.0
// Custom update rules that fail on any rank and in any way: all ranks get the error, and nothing
// has changed on any of them. Also rules whose declaration is invalid, or differs between ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "own_model.h"
#include "support/optim.h"

namespace zero::test {
namespace {

/// AdamW until `failing` is set. Then `fail` determines the result for the ranges of "matrix", of
/// which every rank owns some.
struct Failing {
  std::function<zero_status(const zero_update&)> fail;
  bool failing = false;

  OwnRule rule() {
    OwnRule rule = own_adamw();
    rule.update = [this, adamw = rule.update](const zero_update& update) -> zero_status {
      EXPECT_STREQ(update.message, "");          // even after a call that failed
      const zero_status status = adamw(update);  // makes its copies differ from the current values
      return failing && update.param == 0 ? fail(update) : status;
    };
    return rule;
  }
};

/// A way to fail, and the words of the error.
struct Way {
  std::function<zero_status(const zero_update&)> fail;
  std::string words;
};

zero_status write_at(const zero_update& update, void* array, int64_t bytes) {
  static_cast<unsigned char*>(array)[bytes] ^= 0x55;
  (void)update;
  return ZERO_OK;
}

std::vector<Way> ways_to_fail() {
  const auto end = [](const zero_update& u) { return u.count * 4; };
  return {
      {[](const zero_update& u) {
         std::snprintf(u.message, u.message_bytes, "matrix of %d is singular", 7);
         return ZERO_ERR_STATE;
       },
       "custom:my-adamw returned ZERO_ERR_STATE: matrix of 7 is singular"},
      {[](const zero_update&) { return -12345; }, "custom:my-adamw returned -12345"},
      {[](const zero_update&) { return ZERO_SKIPPED; }, "returned ZERO_SKIPPED"},
      {[](const zero_update& u) {
         std::snprintf(u.message, u.message_bytes, "\xff\xfe");
         return 5;
       },
       "returned 5: its message is not UTF-8"},
      {[](const zero_update& u) {
         std::memset(u.message, 'x', u.message_bytes);  // no NUL
         return 5;
       },
       "returned 5: xxxx"},
      {[](const zero_update&) -> zero_status { throw std::runtime_error("no such basis"); },
       "custom:my-adamw threw: no such basis"},
      {[](const zero_update&) -> zero_status { throw 42; }, "threw: something"},
      {[](const zero_update& u) { return write_at(u, u.values, -1); },
       "before the start of 'values'"},
      {[=](const zero_update& u) { return write_at(u, u.values, end(u)); },
       "past the end of 'values'"},
      {[](const zero_update& u) { return write_at(u, u.gradient, -64); },
       "before the start of 'gradient'"},
      {[=](const zero_update& u) { return write_at(u, u.gradient, end(u) + 63); },
       "past the end of 'gradient'"},
      {[](const zero_update& u) { return write_at(u, u.slots[0], -8); },
       "before the start of 'exp_avg'"},
      {[=](const zero_update& u) { return write_at(u, u.slots[1], end(u)); },
       "past the end of 'exp_avg_sq'"},
      {[](const zero_update& u) {
         return write_at(u, u.message, static_cast<int64_t>(u.message_bytes));
       },
       "past the end of 'message'"},
  };
}

/// Tries every way to fail on every rank. A failed step must leave no trace.
TEST(OwnRuleFailure, a_failure_is_told_to_all_and_has_changed_nothing_anywhere) {
  const std::vector<Way> ways = ways_to_fail();
  for (int world = 1; world <= 3; world++) {
    on_each_comm(world, [&](zero_comm* comm, int rank) {
      Failing failing;
      const OwnRule rule = failing.rule();
      OwnModel model(comm, rule, {.overlap_gather = world == 2});
      ASSERT_OK(model.step());
      size_t turn = 0;
      for (const Way& way : ways) {
        const int culprit = static_cast<int>(turn++) % world;
        const std::string before = model.state();
        failing.fail = way.fail;
        failing.failing = rank == culprit;
        const zero_status status = model.step();
        EXPECT_TRUE(says(way.words));
        EXPECT_TRUE(says("parameter 'matrix', the update of elements "));
        if (rank == culprit) {
          EXPECT_EQ(status, ZERO_ERR_CALLBACK) << way.words;
        } else {
          EXPECT_EQ(status, ZERO_ERR_PEER) << way.words;
          EXPECT_TRUE(
              says("rank " + std::to_string(culprit) + " in zero_step: ZERO_ERR_CALLBACK: "));
        }
        EXPECT_EQ(model.result(status).step, 1);
        EXPECT_EQ(model.state(), before) << way.words;
        failing.failing = false;
        model.go_on_from(1);
      }
    });
  }
}

TEST(OwnRuleFailure, training_goes_on_behind_a_failure_as_if_it_had_not_been) {
  std::string undisturbed;
  for (const bool disturbed : {false, true}) {
    on_each_comm(3, [&](zero_comm* comm, int rank) {
      Failing failing;
      const OwnRule rule = failing.rule();
      OwnModel model(comm, rule, {});
      failing.fail = [](const zero_update&) { return -1; };
      for (int step = 0; step < 6; step++) {
        failing.failing = disturbed && step % 2 == 1 && rank == step % 3;
        if (disturbed && step % 2 == 1) {
          EXPECT_LT(model.step(), 0);
          model.go_on_from(step);
        }
        failing.failing = false;
        ASSERT_OK(model.step());
      }
      const std::string state = model.state();
      if (rank != 0) return;
      if (!disturbed) undisturbed = state;
      EXPECT_EQ(state, undisturbed);
    });
  }
}

TEST(OwnRuleFailure, failures_of_several_ranks_are_each_rank_s_own) {
  on_ranks(CommKind::local, 3, [&](zero_comm* comm, int rank) {
    Failing failing;
    const OwnRule rule = failing.rule();
    OwnModel model(comm, rule, {});
    failing.fail = [rank](const zero_update& u) {
      std::snprintf(u.message, u.message_bytes, "said rank %d", rank);
      return -1;
    };
    failing.failing = rank > 0;
    EXPECT_TRUE(ends(model.step(), rank > 0 ? ZERO_ERR_CALLBACK : ZERO_ERR_PEER,
                     rank == 2 ? "said rank 2" : "said rank 1"));
  });
}

TEST(OwnRuleFailure, gradients_are_forgotten_with_the_step_that_failed) {
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
    Failing failing;
    const OwnRule rule = failing.rule();
    OwnModel model(comm, rule, {});
    ASSERT_OK(model.step());
    ASSERT_OK(zero_reduce_grads(model.optim(), nullptr, 0, ZERO_REDUCE_MEAN, nullptr));
    failing.fail = [](const zero_update&) { return -1; };
    failing.failing = rank == 1;
    EXPECT_LT(zero_step(model.optim(), nullptr), 0);
    double value = 0;
    EXPECT_EQ(zero_grad_get(model.optim(), 0, 0, 0, &value), ZERO_ERR_STATE);
    failing.failing = false;
    EXPECT_OK(zero_step(model.optim(), nullptr));  // reduces again
  });
}

/// A rank without inputs serves the others. Its function runs inside zero_join.
TEST(OwnRuleFailure, a_rank_that_joined_updates_its_share_and_its_failure_is_the_others) {
  for (const bool fails : {false, true}) {
    on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
      int calls = 0;
      OwnRule rule = own_adamw();
      rule.update = [&](const zero_update& u) -> zero_status {
        calls++;
        static_cast<float*>(u.values)[0] += 1;
        return fails && rank == 1 ? ZERO_ERR_STATE : ZERO_OK;
      };
      const Declared declared(rule);
      auto options = initialized<zero_options>();
      declared.put_into(options);
      options.uneven_inputs = ZERO_UNEVEN_WORLD;
      static constexpr int64_t kSize = 4096;
      std::vector<float> data(kSize), grad(kSize);
      Optim optim(comm, options);
      optim.add(parameter("w", kSize, data.data(), grad.data()));
      if (rank == 0) {
        EXPECT_EQ(optim.step(), fails ? ZERO_ERR_PEER : ZERO_OK) << last();
        if (fails) {
          EXPECT_TRUE(says("rank 1 in zero_step: ZERO_ERR_CALLBACK"));
        }
      }
      EXPECT_OK(zero_join(optim.optim(), nullptr, nullptr));
      EXPECT_EQ(calls, 1);
      EXPECT_EQ(data[0], fails ? 0 : 1);
      EXPECT_EQ(data[2048], fails ? 0 : 1);
    });
  }
}

// ---- Invalid declarations, and declarations that differ between ranks

TEST(OwnRuleDeclared, ranks_that_declare_something_else_are_told_which_and_what) {
  struct Change {
    std::function<void(OwnRule&)> make;
    const char* words;
  };
  const Change changes[] = {
      {[](OwnRule& r) { r.name = "mine"; }, "optimizer custom:mine"},
      {[](OwnRule& r) { r.slots[1] = "v"; }, "with state exp_avg v"},
      {[](OwnRule& r) { r.slots.push_back("w"); }, "with state exp_avg exp_avg_sq w"},
      {[](OwnRule& r) { r.settings[2].first = "epsilon"; }, "epsilon"},
      {[](OwnRule& r) { r.whole_tensors = true; }, "on whole tensors"},
  };
  for (const Change& change : changes) {
    for (int culprit = 0; culprit < 3; culprit++) {
      on_ranks(CommKind::local, 3, [&](zero_comm* comm, int rank) {
        OwnRule rule = own_adamw();
        if (rank == culprit) change.make(rule);
        OwnModel model(comm, rule, {.partition = ZERO_PARTITION_GREEDY});
        EXPECT_TRUE(ends(zero_seal(model.optim()),
                         rank == culprit ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, change.words));
        EXPECT_TRUE(says("rank " + std::to_string(culprit)));
      });
    }
  }
}

TEST(OwnRuleDeclared, a_wrong_declaration_is_refused_and_named) {
  struct Wrong {
    std::function<void(OwnRule&, zero_custom_optimizer&, zero_options&)> make;
    const char* words;
  };
  using Rule = OwnRule&;
  using Custom = zero_custom_optimizer&;
  using Options = zero_options&;
  static const char* const many[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
  static const char* const twice[] = {"a", "a"};
  static const char* const master[] = {"master"};
  static const char* const dotted[] = {"a.b"};
  static const char* const none[] = {nullptr};
  static const char* const rate[] = {"lr"};
  static const double minus[] = {-1, -1}, nan[] = {std::nan("")};
  static const std::string longest(65, 'x');
  const Wrong wrongs[] = {
      {[](Rule, Custom c, Options) { c.name = nullptr; }, "name is NULL"},
      {[](Rule, Custom c, Options) { c.name = ""; }, "name '' must be 1 to 64"},
      {[](Rule, Custom c, Options) { c.name = "a b"; }, "name 'a b' must be"},
      {[](Rule, Custom c, Options) { c.name = longest.c_str(); }, "must be 1 to 64"},
      {[](Rule, Custom c, Options) { c.update = nullptr; }, "update is NULL"},
      {[](Rule, Custom c, Options) { c.slots = nullptr; }, "slot_count is 2, but slots is NULL"},
      {[](Rule, Custom c, Options) { c.slots = many, c.slot_count = 9; }, "9 slots"},
      {[](Rule, Custom c, Options) { c.slots = twice; }, "slot 'a' is declared twice"},
      {[](Rule, Custom c, Options) { c.slots = master, c.slot_count = 1; }, "slot 'master'"},
      {[](Rule, Custom c, Options) { c.slots = dotted, c.slot_count = 1; }, "slot 'a.b' must be"},
      {[](Rule, Custom c, Options) { c.slots = none, c.slot_count = 1; }, "slot 0 is NULL"},
      {[](Rule, Custom c, Options) { c.setting_names = nullptr; }, "setting_names or"},
      {[](Rule, Custom c, Options) { c.setting_names = none, c.setting_count = 1; },
       "setting 0 is NULL"},
      {[](Rule, Custom c, Options) {
         c.setting_names = rate, c.setting_values = minus, c.setting_count = 1;
       },
       "setting 'lr' is -1"},
      {[](Rule, Custom c, Options) {
         c.setting_names = twice, c.setting_values = minus, c.setting_count = 2;
       },
       "setting 'a' is declared twice"},
      {[](Rule, Custom c, Options) {
         c.setting_names = twice, c.setting_values = nan, c.setting_count = 1;
       },
       "setting 'a' is nan"},
      {[](Rule, Custom c, Options) { c.setting_count = 17; }, "17 settings"},
      {[](Rule, Custom c, Options) {
         static const char* const names[] = {"optimizer"};
         c.setting_names = names;
         c.setting_count = 1;
       },
       "setting 'optimizer' has a reserved name"},
      {[](Rule, Custom c, Options) { c.flags = 2; }, "flags 2 are unknown"},
      {[](Rule, Custom c, Options) { c.reserved = 1; }, "reserved is 1, not 0"},
      {[](Rule, Custom c, Options) { c.struct_size = 8; }, "struct_size is 8"},
      {[](Rule, Custom, Options o) { o.custom = nullptr; }, "custom is NULL"},
      {[](Rule, Custom, Options o) { o.optimizer = ZERO_OPTIMIZER_SGD; }, "not ZERO_OPTIMIZER_CU"},
      {[](Rule, Custom, Options o) { o.optimizer = 99; }, "no ZERO_OPTIMIZER_* has that number"},
  };
  const std::shared_ptr<zero_comm> comm = alone();
  for (const Wrong& wrong : wrongs) {
    OwnRule rule = own_adamw();
    Declared declared(rule);
    auto options = initialized<zero_options>();
    declared.put_into(options);
    wrong.make(rule, declared.custom(), options);
    zero_optim* optim = nullptr;
    EXPECT_TRUE(ends(zero_create(&optim, comm.get(), &options), ZERO_ERR_ARGUMENT, wrong.words))
        << wrong.words;
    EXPECT_EQ(optim, nullptr);
  }
}

TEST(OwnRuleDeclared, a_setting_that_the_rule_does_not_have_is_refused) {
  const OwnRule rule = own_adamw();
  const std::shared_ptr<zero_comm> comm = alone();
  OwnModel model(comm.get(), rule, {});
  EXPECT_TRUE(ends(zero_group_set(model.optim(), 0, "momentum", 1), ZERO_ERR_ARGUMENT,
                   "custom:my-adamw has no setting 'momentum'; it has lr, weight_decay, "));
  EXPECT_OK(zero_group_set(model.optim(), 0, "beta1", -7));  // any number
  EXPECT_EQ(zero_group_set(model.optim(), 0, "lr", -7), ZERO_ERR_ARGUMENT);
}

}  // namespace
}  // namespace zero::test

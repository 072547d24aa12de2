// SPDX-License-Identifier: Apache-2.0
// An update rule of the caller's that is declared wrongly, or otherwise than on other ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "own_model.h"
#include "support/expect.h"

namespace zero::test {
namespace {

TEST(OwnRuleDeclared, ranks_that_declare_something_else_are_told_which_and_what) {
  struct Change {
    std::function<void(OwnRule&)> make;
    const char* words;
  };
  const Change changes[] = {
      {[](OwnRule& r) { r.name = "mine"; }, "optimizer custom:mine"},
      {[](OwnRule& r) {
         r.slots = {"exp_avg", "v"};
       },
       "with state exp_avg v"},
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
      {[](Rule, Custom c, Options) { c.flags = 2; }, "flags 2 are unknown"},
      {[](Rule, Custom c, Options) { c.reserved = 1; }, "reserved is 1, not 0"},
      {[](Rule, Custom c, Options) { c.struct_size = 8; }, "struct_size is 8"},
      {[](Rule, Custom, Options o) { o.custom = nullptr; }, "custom is NULL"},
      {[](Rule, Custom, Options o) { o.optimizer = ZERO_OPTIMIZER_SGD; }, "not ZERO_OPTIMIZER_CU"},
      {[](Rule, Custom, Options o) { o.optimizer = 99; }, "no ZERO_OPTIMIZER_* has that number"},
      {[](Rule, Custom c, Options) { c.flags = ZERO_CUSTOM_WHOLE_TENSORS; },
       "ZERO_PARTITION_GREEDY, ZERO_PARTITION_GREEDY_IN_ORDER or ZERO_PARTITION_MANUAL"},
  };
  zero_comm* comm = solo();
  for (const Wrong& wrong : wrongs) {
    OwnRule rule = own_adamw();
    Declared declared(rule);
    auto options = initialized<zero_options>();
    declared.put_into(options);
    wrong.make(rule, declared.custom(), options);
    zero_optim* optim = nullptr;
    EXPECT_TRUE(ends(zero_create(&optim, comm, &options), ZERO_ERR_ARGUMENT, wrong.words))
        << wrong.words;
    EXPECT_EQ(optim, nullptr);
  }
  zero_comm_free(comm);
}

TEST(OwnRuleDeclared, a_setting_that_the_rule_does_not_have_is_refused) {
  zero_comm* comm = solo();
  const OwnRule rule = own_adamw();
  {
    OwnModel model(comm, rule, {});
    EXPECT_TRUE(ends(zero_group_set(model.optim(), 0, "momentum", 1), ZERO_ERR_ARGUMENT,
                     "custom:my-adamw has no setting 'momentum'"));
    EXPECT_EQ(zero_group_set(model.optim(), 0, "beta1", -7), ZERO_OK) << last();  // any number
    EXPECT_EQ(zero_group_set(model.optim(), 0, "lr", -7), ZERO_ERR_ARGUMENT);
  }
  zero_comm_free(comm);
}

}  // namespace
}  // namespace zero::test

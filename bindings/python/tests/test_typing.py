# SPDX-License-Identifier: Apache-2.0
"""Tests the words and settings that type checkers know, and the errors for misspelt ones."""

from __future__ import annotations

import inspect
import unittest
from typing import Any, get_args

import libzero.typing
from libzero import ArgumentError, Comm, CustomOptimizer, Optimizer, Param, partition_plan, rules
from libzero._params import OPTIONS
from support import floats


class TypesTest(unittest.TestCase):
    def test_rules_and_settings_are_those_of_the_library(self) -> None:
        self.assertEqual(get_args(libzero.typing.RuleName), tuple(rules()))
        settings = {name for rule in rules().values() for name in rule.settings}
        self.assertEqual(set(libzero.typing.Settings.__annotations__), settings)

    def test_an_optimizer_takes_all_options_by_keyword_and_no_other(self) -> None:
        parameters = inspect.signature(Optimizer).parameters.values()
        by_keyword = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
        self.assertEqual(by_keyword | {"partition"}, OPTIONS)


class RuleNameTest(unittest.TestCase):
    def test_a_rule_is_named_in_any_case(self) -> None:
        wrong: Any = Optimizer
        for name in ("AdamW", "RMSprop", "SGD", "AdEMAMix"):
            with Comm.solo() as comm, wrong(comm, name, lr=0.5) as optimizer:
                self.assertEqual(optimizer.settings["lr"], 0.5)
                plan: Any = partition_plan
                self.assertEqual(plan({"w": 8}, 1, name), plan({"w": 8}, 1, name.lower()))


class MisspeltTest(unittest.TestCase):
    def test_a_setting_is_told_those_there_are_and_those_near_it(self) -> None:
        adamw = "expected one of lr, beta1, beta2, eps, weight_decay, amsgrad, maximize"
        given: Any = {
            "learning_rate": 1,
            "betas": (0.9, 0.999),
            "max_grad_nrom": 1,
        }
        meant = {
            "learning_rate": "",
            "betas": "; did you mean 'beta2' or 'beta1'?",
            "max_grad_nrom": "; did you mean 'max_grad_norm'?",
        }
        with Comm.solo() as comm, Optimizer(comm) as optimizer:
            group = optimizer.register({"w": floats(1)})
            for name, value in given.items():
                sentence = f"setting '{name}' is unknown; {adamw}{meant[name]} (ZERO_ERR_ARGUMENT)"
                for make in (
                    lambda: Optimizer(comm, **{name: value}),
                    lambda: partition_plan({"w": 1}, 1, **{name: value}),
                ):
                    with self.subTest(name), self.assertRaises(ArgumentError) as caught:
                        make()
                    self.assertEqual(str(caught.exception), sentence)
            for call in (
                lambda: optimizer.register({"v": floats(1)}, weight_decya=0),
                lambda: group.update(weight_decya=0),
                lambda: group["weight_decya"],
                lambda: optimizer.settings.read_from("weight_decya", None),
            ):
                with self.assertRaisesRegex(ArgumentError, "; did you mean 'weight_decay'?"):
                    call()
            self.assertEqual(optimizer.names, ("w",))
            self.assertEqual(optimizer.settings["loss_scale"], 1)

    def test_a_setting_of_ones_own_rule_is_known(self) -> None:
        rule = CustomOptimizer(print, settings={"gamma": 1})
        with Comm.solo() as comm, Optimizer(comm, rule, gamma=2) as optimizer:
            self.assertEqual(optimizer.register({"w": floats(1)})["gamma"], 2)
            known = "expected one of lr, weight_decay, gamma, loss_scale; did you mean 'gamma'"
            with self.assertRaisesRegex(ArgumentError, known):
                optimizer.settings["gama"] = 1

    def test_a_word_is_told_those_there_are_and_those_near_it(self) -> None:
        def all_of(words: Any) -> str:
            return f"expected one of {', '.join(get_args(words))}"

        wrong: Any = Optimizer
        near_adamw = f"{', '.join(rules())}; did you mean 'adamw' or 'adam' or "
        with Comm.solo() as comm, Optimizer(comm) as optimizer:
            for call, words in (
                (lambda: wrong(comm, "adamm"), near_adamw),
                (lambda: wrong(comm, "AdamM"), f"'AdamM' is unknown; expected one of {near_adamw}"),
                (lambda: wrong(comm, ["adam"]), r"optimizer \['adam'\] is unknown; expected one of"),
                (lambda: wrong(comm, partition="gready"), "'gready' .*; did you mean 'greedy'"),
                (lambda: wrong(comm, wire_dtype="float61"), "did you mean 'float16' or 'bfloat16'"),
                (lambda: wrong(comm, nonfinite=True), f"True .*; {all_of(libzero.typing.Nonfinite)}$"),
                (lambda: optimizer.step(reduction="avg"), f"{all_of(libzero.typing.Reduction)}$"),
                (lambda: optimizer.register([Param("w", shape=1, dtype="bfloat")]), "'bfloat16'"),
            ):
                with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                    call()


if __name__ == "__main__":
    unittest.main()

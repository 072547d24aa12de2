# SPDX-License-Identifier: Apache-2.0
"""Tests groups of libzero.torch.Optimizer that follow different rules, in comparison with one optimizer per group."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

import torch
from models import copies, give_gradients, parameters

import libzero.torch
from support import InAllWorlds, everywhere, results_of, worst

WORLDS = (1, 2, 3)
Params = Sequence[torch.nn.Parameter]


def groups_of(params: Params) -> list[dict[str, Any]]:
    return [
        {"params": params[0::3], "betas": (0.8, 0.99)},
        {"params": params[1::3], "rule": "sgd", "lr": 0.1, "momentum": 0.9},
        {"params": params[2::3], "rule": "Lion", "lr": 0.01, "weight_decay": 0.1},
    ]


class Apart:
    """One optimizer of torch for each group, and Lion's formula."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self.adamw = torch.optim.AdamW(params[0::3], lr=0.02, betas=(0.8, 0.99))
        self.sgd = torch.optim.SGD(params[1::3], lr=0.1, momentum=0.9)
        self.averages = [torch.zeros_like(one) for one in params[2::3]]

    @torch.no_grad()
    def step(self) -> None:
        self.adamw.step()
        self.sgd.step()
        for param, average in zip(self.params[2::3], self.averages):
            grad = param.grad
            assert grad is not None
            param.mul_(1 - 0.01 * 0.1)
            param.sub_(0.01 * (0.9 * average + 0.1 * grad).sign())
            average.mul_(0.99).add_(grad, alpha=0.01)


def made(params: Params, **options: Any) -> libzero.torch.Optimizer:
    return libzero.torch.Optimizer(groups_of(params), "adamw", lr=0.02, **options)


def clipped_together(rank: int, world: int) -> Any:
    """Also continues after a state_dict, and with another group."""
    mine = parameters(1)
    others = copies(mine)
    zero, apart = made(mine), Apart(others)
    norms = []
    for step in range(8):
        if step == 4:
            zero.consolidate_state_dict(to=None)
            saved = zero.state_dict()
            zero.close()
            zero = made(mine)
            zero.load_state_dict(saved)
        give_gradients(step, mine, others)
        own = zero.clip_grad_norm(1.0)
        norms.append(abs(own / float(torch.nn.utils.clip_grad_norm_(others, 1.0)) - 1))
        zero.step()
        apart.step()
    rules = [group.get("rule") for group in zero.param_groups]
    return worst(mine, others), everywhere(mine), max(norms) < 1e-5, rules


def options_follow_schedules(rank: int, world: int) -> Any:
    mine = parameters(1)
    zero = made(mine)
    halved = torch.optim.lr_scheduler.LambdaLR(zero, lambda step: 0.5**step)
    give_gradients(0, mine)
    zero.step()
    halved.step()
    give_gradients(1, mine)
    zero.step()
    core = zero._sharded().core.optimizer
    return [group["lr"] for group in core.groups], core.groups[1]["momentum"]


def originals(rank: int, world: int) -> list[str]:
    said = []
    for key, value in (("rule", "sgd"), ("state_dtype", "bfloat16")):
        try:
            groups = [{"params": parameters(1), key: value}]
            libzero.torch.ZeroRedundancyOptimizer(groups, torch.optim.AdamW)
        except ValueError as error:
            said.append(str(error))
    return said


class GroupRulesTest(InAllWorlds):
    worlds = WORLDS
    cases = (clipped_together, options_follow_schedules, originals)

    def test_the_originals_refuse_the_rule_and_the_state_dtype_of_a_group(self) -> None:
        words = "the key {!r} of a group is only for libzero.torch.Optimizer"
        for said in self.of(originals):
            self.assertEqual(said, [words.format("rule"), words.format("state_dtype")])

    def test_steps_are_those_of_one_optimizer_per_group(self) -> None:
        for world in WORLDS:
            for distance, same, norms, rules in results_of(self.found[world], clipped_together):
                self.assertLess(distance, 1, f"{world} ranks")
                self.assertTrue(same and norms, f"{world} ranks")
                self.assertEqual(rules, [None, "sgd", "lion"])

    def test_a_scheduler_changes_every_group(self) -> None:
        for world in WORLDS:
            for found in results_of(self.found[world], options_follow_schedules):
                self.assertEqual(found, ([0.01, 0.05, 0.005], 0.9))


class AloneTest(unittest.TestCase):
    def test_a_group_starts_with_the_defaults_of_its_rule(self) -> None:
        weight = torch.nn.Parameter(torch.ones(3))
        with libzero.torch.Optimizer(
            [{"params": [weight], "rule": "sgd"}], "adamw", lr=0.5
        ) as zero:
            self.assertEqual((zero.param_groups[0]["lr"], zero.param_groups[0]["momentum"]), (1e-3, 0))
            late = torch.nn.Parameter(torch.ones(3))
            zero.add_param_group({"params": [late], "rule": "RMSprop"})
            self.assertEqual(zero.param_groups[1]["alpha"], 0.99)
            weight.grad, late.grad = torch.ones(3), torch.ones(3)
            zero.step()
            self.assertAlmostEqual(weight[0].item(), 0.999, places=6)

    def test_a_group_has_only_the_options_of_its_rule(self) -> None:
        mine = parameters(1)
        with made(mine) as zero:
            self.assertNotIn("betas", zero.param_groups[1])
            self.assertNotIn("momentum", zero.param_groups[0])
            self.assertEqual(zero.param_groups[2]["betas"], (0.9, 0.99))

    def test_the_rule_of_a_group_cannot_change(self) -> None:
        mine = parameters(1)
        with made(mine) as zero:
            give_gradients(0, mine)
            zero.param_groups[1]["rule"] = "lion"
            with self.assertRaisesRegex(ValueError, "group 1 has the rule 'lion', but was added with 'sgd'"):
                zero.step()

    def test_a_rule_that_there_is_not_is_named(self) -> None:
        weight = torch.nn.Parameter(torch.ones(3))
        with self.assertRaisesRegex(ValueError, "adamv.*adamw"):
            libzero.torch.Optimizer([{"params": [weight], "rule": "adamv"}])

    def test_arenas_of_groups_need_no_copies(self) -> None:
        mine = parameters(1)
        with made(mine, arenas=True, overlap=False) as zero:
            give_gradients(0, mine)
            zero.step()
            self.assertEqual(zero.stats().copied_bytes, 0)

    def test_state_in_bfloat16_has_half_the_bytes_and_continues(self) -> None:
        mine, others = parameters(1), parameters(1)
        bytes_of = []
        for params, options in ((mine, {"state_dtype": "bfloat16"}), (others, {})):
            with libzero.torch.Optimizer([{"params": params, **options}], "adamw", lr=0.02) as zero:
                for step in range(4):
                    give_gradients(step, params)
                    zero.step()
                bytes_of.append(zero.stats().state_bytes)
                zero.consolidate_state_dict()
                saved = zero.state_dict()
            with libzero.torch.Optimizer([{"params": params, **options}], "adamw", lr=0.02) as zero:
                zero.load_state_dict(saved)
                give_gradients(4, params)
                zero.step()
                self.assertEqual(zero.param_groups[0].get("state_dtype"), options.get("state_dtype"))
        self.assertEqual(bytes_of[0] * 2, bytes_of[1])
        self.assertTrue(all(torch.allclose(a, b, atol=0.02) for a, b in zip(mine, others)))

    def test_a_state_of_another_type_is_refused_by_the_group(self) -> None:
        mine = parameters(1)
        with libzero.torch.Optimizer([{"params": mine, "state_dtype": "bfloat16"}]) as zero:
            give_gradients(0, mine)
            zero.step()
            zero.consolidate_state_dict()
            saved = zero.state_dict()
        with libzero.torch.Optimizer([{"params": mine}]) as zero:
            with self.assertRaisesRegex(ValueError, "group 0 has the state_dtype 'bfloat16', not None"):
                zero.load_state_dict(saved)

    def test_the_type_of_the_state_cannot_change_or_be_misspelt(self) -> None:
        mine = parameters(1)
        with libzero.torch.Optimizer([{"params": mine}], "adamw") as zero:
            give_gradients(0, mine)
            zero.param_groups[0]["state_dtype"] = "bfloat16"
            with self.assertRaisesRegex(ValueError, "state_dtype 'bfloat16', but was added with None"):
                zero.step()
        with self.assertRaisesRegex(ValueError, "state_dtype 'bf16' is unknown.*did you mean 'bfloat16'"):
            libzero.torch.Optimizer([{"params": mine, "state_dtype": "bf16"}], "adamw")

    def test_a_state_of_other_rules_is_refused_by_the_group(self) -> None:
        mine = parameters(1)
        with made(mine) as zero, libzero.torch.Optimizer(
            [{"params": mine[0::3]}, {"params": mine[1::3]}, {"params": mine[2::3]}], "adamw"
        ) as other:
            give_gradients(0, mine)
            zero.step()
            zero.consolidate_state_dict()
            with self.assertRaisesRegex(ValueError, "group 1 has the rule 'sgd', not None"):
                other.load_state_dict(zero.state_dict())

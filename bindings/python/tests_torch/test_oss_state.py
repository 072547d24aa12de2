# SPDX-License-Identifier: Apache-2.0
"""Tests that the state of OSS moves to optimizers of torch and fairscale and back, and on which
ranks and when it is available."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from exchange import assert_sound, there_and_back
from fairscale.optim.oss import OSS as FairOSS
from models import CLASSES, class_of, copies, give_gradients, parameters
from torch import nn

from libzero.torch import OSS
from support import InAllWorlds, bits, worst

WORLDS = (1, 2, 3)
EXCHANGED = (
    ("Adam", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("RMSprop", {"lr": 0.003}),
)


def state_with_torch(rank: int, world: int) -> Any:
    return [
        there_and_back(name, options, OSS, lambda one: one.state_dict(all_ranks=True))
        for name, options in (*CLASSES, ("ASGD", {"lr": 0.1}))
    ]


def hand_over(source: Any, values: Any, target: Any, params: Any) -> None:
    """Copy the state and parameters of one side's optimizer to the other side's."""
    with torch.no_grad():
        for param, value in zip(params, values):
            param.copy_(value)
    target.load_state_dict(source.state_dict(all_ranks=True))


def state_of_fairscale(rank: int, world: int) -> Any:
    found = []
    for name, options in EXCHANGED:
        mine, others = parameters(1), parameters(1)
        fair = FairOSS(others, class_of(name), **options)
        plain_params = copies(mine)
        plain = class_of(name)(plain_params, **options)
        for step in range(2):
            give_gradients(step, others, plain_params)
            fair.step()
            plain.step()
        optimizer = OSS(mine, class_of(name), **options)
        hand_over(fair, others, optimizer, mine)
        give_gradients(2, mine, plain_params)
        optimizer.step()
        plain.step()
        hand_over(optimizer, mine, fair, others)
        give_gradients(3, others, plain_params)
        fair.step()
        plain.step()
        found.append((name, worst(others, plain_params)))
    return found


def where_the_state_is(rank: int, world: int) -> Any:
    """The state is current and on the rank that asked for it. Other ranks raise RuntimeError or
    ValueError."""
    params = parameters(1)
    optimizer = OSS(params, torch.optim.Adam)

    def has() -> Any:
        try:
            return len(optimizer.state_dict()["state"])
        except RuntimeError as error:
            return "consolidate_state_dict" in str(error)

    found = [has()]
    give_gradients(0, params)
    optimizer.step()
    found.append(has())
    optimizer.consolidate_state_dict(world - 1)
    found.append(has())
    optimizer.consolidate_state_dict(recipient_rank=-1)
    found.append(has())
    give_gradients(1, params)
    optimizer.step()
    found.append(has())
    for wrong in (-2, world):
        try:
            optimizer.consolidate_state_dict(wrong)
        except ValueError as error:
            found.append(str(wrong) in str(error))
    return found


def sub_groups(rank: int, world: int) -> Any:
    """The recipient is a rank of the group, and the norm covers the group."""
    ranks = [0, 2] if world == 3 else [world - 1]
    group = dist.new_group(ranks)
    if rank not in ranks:
        return None
    params = parameters(1)
    optimizer = OSS(params, torch.optim.Adam, group=group)
    give_gradients(0, params)
    norm = optimizer.clip_grad_norm(1e9).item()
    wanted = nn.utils.get_total_norm([param.grad for param in params if param.grad is not None])
    optimizer.step()
    optimizer.consolidate_state_dict(len(ranks) - 1)
    try:
        count = len(optimizer.state_dict()["state"])
    except RuntimeError:
        count = -1
    return abs(norm / wanted.item() - 1) < 1e-6, count, optimizer.group is group


def masters_that_go_round(rank: int, world: int) -> Any:
    """Return for every class whether another optimizer that loads the state continues with bitwise
    identical results. The class itself must also accept the state. One parameter has had no
    gradient, and one is frozen."""
    found = []
    for name, options in CLASSES:
        mine = parameters(1)
        mine[3].requires_grad_(False)
        optimizer = OSS(mine, class_of(name), broadcast_fp16=True, **options)
        for step in range(2):
            give_gradients(step, mine, without=[1, 3])
            optimizer.step()
            with torch.no_grad():
                mine[0].mul_(1.0001)  # all parameters are then copied to the other ranks
        state = optimizer.state_dict(all_ranks=True)
        with_master = sorted(n for n, entry in state["state"].items() if "master" in entry)
        again, unsharded = copies(mine), copies(mine)
        other = OSS(again, class_of(name), broadcast_fp16=True, **options)
        other.load_state_dict(state)
        plain = class_of(name)(unsharded, **options)
        plain.load_state_dict(state)
        mine[3].requires_grad_()
        for step in (2, 3):
            give_gradients(step, mine, again, unsharded)
            for one in (optimizer, other, plain):
                one.step()
        found.append((name, with_master, bits(mine) == bits(again)))
        optimizer.close()
        other.close()
    return found


CASES = (
    masters_that_go_round,
    state_with_torch,
    state_of_fairscale,
    where_the_state_is,
    sub_groups,
)


class OssState(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_masters_go_round_also_of_parameters_without_other_state(self) -> None:
        for found in self.of(masters_that_go_round):
            self.assertEqual(len(found), len(CLASSES))
            for name, with_master, same in found:
                self.assertEqual(with_master, list(range(7)), name)
                self.assertTrue(same, name)

    def test_state_goes_to_torch_and_back(self) -> None:
        for _, _, found in self.of_ranks(state_with_torch):
            self.assertEqual(len(found), len(CLASSES) + 1)
            for exchange in found:
                assert_sound(self, exchange)

    def test_state_goes_to_fairscale_and_back(self) -> None:
        for _, _, found in self.of_ranks(state_of_fairscale):
            self.assertEqual(len(found), 4)
            for name, difference in found:
                self.assertLess(difference, 1, name)

    def test_state_is_on_the_rank_that_was_asked_and_of_now(self) -> None:
        for world, rank, found in self.of_ranks(where_the_state_is):
            first = 7 if rank == world - 1 else True
            self.assertEqual(found, [0, True, first, 7, True, True, True])

    def test_a_sub_group_has_its_own_ranks_and_norms(self) -> None:
        members = 0
        for world, rank, found in self.of_ranks(sub_groups):
            if found is not None:
                last = rank == (2 if world == 3 else world - 1)
                self.assertEqual(found, (True, 7 if last else -1, True))
                members += 1
        self.assertEqual(members, 4)


if __name__ == "__main__":
    unittest.main()

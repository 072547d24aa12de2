# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints, state in torch's format, and custom rules of libzero.torch.Optimizer."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import libzero
from libzero.torch import Optimizer, _group
from native import ARENAS, Pair, loss_of, refusal
from support import bits, everywhere, results_of, run_cases, worst

WORLDS = (1, 2, 3)


def folder(process: int) -> Path:
    """Return the folder for checkpoints of the ranks that this process started. Checkpoints may be
    older than a test."""
    return Path(tempfile.gettempdir()) / f"libzero-native-{process}"


def two_groups(net: nn.Module) -> list[dict[str, Any]]:
    named = list(net.named_parameters())
    return [{"params": named[:3]}, {"params": named[3:], "lr": 0.02, "betas": (0.8, 0.9)}]


def train_alike(pair: Pair, steps: range) -> None:
    """Use the same batch on every rank, so that all world sizes train identically."""
    for step in steps:
        pair.zero_grad()
        loss_of(pair.mine, step, 0).backward()
        loss_of(pair.other, step, 0).backward()
        pair.step()


def save(rank: int, world: int) -> Any:
    pair = Pair(rank, world, groups=two_groups, arenas=True)
    train_alike(pair, range(4))
    pair.optimizer.param_groups[1]["lr"] = 0.03
    pair.plain.param_groups[1]["lr"] = 0.03
    train_alike(pair, range(4, 5))
    path = f"{folder(os.getppid())}/by-{world}"
    # A checkpoint does not contain gradients that no step has used.
    loss_of(pair.mine, 9, rank).backward()
    pair.optimizer.zero_grad()
    pair.optimizer.save(path)
    again = refusal(lambda: pair.optimizer.save(path))
    pair.optimizer.save(path, replace=True)
    return bits([*pair.params[0], *pair.mine.buffers()]), again


def extras(rank: int, world: int) -> Any:
    """Values that a rank set are also saved after a load_state_dict, and can be loaded."""
    path = f"{folder(os.getppid())}/extras-of-{world}"
    pair = Pair(rank, world)
    optimizer = pair.optimizer
    optimizer.state_extra_set("position", bytearray([rank, 7]))
    optimizer.state_extra_set("gone", b"x")
    train_alike(pair, range(1))
    optimizer.consolidate_state_dict(to=None)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.state_extra_set("gone", None)
    optimizer.save(path)
    optimizer.state_extra_set("position", b"newer")
    optimizer.load(path)
    optimizer.save(path, replace=True)
    optimizer.load(path)
    return [
        (of, name, list(optimizer.state_extra_get(name, of)))
        for of, name in optimizer.state_extra_list()
    ]


def saved_behind_steps(rank: int, world: int) -> Any:
    pair = Pair(rank, world, arenas=True)

    def all_bits() -> Any:
        return bits([*pair.params[0], *pair.mine.buffers()])

    path = f"{folder(os.getppid())}/behind-{world}"
    train_alike(pair, range(2))
    pair.optimizer.save_begin(path)
    begun = all_bits()
    train_alike(pair, range(2, 4))
    pair.optimizer.save_wait()
    trained = all_bits()
    pair.optimizer.load(path)
    return trained == begun, all_bits() == begun, refusal(lambda: pair.optimizer.save_ended)


def load(rank: int, world: int) -> Any:
    found = []
    for saved in WORLDS:
        for arenas in ARENAS:
            pair = Pair(rank, world, groups=two_groups, arenas=arenas)
            pair.mine[1].bias.requires_grad_(False)
            loss_of(pair.mine, 9, rank).backward()
            pair.optimizer.load(f"{folder(os.getppid())}/by-{saved}")
            loaded = bits([*pair.params[0], *pair.mine.buffers()])
            pair.mine[1].bias.requires_grad_(True)
            options = [(group["lr"], group["betas"]) for group in pair.optimizer.param_groups]
            for step in range(7):
                pair.plain.param_groups[1]["lr"] = 0.02 if step < 4 else 0.03
                pair.zero_grad()
                loss_of(pair.other, step, 0).backward()
                if step >= 5:
                    loss_of(pair.mine, step, 0).backward()
                    pair.optimizer.step()
                pair.plain.step()
            steps = pair.optimizer.result().step
            pair.optimizer.param_groups[0]["lr"] = 0.5
            pair.optimizer.load(f"{folder(os.getppid())}/by-{saved}", keep_settings=True)
            kept = pair.optimizer.param_groups[0]["lr"]
            what = f"saved by {saved}, arenas {arenas}"
            found.append((what, loaded, options, worst_of_last(pair, saved), steps, kept))
            pair.optimizer.close()
    return found


def worst_of_last(pair: Pair, saved: int) -> float:
    """Return the difference after the two steps that follow the load, which are taken again."""
    for step in (5, 6):
        pair.optimizer.param_groups[0]["lr"] = 0.01
        pair.optimizer.zero_grad()
        loss_of(pair.mine, step, 0).backward()
        pair.optimizer.step()
    return worst(*pair.params)


def state_in_torchs_format(rank: int, world: int) -> Any:
    pair = Pair(rank, world, arenas=True)
    train_alike(pair, range(2))
    plain_state = copy.deepcopy(pair.plain.state_dict())
    kept = pickle.dumps(plain_state)
    too_early = refusal(pair.optimizer.state_dict)
    # Load torch's state during training, after gradients have been announced.
    loss_of(pair.mine, 9, rank).backward()
    pair.optimizer.load_state_dict(plain_state)
    untouched = pickle.dumps(plain_state) == kept
    train_alike(pair, range(2, 4))
    middle = worst(*pair.params)
    pair.optimizer.consolidate_state_dict(to=None)
    state = pair.optimizer.state_dict()
    again = torch.optim.AdamW(pair.other.named_parameters(), lr=77.0)
    again.load_state_dict(state)
    pair.plain = again
    train_alike(pair, range(4, 6))
    return too_early, untouched, middle, worst(*pair.params), pair.optimizer.stats().copied_bytes


def masters(rank: int, world: int) -> Any:
    return [after_a_load_of_masters(momentum) for momentum in (0.5, 0.0)]


def after_a_load_of_masters(momentum: float) -> Any:
    """Training of bfloat16 parameters continues with the values of the master weights, also through
    a state_dict."""
    shapes = ((30, 40), (40,))

    def made() -> tuple[list[nn.Parameter], Optimizer]:
        params = [nn.Parameter(torch.ones(shape).bfloat16()) for shape in shapes]
        return params, Optimizer(params, "sgd", lr=1e-3, momentum=momentum, arenas=True)

    def train(params: list[nn.Parameter], optimizer: Optimizer, steps: int) -> None:
        for _ in range(steps):
            sum(param.sum() for param in params).backward()
            optimizer.step()

    params, optimizer = made()
    train(params, optimizer, 3)
    optimizer.consolidate_state_dict(to=None)
    state, values = optimizer.state_dict(), [param.detach().clone() for param in params]
    others, second = made()
    with torch.no_grad():
        for param, value in zip(others, values):
            param.copy_(value)
    second.load_state_dict(state)
    train(params, optimizer, 3)
    train(others, second, 3)
    moved = 1 - params[0].flatten()[0].item()
    names = sorted(state["state"][0])
    return bits(params) == bits(others), moved, names


def rules_of_libzeros_own(rank: int, world: int) -> Any:
    defaults = []
    for name in ("lion", "lamb", "lars", "adan", "adamw", "sgd", "rprop"):
        param = nn.Parameter(torch.ones(5))
        optimizer = Optimizer([param], name)
        plain = libzero.Optimizer(optimizer.comm, name)
        mine = optimizer._native.core.optimizer.groups[0]
        rule = optimizer._native._wishes.choice.rule
        names = [*rule.plain, *(one for some in rule.several.values() for one in some)]
        defaults += [(name, one) for one in names if mine[one] != plain.settings[one]]
    param = nn.Parameter(torch.ones(5))
    optimizer = Optimizer([param], "lion", lr=0.25, betas=(0.5, 0.5))
    param.sum().backward()
    optimizer.step()

    def descend(update: Any) -> None:
        update.values -= update.lr * update.settings["twice"] * update.gradient

    rule = libzero.CustomOptimizer(descend, settings={"twice": 2.0})
    custom = nn.Parameter(torch.ones(3000))
    optimizer = Optimizer([{"params": [custom], "twice": 4.0}], rule, lr=0.125)
    custom.sum().backward()
    optimizer.step()
    return defaults, param.tolist(), custom.unique().tolist()


def groups_collectives(rank: int, world: int) -> Any:
    """Ranks cannot access each other's memory. Nothing is copied in this case either."""
    _group._host = lambda: f"host {rank}"
    pair = Pair(rank, world, groups=two_groups, arenas=True)
    pair.train(range(4))
    copied = pair.optimizer.stats().copied_bytes
    return worst(*pair.params), everywhere(pair.params[0]), copied, world > 1


def equal_starts(rank: int, world: int) -> Any:
    pair = Pair(rank, world)
    return everywhere([*pair.mine.parameters(), *pair.mine.buffers()]), worst(*pair.params)


def frozen_ones_travel_no_more(rank: int, world: int) -> Any:
    """Return the bytes that a step moves with 10 trained and 1000 frozen parameters, before and
    after a load."""
    params = [nn.Parameter(torch.ones(1000), requires_grad=False), nn.Parameter(torch.ones(10))]
    optimizer = Optimizer(params, "sgd", lr=0.5, arenas=True)

    def moved() -> int:
        before = optimizer.stats().moved_bytes
        params[1].sum().backward()
        optimizer.step()
        return optimizer.stats().moved_bytes - before

    moved()
    first = moved()
    path = f"{folder(os.getppid())}/frozen-{world}"
    optimizer.save(path)
    optimizer.load(path)
    return first, moved()


def schedules(rank: int, world: int) -> Any:
    """The saved options include the rate that a scheduler has set for the next step. The test takes
    two steps, saves, and takes one more step with another optimizer."""
    found = []
    path = f"{folder(os.getppid())}/schedule-{world}"
    for arenas in ARENAS:
        params = [nn.Parameter(torch.ones(5)) for _ in range(2)]
        for again in (False, True):
            optimizer = Optimizer([params[again]], "sgd", lr=1.0, arenas=arenas)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            if again:
                optimizer.load(path)
                schedule.load_state_dict(kept)
            for _ in range(1 if again else 2):
                optimizer.zero_grad()
                params[again].sum().backward()
                optimizer.step()
                schedule.step()
            optimizer.save(path, replace=True)
            kept = schedule.state_dict()
            optimizer.close()
        found.append(params[1].unique().tolist())
    return found


CASES = (
    schedules,
    state_in_torchs_format,
    masters,
    rules_of_libzeros_own,
    equal_starts,
    frozen_ones_travel_no_more,
    groups_collectives,
    extras,
    saved_behind_steps,
)


class NativeState(unittest.TestCase):
    saved: dict[int, dict[str, list[Any]]]
    found: dict[int, dict[str, list[Any]]]

    @classmethod
    def setUpClass(cls) -> None:
        place = folder(os.getpid())
        place.mkdir()
        try:
            cls.saved = {world: run_cases(world, (save,)) for world in WORLDS}
            cls.found = {world: run_cases(world, (load, *CASES)) for world in WORLDS}
        finally:
            shutil.rmtree(place)

    def of(self, case: Any) -> Iterator[Any]:
        for world in WORLDS:
            yield from results_of(self.found[world], case)

    def test_a_checkpoint_loads_on_any_number_of_ranks(self) -> None:
        saved = {world: results_of(self.saved[world], save)[0][0] for world in WORLDS}
        for found in self.of(load):
            for what, loaded, options, difference, steps, kept in found:
                self.assertEqual(loaded, saved[int(what[9])], what)
                self.assertEqual(options, [(0.01, (0.9, 0.999)), (0.03, (0.8, 0.9))], what)
                self.assertLess(difference, 1, what)
                self.assertEqual((steps, kept), (7, 0.5), what)

    def test_what_ranks_set_of_their_own_is_in_checkpoints(self) -> None:
        for world in WORLDS:
            wanted = [(rank, "position", [rank, 7]) for rank in range(world)]
            self.assertEqual(results_of(self.found[world], extras), [wanted] * world)

    def test_a_save_that_has_begun_is_of_that_moment(self) -> None:
        for trained, loaded, none_begun in self.of(saved_behind_steps):
            self.assertFalse(trained)
            self.assertTrue(loaded)
            self.assertIn("save_begin first", none_begun)

    def test_a_checkpoint_is_replaced_only_when_asked(self) -> None:
        for world in WORLDS:
            for _, again in results_of(self.saved[world], save):
                self.assertIn("ZERO_ERR", again)

    def test_a_checkpoint_has_the_rates_that_a_schedule_has_set(self) -> None:
        for found in self.of(schedules):
            self.assertEqual(found, [[1 - 1 - 0.5 - 0.25]] * len(ARENAS))

    def test_state_goes_to_torch_and_back(self) -> None:
        for told, untouched, middle, last, copied in self.of(state_in_torchs_format):
            self.assertIn("consolidate_state_dict", told)
            self.assertTrue(untouched)
            self.assertLess(middle, 1)
            self.assertLess(last, 1)
            self.assertEqual(copied, 0)

    def test_masters_are_state(self) -> None:
        for with_momentum, alone in self.of(masters):
            for same, moved, _ in (with_momentum, alone):
                self.assertTrue(same)
                # The 6 steps are 1e-3 or larger. Without master weights, bfloat16 would have
                # rounded all of them away.
                self.assertGreater(moved, 0.005)
            self.assertEqual(with_momentum[2], ["master", "momentum_buffer"])
            self.assertEqual(alone[2], ["master"])

    def test_rules_have_the_librarys_defaults_and_are_torchs_words(self) -> None:
        for defaults, lion, custom in self.of(rules_of_libzeros_own):
            self.assertEqual(defaults, [])
            self.assertEqual(lion, [0.75] * 5)
            self.assertEqual(custom, [0.5])

    def test_frozen_parameters_stay_frozen_in_a_load(self) -> None:
        for first, second in self.of(frozen_ones_travel_no_more):
            self.assertEqual(first, second)

    def test_all_start_as_rank_0_with_buffers(self) -> None:
        for same, difference in self.of(equal_starts):
            self.assertTrue(same)
            self.assertEqual(difference, 0)

    def test_ranks_of_several_hosts_train_through_the_group_without_copies(self) -> None:
        for difference, same, copied, _ in self.of(groups_collectives):
            self.assertLess(difference, 1)
            self.assertTrue(same)
            self.assertEqual(copied, 0)


if __name__ == "__main__":
    unittest.main()

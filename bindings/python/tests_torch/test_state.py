# SPDX-License-Identifier: Apache-2.0
"""Tests state in torch's format, which moves to the unsharded optimizer and back, and between world
sizes, or is rejected."""

from __future__ import annotations

import copy
import unittest
from typing import Any

import torch
from exchange import assert_sound, there_and_back
from models import CLASSES, SHAPES, copies, give_gradients, parameters
from torch import nn

from libzero.torch import OSS, Optimizer, ZeroRedundancyOptimizer
from support import InAllWorlds, everywhere, results_of, worst

WORLDS = (1, 2, 3)
OTHERS = (("ASGD", {"lr": 0.1}),)


def broadcast(value: Any, source: int) -> Any:
    told = [value]
    torch.distributed.broadcast_object_list(told, src=source)
    return told[0]


def from_torch_and_back(rank: int, world: int) -> Any:
    def state_of(zero: ZeroRedundancyOptimizer) -> Any:
        target = world - 1
        zero.consolidate_state_dict(to=target)
        return broadcast(zero.state_dict() if rank == target else None, target)

    return [
        there_and_back(name, options, ZeroRedundancyOptimizer, state_of)
        for name, options in (*CLASSES, *OTHERS)
    ]


def a_snapshot(rank: int, world: int) -> Any:
    return [snapshot_of(chosen, rank, world) for chosen in (torch.optim.Adam, torch.optim.ASGD)]


def snapshot_of(chosen: Any, rank: int, world: int) -> Any:
    """Later steps do not change the gathered state, and state_dict does not return it after
    them."""
    mine = parameters(2)
    zero = ZeroRedundancyOptimizer(mine, chosen)
    name = "exp_avg" if chosen is torch.optim.Adam else "ax"
    told = []
    give_gradients(0, mine)
    zero.step()
    try:
        zero.state_dict()
    except RuntimeError as error:
        told.append(str(error))
    zero.consolidate_state_dict(to=0)
    if rank != 0:
        try:
            zero.state_dict()
        except RuntimeError as error:
            told.append(str(error))
    else:
        snapshot = zero.state_dict()
        kept = copy.deepcopy(snapshot)
    give_gradients(1, mine)
    zero.step()
    same = True
    if rank == 0:
        same = float(snapshot["state"][0]["step"]) == 1 and torch.equal(
            snapshot["state"][0][name], kept["state"][0][name]
        )
        try:
            zero.state_dict()
        except RuntimeError as error:
            told.append(str(error))
    try:
        zero.consolidate_state_dict(to=world)
    except ValueError as error:
        told.append(str(error))
    return told, same


def what_the_file_lacks(rank: int, world: int) -> Any:
    """A parameter without state in the file has no state after the load, as in torch.optim."""
    found = []
    for chosen, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.ASGD, {})):
        mine = parameters(3)
        others = copies(mine)
        zero = ZeroRedundancyOptimizer(mine, chosen, lr=0.1, **options)
        plain = chosen(others, lr=0.1, **options)
        for step in range(3):
            give_gradients(step, mine, others)
            zero.step()
            plain.step()
        saved = plain.state_dict()
        saved["state"] = {number: saved["state"][number] for number in (1, 3)}
        zero.load_state_dict(saved)
        plain.load_state_dict(saved)
        give_gradients(3, mine, others)
        zero.step()
        plain.step()
        found.append((worst(mine, others), everywhere(mine)))
        zero.close()
    return found


def options_of_the_file(rank: int, world: int) -> Any:
    """amsgrad is fixed when parameters are registered, but a load takes it from the file."""
    mine = parameters(3)
    others = copies(mine)
    zero = ZeroRedundancyOptimizer(mine, torch.optim.Adam, lr=0.1)
    plain = torch.optim.Adam(others, lr=0.1, amsgrad=True, betas=(0.5, 0.6))
    # Keys that OneCycleLR and the program add to a group are not options, and are kept.
    keys = {"initial_lr": 0.04, "max_lr": 1.0, "min_lr": 4e-6, "name": "body"}
    plain.param_groups[0].update(keys)
    give_gradients(0, others)
    plain.step()
    for param, other in zip(mine, others):
        param.data.copy_(other)
    zero.load_state_dict(plain.state_dict())
    for step in range(1, 4):
        give_gradients(step, mine, others)
        zero.step()
        plain.step()
    group = zero.param_groups[0]
    return worst(mine, others), group["amsgrad"] and keys.items() <= group.items()


def exact_steps(rank: int, world: int) -> Any:
    """A step count that float32 cannot represent is loaded from a dictionary and saved again, also
    by torch's own optimizer."""
    found = []
    for kind in (ZeroRedundancyOptimizer, OSS, Optimizer):
        mine = parameters(4)
        others = copies(mine)
        optimizer = kind(mine, torch.optim.Adam, lr=0.1)
        plain = torch.optim.Adam(others, lr=0.1)
        give_gradients(0, others)
        plain.step()
        state = plain.state_dict()
        for number, entry in state["state"].items():
            entry["step"] = 2**24 + 1 if number else torch.tensor(2**24 + 1.0, dtype=torch.float64)
        optimizer.load_state_dict(state)
        optimizer.consolidate_state_dict(-1 if kind is OSS else None)
        found += [int(one["step"]) - 2**24 for one in optimizer.state_dict()["state"].values()]
        plain.load_state_dict(optimizer.state_dict())
        give_gradients(1, others)
        plain.step()
        found.append(int(plain.state_dict()["state"][0]["step"]) - 2**24)
        optimizer.close()
    return found


def names_in_another_order(rank: int, world: int) -> Any:
    """Parameters have the same shape. A prefix of a wrapper does not make a name different, and
    names may be new."""
    params = [nn.Parameter(torch.full((3,), float(value))) for value in range(3)]
    named = list(zip("abc", params))
    optimizer = ZeroRedundancyOptimizer(named, torch.optim.Adam, lr=0.1)
    told = []
    for names in ("abc", "acb", "axc", ("module.a", "module.c", "module.b")):
        others = list(zip(names, copies(params)))
        plain = torch.optim.Adam(others, lr=0.1)
        give_gradients(0, [param for _, param in others])
        plain.step()
        try:
            optimizer.load_state_dict(plain.state_dict())
            told.append("")
        except ValueError as error:
            told.append(str(error))
    return told


def flags_turned_off(rank: int, world: int) -> Any:
    """State that the current options do not use is returned."""
    mine = parameters(3)
    zero = ZeroRedundancyOptimizer(mine, torch.optim.Adam, lr=0.1, amsgrad=True)
    give_gradients(0, mine)
    zero.step()
    zero.param_groups[0]["amsgrad"] = False
    zero.consolidate_state_dict(None)
    state = zero.state_dict()
    zero.load_state_dict(state)
    zero.consolidate_state_dict(None)
    back = zero.state_dict()["state"][0]
    return "max_exp_avg_sq" in back and torch.equal(
        back["max_exp_avg_sq"], state["state"][0]["max_exp_avg_sq"]
    )


def refused(rank: int, world: int) -> Any:
    """Each load is rejected before anything has changed, and training continues as without it."""
    mine = parameters(4)
    others = copies(mine)
    zero = ZeroRedundancyOptimizer(mine, torch.optim.Adam, lr=0.1)
    plain = torch.optim.Adam(others, lr=0.1)
    give_gradients(0, mine, others)
    zero.step()
    plain.step()
    good = plain.state_dict()
    told = []
    for spoil in (
        lambda state: state["param_groups"].append(state["param_groups"][0]),
        lambda state: state["param_groups"][0]["params"].append(7),
        lambda state: state["state"][0].update(exp_avg=torch.zeros(3)),
        lambda state: state["state"][0].pop("exp_avg_sq"),
        lambda state: state["state"][0].update(momentum_buffer=torch.zeros(40, 50)),
        lambda state: (
            state["state"][0].pop("exp_avg"),
            state["state"][1].update(momentum_buffer=torch.zeros(50)),
        ),
        lambda state: state["param_groups"][0].pop("betas"),
        lambda state: state["param_groups"][0].update(momentum=0.9),
        lambda state: state["state"][0].update(step=3.7),
        lambda state: state["state"][0].update(step=2**53 + 1),
        lambda state: state["state"][0].update(step="one"),
        lambda state: state["state"][0].update(exp_avg=[1.0]),
        lambda state: state["state"].update({99: state["state"][0]}),
        lambda state: state["state"].update({"0": state["state"][0]}),
        lambda state: state["state"].update({0: [torch.zeros(40, 50)]}),
        lambda state: state["state"][0].update(exp_avg=torch.zeros(40, 50).to_sparse()),
        lambda state: state["state"][0].update(exp_avg=torch.zeros(40, 50, device="meta")),
        lambda state: state["state"][0].update(exp_avg=torch.zeros(40, 50) * 1j),
        lambda state: state.pop("param_groups"),
        lambda state: state.pop("state"),
        lambda state: state.update(param_groups=None),
        lambda state: state.update(param_groups=[5]),
        lambda state: state["param_groups"][0].pop("params"),
        lambda state: state["param_groups"][0].update(lr=-1.0),
        lambda state: state["param_groups"][0].update(lr="much"),
        lambda state: state["param_groups"][0].update(differentiable=True),
        lambda state: state["param_groups"][0].update(decoupled_weight_decay=True),
        lambda state: state["param_groups"][0].update(lr="0.1"),
    ):
        state = copy.deepcopy(good)
        spoil(state)
        try:
            zero.load_state_dict(state)
            told.append("accepted")
        except (ValueError, TypeError) as error:
            told.append(f"{type(error).__name__}: {error}")
    for step in range(1, 4):
        give_gradients(step, mine, others)
        zero.step()
        plain.step()
    return told, worst(mine, others), zero.param_groups[0]["lr"]


class Drawing(torch.optim.ASGD):
    def step(self, closure: Any = None) -> Any:
        torch.rand(1)
        return super().step(closure)


def refused_of_any_class(rank: int, world: int) -> Any:
    """Use a class for which libzero has no rule. The load method of the class checks nothing."""
    mine, others = parameters(2), parameters(2)
    zero = ZeroRedundancyOptimizer(mine, Drawing, lr=0.25)
    plain = torch.optim.ASGD(others, lr=0.25)
    give_gradients(0, mine, others)
    zero.step()
    plain.step()
    zero.consolidate_state_dict(to=None)
    told = []
    for spoil in (
        lambda entry: entry.update(ax=torch.zeros(7)),
        lambda entry: entry.pop("ax"),
        lambda entry: entry.update(step="one"),
    ):
        state = copy.deepcopy(zero.state_dict())
        spoil(state["state"][1])
        try:
            zero.load_state_dict(state)
            told.append("accepted")
        except (ValueError, RuntimeError) as error:
            told.append(str(error))
    for step in range(1, 3):
        give_gradients(step, mine, others)
        zero.step()
        plain.step()
    before = torch.get_rng_state()
    zero.consolidate_state_dict(to=None)
    zero.load_state_dict(zero.state_dict())
    return told, worst(mine, others), torch.equal(before, torch.get_rng_state())


CASES = (
    from_torch_and_back,
    a_snapshot,
    what_the_file_lacks,
    options_of_the_file,
    exact_steps,
    names_in_another_order,
    flags_turned_off,
    refused,
    refused_of_any_class,
)


class State(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_state_goes_from_any_class_to_ranks_and_back_without_a_difference(self) -> None:
        for found in self.of(from_torch_and_back):
            self.assertEqual(len(found), len(CLASSES) + len(OTHERS))
            for exchange in found:
                assert_sound(self, exchange)

    def test_a_snapshot_is_of_one_step_and_not_given_out_after_another(self) -> None:
        for world in WORLDS:
            for rank, found in enumerate(results_of(self.found[world], a_snapshot)):
                for told, same in found:
                    self.assertTrue(same)
                    self.assertEqual(len(told), 3, told)
                    self.assertIn(f"consolidate_state_dict(to={rank})", told[0])
                    self.assertIn("1 steps, and 2" if rank == 0 else "not gathered", told[1])
                    self.assertIn(f"to is {world}", told[2])

    def test_state_that_the_file_lacks_is_gone(self) -> None:
        for found in self.of(what_the_file_lacks):
            for difference, same in found:
                self.assertLess(difference, 1)
                self.assertTrue(same)

    def test_options_are_those_of_the_file(self) -> None:
        for difference, amsgrad in self.of(options_of_the_file):
            self.assertLess(difference, 1)
            self.assertTrue(amsgrad)

    def test_steps_are_exact(self) -> None:
        for found in self.of(exact_steps):
            self.assertEqual(found, [*[1] * len(SHAPES), 2] * 3)

    def test_named_parameters_in_another_order_are_refused(self) -> None:
        for same, turned, new, wrapped in self.of(names_in_another_order):
            self.assertEqual((same, new), ("", ""))
            for told in (turned, wrapped):
                self.assertIn("'c' is parameter 1, not 2, 'b' is parameter 2, not 1", told)

    def test_state_that_options_do_not_use_comes_back(self) -> None:
        for found in self.of(flags_turned_off):
            self.assertTrue(found)

    def test_what_does_not_fit_is_refused_and_has_changed_nothing(self) -> None:
        unfit = "ValueError: the state does not fit this optimizer:"
        wanted = (
            "ValueError: the state has 2 parameter groups",
            "ValueError: group 0 has 8 parameters",
            f"{unfit} '0.exp_avg' has shape [3], not [40, 50]",
            f"{unfit} it lacks '0.exp_avg_sq'",
            f"{unfit} it has '0.momentum_buffer', which nothing here takes",
            f"{unfit} it has '1.momentum_buffer', which nothing here takes; it lacks '0.exp_avg'",
            f"{unfit} it lacks 'group 0.betas'",
            f"{unfit} it has 'group 0.momentum', which nothing here takes",
            "ValueError: state of parameter 0: step is 3.7",
            "ValueError: state of parameter 0: step is 9007199254740993, and libzero counts to",
            "TypeError: state of parameter 0: step",
            "TypeError: state of parameter 0: exp_avg is a list",
            "ValueError: there is state for parameter 99",
            "ValueError: there is state for parameter '0', which",
            "TypeError: state of parameter 0 is list, no",
            "TypeError: state of parameter 0: exp_avg is sparse_coo, not real and dense",
            "TypeError: state of parameter 0: exp_avg is meta",
            "TypeError: state of parameter 0: exp_avg is complex",
            "ValueError: the state has no 'param_groups'",
            "ValueError: the state has no 'state'",
            "TypeError: 'param_groups' of the state is NoneType",
            "TypeError: group 0 of the state is int, no",
            "ValueError: group 0 of the state has no 'params'",
            "ArgumentError: ",
            "TypeError: lr is 'much'",
            "ValueError: the loaded options are not for adam: group 0 is differentiable",
            "ValueError: the loaded options are not for adam: decoupled_weight_decay makes them options of adamw",
            "TypeError: lr is '0.1'",
        )
        for told, difference, rate in self.of(refused):
            self.assertEqual(len(told), len(wanted))
            for said, begins in zip(told, wanted):
                self.assertTrue(said.startswith(begins), said)
            self.assertLess(difference, 1)
            self.assertEqual(rate, 0.1)

    def test_what_does_not_fit_a_class_without_a_rule_is_refused(self) -> None:
        for world in WORLDS:
            found = results_of(self.found[world], refused_of_any_class)
            for number, words in enumerate(
                (r"'1\.ax' has shape \[7\], not \[50\]", r"it lacks '1\.ax'", r"'1\.step' is 'str', not a number")
            ):
                told = [one[0][number] for one in found]
                self.assertRegex(" ".join(told), words)
                self.assertNotIn("accepted", told)
            for _, difference, same in found:
                self.assertLess(difference, 1)
                self.assertTrue(same)


if __name__ == "__main__":
    unittest.main()

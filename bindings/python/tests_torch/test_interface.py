# SPDX-License-Identifier: Apache-2.0
"""Tests on one rank what programs and torch do with an optimizer apart from steps: hooks, scalers,
options that choose an implementation, and several optimizers. Results are compared with the
unsharded optimizer."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from models import copies, give_gradients, parameters
from support import OneRank, bits, worst
from torch.optim import lr_scheduler

from libzero import ZeroError
from libzero.torch import ZeroRedundancyOptimizer

Adam, SGD = torch.optim.Adam, torch.optim.SGD


class Beside(OneRank):
    def setUp(self) -> None:
        self.mine = parameters(1)
        self.others = copies(self.mine)

    def make(self, kind: Any, **options: Any) -> tuple[ZeroRedundancyOptimizer, Any]:
        zero = ZeroRedundancyOptimizer(self.mine, kind, **options)
        self.addCleanup(zero.close)
        return zero, kind(self.others, **options)

    def train(self, *optimizers: Any, steps: int = 3, first: int = 0) -> None:
        for step in range(first, first + steps):
            give_gradients(step, self.mine, self.others)
            for optimizer in optimizers:
                optimizer.step()

    def assert_same(self) -> None:
        self.assertLess(worst(self.mine, self.others), 1)


class Options(Beside):
    def test_that_choose_an_implementation_change_nothing(self) -> None:
        for options in ({"foreach": True}, {"fused": True}, {"foreach": False, "fused": False}):
            self.setUp()
            self.train(*self.make(Adam, lr=0.1, **options))
            self.assert_same()
        self.setUp()
        zero, _ = self.make(Adam, lr=0.1, capturable=True)
        plain = Adam(self.others, lr=0.1)  # torch supports capturable only on a GPU
        self.train(zero, plain)
        self.assert_same()

    def test_that_contradict_each_other_are_refused_by_the_class(self) -> None:
        for options in (
            {"foreach": True, "fused": True},
            {"differentiable": True, "fused": True},
            {"lr": torch.tensor(0.1), "foreach": True},
        ):
            for make in (lambda **kw: ZeroRedundancyOptimizer(self.mine, Adam, **kw), self.plain):
                with self.assertRaises((RuntimeError, ValueError)):
                    make(**options)

    def plain(self, **options: Any) -> Any:
        return Adam(self.others, **options)

    def test_differentiable_steps_are_the_classes_own(self) -> None:
        for model in (self.mine, self.others):
            for param in model:
                param.requires_grad_(False)
        self.train(*self.make(SGD, lr=0.1, momentum=0.9, differentiable=True))
        self.assertEqual(bits(self.mine), bits(self.others))

    def test_a_rate_may_be_a_tensor_that_a_scheduler_changes(self) -> None:
        made = [
            ZeroRedundancyOptimizer(self.mine, Adam, lr=torch.tensor(0.1)),
            Adam(self.others, lr=torch.tensor(0.1)),
        ]
        self.addCleanup(made[0].close)
        schedulers = [lr_scheduler.ExponentialLR(one, 0.5) for one in made]
        for step in range(4):
            self.train(*made, steps=1, first=step)
            for scheduler in schedulers:
                scheduler.step()
        self.assert_same()
        self.assertAlmostEqual(float(made[0].param_groups[0]["lr"]), 0.1 / 16)


class Hooks(Beside):
    def test_around_a_step_run_once_each(self) -> None:
        zero, _ = self.make(Adam)
        seen: list[str] = []
        zero.register_step_pre_hook(lambda *_: seen.append("before"))
        zero.register_step_post_hook(lambda *_: seen.append("after"))
        self.train(zero, steps=2)
        self.assertEqual(seen, ["before", "after"] * 2)

    def test_of_state_dict_see_the_whole_state_and_may_give_another(self) -> None:
        zero, _ = self.make(Adam)
        self.train(zero)
        seen: list[int] = []
        zero.register_state_dict_pre_hook(lambda one: seen.append(len(one.param_groups)))
        zero.register_state_dict_post_hook(lambda _, state: seen.append(len(state["state"])))
        zero.register_state_dict_post_hook(lambda _, state: {**state, "more": 1})
        zero.consolidate_state_dict()
        self.assertEqual(zero.state_dict()["more"], 1)
        self.assertEqual(seen, [1, len(self.mine)])
        self.assertEqual(len(zero.state), 0)

    def test_of_a_load_may_change_what_is_loaded_and_not_the_callers_dict(self) -> None:
        zero, plain = self.make(Adam, lr=0.1)
        self.train(plain, steps=1)
        saved = plain.state_dict()
        called: list[int] = []

        def rate(_: Any, state: dict[str, Any]) -> None:
            state["param_groups"] = [{**group, "lr": 0.5} for group in state["param_groups"]]

        zero.register_load_state_dict_pre_hook(rate)
        zero.register_load_state_dict_post_hook(lambda _: called.append(1))
        zero.load_state_dict(saved)
        self.assertEqual(zero.param_groups[0]["lr"], 0.5)
        self.assertEqual(saved["param_groups"][0]["lr"], 0.1)
        self.assertEqual(called, [1])


class Parameters(Beside):
    def test_that_a_graph_holds_cannot_be_used_by_it_after_a_step(self) -> None:
        for kind in (SGD, torch.optim.ASGD):
            weight = torch.nn.Parameter(torch.ones(3))
            idle = torch.nn.Parameter(torch.ones(3))
            zero = ZeroRedundancyOptimizer([weight, idle], kind, lr=0.1)
            self.addCleanup(zero.close)
            graph, other = (weight * weight).sum(), (idle * idle).sum()
            weight.grad = torch.ones(3)
            zero.step()
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                graph.backward()
            other.backward()  # it had no gradient, so nothing has changed it

    def test_turned_in_their_place_are_followed_and_other_shapes_refused(self) -> None:
        square = torch.nn.Parameter(torch.randn(4, 4))
        zero = ZeroRedundancyOptimizer([square], SGD, lr=0.1)
        self.addCleanup(zero.close)
        kept = square.data
        square.grad = torch.arange(16.0).view(4, 4)
        square.data = kept.t()
        wanted = kept.t() - 0.1 * square.grad
        zero.step()
        self.assertLess(worst([square], [wanted]), 1)
        for other in (kept.view(16), kept[:2]):
            square.grad, square.data = None, other
            with self.assertRaisesRegex(ValueError, "was shape"):
                zero.step()
        square.data = kept
        before = kept.clone()
        square.grad = torch.ones(4, 4)
        zero.step()
        self.assertLess(worst([square], [before - 0.1]), 1)

    def test_are_numbered_by_their_place_whatever_the_file_calls_them(self) -> None:
        zero, plain = self.make(Adam, lr=0.1)
        self.train(plain, steps=2)
        for one, other in zip(self.mine, self.others):
            one.data.copy_(other.data)
        saved = plain.state_dict()
        group = saved["param_groups"][0]
        group = {**group, "params": [10 * number + 5 for number in group["params"]]}
        state = {10 * number + 5: entry for number, entry in saved["state"].items()}
        zero.load_state_dict({"state": state, "param_groups": [group]})
        self.train(zero, plain, first=2)
        self.assert_same()

    def test_may_have_two_optimizers(self) -> None:
        for view in (False, True):
            self.setUp()
            zeros = [
                ZeroRedundancyOptimizer(self.mine, kind, parameters_as_bucket_view=view, lr=0.1)
                for kind in (Adam, SGD)
            ]
            plains = [kind(self.others, lr=0.1) for kind in (Adam, SGD)]
            self.train(*zeros, *plains)
            self.assert_same()
            for zero in zeros:
                zero.close()

    def test_may_have_one_name_in_two_groups(self) -> None:
        def groups(model: list[Any]) -> list[dict[str, Any]]:
            return [{"params": [("weight", model[0])]}, {"params": [("weight", model[1])]}]

        zero = ZeroRedundancyOptimizer(groups(self.mine), SGD, lr=0.1)
        self.addCleanup(zero.close)
        self.train(zero, SGD(groups(self.others), lr=0.1))
        self.assert_same()

    def test_may_be_none_at_all_in_a_group(self) -> None:
        zero = ZeroRedundancyOptimizer([{"params": []}], Adam)
        self.addCleanup(zero.close)
        zero.step()
        zero.consolidate_state_dict()
        self.assertEqual(zero.state_dict()["state"], {})
        zero.add_param_group({"params": self.mine, "lr": 0.1})
        self.train(zero, Adam(self.others, lr=0.1))
        self.assert_same()


class Ends(Beside):
    def test_a_step_after_abort_says_so(self) -> None:
        zero, _ = self.make(Adam)
        self.train(zero, steps=1)
        zero._sharded().comm.abort("the program wants it")
        give_gradients(1, self.mine)
        with self.assertRaisesRegex(ZeroError, "the program wants it"):
            zero.step()

    def test_text_and_zero_grad_are_torchs(self) -> None:
        zero, plain = self.make(SGD, lr=0.1)
        said, others = repr(zero), repr(plain)
        self.assertEqual(said.partition("(")[0].strip(), "ZeroRedundancyOptimizer")
        self.assertEqual(said.partition("(")[2], others.partition("(")[2])
        give_gradients(0, self.mine)
        zero.zero_grad(set_to_none=False)
        self.assertTrue(all(not param.grad.any() for param in self.mine))
        zero.zero_grad()
        self.assertTrue(all(param.grad is None for param in self.mine))
        zero.close()
        self.assertIn("lr: 0.1", repr(zero))

    def test_a_scaler_skips_what_is_not_finite_and_scales_the_rest(self) -> None:
        zero, plain = self.make(Adam, lr=0.1)
        scalers = [torch.amp.GradScaler("cpu", init_scale=64.0) for _ in range(2)]
        for step in range(4):
            give_gradients(step, self.mine, self.others)
            for scaler, optimizer, model in zip(scalers, (zero, plain), (self.mine, self.others)):
                scaler.scale(torch.ones(1))
                for param in model:
                    param.grad.mul_(scaler.get_scale())
                if step == 1:
                    model[0].grad[0, 0] = float("inf")
                scaler.step(optimizer)
                scaler.update()
        self.assert_same()
        self.assertEqual([scaler.get_scale() for scaler in scalers], [32.0, 32.0])
        zero.consolidate_state_dict()
        self.assertEqual(float(zero.state_dict()["state"][0]["step"]), 3)


class WithoutGroup(unittest.TestCase):
    def test_steps_go_on_when_the_process_group_is_gone(self) -> None:
        OneRank.setUpClass()
        weight = torch.nn.Parameter(torch.ones(3))
        zero = ZeroRedundancyOptimizer([weight], SGD, lr=0.5)
        dist.destroy_process_group()
        OneRank.folder.cleanup()
        weight.grad = torch.ones(3)
        zero.step()
        self.assertEqual(weight.tolist(), [0.5] * 3)
        zero.close()


if __name__ == "__main__":
    unittest.main()

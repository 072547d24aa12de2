# SPDX-License-Identifier: Apache-2.0
"""Tests on one rank that invalid calls raise an error with a reason, and leave the optimizer
unchanged."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import unittest
from typing import Any

import torch
from models import copies, give_gradients, parameters
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from libzero import ZeroError
from libzero.torch import OSS, Optimizer, ZeroRedundancyOptimizer
from support import OneRank, worst

SGD = torch.optim.SGD


class Constructor(OneRank):
    def refuses(
        self, kind: type[Exception], words: str, params: Any, *args: Any, **kw: Any
    ) -> None:
        with self.assertRaises(kind) as caught:
            ZeroRedundancyOptimizer(params, *(args or (SGD,)), **{"lr": 0.1, **kw})
        self.assertIn(words, str(caught.exception))

    def test_takes_lists_generators_names_and_groups(self) -> None:
        model = nn.Linear(3, 2)
        for params in (
            list(model.parameters()),
            model.parameters(),
            list(model.named_parameters()),
            [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.5}],
            [{"params": []}, {"params": [model.weight]}],
        ):
            ZeroRedundancyOptimizer(params, SGD, lr=0.1).close()

    def test_leaves_the_groups_of_a_program_as_they_were_when_it_refuses(self) -> None:
        for make in (
            lambda groups, rate: ZeroRedundancyOptimizer(groups, SGD, lr=rate),
            lambda groups, rate: OSS(groups, torch.optim.ASGD, lr=rate),
            lambda groups, rate: Optimizer(groups, "lion", lr=rate),
        ):
            weight = nn.Parameter(torch.ones(3))
            groups = [{"params": [weight], "weight_decay": 0.5}]
            with self.assertRaises((ValueError, ZeroError)):
                make(groups, -1.0)
            self.assertEqual(groups, [{"params": [weight], "weight_decay": 0.5}])
            optimizer = make(groups, 0.25)
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.25)
            late = {"params": [weight]}
            with self.assertRaises(ValueError):
                optimizer.add_param_group(late)
            self.assertEqual(late, {"params": [weight]})
            optimizer.close()

    def test_refuses_what_is_no_list_of_parameters(self) -> None:
        weight = nn.Parameter(torch.ones(3))
        self.refuses(ValueError, "no parameters", [])
        self.refuses(TypeError, "is a tensor", weight)
        self.refuses(TypeError, "is a float", 1.5)
        self.refuses(TypeError, "int", [weight, 42])
        self.refuses(TypeError, "not both", [weight, {"params": [weight]}])
        self.refuses(ValueError, "no 'params'", [{"lr": 0.1}])
        self.refuses(ValueError, "more than one", [{"params": [weight]}, {"params": [weight]}])

    def test_refuses_tensors_that_it_cannot_train(self) -> None:
        wide = torch.ones(4, 6)
        self.refuses(TypeError, "sparse", [torch.eye(3).to_sparse().requires_grad_()])
        self.refuses(ValueError, "gaps", [nn.Parameter(wide[:, :3])])
        self.refuses(ValueError, "shares elements", [torch.ones(1).expand(5)])
        self.refuses(TypeError, "float8", [nn.Parameter(torch.ones(3).to(torch.float8_e5m2))])
        self.refuses(ValueError, "negates", [torch._neg_view(torch.ones(3)).requires_grad_()])
        self.refuses(ValueError, "conjugates", [torch.full((3,), 1j).conj().requires_grad_()])
        gone = nn.Parameter(torch.ones(3))
        gone.untyped_storage().resize_(0)
        self.refuses(ValueError, "memory of parameter 0 was freed", [gone])
        with FakeTensorMode():
            fake = nn.Parameter(torch.ones(3))
        self.refuses(ValueError, "memory of parameter 0", [fake])
        self.refuses(ValueError, "meta", [nn.Parameter(torch.ones(3, device="meta"))])
        self.refuses(
            ValueError,
            "one device",
            [nn.Parameter(torch.ones(3, device="meta")), nn.Parameter(torch.ones(3))],
        )
        self.refuses(ZeroError, "overlap", [nn.Parameter(wide[:2]), nn.Parameter(wide[1:3])])

    def test_refuses_classes_and_options_that_are_none(self) -> None:
        weight = nn.Parameter(torch.ones(3))
        self.refuses(TypeError, "not a torch.optim.Optimizer", [weight], nn.Linear)
        self.refuses(TypeError, "not a torch.optim.Optimizer", [weight], "SGD")
        self.refuses(ValueError, "learning rate", [weight], lr=-1.0)
        self.refuses(TypeError, "beta", [weight], beta=0.9)
        with self.assertRaises(ZeroError):
            ZeroRedundancyOptimizer([{"params": [weight], "weight_decay": -1.0}], SGD, lr=0.1)

    def test_says_that_there_is_no_group(self) -> None:
        script = (
            "import torch; from libzero.torch import ZeroRedundancyOptimizer as Z\n"
            "try: Z([torch.ones(3)], torch.optim.SGD, lr=0.1)\n"
            "except RuntimeError as error: print(error)"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
        )
        self.assertIn("init_process_group", ran.stdout, ran.stderr)


class Steps(OneRank):
    def setUp(self) -> None:
        self.mine = parameters(1)
        self.others = copies(self.mine)
        self.zero = ZeroRedundancyOptimizer(self.mine, torch.optim.Adam, lr=0.1)
        self.plain = torch.optim.Adam(self.others, lr=0.1)

    def go_on(self) -> None:
        """Check that the rejected calls have changed nothing."""
        for step in range(2):
            give_gradients(step, self.mine, self.others)
            self.zero.step()
            self.plain.step()
        self.assertLess(worst(self.mine, self.others), 1)

    def test_refuse_gradients_that_do_not_fit(self) -> None:
        give_gradients(0, self.mine)
        self.mine[0].grad = torch.eye(40, 50).to_sparse()
        for kind in (RuntimeError, ValueError):  # the class's exception, and libzero's
            with self.assertRaisesRegex(kind, "gradient of parameter 0 is sparse"):
                self.zero.step()
        self.go_on()

    def test_refuse_memory_that_was_given_back(self) -> None:
        give_gradients(0, self.mine)
        kept = self.mine[0].detach().clone()
        for gone, words in (
            (self.mine[0].grad, "memory of the gradient of parameter 0"),
            (self.mine[0], "memory of parameter 0"),
        ):
            size = gone.untyped_storage().nbytes()
            gone.untyped_storage().resize_(0)
            with self.assertRaisesRegex(ValueError, words):
                self.zero.step()
            gone.untyped_storage().resize_(size)
        self.mine[0].data.copy_(kept)
        self.go_on()

    def test_refuse_arguments_that_the_class_has_not(self) -> None:
        with self.assertRaisesRegex(TypeError, "Adam.step.. has no argument scale"):
            self.zero.step(scale=2.0)
        self.go_on()

    def test_refuse_parameters_of_another_shape(self) -> None:
        kept = self.mine[1].data
        self.mine[1].grad = None
        self.mine[1].data = torch.zeros(51)
        with self.assertRaisesRegex(ValueError, "was shape"):
            self.zero.step()
        self.mine[1].data = torch.zeros(100)[::2]
        with self.assertRaisesRegex(ValueError, "gaps"):
            self.zero.step()
        self.mine[1].data = kept
        self.go_on()

    def test_refuse_options_out_of_range(self) -> None:
        give_gradients(0, self.mine)
        for name, value, kind in (
            ("lr", -1.0, ValueError),
            ("lr", "fast", TypeError),
            ("betas", (0.9, 1.5), ValueError),
            ("amsgrad", True, ZeroError),
        ):
            before = self.zero.param_groups[0][name]
            self.zero.param_groups[0][name] = value
            with self.assertRaises(kind):
                self.zero.step()
            self.zero.param_groups[0][name] = before
        self.go_on()

    def test_refuse_groups_that_do_not_fit(self) -> None:
        for group, kind in (
            ({"params": [self.mine[0]]}, ValueError),
            ({"params": [torch.eye(3).to_sparse()]}, TypeError),
            ({"params": [torch.ones(3)], "lr": -1.0}, ZeroError),
            ({"params": [torch.ones(3)], "differentiable": True}, ValueError),
            ({"params": [torch.ones(3)], "decoupled_weight_decay": True}, ValueError),
            ({"params": [torch.ones(3, dtype=torch.complex64)]}, ValueError),
            ({"params": [torch.ones(3, device="meta")]}, ValueError),
        ):
            with self.assertRaises(kind):
                self.zero.add_param_group(group)
            self.assertEqual(len(self.zero.param_groups), 1)
            self.assertEqual(len(self.zero.optim.param_groups), 1)
        self.go_on()

    def test_after_close_are_refused(self) -> None:
        self.zero.close()
        self.zero.close()
        for call in (
            self.zero.step,
            self.zero.consolidate_state_dict,
            lambda: self.zero.add_param_group({"params": [torch.ones(3)]}),
            lambda: self.zero.load_state_dict(self.plain.state_dict()),
        ):
            with self.assertRaisesRegex(RuntimeError, "is closed"):
                call()
        self.assertEqual(len(self.zero.param_groups), 1)

    def test_copies_and_pickles_are_refused(self) -> None:
        for call in (lambda: copy.deepcopy(self.zero), lambda: pickle.dumps(self.zero)):
            with self.assertRaisesRegex(TypeError, "^ZeroRedundancyOptimizer cannot.*state_dict"):
                call()


class Package(unittest.TestCase):
    def test_libzero_alone_does_not_import_torch(self) -> None:
        script = "import libzero, sys; print('torch' in sys.modules)"
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(ran.stdout, "False\n", ran.stderr)

    def test_without_torch_the_import_says_what_is_missing(self) -> None:
        script = (
            "import sys; sys.modules['torch'] = None\n"
            "try: import libzero.torch\n"
            "except ImportError as error: print(error)"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
        )
        self.assertIn("libzero.torch needs torch 2.3", ran.stdout, ran.stderr)


if __name__ == "__main__":
    unittest.main()

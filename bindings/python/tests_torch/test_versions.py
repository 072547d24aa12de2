# SPDX-License-Identifier: Apache-2.0
"""Tests that errors name the features that an old version of torch lacks, when they are needed."""

from __future__ import annotations

import subprocess
import sys
import unittest
from typing import Any
from unittest import mock

import torch
from support import OneRank
from torch import nn

from libzero.torch import OSS, Optimizer, ZeroRedundancyOptimizer, _shard

_add_param_group = torch.optim.Optimizer.add_param_group


def add_without_names(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    """Add a group as before torch 2.6."""
    params = group["params"] = list(group["params"])
    for param in params:
        if not isinstance(param, torch.Tensor):
            raise TypeError("one of the params is " + torch.typename(param))
    _add_param_group(optimizer, group)


class Names(OneRank):
    def setUp(self) -> None:
        old = mock.patch.object(torch.optim.Optimizer, "add_param_group", add_without_names)
        old.start()
        self.addCleanup(_shard._takes_names.cache_clear)
        self.addCleanup(old.stop)
        _shard._takes_names.cache_clear()

    def test_are_refused_with_the_version_that_takes_them(self) -> None:
        model = nn.Linear(3, 2)
        for params in (
            model.named_parameters(),
            [{"params": [model.weight]}, {"params": [("bias", model.bias)]}],
            [{"params": model.named_parameters()}],
        ):
            with self.subTest(params=params), self.assertRaisesRegex(RuntimeError, "torch 2.6"):
                ZeroRedundancyOptimizer(params, torch.optim.SGD, lr=0.1)
        for make in (OSS, Optimizer):
            with self.assertRaisesRegex(RuntimeError, "torch 2.6 .* model.parameters"):
                make(model.named_parameters(), lr=0.1)

    def test_may_be_left_out(self) -> None:
        model = nn.Linear(3, 2)
        for params in (
            model.parameters(),
            [{"params": model.parameters()}],
            [{"params": model.weight}, {"params": [model.bias]}],
        ):
            optimizer = ZeroRedundancyOptimizer(params, torch.optim.SGD, lr=0.1)
            for param in model.parameters():
                param.grad = torch.ones_like(param)
            optimizer.step()
            self.assertEqual(sum(len(one["params"]) for one in optimizer.param_groups), 2)
            optimizer.close()


class Import(unittest.TestCase):
    def test_says_what_this_torch_lacks(self) -> None:
        for hide, name in (
            ("del torch.amp.GradScaler", "GradScaler"),
            ("del torch.autograd.graph.increment_version", "increment_version"),
            ("sys.modules['torch.distributed.algorithms.join'] = None", "distributed"),
        ):
            script = (
                f"import sys, torch, torch.amp, torch.autograd.graph; {hide}\n"
                "try: import libzero.torch\n"
                "except ImportError as error: print(error)"
            )
            ran = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
            )
            self.assertIn("libzero.torch needs torch 2.3 or later", ran.stdout, ran.stderr)
            self.assertIn(name, ran.stdout)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Tests norms and clipping of OSS, including cases in which fairscale's OSS is wrong."""

from __future__ import annotations

import math
import unittest
from typing import Any

import torch
from torch import nn

from libzero.torch import OSS
from support import InAllWorlds

WORLDS = (1, 2, 3)


def clipping(rank: int, world: int) -> Any:
    """The gradients are {3, 4}, {12} and none, on the ranks that own them. The norms are the
    published numbers."""
    found = []
    for kind in (1.0, 2, math.inf, 3):
        values = (torch.tensor([3.0, 4.0]), torch.tensor([12.0]), None)
        params = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
        params[1] = nn.Parameter(torch.zeros(1))
        optimizer = OSS(params, lr=1.0)
        if kind == math.inf:
            optimizer.param_groups[0]["lr"] = 0.5
        for param, value in zip(params, values):
            param.grad = None if value is None else value.clone()
        first = optimizer.clip_grad_norm(0.3, kind)
        second = optimizer.clip_grad_norm(0.3, norm_type=kind)
        left = params[1].grad
        found.append(
            (first.item(), second.item(), str(first.dtype), tuple(first.shape), left.item())
        )
        optimizer.step()
    return found


def clipping_goes_wrong_nowhere(rank: int, world: int) -> Any:
    """These cases break fairscale's clipping: gradients that arrive late, float16, NaNs on any
    rank, and no gradients at all."""
    params = [nn.Parameter(torch.zeros(4)) for _ in range(4)]
    optimizer = OSS(params, lr=0.1)
    found: dict[str, Any] = {"nothing": optimizer.clip_grad_norm(1.0).item()}
    for param in params[:2]:
        param.grad = torch.full((4,), 10 / math.sqrt(2))
    found["early"] = optimizer.clip_grad_norm(1e9).item()
    for param in params:
        param.grad = torch.full((4,), 10.0)
    found["late"] = optimizer.clip_grad_norm(1.0).item()
    found["after"] = optimizer.clip_grad_norm(1.0).item()
    found["nan"] = []
    for place in range(4):
        for kind in (2.0, math.inf):
            for number, param in enumerate(params):
                param.grad = torch.full((4,), math.nan if number == place else 5.0)
            norm = optimizer.clip_grad_norm(1.0, kind).item()
            found["nan"].append((math.isnan(norm), params[(place + 1) % 4].grad.max().item()))
    half = [nn.Parameter(torch.zeros(100, dtype=torch.float16)) for _ in range(3)]
    for param in half[:1]:
        param.grad = torch.full((100,), 500.0, dtype=torch.float16)
    halves = OSS(half, lr=0.1)
    found["half"] = halves.clip_grad_norm(50.0).item()
    found["half left"] = half[0].grad.max().item()
    double = [nn.Parameter(torch.zeros(2, dtype=torch.float64))]
    double[0].grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    norm = OSS(double).clip_grad_norm(100)
    found["double"] = (norm.item(), str(norm.dtype))
    for number, param in enumerate(params):
        param.grad = torch.full((4,), float(number))
    chosen = {id(params[2]), id(params[3])}
    found["filter"] = optimizer.clip_grad_norm(
        1e9, 1, filter_params_fn=lambda given: [one for one in given if id(one) in chosen]
    ).item()
    try:
        optimizer.clip_grad_norm(1.0, 0)
    except ValueError as error:
        found["refused"] = str(error)
    return found


CASES = (
    clipping,
    clipping_goes_wrong_nowhere,
)


class OssNorms(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_a_norm_is_that_of_all_gradients_and_clips_them(self) -> None:
        norms = (19.0, 13.0, 12.0, (27 + 64 + 1728) ** (1 / 3))
        for _, _, found in self.of_ranks(clipping):
            for (first, second, dtype, shape, left), norm in zip(found, norms):
                self.assertAlmostEqual(first, norm, places=5)
                self.assertAlmostEqual(second, 0.3, places=6)
                self.assertAlmostEqual(left, 12 * 0.3 / norm, places=5)
                self.assertEqual((dtype, shape), ("torch.float32", ()))

    def test_norms_of_late_half_filtered_and_infinite_gradients_are_right(self) -> None:
        for _, _, found in self.of_ranks(clipping_goes_wrong_nowhere):
            self.assertEqual(found["nothing"], 0.0)
            self.assertEqual((found["early"], found["late"]), (20.0, 40.0))
            self.assertAlmostEqual(found["after"], 1.0, places=6)
            self.assertEqual(found["nan"], [(True, 5.0)] * 8)
            self.assertEqual((found["half"], found["half left"]), (5000.0, 5.0))
            self.assertEqual(found["double"], (5.0, "torch.float64"))
            self.assertEqual(found["filter"], 20.0)
            self.assertIn("norm_type is 0.0", found["refused"])


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Parameters whose gradients are what a case says they are, so that its numbers can be checked by
hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import torch
from torch import nn

Gradient = Optional[Union[float, Sequence[float]]]


def parameters(
    *sizes: int, value: float = 1.0, dtype: torch.dtype = torch.float32
) -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((size,), value, dtype=dtype)) for size in sizes]


def give(params: Sequence[torch.Tensor], *gradients: Gradient) -> None:
    """One gradient for each parameter, or one for all: every element's, or element by element; None
    is no gradient."""
    each = gradients * len(params) if len(gradients) == 1 else gradients
    for param, gradient in zip(params, each):
        if gradient is None:
            param.grad = None
        elif isinstance(gradient, (int, float)):
            param.grad = torch.full_like(param, gradient)
        else:
            param.grad = torch.tensor(gradient, dtype=param.dtype).view_as(param)


def firsts(params: Iterable[torch.Tensor]) -> list[float]:
    """The first element of each."""
    return [float(param.detach().flatten()[0]) for param in params]


class Weights(nn.Module):
    """Its output is the sum of all elements of the i-th parameter times the i-th factor, so that a
    factor is the gradient of every element. A parameter whose factor is None has no part in it."""

    def __init__(self, *sizes: int, value: float = 1.0) -> None:
        super().__init__()
        self.weights = nn.ParameterList(parameters(*sizes, value=value))

    def forward(self, factors: Sequence[Optional[float]]) -> torch.Tensor:
        used = [
            weight.sum() * factor
            for weight, factor in zip(self.weights, factors)
            if factor is not None
        ]
        return torch.stack(used).sum()

    def firsts(self) -> list[float]:
        return firsts(self.weights)


def plain_steps(
    params: list[nn.Parameter],
    gradients: Sequence[Sequence[Gradient]],
    rule: Any = torch.optim.SGD,
    **settings: Any,
) -> list[float]:
    """The first elements after as many steps of torch's own optimizer as there are gradients."""
    optimizer = rule(params, **settings)
    for each in gradients:
        give(params, *each)
        optimizer.step()
    return firsts(params)

# SPDX-License-Identifier: Apache-2.0
"""Parameters with the gradients that a case gives, so that its numbers can be checked manually."""

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
    """Set one gradient for each parameter, or one for all parameters. A number applies to all
    elements, and None removes the gradient."""
    each = gradients * len(params) if len(gradients) == 1 else gradients
    for param, gradient in zip(params, each):
        if gradient is None:
            param.grad = None
        elif isinstance(gradient, (int, float)):
            param.grad = torch.full_like(param, gradient)
        else:
            param.grad = torch.tensor(gradient, dtype=param.dtype).view_as(param)


def firsts(params: Iterable[torch.Tensor]) -> list[float]:
    """Return the first element of each parameter."""
    return [float(param.detach().flatten()[0]) for param in params]


class Weights(nn.Module):
    """A model whose output is the sum of all elements of parameter i times factor i. Factor i is
    therefore the gradient of every element. Parameters whose factor is None are not used."""

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
    """Return the first elements after one step of torch's own optimizer for each of the
    gradients."""
    optimizer = rule(params, **settings)
    for each in gradients:
        give(params, *each)
        optimizer.step()
    return firsts(params)

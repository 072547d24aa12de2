# SPDX-License-Identifier: Apache-2.0
"""Provides small models for the cases, and gradients that are equal on all ranks, as after DDP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

SHAPES: tuple[tuple[int, ...], ...] = ((40, 50), (50,), (), (3000,), (7, 3, 2), (0,), (1,))

# The classes in the examples of the originals' documentation.
DOCUMENTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Adam", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("RMSprop", {"lr": 0.003}),
    ("ASGD", {"lr": 0.01}),
)
# Every class for which libzero has a rule, with options that differ from the defaults.
CLASSES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Adam", {"lr": 1e-2}),
    ("Adam", {"lr": 1e-2, "weight_decay": 0.1, "amsgrad": True, "betas": (0.8, 0.95)}),
    ("Adam", {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 1e-2, "maximize": True, "eps": 1e-6}),
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("RMSprop", {"lr": 1e-2, "alpha": 0.9, "momentum": 0.5, "centered": True}),
    ("RMSprop", {"lr": 1e-2, "weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {"lr": 1.0, "rho": 0.8, "weight_decay": 0.1}),
    ("Adamax", {"lr": 1e-2, "betas": (0.8, 0.99), "weight_decay": 0.1}),
    ("NAdam", {"lr": 1e-2, "momentum_decay": 0.01, "weight_decay": 0.1}),
    ("RAdam", {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Rprop", {"lr": 1e-2, "etas": (0.4, 1.3), "step_sizes": (1e-5, 10)}),
)


def class_of(name: str) -> Any:
    return getattr(torch.optim, name)


def parameters(seed: int, shapes: Iterable[tuple[int, ...]] = SHAPES) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def copies(params: Sequence[torch.Tensor]) -> list[nn.Parameter]:
    return [nn.Parameter(param.detach().clone()) for param in params]


def give_gradients(step: int, *models: Sequence[torch.Tensor], without: Sequence[int] = ()) -> None:
    """Give the same gradients to each model, as new tensors in every call. Parameters whose numbers
    are in `without` get None."""
    generator = torch.Generator().manual_seed(1000 + step)
    for number, params in enumerate(zip(*models)):
        grad = torch.randn(params[0].shape, generator=generator).to(params[0].dtype)
        for param in params:
            param.grad = None if number in without else grad.clone()


def mlp() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10), nn.ReLU(), nn.Linear(10, 5)
    )


def batch(seed: int, rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 20, generator=generator), torch.randn(rows, 5, generator=generator)

# SPDX-License-Identifier: Apache-2.0
"""A model that torch trained, and the dictionaries in which programs save such a model and its optimizer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

Document = dict[str, Any]


def small_model() -> torch.nn.Sequential:
    """Has tensors of equal shapes, so that a wrong order would not show by itself."""
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
    )


def step(model: torch.nn.Module, optimizer: Any, seed: int = 3) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(model.parameters()).dtype
    model(torch.randn(8, 4, generator=generator).to(dtype)).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def trained(
    model: torch.nn.Module,
    optimizer_class: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    groups: Any = None,
    **options: Any,
) -> torch.optim.Optimizer:
    optimizer = optimizer_class(groups or model.parameters(), **{"lr": 0.03, **options})
    for number in range(3):
        step(model, optimizer, number)
    return optimizer


def decayed(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Groups as nanoGPT makes them."""
    params = list(model.parameters())
    return [
        {"params": [param for param in params if param.dim() >= 2], "weight_decay": 0.1},
        {"params": [param for param in params if param.dim() < 2], "weight_decay": 0.0},
    ]


def document(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Document:
    return copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})

# SPDX-License-Identifier: Apache-2.0
"""Generates random training programs, which all ranks or one process without sharding can run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import nn

SHAPES: tuple[tuple[int, ...], ...] = ((4, 3), (7,), (2, 2, 2), (1,), (5,), ())


class Pieces(nn.Module):
    """A model whose loss uses some or none of its parameters, and differs for every input."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(11)
        self.pieces = nn.ParameterList(
            [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
        )

    def forward(self, value: float, used: list[int]) -> torch.Tensor:
        loss = torch.full((), value, requires_grad=True) * 2
        for number in used:
            piece = self.pieces[number]
            if piece.requires_grad:
                loss = loss + (piece * (value + number)).sum() + 0.25 * (piece * piece).sum()
        return loss


@dataclass
class Micro:
    """One micro-batch: the parameters that each rank uses, and whether the backward pass reduces gradients."""

    used: list[list[int]]
    value: float
    synced: bool


@dataclass
class Step:
    frozen: list[int]
    clear: str  # "none" sets gradients to None, "zero" to zeros, and "keep" keeps them
    micro: list[Micro] = field(default_factory=list)
    clip: float = 0.0


def program(seed: int, world: int, steps: int = 8) -> list[Step]:
    """Generate a program. A rank may use no parameter only in the last micro-batch of a step, because the other ranks
    wait for it there."""
    draw = random.Random(seed)
    found = []
    for _ in range(steps):
        frozen = [n for n in range(len(SHAPES)) if draw.random() < 0.15]
        step = Step(frozen, draw.choice(["none", "zero", "keep"]))
        count = draw.choice([1, 1, 2, 3])
        for number in range(count):
            last = number == count - 1
            used = [_used(draw, last, set(frozen)) for _ in range(world)]
            step.micro.append(Micro(used, draw.uniform(-1, 1), draw.random() < 0.6))
        if draw.random() < 0.3:
            step.clip = 1.0
        found.append(step)
    return found


def _used(draw: random.Random, may_be_empty: bool, frozen: set[int]) -> list[int]:
    trained = [number for number in range(len(SHAPES)) if number not in frozen]
    if may_be_empty and draw.random() < 0.3:
        return []
    used = [number for number in trained if draw.random() < 0.5]
    return used or trained[:1]


def freeze(model: Pieces, step: Step) -> None:
    for number, piece in enumerate(model.pieces):
        piece.requires_grad_(number not in step.frozen)


def unsharded(
    model: Pieces, optimizer: torch.optim.Optimizer, steps: list[Step], world: int
) -> list[float]:
    """Run the program as all ranks together should run it. Each step uses the mean of all accumulated gradients."""
    norms = []
    for step in steps:
        freeze(model, step)
        if step.clear != "keep":
            optimizer.zero_grad(set_to_none=step.clear == "none")
        for micro in step.micro:
            for used in micro.used:
                (model(micro.value, used) / world).backward()
        if step.clip:
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), step.clip)))
        optimizer.step()
    return norms

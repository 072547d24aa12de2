# SPDX-License-Identifier: Apache-2.0
"""Compares training with libzero.torch.Optimizer to one process that receives the batches of all
ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

import torch
from torch import nn

from libzero.torch import Optimizer

ARENAS: tuple[Any, ...] = (False, True, "shared")


def model(seed: int) -> nn.Module:
    """Return a model whose parameters and buffers depend on `seed`. Some have another memory
    format, and one layer is used twice."""
    torch.manual_seed(seed)
    made = nn.Sequential(
        nn.Unflatten(1, (1, 4, 5)),
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Conv2d(3, 3, 3, padding=1),
        nn.Flatten(),
        nn.Linear(60, 30),
        nn.BatchNorm1d(30),
        nn.Tanh(),
        nn.Linear(30, 5),
    )
    with torch.no_grad():
        for buffer in made.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5)
    made[2].weight.data = made[2].weight.data.to(memory_format=torch.channels_last)
    return made.eval()  # batch statistics would differ between ranks


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 20, generator=generator), torch.randn(8, 5, generator=generator)


def loss_of(net: nn.Module, step: int, rank: int) -> torch.Tensor:
    inputs, targets = batch(step, rank)
    return torch.nn.functional.mse_loss(net(inputs), targets)


class Pair:
    """A sharded model that starts differently on each rank, and rank 0's model, which torch's
    optimizer trains on the batches of all ranks."""

    def __init__(
        self,
        rank: int,
        world: int,
        optimizer: Any = torch.optim.AdamW,
        groups: Optional[Callable[[nn.Module], Any]] = None,
        torch_options: Optional[dict[str, Any]] = None,
        **options: Any,
    ) -> None:
        chosen = {"lr": 0.01} if torch_options is None else torch_options
        options.setdefault("overlap", True)  # also if no core is idle
        self.rank, self.world = rank, world
        self.mine, self.other = model(rank), model(0)
        given = groups or (lambda net: net.named_parameters())
        self.optimizer = Optimizer(
            given(self.mine), optimizer, buffers=self.mine.named_buffers(), **chosen, **options
        )
        self.plain = optimizer(given(self.other), **chosen)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)
        self.plain.zero_grad(set_to_none)

    def backward(self, step: int, ranks: Optional[Iterable[int]] = None) -> None:
        """Run a backward pass. `ranks` are the ranks that have a batch, which are all ranks by
        default."""
        having = range(self.world) if ranks is None else list(ranks)
        if self.rank in having:
            loss_of(self.mine, step, self.rank).backward()
        for rank in having:
            (loss_of(self.other, step, rank) / self.world).backward()

    def step(self) -> None:
        self.optimizer.step()
        self.plain.step()

    def train(self, steps: Sequence[int]) -> None:
        for step in steps:
            self.zero_grad()
            self.backward(step)
            self.step()

    @property
    def params(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return list(self.mine.parameters()), list(self.other.parameters())


def refusal(call: Callable[[], Any]) -> str:
    """Return the error of a call, which must raise an exception."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"

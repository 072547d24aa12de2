# SPDX-License-Identifier: Apache-2.0
"""Code for libzero.torch that mypy must accept or reject, like ../tests/typed_uses.py."""

from __future__ import annotations

import torch

import libzero
from libzero import CustomOptimizer
from libzero.torch import Optimizer


def right(model: torch.nn.Module, custom: CustomOptimizer) -> None:
    Optimizer(model.named_parameters(), "adamw", lr=1e-3, betas=(0.9, 0.99), amsgrad=True)
    Optimizer(model.parameters(), torch.optim.SGD, lr=torch.tensor(0.1), momentum=0.9, foreach=None)
    Optimizer(model.parameters(), custom, arenas="shared", partition="greedy", reduction="sum")
    Optimizer(model.parameters(), loss_scale=65536.0, nonfinite="skip", wire_dtype="bfloat16")


def tensors(model: torch.nn.Module, optimizer: libzero.Optimizer) -> None:
    optimizer.register(model.named_parameters())
    optimizer.register_buffers(dict(model.named_buffers()))
    optimizer.step([param.grad for param in model.parameters()])


def wrong(model: torch.nn.Module) -> None:
    Optimizer(model.parameters(), learning_rate=1)  # type: ignore[call-arg]
    Optimizer(model.parameters(), beta1=0.9)  # type: ignore[call-arg]
    Optimizer(model.parameters(), overlap_gather=True)  # type: ignore[call-arg]
    Optimizer(model.parameters(), "adamm")  # type: ignore[arg-type]
    Optimizer(model.parameters(), partition="manual")  # type: ignore[arg-type]
    Optimizer(model.parameters(), reduction="avg")  # type: ignore[arg-type]
    Optimizer(model.parameters(), arenas="share")  # type: ignore[arg-type]
    Optimizer(model.parameters(), nonfinite="raise")  # type: ignore[arg-type]

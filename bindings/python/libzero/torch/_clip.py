# SPDX-License-Identifier: Apache-2.0
"""Norms of gradients that are each on their owner alone, or the same on every rank."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Callable, Optional

import torch

from .. import ZeroError
from .._abi import ERR_STATE
from ._core import Core

Filter = Callable[[list[torch.Tensor]], Iterable[torch.Tensor]]


def clip_grad_norm(
    core: Core, max_norm: float, norm_type: float, chosen: Optional[Filter]
) -> torch.Tensor:
    """Scale .grad here by max_norm / (norm + 1e-6) where that is below 1, and return the norm of
    what the owners have, of `chosen` of it. Collective; ValueError for a norm_type that is not
    above 0."""
    if not norm_type > 0:
        raise ValueError(f"norm_type is {norm_type}; there are norms above 0, and infinity")
    core.follow_memory()
    core.follow_trained()
    gradients = core.gradients()
    owned = [number for number in core.owned() if gradients[number] is not None]
    if chosen is not None:
        kept = {id(param) for param in chosen([core.bound[number].param for number in owned])}
        owned = [number for number in owned if id(core.bound[number].param) in kept]
    mine = set(owned)
    counted = [grad if number in mine else None for number, grad in enumerate(gradients)]
    norm = _norm(core, counted, norm_type)
    factor = max_norm / (norm + 1e-6)
    # A norm that is not finite says that no factor would do.
    if math.isfinite(norm) and factor < 1:
        for bound in core.bound:
            if bound.param.grad is not None:
                bound.param.grad.detach().mul_(factor)
    double = any(bound.dtype == torch.float64 for bound in core.bound)
    device = core.bound[0].device if core.bound else None
    return torch.tensor(norm, dtype=torch.float64 if double else torch.float32, device=device)


def _norm(core: Core, gradients: list[Optional[torch.Tensor]], norm_type: float) -> float:
    optimizer = core.optimizer
    if not core.bound:
        return 0.0
    try:
        optimizer.reduce_grads(gradients, "none", stream=core.stream)
    except ZeroError as error:
        # No rank has any.
        if error.code != ERR_STATE or any(grad is not None for grad in gradients):
            raise
        return 0.0
    try:
        return optimizer.clip_grad_norm(math.inf, norm_type, stream=core.stream)
    finally:
        optimizer.drop_grads()

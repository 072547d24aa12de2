# SPDX-License-Identifier: Apache-2.0
"""What torch's GradScaler asks of an optimizer whose ranks step together.

Whether a rank's gradients are finite it decides on that rank alone, and calls step() where they
are. Before that it reads _step_supports_amp_scaling, on every rank: there the ranks agree. To an
optimizer that says True it leaves, as attributes during step(), `found_inf`, whether this rank's
gradients are not finite, and `grad_scale`, what they are yet to be divided by, or None.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional

import torch
from torch.amp.grad_scaler import GradScaler, OptState

from .. import Comm
from ._group import agreed


class Asked(NamedTuple):
    """The scaler whose step() asks, and by which optimizer it knows this one: itself or a wrapper."""

    scaler: GradScaler
    optimizer: torch.optim.Optimizer


def asked_by_scaler() -> Optional[Asked]:
    """Who reads the property that calls this, if it is GradScaler.step(). All others, as Lightning,
    ask whether they may clip gradients before a step, which they may."""
    frame = sys._getframe(2)
    while frame.f_code.co_name == "__getattr__" and frame.f_back is not None:
        frame = frame.f_back  # a wrapper's, as AdaScale
    scaler, optimizer = (frame.f_locals.get(name) for name in ("self", "optimizer"))
    # By name: a class derived of it, or a program, may have put another step() in its place.
    if frame.f_code.co_name != "step" or not isinstance(scaler, GradScaler) or optimizer is None:
        return None
    return Asked(scaler, optimizer)


def agree_to_step(comm: Comm, asked: Asked) -> None:
    """Unscale unless that is done, and see that all ranks step or all skip, as each scaler decides
    next. RuntimeError on all ranks where they differ, or where one has no gradients. Collective."""
    state: dict[str, Any] = asked.scaler._per_optimizer_states[id(asked.optimizer)]
    with agreed(comm, "GradScaler's step"):
        if state["stage"] is OptState.READY:
            asked.scaler.unscale_(asked.optimizer)
        flags = state["found_inf_per_device"].values()
        if not flags:
            raise RuntimeError("GradScaler finds no gradients on this rank, and cannot step")
        found = any(bool(flag) for flag in flags)
    if 0 < int(comm.all_reduce(int(found), "sum")) < comm.world:
        raise RuntimeError(_DIFFER)


_DIFFER = (
    "gradients are finite on some ranks and not on others, and torch's GradScaler decides on "
    "each rank alone: average gradients first, as DistributedDataParallel does, or use "
    "libzero.torch.ShardedGradScaler"
)


def overflow_of(optimizer: torch.optim.Optimizer) -> Optional[bool]:
    """Whether gradients of this rank are not finite; None in a step without GradScaler."""
    found = optimizer.__dict__.get("found_inf")
    return None if found is None else bool(found)


def agreed_overflow(comm: Comm, optimizer: torch.optim.Optimizer, found: Optional[bool]) -> bool:
    """Whether all ranks skip the step. `found`: as overflow_of; None for one that has no say.
    RuntimeError on all ranks where they differ, whose scales would be different ones from here on.
    Collective."""
    some = bool(comm.all_reduce(int(found is True), "max"))
    every = bool(comm.all_reduce(int(found is not False), "min"))
    if some and not every:
        # GradScaler takes them back after a step() that returns, and multiplies what is left.
        for name in ("found_inf", "grad_scale"):
            optimizer.__dict__.pop(name, None)
        raise RuntimeError(_DIFFER)
    return some


def unscale(optimizer: torch.optim.Optimizer) -> None:
    """Divide the gradients by what they were scaled with, unless that is done."""
    scale = optimizer.__dict__.get("grad_scale")
    if scale is None:
        return
    inverse = scale.double().reciprocal().float()
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.grad is not None:
                param.grad.mul_(inverse.to(param.grad.device))

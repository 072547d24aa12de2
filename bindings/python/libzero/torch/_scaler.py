# SPDX-License-Identifier: Apache-2.0
"""Connects torch's GradScaler to an optimizer whose ranks step together.

GradScaler decides on each rank separately whether gradients are finite, and calls step() if they
are. Before that, it reads the property _step_supports_amp_scaling on every rank, and the ranks
agree on a decision while the property is read. If the property is True, GradScaler sets two
attributes during step(). `found_inf` is true if the gradients of this rank are not finite.
`grad_scale` is the factor by which to divide them, or None if they have already been divided.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional

import torch
from torch.amp.grad_scaler import GradScaler, OptState

from .. import Comm
from ._group import agreed


class Asked(NamedTuple):
    """The scaler whose step() reads the property, and the optimizer that was passed to step(),
    which is this optimizer or a wrapper around it."""

    scaler: GradScaler
    optimizer: torch.optim.Optimizer


def asked_by_scaler() -> Optional[Asked]:
    """Return the scaler and the optimizer if GradScaler.step() is reading the property, and None
    otherwise. Other readers, such as Lightning, want to know whether they may clip gradients before
    a step, and they may."""
    frame = sys._getframe(2)
    while frame.f_code.co_name == "__getattr__" and frame.f_back is not None:
        frame = frame.f_back  # the frame of a wrapper such as AdaScale
    scaler, optimizer = (frame.f_locals.get(name) for name in ("self", "optimizer"))
    # Compare names, because a derived class or a program may have replaced step().
    if frame.f_code.co_name != "step" or not isinstance(scaler, GradScaler) or optimizer is None:
        return None
    return Asked(scaler, optimizer)


def agree_to_step(comm: Comm, asked: Asked) -> None:
    """Unscale the gradients unless they have been unscaled, and check that either all ranks will
    step or all ranks will skip the step. Each scaler makes that decision next. Raises RuntimeError
    on all ranks if the decisions differ, or if a rank has no gradients. Collective."""
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
    """Return whether gradients of this rank are not finite. Return None in a step without
    GradScaler."""
    found = optimizer.__dict__.get("found_inf")
    return None if found is None else bool(found)


def agreed_overflow(comm: Comm, optimizer: torch.optim.Optimizer, found: Optional[bool]) -> bool:
    """Return whether all ranks skip the step. `found` is the result of overflow_of, or None if this
    rank has no vote. Raises RuntimeError on all ranks if the results differ, because the scales
    would then also differ. Collective."""
    some = bool(comm.all_reduce(int(found is True), "max"))
    every = bool(comm.all_reduce(int(found is not False), "min"))
    if some and not every:
        # GradScaler removes these only after step() returns, and multiplies its next scale by a
        # grad_scale that is left.
        for name in ("found_inf", "grad_scale"):
            optimizer.__dict__.pop(name, None)
        raise RuntimeError(_DIFFER)
    return some


def unscale(optimizer: torch.optim.Optimizer) -> None:
    """Divide the gradients by their scale, unless they have already been divided."""
    scale = optimizer.__dict__.get("grad_scale")
    if scale is None:
        return
    inverse = scale.double().reciprocal().float()
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.grad is not None:
                param.grad.mul_(inverse.to(param.grad.device))

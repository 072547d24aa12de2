# SPDX-License-Identifier: Apache-2.0
"""What torch's GradScaler asks of an optimizer whose ranks step together.

To one with _step_supports_amp_scaling it leaves, as attributes during step(), `found_inf`, whether
this rank's gradients are not finite, and `grad_scale`, what they are yet to be divided by, or None.
"""

from __future__ import annotations

from typing import Optional

import torch

from .. import Comm


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
        raise RuntimeError(
            "gradients are finite on some ranks and not on others, and torch's GradScaler decides on "
            "each rank alone: average gradients first, as DistributedDataParallel does, or use "
            "libzero.torch.ShardedGradScaler"
        )
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

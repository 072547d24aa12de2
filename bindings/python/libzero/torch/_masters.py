# SPDX-License-Identifier: Apache-2.0
"""Values that a program writes into parameters whose masters libzero keeps."""

from __future__ import annotations

import torch

from ._core import Core
from ._tensors import Bound

MASTER = "master"


def follow_masters(core: Core, share_dtype: str) -> None:
    """Make what a program has written into a parameter, by whatever means, its master: each element
    that is neither the master nor what it is rounded to. So a model and its optimizer may be loaded
    in either order. Collective. ValueError on every rank, and nothing has changed: a master that
    the parameter cannot show."""
    masters: dict[int, torch.Tensor] = {}
    count = len(core.bound)
    written, large = False, count
    for number in core.owned():
        bound = core.bound[number]
        if MASTER in core.optimizer.state_names(number):
            held = bound.view().to("cpu")
            master = torch.from_numpy(core.optimizer.state_get(number, MASTER)).view(held.shape)
            shown = master.to(_shown(bound, share_dtype))
            other = (shown != held) & (master != held)
            written = written or bool(other.any())
            masters[number] = torch.where(other, held.to(master.dtype), master)
            shown = masters[number].to(shown.dtype)
            if bool((shown.isinf() & masters[number].isfinite()).any()):
                large = min(large, number)
    # In one exchange: the first that is too large, else whether anything was written.
    found = count + 1 - large if large < count else int(written) - 1
    told = int(core.comm.all_reduce(found, "max"))
    if told > 0:
        raise ValueError(
            f"parameter {core.bound[count + 1 - told].name} has values that {share_dtype} has not: "
            "make the optimizer without broadcast_fp16"
        )
    if told < 0:
        return
    for number in range(count):
        if MASTER in core.optimizer.state_names(number):
            mine = masters.get(number)
            core.optimizer.state_set(number, MASTER, None if mine is None else mine.numpy())
    core.optimizer.share_params(keep_masters=True, stream=core.stream)
    core.wrote(number for number, one in enumerate(core.bound) if one.trainable)


def _shown(bound: Bound, share_dtype: str) -> torch.dtype:
    """What a parameter shows of its master."""
    if bound.dtype != torch.float32:
        return bound.dtype
    shared: torch.dtype = getattr(torch, share_dtype)
    return shared

# SPDX-License-Identifier: Apache-2.0
"""Parameters in memory that libzero writes new values into, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import Comm, Param, partition_plan
from ._tensors import Bound


def move_into_arena(
    comm: Comm, rule: str, partition: str, params: Sequence[torch.Tensor], names: Sequence[str]
) -> None:
    """Give the trained ones of `params` memory in an arena of this rank, laid out as they travel,
    with the values and the memory formats that they have. The arena lives as long as a tensor in
    it. Collective; TypeError and ValueError as Bound."""
    bound = [Bound(param, name) for param, name in zip(params, names)]
    moved = [one for one in bound if one.trained and not one.dtype.is_complex]
    if not moved:
        return
    told = [
        Param(one.name, shape=tuple(one.view().shape), dtype=str(one.dtype).rpartition(".")[2])
        for one in moved
    ]
    plan = partition_plan(told, comm.world, rule, partition, master="none")
    memory = _tensor(comm.arena(max(plan.arena_bytes, 64), "per_rank"), comm.device)
    for one, offset in zip(moved, plan.offsets):
        old = one.view()
        size = old.numel() * old.element_size()
        new = memory[offset : offset + size].view(old.dtype).view(old.shape)
        new.copy_(old)
        one.param.data = one.out_of_order(new)


def _tensor(array: Any, device: str) -> torch.Tensor:
    return torch.from_numpy(array) if device == "host" else torch.as_tensor(array, device="cuda")

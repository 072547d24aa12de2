# SPDX-License-Identifier: Apache-2.0
"""Uneven inputs with torch's Join: steps of ranks that have no more of them."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Optional

import torch.distributed as dist
from torch.distributed.algorithms.join import Join, JoinHook
from torch.nn.parallel import DistributedDataParallel

from .. import ZeroError
from ._scaler import agreed_overflow, overflow_of
from ._shard import Hand, options_of

if TYPE_CHECKING:
    from .zero_redundancy import ZeroRedundancyOptimizer


def hand_of(optimizer: ZeroRedundancyOptimizer, *, has_inputs: bool) -> Optional[Hand]:
    """What this rank does in a step in which some may have no more inputs; None where all skip it,
    as GradScaler wants. The lowest that has some
    hands its gradients to the owners, who may have none: DDP averages over all ranks, but leaves
    the gradients of those that joined as they were. They follow its options, too. Collective."""
    shard = optimizer._sharded()
    rank, world = optimizer.rank, optimizer.world_size
    leader = int(shard.comm.all_reduce(rank if has_inputs else world, "min"))
    if leader < 0:
        raise RuntimeError(
            f"rank {leader + world} refuses this step, as its closure raised, and its error says why; "
            "nothing has changed"
        )
    if agreed_overflow(shard.comm, optimizer, overflow_of(optimizer) if has_inputs else None):
        return None
    told = [([options_of(group) for group in optimizer.param_groups], shard.core.trained())]
    source = dist.get_global_rank(optimizer.process_group, leader)
    dist.broadcast_object_list(told, src=source, group=optimizer.process_group)
    groups, trained = told[0]
    if not has_inputs:
        for mine, leaders in zip(optimizer.param_groups, groups):
            mine.update(leaders)
    return Hand(rank == leader, trained)


def tell_failure(optimizer: ZeroRedundancyOptimizer) -> None:
    """In place of hand_of, by a rank that cannot make the step: the others raise. Collective."""
    with suppress(ZeroError):  # of a comm that is broken; what it hides is the cause
        optimizer._sharded().comm.all_reduce(optimizer.rank - optimizer.world_size, "min")


def refuse_turned_order(optimizer: ZeroRedundancyOptimizer) -> None:
    """ValueError where the Join that is being made has `optimizer` before a module. The first one
    tells ranks without inputs of each step; a module that does not would meet their question in its
    forward. torch tells a Joinable nothing of the others, so that they are looked up in its caller."""
    frame = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), Join):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or not frame.f_locals.get("enable", True):
        return
    listed = frame.f_locals["self"]._joinables
    behind = listed[1:] if listed[0] is optimizer else []
    if any(isinstance(one, DistributedDataParallel) for one in behind):
        raise ValueError(
            f"Join has this {type(optimizer).__name__} before DistributedDataParallel, whose forward "
            "comes first in each step; make it Join([ddp, optimizer])"
        )


class ZeroJoinHook(JoinHook):
    """One step, without gradients of this rank's, for each that ranks with inputs make."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer._joined_step()

# SPDX-License-Identifier: Apache-2.0
"""Takes steps inside a communication hook of DDP, with the names and arguments of torch's
ddp_zero_hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from .zero_redundancy import ZeroRedundancyOptimizer

Bucket = Any  # torch.distributed.GradBucket
Hook = Callable[[Any, Bucket], torch.futures.Future[torch.Tensor]]


def hook_with_zero_step(
    hook: Hook,
    ddp: DistributedDataParallel,
    zero: ZeroRedundancyOptimizer,
    shard_buckets: bool = False,
) -> Hook:
    """Return a communication hook that reduces gradients with `hook`. It takes a step when the
    gradients of the last bucket have been reduced. Parameters have therefore been updated when
    backward() returns.

        ddp.register_comm_hook(None, hook_with_zero_step(allreduce_hook, ddp, zero))

    There is no warm-up, so the first backward pass already takes a step. Any number of groups, any
    class and any backend are supported. Changed options take effect in the next step.
    `shard_buckets` has no effect, because every parameter is split over all ranks. Raises
    ValueError if `zero` was not created with overlap_with_ddp=True.
    """
    if not isinstance(zero, ZeroRedundancyOptimizer) or not zero.overlaps_with_ddp:
        raise ValueError(
            "zero must be a libzero.torch.ZeroRedundancyOptimizer with overlap_with_ddp=True"
        )
    reduced: list[tuple[torch.futures.Future[torch.Tensor], Bucket]] = []

    def reduce_and_step(state: Any, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            reduced.clear()  # of a backward pass that failed
        future = hook(state, bucket)
        reduced.append((future, bucket))
        if bucket.is_last():
            gradients = {}
            for done, of in reduced:
                gradients.update(_gradients_in(done.wait(), of))
            reduced.clear()
            zero._step_with(gradients)
        return future

    # DDP compares annotations with types, and these annotations are strings.
    reduce_and_step.__annotations__ = {}
    return reduce_and_step


def hook_with_zero_step_interleaved(
    hook: Hook,
    ddp: DistributedDataParallel,
    zero: ZeroRedundancyOptimizer,
    shard_buckets: bool = False,
) -> Hook:
    """Return the same hook as hook_with_zero_step. The reductions of several buckets overlap, and a
    single step follows them.

    >>> ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
    >>> zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, overlap_with_ddp=True)
    >>> reduce_and_step = hook_with_zero_step_interleaved(allreduce_hook, ddp, zero)
    >>> ddp.register_comm_hook(None, reduce_and_step)
    """
    return hook_with_zero_step(hook, ddp, zero, shard_buckets)


def _gradients_in(values: Any, bucket: Bucket) -> dict[torch.Tensor, torch.Tensor]:
    """Return the gradient of each parameter as a view of the result that the hook has for the
    bucket."""
    flat = values[0] if isinstance(values, (list, tuple)) else values
    begin = bucket.buffer().storage_offset()
    return {
        param: flat.as_strided(
            view.size(), view.stride(), flat.storage_offset() + view.storage_offset() - begin
        )
        for param, view in zip(bucket.parameters(), bucket.gradients())
    }

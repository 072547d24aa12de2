# SPDX-License-Identifier: Apache-2.0
"""ZeroRedundancyOptimizer, with the arguments and methods of torch.distributed.optim's."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.nn.parallel import DistributedDataParallel

from .. import ZeroError
from ._rules import Chosen
from ._scaler import Asked, agreed_overflow, overflow_of
from ._shard import Closure, Hand, Params, options_of
from ._sharded import ShardedOptimizer

_logger = logging.getLogger("libzero")


class ZeroRedundancyOptimizer(ShardedOptimizer, Joinable):
    """In place of torch.distributed.optim.ZeroRedundancyOptimizer: change the import.

        optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=1e-3)

    `params`: tensors, (name, tensor), or groups, in float32, float64, bfloat16 or float16, mixed as
    you like, dense in any memory format; frozen ones of any dtype. All on the CPU, or all on this
    rank's GPU. `optimizer_class`: the ten of torch.optim that libzero has (Adam, AdamW,
    SGD, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop) are its kernels, and parameters
    are split evenly over the ranks; a differentiable option, complex parameters or any other class
    make it one of that class over whole tensors. foreach, fused and capturable change nothing.

    `parameters_as_bucket_view`: parameters move to memory that all ranks of a host can write, so
    that a step needs no copies; their memory formats stay.

    `overlap_with_ddp`: hook_with_zero_step makes the steps, in DDP's backward, and step() does
    nothing but to warn.

    torch's GradScaler works as with torch.optim where all ranks have the same gradients, as under
    DDP. Where some find infinite ones and others do not, step() is a RuntimeError on all.

    The constructor, add_param_group, step, consolidate_state_dict and load_state_dict are
    collective over `process_group`. Ranks that pass different parameters or options get a
    MismatchError or PeerError that names the first one.

    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, momentum=0.9)
    >>> model(torch.ones(2, 4)).sum().backward()
    """

    def __init__(
        self,
        params: Params,
        optimizer_class: Chosen,
        process_group: Optional[dist.ProcessGroup] = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        Joinable.__init__(self)
        ShardedOptimizer.__init__(
            self,
            params,
            optimizer_class,
            process_group,
            ("even", "greedy"),
            defaults,
            in_arena=parameters_as_bucket_view,
        )
        self.overlaps_with_ddp = overlap_with_ddp
        self._has_warned = False

    def step(self, closure: Closure = None, **kwargs: Any) -> Any:
        """Update this rank's share and put the new parameters on every rank. Returns what `closure`
        did, this rank's loss; all ranks pass one, or none does. Where it raises on one rank, the
        others get a RuntimeError that names it. A parameter without gradient on any rank is left
        alone.

        >>> optimizer.step()
        """
        if self.overlaps_with_ddp:
            if not self._has_warned:
                _logger.warning("step() does nothing with overlap_with_ddp=True: DDP's hook steps")
                self._has_warned = True
            return None
        Join.notify_join_context(self)
        if not self._join_config.enable:
            self._follow_change()
            return self._update(closure, kwargs, None)
        # Ranks without inputs join in DDP's calls first, which are the closure's here.
        loss = None
        if closure is not None:
            try:
                with torch.enable_grad():
                    loss = closure()
            except BaseException:
                _tell_failure(self)
                raise
        hand = _hand_of(self, has_inputs=True)
        if hand is not None:
            self._update(None, kwargs, hand)
        return loss

    def _takes_overflow(self, asked: Asked) -> bool:
        if self.overlaps_with_ddp:
            return False
        # Ranks without inputs take part in step(), and in nothing before it.
        return self._join_config.enable or super()._takes_overflow(asked)

    def _joined_step(self) -> None:
        if self.overlaps_with_ddp:
            return  # DDP's own hook has made the step
        hand = _hand_of(self, has_inputs=False)
        if hand is not None:
            self._update(None, {}, hand)

    def _step_with(self, gradients: Mapping[torch.Tensor, torch.Tensor]) -> None:
        """A step with these in place of what is in .grad, which stays."""
        before = [(param, param.grad) for group in self.param_groups for param in group["params"]]
        try:
            for param, _ in before:
                param.grad = gradients.get(param)
            self._update(None, {}, None)
        finally:
            for param, grad in before:
                param.grad = grad

    def consolidate_state_dict(self, to: Optional[int] = 0) -> None:
        """Bring the whole state to rank `to` of the group, or to all (None), for its state_dict();
        on every rank. ValueError: the group has no such rank.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(to=0)
        """
        if to is not None and not 0 <= to < self.world_size:
            raise ValueError(f"to is {to}, and the group has ranks 0 to {self.world_size - 1}")
        self._gather(to)

    def state_dict(self) -> dict[str, Any]:
        """As the unsharded optimizer's, with state on the CPU, as consolidate_state_dict brought it
        here, or as it is before the first step. RuntimeError if it brought it elsewhere, or if
        steps were made since.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict()
        >>> optimizer.state_dict()["state"][0]["momentum_buffer"].shape
        torch.Size([3, 4])
        """
        return self._whole_state_dict(f"consolidate_state_dict(to={self.rank})")

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """For Join([ddp, optimizer]), in that order: a rank without inputs goes on updating its
        share, with the gradients of those that have some. No arguments have an effect. ValueError:
        Join([optimizer, ddp]).

        >>> ddp = torch.nn.parallel.DistributedDataParallel(model)
        >>> with torch.distributed.algorithms.join.Join([ddp, optimizer]):
        ...     ddp(torch.ones(2, 4)).sum().backward()
        ...     optimizer.step()
        """
        _refuse_turned_order(self)
        return _ZeroJoinHook(self)

    @property
    def join_device(self) -> torch.device:
        """Where its parameters are; for Join."""
        return self._device

    @property
    def join_process_group(self) -> Any:
        """Its ranks; for Join."""
        return self.process_group


def _hand_of(optimizer: ZeroRedundancyOptimizer, *, has_inputs: bool) -> Optional[Hand]:
    """What this rank does in a step in which some may have no more inputs; None where all skip it,
    as GradScaler wants. The lowest that has some hands its gradients to the owners, who may have none:
    DDP averages over all ranks, but leaves the gradients of those that joined as they were. They
    follow its options, too. Collective."""
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


def _tell_failure(optimizer: ZeroRedundancyOptimizer) -> None:
    """In place of _hand_of, by a rank that cannot make the step: the others raise. Collective."""
    with suppress(ZeroError):  # of a comm that is broken; what it hides is the cause
        optimizer._sharded().comm.all_reduce(optimizer.rank - optimizer.world_size, "min")


def _refuse_turned_order(optimizer: ZeroRedundancyOptimizer) -> None:
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


class _ZeroJoinHook(JoinHook):
    """One step, without gradients of this rank's, for each that ranks with inputs make."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer._joined_step()

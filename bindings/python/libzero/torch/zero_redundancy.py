# SPDX-License-Identifier: Apache-2.0
"""ZeroRedundancyOptimizer, with the arguments and methods of the class in
torch.distributed.optim."""

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
    """A replacement for torch.distributed.optim.ZeroRedundancyOptimizer: change the import.

        optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=1e-3)

    `params`: tensors, (name, tensor), or groups, in float32, float64, bfloat16 or float16, in any
    mixture, dense in any memory format; frozen parameters may have any dtype. All are on the CPU,
    or all on this rank's GPU. `optimizer_class`: for the ten classes of torch.optim that libzero
    implements (Adam, AdamW, SGD, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop),
    libzero's kernels make the updates, and parameters are split evenly over the ranks. With a
    differentiable option, complex parameters or any other class, an instance of the class updates
    whole tensors. foreach, fused and capturable have no effect.

    `parameters_as_bucket_view`: move parameters to memory that all ranks of a host can write, so
    that a step needs no copies; their memory formats stay.

    `overlap_with_ddp`: hook_with_zero_step makes the steps, in DDP's backward pass, and step() only
    warns.

    torch's GradScaler works as with torch.optim if all ranks have the same gradients, like under
    DDP. If some ranks find infinite gradients and others do not, step() raises RuntimeError on all
    ranks.

    The constructor, add_param_group, step, consolidate_state_dict and load_state_dict are
    collective over `process_group`. Ranks that pass different parameters or options raise a
    MismatchError or PeerError that names the first difference.

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
        """Update this rank's shard and copy the new parameters to every rank. Returns the result of
        `closure`, which is this rank's loss; all ranks must pass a closure, or no rank. If it
        raises on one rank, the others raise a RuntimeError that names that rank. A parameter
        without gradient on any rank is not updated.

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
        """Make a step with these gradients instead of .grad, which stays."""
        before = [(param, param.grad) for group in self.param_groups for param in group["params"]]
        try:
            for param, _ in before:
                param.grad = gradients.get(param)
            self._update(None, {}, None)
        finally:
            for param, grad in before:
                param.grad = grad

    def consolidate_state_dict(self, to: Optional[int] = 0) -> None:
        """Gather the whole state on rank `to` of the group, or on all ranks if None, for its
        state_dict(). Call it on every rank. ValueError if the group has no such rank.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(to=0)
        """
        if to is not None and not 0 <= to < self.world_size:
            raise ValueError(f"to is {to}, and the group has ranks 0 to {self.world_size - 1}")
        self._gather(to)

    def state_dict(self) -> dict[str, Any]:
        """Return a state_dict in the unsharded optimizer's format, with state on the CPU. It
        contains the state that consolidate_state_dict gathered here, or the initial state before
        the first step. RuntimeError if the state was gathered elsewhere, or if steps were made
        since.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict()
        >>> optimizer.state_dict()["state"][0]["momentum_buffer"].shape
        torch.Size([3, 4])
        """
        return self._whole_state_dict(f"consolidate_state_dict(to={self.rank})")

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return the hook for Join([ddp, optimizer]), in that order. A rank without inputs
        continues to update its shard, with the gradients of the ranks that have inputs. Arguments
        have no effect. ValueError: Join([optimizer, ddp]).

        >>> ddp = torch.nn.parallel.DistributedDataParallel(model)
        >>> with torch.distributed.algorithms.join.Join([ddp, optimizer]):
        ...     ddp(torch.ones(2, 4)).sum().backward()
        ...     optimizer.step()
        """
        _refuse_turned_order(self)
        return _ZeroJoinHook(self)

    @property
    def join_device(self) -> torch.device:
        """The device of its parameters, for Join."""
        return self._device

    @property
    def join_process_group(self) -> Any:
        """The process group of its ranks, for Join."""
        return self.process_group


def _hand_of(optimizer: ZeroRedundancyOptimizer, *, has_inputs: bool) -> Optional[Hand]:
    """Return this rank's part in a step in which some ranks may have run out of inputs; None if all
    skip the step, as GradScaler requires. The lowest rank with inputs gives its gradients to the
    owners, which may lack gradients: DDP averages over all ranks, but does not update the gradients
    on ranks that joined. Those ranks also follow its options. Collective."""
    shard = optimizer._sharded()
    rank, world = optimizer.rank, optimizer.world_size
    leader = int(shard.comm.all_reduce(rank if has_inputs else world, "min"))
    if leader < 0:
        raise RuntimeError(
            f"rank {leader + world} refuses this step because its closure raised (see its error); "
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
    """Call this instead of _hand_of on a rank that cannot make the step: the other ranks raise.
    Collective."""
    with suppress(ZeroError):  # of a comm that is broken; what it hides is the cause
        optimizer._sharded().comm.all_reduce(optimizer.rank - optimizer.world_size, "min")


def _refuse_turned_order(optimizer: ZeroRedundancyOptimizer) -> None:
    """Raise ValueError if the Join under construction has `optimizer` before a module. The first
    Joinable notifies ranks without inputs of each step. A module does not, so it would receive
    their message in its forward pass. torch gives a Joinable no access to the others, so they are
    looked up in its caller."""
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
    """For each step of the ranks with inputs, makes one step without gradients from this rank."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer._joined_step()

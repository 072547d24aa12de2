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
    """A replacement for torch.distributed.optim.ZeroRedundancyOptimizer. To use it, change the
    import.

        optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=1e-3)

    `params` lists tensors, (name, tensor), or groups. Parameters may be float32, float64, bfloat16
    or float16, in any combination. Frozen parameters may have any dtype. Parameters must be dense,
    and may have any memory format. Either all parameters are on the CPU, or all are on this rank's
    GPU. `optimizer_class` is the class of the optimizer. For ten classes of torch.optim (Adam,
    AdamW, SGD, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop), libzero's kernels perform
    the updates, and parameters are split evenly over the ranks. For any other class, for complex
    parameters, or with the option differentiable, an instance of the class updates whole tensors.
    The options foreach, fused and capturable have no effect.

    With `parameters_as_bucket_view`, parameters move to memory to which all ranks of a host can
    write, so that a step needs no copies. Their memory formats do not change.

    With `overlap_with_ddp`, hook_with_zero_step takes the steps during the backward pass of DDP,
    and step() only issues a warning.

    If all ranks have the same gradients, as with DDP, torch's GradScaler works as it does with
    torch.optim. If some ranks find infinite gradients and others do not, step() raises RuntimeError
    on all ranks.

    The constructor, add_param_group, step, consolidate_state_dict and load_state_dict are
    collective over `process_group`. If ranks pass different parameters or options, they raise a
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
        """Update this rank's shard, and copy the new parameters to every rank. Returns the result
        of `closure`, which is the loss of this rank. Either all ranks or no rank must pass a
        closure. If a closure raises an exception on one rank, the other ranks raise a RuntimeError
        that names that rank. A parameter that has no gradient on any rank is not updated.

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
        # Ranks without inputs first join DDP's calls, which the closure makes on this rank.
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
        # Ranks without inputs take part only in step(), and cannot agree on a decision before it.
        return self._join_config.enable or super()._takes_overflow(asked)

    def _joined_step(self) -> None:
        if self.overlaps_with_ddp:
            return  # DDP's communication hook has taken the step
        hand = _hand_of(self, has_inputs=False)
        if hand is not None:
            self._update(None, {}, hand)

    def _step_with(self, gradients: Mapping[torch.Tensor, torch.Tensor]) -> None:
        """Take a step with these gradients instead of .grad, which is not changed."""
        before = [(param, param.grad) for group in self.param_groups for param in group["params"]]
        try:
            for param, _ in before:
                param.grad = gradients.get(param)
            self._update(None, {}, None)
        finally:
            for param, grad in before:
                param.grad = grad

    def consolidate_state_dict(self, to: Optional[int] = 0) -> None:
        """Gather the whole state for state_dict() on rank `to` of the group, or on all ranks if
        `to` is None. Call this on every rank. Raises ValueError if the group has no such rank.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(to=0)
        """
        if to is not None and not 0 <= to < self.world_size:
            raise ValueError(f"to is {to}, but the group has ranks 0 to {self.world_size - 1}")
        self._gather(to)

    def state_dict(self) -> dict[str, Any]:
        """Return a state_dict in the format of the unsharded optimizer, with state on the CPU. It
        contains the state that consolidate_state_dict gathered on this rank, or the initial state
        before the first step. Raises RuntimeError if the state was gathered on another rank, or if
        a step has been taken since then.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict()
        >>> optimizer.state_dict()["state"][0]["momentum_buffer"].shape
        torch.Size([3, 4])
        """
        return self._whole_state_dict(f"consolidate_state_dict(to={self.rank})")

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return the hook for Join([ddp, optimizer]). A rank without inputs continues to update its
        shard, with the gradients of the ranks that have inputs. Arguments have no effect. Raises
        ValueError if the order is Join([optimizer, ddp]).

        >>> ddp = torch.nn.parallel.DistributedDataParallel(model)
        >>> with torch.distributed.algorithms.join.Join([ddp, optimizer]):
        ...     ddp(torch.ones(2, 4)).sum().backward()
        ...     optimizer.step()
        """
        _refuse_turned_order(self)
        return _ZeroJoinHook(self)

    @property
    def join_device(self) -> torch.device:
        """The device of the parameters. Join reads this property."""
        return self._device

    @property
    def join_process_group(self) -> Any:
        """The process group that the ranks belong to. Join reads this property."""
        return self.process_group


def _hand_of(optimizer: ZeroRedundancyOptimizer, *, has_inputs: bool) -> Optional[Hand]:
    """Return this rank's part in a step in which some ranks may have run out of inputs. Return None
    if all ranks skip the step, as GradScaler requires. The lowest rank with inputs sends its
    gradients to the owners. Owners that have joined lack gradients, because DDP averages over all
    ranks, but does not update the gradients on ranks that have joined. These ranks also take over
    the options of the lowest rank. Collective."""
    shard = optimizer._sharded()
    rank, world = optimizer.rank, optimizer.world_size
    leader = int(shard.comm.all_reduce(rank if has_inputs else world, "min"))
    if leader < 0:
        raise RuntimeError(
            f"rank {leader + world} refused this step because its closure raised (see its error); "
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
    """Make the other ranks raise an exception. A rank that cannot take the step calls this instead
    of _hand_of. Collective."""
    with suppress(ZeroError):  # of a broken comm; the first exception is more useful
        optimizer._sharded().comm.all_reduce(optimizer.rank - optimizer.world_size, "min")


def _refuse_turned_order(optimizer: ZeroRedundancyOptimizer) -> None:
    """Raise ValueError if the Join under construction lists `optimizer` before a module. The first
    Joinable notifies ranks without inputs of each step. A module that is not first does not notify
    them, and would receive their message in its forward pass. A Joinable has no access to the other
    Joinables, so they are looked up on the call stack."""
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
    """Takes a step, without gradients from this rank, for each step of the ranks with inputs."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer._joined_step()

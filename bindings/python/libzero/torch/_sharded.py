# SPDX-License-Identifier: Apache-2.0
"""A torch optimizer whose state is sharded, which is the common base class of the replacements for
other classes."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Optional

import torch
import torch.distributed as dist

from .. import Comm
from ._group import agreed, comm_of, process_group
from ._inner import InnerShard
from ._kernel import KernelShard
from ._loaded import check_form, loaded_groups, mapping, renumbered
from ._rules import Chosen, class_of, rule_of
from ._scaler import Asked, agree_to_step, asked_by_scaler, unscale
from ._shard import (
    Closure,
    Hand,
    Params,
    Shard,
    copy_options,
    each_once,
    listed_params,
    names_of,
    options_of,
    unless_refused,
)
from ._targets import State, asked_by_checkpoints
from ._tensors import Bound, Homes


class ShardedOptimizer(torch.optim.Optimizer):
    """An optimizer of the class `optimizer_class`, sharded over the ranks of a group. Each step
    reads param_groups again, so schedulers and programs may change options. `rule` is the name of
    libzero's rule for the class, or None if there is no such rule.

    Every rank has its own copy of the averaged gradients, which DistributedDataParallel provides.
    """

    def __init__(
        self,
        params: Params,
        optimizer_class: Chosen,
        group: Optional[dist.ProcessGroup],
        partitions: tuple[str, str],
        defaults: dict[str, Any],
        *,
        in_arena: bool = False,
        share_dtype: Optional[str] = None,
    ) -> None:
        """`partitions` gives the partition for libzero's rules, and the partition for other
        optimizer classes, for which each rank owns whole tensors. With `in_arena`, parameters move
        to memory that libzero updates in place. `share_dtype` is the dtype to which libzero's rules
        round float32 parameters on every rank.

        Collective over the group. Raises the errors of Bound, RuntimeError if there is no group,
        and any error that the optimizer class raises for its options.
        """
        self._class, self._constructor_options = class_of(optimizer_class, defaults)
        listed = listed_params(params, type(self).__name__)
        self._shard: Optional[Shard] = None
        with unless_refused(listed):
            super().__init__(listed, self._constructor_options)
            self.state = self._new_state()
            self.process_group = process_group(group)
            self.world_size: int = dist.get_world_size(self.process_group)
            self.rank: int = dist.get_rank(self.process_group)
            self.global_rank: int = dist.get_rank()
            self._device = self._only_device()
            self._steps = 0
            self._fresh = True  # True until a step is taken or a state is loaded
            self._gathered: Optional[tuple[int, dict[int, dict[str, Any]]]] = None
            self._in_arena = in_arena
            self._partitions = partitions
            self._share_dtype = share_dtype
            self._shard = self._make_shard()
            copy_options(self._shard.optim.param_groups, self.param_groups)

    def _make_shard(self) -> Shard:
        template = self._class(
            [{**group, "params": []} for group in self.param_groups], **self._constructor_options
        )
        self.defaults = template.defaults  # schedulers read this attribute
        params = [param for group in self.param_groups for param in group["params"]]
        rule, _ = rule_of(self._class, template.param_groups, params)
        self.rule: Optional[str] = None if rule is None else rule.name
        comm = comm_of(self.process_group, self._device)
        try:
            for group in self.param_groups if self._in_arena else ():
                self._move(comm, group)
            if rule is None:
                return InnerShard(
                    comm,
                    self.process_group,
                    self._class,
                    self._constructor_options,
                    self.param_groups,
                    self._partitions[1],
                )
            copy_options(template.param_groups, self.param_groups)
            return KernelShard(
                comm, rule, template, self.param_groups, self._partitions[0], self._share_dtype
            )
        except BaseException:
            comm.close()
            raise

    def _move(self, comm: Comm, group: Mapping[str, Any]) -> None:
        """Move trained parameters to memory that libzero updates in place."""
        bound = [Bound(param, name) for param, name in zip(group["params"], names_of(group, 0))]
        moved = [one for one in bound if one.trained and not one.dtype.is_complex]
        if moved:
            options = {"partition": self._partitions[0 if self.rule else 1], "master": "none"}
            Homes(comm, self.rule or "sgd", moved, options, with_grads=False)

    def _only_device(self) -> torch.device:
        devices = {param.device: None for group in self.param_groups for param in group["params"]}
        if len(devices) > 1:
            names = ", ".join(map(str, devices))
            raise ValueError(
                f"parameters are on {names}; an optimizer needs all of them on one device"
            )
        return next(iter(devices), torch.device("cpu"))

    def _sharded(self) -> Shard:
        if self._shard is None:
            raise RuntimeError(f"this {type(self).__name__} is closed")
        return self._shard

    @property
    def optim(self) -> Any:
        """An object with the `param_groups` and `state` of the elements that this rank owns, for
        reading. If libzero has no rule for the class, this is the optimizer of that class that
        updates these elements."""
        return self._sharded().owned(self.param_groups)

    def _follow_change(self) -> None:
        """Rebuild the shard with the existing state if parameters have moved to another device, or
        have changed their dtype or memory format. Every rank must make the same change. Collective
        if there is a change."""
        before = self._sharded()
        if not any(one.changed for one in before.core.bound):
            return
        state = before.gather_state(self.param_groups, None)
        device, self._device = self._device, self._only_device()
        try:
            now = self._make_shard()
        except BaseException:
            self._device = device
            raise
        try:
            now.prepare_load(self.param_groups, state)()
        except BaseException:
            now.close()
            now.comm.close()
            self._device = device
            raise
        self._shard = now
        before.close()
        before.comm.close()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, which must be the same on every rank. Owners are chosen for
        the new group only, and existing owners do not change. If this raises an exception, the
        group is not added.

        >>> optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))], "lr": 0.01})
        """
        if not hasattr(self, "_steps"):
            super().add_param_group(param_group)  # a call from the base class's constructor
            return
        param_group = each_once(param_group)
        shard = self._sharded()
        before = len(self.param_groups)
        try:
            with unless_refused([param_group]):
                with agreed(shard.comm, "the new group"):
                    super().add_param_group(param_group)
                    self._only_device()
                group = self.param_groups[-1]
                shard.compare_group(group)
                if self._in_arena:
                    self._move(shard.comm, group)
                shard.add_group(group)
        except BaseException:
            del self.param_groups[before:]
            raise
        self._gathered = None

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """A property that GradScaler.step() reads on every rank before it decides on each rank
        separately."""
        asked = asked_by_scaler()
        return asked is not None and self._takes_overflow(asked)

    def _takes_overflow(self, asked: Asked) -> bool:
        """Return whether GradScaler must always call step() and pass the overflow to it. Otherwise,
        all ranks have agreed on whether to step. Raises RuntimeError on all ranks if they differ.
        Collective."""
        agree_to_step(self._sharded().comm, asked)
        return False

    def _update(self, closure: Closure, arguments: Mapping[str, Any], hand: Optional[Hand]) -> Any:
        unscale(self)
        loss = self._sharded().step(self.param_groups, closure, arguments, hand)
        self._steps += 1
        self._fresh = False
        return loss

    # ---- State, in torch's own format ----

    def _new_state(self) -> State:
        """Return an empty state that does not keep this optimizer alive."""
        reference = weakref.ref(self)

        def names_of(param: torch.Tensor) -> Mapping[str, Any]:
            optimizer = reference()
            if optimizer is None or optimizer._shard is None:
                return {}
            found = optimizer._shard.expected_state(optimizer.param_groups, only=param)
            return next(iter(found.values()), {})

        made = State()
        made.names_of = names_of
        return made

    def _gather(self, to: Optional[int]) -> None:
        """Gather the whole state for state_dict() on rank `to`, or on all ranks if `to` is None.
        Collective."""
        entries = self._sharded().gather_state(self.param_groups, to)
        self._gathered = (self._steps, entries) if to is None or to == self.rank else None

    def _whole_state_dict(self, remedy: str) -> dict[str, Any]:
        """Return torch's state_dict() of the gathered state, or of the initial state before the
        first step. Raises RuntimeError if no state has been gathered, or if a step has been taken
        or a group added since then. The message suggests the call `remedy`."""
        entries = self._entries(remedy)
        # torch's own method runs, so that hooks see the same dictionaries as with an unsharded
        # optimizer.
        kept = self.state
        self.state = defaultdict(dict, {number: dict(one) for number, one in entries.items()})  # type: ignore[misc]
        try:
            return super().state_dict()
        finally:
            self.state = kept

    def _entries(self, remedy: str) -> dict[int, dict[str, Any]]:
        asked = asked_by_checkpoints()
        if (self._fresh and asked) or "_load_optim_state_dict" in asked:
            return self._sharded().expected_state(self.param_groups)
        initial = self._sharded().initial_state(self.param_groups) if self._fresh else None
        if initial is not None:
            return initial
        if self._gathered is None:
            raise RuntimeError(
                f"the state is not gathered on this rank: call {remedy} on all ranks"
            )
        taken, entries = self._gathered
        if taken != self._steps:
            raise RuntimeError(
                f"the state was gathered after {taken} steps, and {self._steps} have been made: "
                f"call {remedy} on all ranks again"
            )
        return entries

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state_dict() of this class, or of the torch optimizer that it shards. Any number
        of ranks may have saved it. Every rank must pass the whole dictionary, which is not changed.
        The dictionary replaces all state and all options. Parameters that have no state in the
        dictionary have no state afterwards.

        Before anything has changed, this raises ValueError, which names every difference in
        options, groups, tensors and shapes. It raises TypeError if a value is neither a tensor nor
        a number, and RuntimeError if another rank failed. Collective.

        >>> optimizer.consolidate_state_dict()
        >>> optimizer.load_state_dict(optimizer.state_dict())
        """
        shard = self._sharded()
        with agreed(shard.comm, "the state"):
            state_dict = {**mapping(state_dict, "the state")}
            for hook in _hooks(self, "_optimizer_load_state_dict_pre_hooks"):
                changed = hook(self, state_dict)
                state_dict = state_dict if changed is None else changed
            check_form(state_dict)
            groups = loaded_groups(self.param_groups, state_dict["param_groups"], self.defaults)
            load = shard.prepare_load(groups, renumbered(state_dict))
        load()
        self.__setstate__({"state": self._new_state(), "param_groups": groups})
        self._fresh = False
        self._gathered = None
        for hook in _hooks(self, "_optimizer_load_state_dict_post_hooks"):
            hook(self)

    def close(self) -> None:
        """Free the state and the comm of libzero. Closing an optimizer again has no effect.
        Parameters keep their values.

        >>> optimizer.close()
        """
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.close()
            shard.comm.close()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled, because its state is on other "
            "ranks; save its state_dict()"
        )


def _hooks(optimizer: torch.optim.Optimizer, kind: str) -> list[Any]:
    return list(getattr(optimizer, kind, {}).values())

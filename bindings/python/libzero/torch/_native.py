# SPDX-License-Identifier: Apache-2.0
"""The shard of libzero.torch.Optimizer. No other code has reduced its gradients."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, TypeVar, Union

import torch

from .. import Comm, Group, NonfiniteError, Optimizer, ZeroError
from .._zero_h import ERR_STATE
from . import _state
from ._core import Core
from ._gradients import Gradients
from ._group import agreed
from ._loaded import entries_of
from ._native_core import NativeCore, Wishes
from ._rules import arguments_of, fixed_of, put_settings, settings_of, takes_sparse, tell_changed
from ._shard import Closure, Groups, Hand, Shard, copy_options, loss_of, names_of
from ._state import Owned
from ._tensors import Bound, Buffers, Homes
from ._writes import Writes

_PLANNED = ("partition", "bucket_bytes", "master", "instances")


_T = TypeVar("_T")


@dataclass(frozen=True)
class _Part:
    """A group that is being added. `fixed` has its keys that cannot change."""

    bound: list[Bound]
    settings: dict[str, float]
    fixed: dict[str, Any]


class NativeShard(Shard):
    """Reduces the gradients of every rank to the owners, either in hooks or in the step."""

    def __init__(self, comm: Comm, wishes: Wishes, groups: Groups) -> None:
        """Create the shard. Parameters receive the values of rank 0. Collective. Raises the errors
        of Bound and Core.add."""
        super().__init__(comm)
        self.optim = wishes.choice.template
        self._wishes = wishes
        self._homes: dict[torch.Tensor, Optional[torch.Tensor]] = {}
        self.buffers = Buffers()
        # Extras of this rank. They are kept here because load_state_dict creates a new core.
        self._extras: dict[str, bytes] = {}
        self._begin()
        try:
            self._add(groups)
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        self._core = NativeCore(self.comm, self._wishes)
        self.gradients = Gradients(self._core, overlap=self._wishes.overlap)
        self.writes = Writes(self._core, self._wishes.options)
        self._groups: list[Optional[Group]] = []
        self._told: list[dict[str, float]] = []
        self._fixed: list[dict[str, Any]] = []

    @property
    def core(self) -> Core:
        return self._core

    # ---- Build ----

    def compare_group(self, group: dict[str, Any]) -> None:
        def add(trial: Core) -> None:
            if self.gradients.reduced:
                raise RuntimeError(
                    "gradients are clipped: add the group before clip_grad_norm() or "
                    "clip_grad_value(), or after step()"
                )
            for part in self._parts_of([group]):
                names = [one.name for one in part.bound]
                trial.add([one.param for one in part.bound], names, part.settings, fixed=part.fixed)

        self._core.compare(add)

    def add_group(self, group: dict[str, Any]) -> None:
        self.drop()  # withdraw announced gradients, which the step then reduces
        self._add([group])

    def _add(self, groups: Groups) -> None:
        """Add groups. All groups of one call share one layout, so that they are sent without
        packing on every comm if they have the same rule and the same slots."""
        with agreed(self.comm, "its parameters"):
            parts = self._parts_of(groups)
        bound = [one for part in parts for one in part.bound]
        if bound:
            self._make_equal(bound)
        made = self._move(parts) if bound and self._wishes.arenas else None
        homes = made.grads if made else [None] * len(bound)
        try:
            # Parameters are moved back only into arenas of this rank. Other ranks may still read a
            # shared arena, so libzero uses the new memory there.
            if made and self._wishes.arenas == "per_rank":
                self._core.places.update(zip((one.param for one in bound), made.data))
            self._register(parts, {one.param: home for one, home in zip(bound, homes)})
        except BaseException:
            if made:
                made.undo()
            raise

    def _parts_of(self, groups: Groups) -> list[_Part]:
        """Prepare groups that will be added. Raises the errors of Bound, settings_of and the chosen
        class."""
        parts, first = [], len(self._core.bound)
        for group in groups:
            self._wishes.choice.check(group)
            names = names_of(group, first)
            bound = [_bound(param, name) for param, name in zip(group["params"], names)]
            for one in bound:
                one.takes_sparse = functools.partial(
                    takes_sparse, self._wishes.choice.rule_of(group), group
                )
            settings = settings_of(self._wishes.choice.rule_of(group), group)
            parts.append(_Part(bound, settings, fixed_of(group)))
            first += len(bound)
        return parts

    def _register(
        self, parts: Sequence[_Part], homes: Mapping[torch.Tensor, Optional[torch.Tensor]]
    ) -> None:
        first = len(self._core.bound)
        for part in parts:
            own = [homes[one.param] for one in part.bound]
            group = self._core.add_bound(part.bound, own, part.settings, part.fixed) if part.bound else None
            self._groups.append(group)
            self._told.append(part.settings)
            self._fixed.append(part.fixed)
        self._core.seal()
        self.writes.watch(first)
        self.gradients.watch([homes[one.param] for part in parts for one in part.bound])
        self._homes.update(homes)

    def _make_equal(self, bound: Sequence[Bound]) -> None:
        """Copy the values of rank 0 to all ranks. A separate optimizer compares and copies them,
        because a broadcast by the real optimizer would round the master weights of parameters that
        are already trained."""
        with Optimizer(self.comm, "sgd", master="none") as once:
            once.register([one.register() for one in bound])
            once.broadcast_params(0, stream=self._stream_of(bound))

    def _move(self, parts: Sequence[_Part]) -> Homes:
        wishes = self._wishes
        planned = {name: wishes.options[name] for name in _PLANNED if name in wishes.options}
        shared = wishes.arenas == "shared"
        bound = [one for part in parts for one in part.bound]
        groups = [
            {"count": len(part.bound), **arguments_of(part.fixed), **part.settings}
            for part in parts
        ]
        return Homes(self.comm, wishes.choice.update, bound, planned, groups=groups, shared=shared)

    def _stream_of(self, bound: Sequence[Bound]) -> Any:
        if self.comm.device == "host":
            return None
        return torch.cuda.current_stream(bound[0].device)

    def add_buffers(self, buffers: Mapping[str, torch.Tensor]) -> None:
        """Add buffers, which receive the values of rank 0. Collective. Raises TypeError for a dtype
        that libzero does not support."""
        if buffers:
            self.buffers.add(self._core.optimizer, buffers)
            self.broadcast_buffers(0)

    def follow_memory(self) -> None:
        """Look up the current memory of parameters and buffers. Raises the errors of Bound.moved
        and Buffers.follow_memory."""
        self._core.follow_memory()
        self.buffers.follow_memory()

    def wrote_all(self) -> None:
        """Notify autograd that all parameters have new values."""
        self._wrote(range(len(self._core.bound)))

    def _wrote(self, numbers: Iterable[int]) -> None:
        self._core.wrote(numbers)
        self._core.moved.clear()
        self.writes.note()

    def broadcast_params(self, root: Optional[int]) -> None:
        self._core.follow_memory()
        self._core.optimizer.broadcast_params(root, stream=self._core.stream)
        self.wrote_all()

    def broadcast_buffers(self, root: int) -> None:
        self.buffers.follow_memory()
        self._core.optimizer.broadcast_buffers(root, stream=self._core.stream)
        self.buffers.wrote()

    # ---- Train ----

    def reduce(self, groups: Groups) -> None:
        """Reduce the gradients for a clip, unless they have already been reduced. Collective."""
        self.gradients.follow_reduced()
        if self.gradients.reduced:
            return
        core = self._core

        def reduced(grads: Optional[list[Optional[torch.Tensor]]]) -> None:
            core.optimizer.reduce_grads(grads, self._wishes.reduction, stream=core.stream)

        self._followed(groups, reduced)
        self.gradients.note_reduced()
        self.writes.note()  # earlier writes are already in the master weights

    def step(
        self, groups: Groups, closure: Closure, arguments: Mapping[str, Any], hand: Optional[Hand]
    ) -> Any:
        loss = loss_of(self.comm, closure)
        try:
            self._step(groups)
        except NonfiniteError:
            self._used()
            raise
        self._used()
        return loss

    def _step(self, groups: Groups) -> None:
        core = self._core
        self.gradients.follow_reduced()
        if not self.gradients.reduced:
            step = core.optimizer.step
            return self._followed(
                groups, lambda grads: step(grads, self._wishes.reduction, stream=core.stream)
            )
        self.writes.refuse_late()
        self._push(groups)
        core.optimizer.step(stream=core.stream)
        return None

    def _followed(self, groups: Groups, call: Callable[[Any], object]) -> None:
        """Run `call` with the gradients, after taking over the program's changes to options, memory
        and values."""
        self._follow(groups)
        self._agreeing(lambda: call(self.gradients.collect()))

    def _agreeing(self, call: Callable[[], _T]) -> _T:
        return self.writes.agreeing(call, self.gradients.take_back)

    def _used(self) -> None:
        self.gradients.used()
        self._wrote(number for number, one in enumerate(self._core.bound) if one.trained)

    def join(self, groups: Groups) -> int:
        """Take part in the steps of the other ranks until no rank has inputs. The options in
        `groups` follow those of the other ranks."""
        self.drop()
        self._push(groups)
        self.follow_memory()
        last = self._core.optimizer.join(stream=self._core.stream)
        self._used()
        self.wrote_all()
        self.buffers.wrote()
        self._pull(groups)
        return last

    def drop(self) -> None:
        """Discard all announcements and reduced sums. Local."""
        if self.gradients.reduced or self.gradients.announced:
            self.gradients.take_back()

    def _follow(self, groups: Groups) -> None:
        self._push(groups)
        written = self._follow_values()
        self._core.follow_trained()
        self.writes.take(written)
        self.gradients.follow_trained()

    def _follow_values(self) -> list[int]:
        """Look up the current memory of parameters. Returns the numbers of the parameters to which
        the program has written, and for which master weights must be set. Call this only while no
        gradients have been reduced."""
        written = self.writes.found()
        if self.gradients.announced and (written or self._core.changed()):
            self.gradients.take_back()
        self._core.follow_memory()
        return sorted({*written, *self._core.moved})

    def _push(self, groups: Groups) -> None:
        """Pass changed options in `groups` to libzero, for example after a scheduler step. Raises
        ValueError if a program has changed the rule or the type of the state of a group."""
        for number, (fixed, group) in enumerate(zip(self._fixed, groups)):
            for key, own in fixed.items():
                if group.get(key) != own:
                    raise ValueError(
                        f"group {number} has the {key} {group.get(key)!r}, but was added with {own!r}, "
                        "which cannot change"
                    )
        tell_changed(self._wishes.choice.rule_of, self._groups, self._told, groups)

    # ---- State ----

    def _pull(self, groups: Groups) -> None:
        """Copy the settings in libzero to `groups` after a load."""
        for group, told, options in zip(self._groups, self._told, groups):
            if group is None:
                continue
            for name in told:
                told[name] = group[name]
            put_settings(self._wishes.choice.rule_of(options), options, told)

    def save(self, groups: Groups, call: Callable[[Optimizer], object]) -> None:
        """Run `call` while libzero's optimizer has the state to be saved. Collective. Raises
        RuntimeError between a clip and the step that follows it."""
        self._push(groups)
        self._take_writes()
        if self.gradients.announced and not self.gradients.reduced:
            self.gradients.take_back()  # libzero saves between steps; the next step sums them again
        self.buffers.follow_memory()
        for name, value in self._extras.items():
            self._core.optimizer.state_extra_set(name, value)
        try:
            self._agreeing(lambda: call(self._core.optimizer))
        except ZeroError as error:
            if error.code != ERR_STATE or not self.gradients.reduced:
                raise
            raise RuntimeError(
                "gradients are clipped: save after step(), or call zero_grad() before"
            ) from error

    def _take_writes(self) -> None:
        """Set master weights from the current parameters before a save or a gather. Local."""
        if not self.gradients.reduced:
            self.writes.take(self._follow_values())

    def load(self, directory: Union[str, os.PathLike[str]], groups: Optional[Groups]) -> None:
        """Load a checkpoint. Its settings are written to `groups` unless that is None."""
        self.drop()
        self.follow_memory()
        optimizer = self._core.optimizer
        optimizer.load(directory, keep_settings=groups is None)
        saved = optimizer.state_extra_list()
        own = [name for rank, name in saved if rank == self.comm.rank]
        self._extras = {name: optimizer.state_extra_get(name) for name in own}
        self.wrote_all()
        self.buffers.wrote()
        if groups is not None:
            self._pull(groups)

    def set_extra(
        self, name: str, value: Optional[Union[bytes, bytearray, memoryview]]
    ) -> None:
        self._core.optimizer.state_extra_set(name, value)
        self._extras.pop(name, None)
        if value is not None:
            self._extras[name] = bytes(value)

    def owned(self, groups: Groups) -> Owned:
        return Owned(self._core, self._wishes.choice.rule_of, groups)

    def initial_state(self, groups: Groups) -> dict[int, dict[str, Any]]:
        return {**_state.initial(self._core, self._wishes.choice.rule_of, groups)}

    def expected_state(
        self, groups: Groups, only: Optional[torch.Tensor] = None
    ) -> dict[int, dict[str, Any]]:
        return {**_state.expected(self._core, self._wishes.choice.rule_of, groups, only)}

    def gather_state(self, groups: Groups, to: Optional[int]) -> dict[int, dict[str, Any]]:
        self._take_writes()
        rule_of = self._wishes.choice.rule_of
        entries = {**self._agreeing(lambda: _state.gather(self._core, rule_of, groups, to))}
        if self.gradients.reduced:
            # Raise only now. No other rank then waits for a rank that has raised an exception.
            self.writes.refuse_late()
        return entries

    def prepare_load(
        self, groups: Groups, state: Mapping[int, Mapping[str, Any]]
    ) -> Callable[[], None]:
        entries = entries_of(self._wishes.choice.rule_of, groups, state)
        return lambda: self._load(groups, entries)

    def _load(self, groups: Groups, entries: _state.Entries) -> None:
        # State cannot be removed, and a failure must change nothing, so the load uses a new
        # optimizer.
        before = self._core, self.gradients, self._groups, self._told, self.writes, self._fixed
        self.drop()
        self._core.follow_memory()
        self._begin()
        self._core.places = before[0].places
        try:
            self._register(self._parts_of(groups), self._homes)
            self.buffers.register(self._core.optimizer)
            # Keep the current loss scale, because it has adapted since the initial value.
            self._core.optimizer.loss_scale = before[0].optimizer.loss_scale
            # Values that a program loads into the model, before or after this call, are treated
            # like any other write.
            _state.put(self._core, self._wishes.choice.rule_of, groups, entries, keep_values=True)
            self.writes.doubt(number for number, one in entries.items() if _state.MASTER in one)
            self._core.seal()
        except BaseException:
            self._close()
            self._core, self.gradients, self._groups, self._told, self.writes, self._fixed = before
            raise
        before[1].close()
        before[0].close()
        copy_options(groups, self.optim.param_groups)

    def _close(self) -> None:
        self.gradients.close()
        self._core.close()

    def close(self) -> None:
        self._close()


def _bound(param: torch.Tensor, name: str) -> Bound:
    made = Bound(param, name)
    if made.carried:  # no checkpoint would contain it, and ranks would keep different values
        raise TypeError(
            f"parameter {name} is {param.dtype}, which libzero cannot save; leave it out"
        )
    return made

# SPDX-License-Identifier: Apache-2.0
"""A shard of whole tensors that an optimizer of any other class updates. The new values are copied
to all ranks by libzero."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Optional

import torch
import torch.distributed as dist

from .. import Comm, ZeroError
from .._zero_h import ERR_STATE
from ._core import Core
from ._group import agreed
from ._loaded import check_like
from ._shard import Closure, Groups, Hand, Shard, copy_options, names_of, options_of
from ._targets import zeros_stepped
from ._tensors import Bound


class InnerShard(Shard):
    """An optimizer of the class that the program chose, for the tensors that this rank owns. On a
    rank that owns no tensors, the groups of the optimizer are empty."""

    def __init__(
        self,
        comm: Comm,
        group: dist.ProcessGroup,
        optimizer_class: type[torch.optim.Optimizer],
        defaults: Mapping[str, Any],
        groups: Groups,
        partition: str,
    ) -> None:
        """Create the shard. Collective. Raises the errors of Core.add and of the optimizer
        class."""
        super().__init__(comm)
        self._process_group = group
        self._defaults = defaults
        # Plain SGD has no state. libzero only chooses the owners of tensors and copies the tensors.
        self._core = Core(comm, "sgd", partition)
        self._numbers: dict[torch.Tensor, int] = {}
        try:
            for one in groups:
                self._register(one)
            self._core.seal()
            mine = self._mine()
            self.optim = optimizer_class(
                [self._owned_group(one, mine) for one in groups], **defaults
            )
        except BaseException:
            self._core.close()
            raise

    @property
    def core(self) -> Core:
        return self._core

    def _register(self, group: Mapping[str, Any]) -> None:
        first = len(self._core.bound)
        self._core.add(*self._named(group), {}, trained=[True] * len(group["params"]))
        for place, param in enumerate(group["params"]):
            self._numbers[param] = first + place

    def _named(self, group: Mapping[str, Any]) -> tuple[list[torch.Tensor], list[str]]:
        return group["params"], names_of(group, len(self._core.bound), self._core.names)

    def _mine(self) -> set[torch.Tensor]:
        return {self._core.bound[number].param for number in self._core.owned()}

    def _owned_group(self, group: Mapping[str, Any], mine: set[torch.Tensor]) -> dict[str, Any]:
        options = options_of(group)
        return {**options, "params": [param for param in group["params"] if param in mine]}

    def compare_group(self, group: dict[str, Any]) -> None:
        def add(trial: Core) -> None:
            trial.add(*self._named(group), {}, trained=[True] * len(group["params"]))
            # The class checks the options here, before any tensor has an owner.
            self.optim.add_param_group({**options_of(group), "params": []})
            for name, value in options_of(self.optim.param_groups.pop()).items():
                group.setdefault(name, value)

        self._core.compare(add)

    def add_group(self, group: dict[str, Any]) -> None:
        self._register(group)
        self._core.seal()
        self.optim.add_param_group(self._owned_group(group, self._mine()))

    def step(
        self, groups: Groups, closure: Closure, arguments: Mapping[str, Any], hand: Optional[Hand]
    ) -> Any:
        self._core.follow_memory()
        copy_options(groups, self.optim.param_groups)
        with self._gradients_of(hand):
            loss = self._told_to_all(closure, arguments)
        copy_options(self.optim.param_groups, groups)
        if self._core.bound:
            self._core.optimizer.share_params(stream=self._core.stream)
            # The class itself has written to the owned parameters. Parameters without gradients may
            # also have changed.
            owned = set(self._core.owned())
            self._core.wrote(
                number
                for number, one in enumerate(self._core.bound)
                if number not in owned and one.param.requires_grad
            )
        return loss

    def _told_to_all(self, closure: Closure, arguments: Mapping[str, Any]) -> Any:
        """Run the step of the optimizer class. If it raises an exception on one rank, all ranks
        raise an exception, so that no rank waits for the rank that failed."""
        told = (
            "{what}.step() failed on rank {rank}; parameters were updated on some ranks and are not "
            "shared"
        )
        with agreed(self.comm, type(self.optim).__name__, told):
            if closure is None:
                return self.optim.step(**arguments)
            return self.optim.step(closure, **arguments)

    @contextmanager
    def _gradients_of(self, hand: Optional[Hand]) -> Iterator[None]:
        """Within this context, .grad of the owned parameters is the gradient of the contributing
        rank, if `hand` is given."""
        before = [] if hand is None else [(b.param, b.param.grad) for b in self._owned()]
        try:
            if hand is not None:
                self._take_gradients(hand)
            yield
        finally:
            for param, grad in before:
                param.grad = grad

    def _owned(self) -> list[Bound]:
        return [self._core.bound[number] for number in self._core.owned()]

    def _take_gradients(self, hand: Hand) -> None:
        core = self._core
        gradients = core.gradients() if hand.contributes else [None] * len(core.bound)
        try:
            core.begun_apart(
                lambda: core.optimizer.reduce_grads(gradients, "sum", stream=core.stream),
                core.share_owned,
            )
        except ZeroError as error:
            if error.code != ERR_STATE or any(one is not None for one in gradients):
                raise
            for bound in self._owned():
                bound.param.grad = None
            return
        try:
            for number in core.owned():
                core.bound[number].param.grad = core.reduced(number)
        finally:
            core.optimizer.drop_grads()  # also after an exception

    def owned(self, groups: Groups) -> torch.optim.Optimizer:
        return self.optim

    def initial_state(self, groups: Groups) -> Optional[dict[int, dict[str, Any]]]:
        # Most classes create state in their first step. If a class creates it earlier, the owners
        # have that state.
        dims = [param.dim() for group in groups for param in group["params"]]
        one = torch.zeros([1] * (dims[0] if dims else 1))  # some classes read its shape
        try:
            trial = type(self.optim)([one], **self._defaults)
        except Exception:  # the class needs more than a shape, so the owners are asked
            return None
        return None if trial.state else {}

    def expected_state(
        self, groups: Groups, only: Optional[torch.Tensor] = None
    ) -> dict[int, dict[str, Any]]:
        if only is not None:
            groups = [
                {**group, "params": [one for one in group["params"] if one is only]}
                for group in groups
            ]
        made = zeros_stepped(self.optim, groups, self._defaults)
        return {self._numbers[param]: _to_cpu(state) for param, state in made.items()}

    def gather_state(self, groups: Groups, to: Optional[int]) -> dict[int, dict[str, Any]]:
        copy_options(groups, self.optim.param_groups)
        # Reading the state of a parameter that another rank owns leaves an empty entry here.
        own = {
            self._numbers[param]: _to_cpu(state)
            for param, state in self.optim.state.items()
            if state
        }
        group, world = self._process_group, self.comm.world
        parts: list[Any] = [None] * world
        if to is None:
            dist.all_gather_object(parts, own, group=group)
        else:
            target = dist.get_global_rank(group, to)
            here = self.comm.rank == to
            dist.gather_object(own, parts if here else None, dst=target, group=group)
        merged = {number: entry for part in parts for number, entry in (part or {}).items()}
        return dict(sorted(merged.items()))

    def prepare_load(
        self, groups: Groups, state: Mapping[int, Mapping[str, Any]]
    ) -> Callable[[], None]:
        places: dict[int, int] = {}
        packed = []
        for group, owned in zip(groups, self.optim.param_groups):
            local = []
            for param in owned["params"]:
                local.append(len(places))
                places[self._numbers[param]] = local[-1]
            options = options_of(group)
            packed.append({**copy.deepcopy(options), "params": local})
        kept = {
            places[number]: copy.deepcopy(dict(entry))
            for number, entry in state.items()
            if number in places and entry
        }
        check_like(*self._beside_made(groups, state))
        return lambda: self.optim.load_state_dict({"state": kept, "param_groups": packed})

    def _beside_made(
        self, groups: Groups, state: Mapping[int, Mapping[str, Any]]
    ) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
        """Return two dictionaries, keyed by the names of parameters that this rank owns. They
        contain the entries in `state`, and the entries that the optimizer class creates. The second
        dictionary has no entries if the class cannot take a step with zero gradients."""
        given: dict[str, Mapping[str, Any]] = {}
        made: dict[str, Mapping[str, Any]] = {}
        owned = set(self._core.owned()) & state.keys()
        for group in groups:
            names = group.get("param_names") or [str(self._numbers[one]) for one in group["params"]]
            for param, name in zip(group["params"], names):
                number = self._numbers[param]
                if number in owned and state[number]:
                    given[name] = state[number]
                    # Each result is a copy, so the loop makes one at a time.
                    made[name] = self._made_by_zeros({**group, "params": [param]}, param)
        return given, made

    def _made_by_zeros(self, group: Mapping[str, Any], param: torch.Tensor) -> dict[str, Any]:
        devices = [] if param.device.type == "cpu" else [param.device]
        try:
            with torch.random.fork_rng(devices):  # the step of some classes uses random numbers
                return zeros_stepped(self.optim, [group], self._defaults).get(param, {})
        except Exception:  # the step of some classes needs a closure
            return {}


def _to_cpu(value: Any) -> Any:
    """Return the value with every tensor on the CPU. Everything that is sent is a copy, even if a
    rank sends it to itself."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _to_cpu(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_cpu(one) for one in value)
    return value

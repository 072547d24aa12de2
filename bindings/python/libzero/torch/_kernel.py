# SPDX-License-Identifier: Apache-2.0
"""A shard that libzero updates, for the classes of torch.optim for which it has a rule."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch

from .. import Comm, Group, ZeroError, rules
from .._zero_h import ERR_STATE, STATE_DTYPES
from ..typing import Reduction
from . import _state
from ._core import Core
from ._loaded import entries_of
from ._rules import OWN_RULE, Rule, RuleOf, rule_of, settings_of, takes_sparse, tell_changed
from ._shard import Closure, Groups, Hand, Shard, copy_options, loss_of, names_of, options_of
from ._state import Owned, follow_masters


class KernelShard(Shard):
    """A shard whose state is in libzero. The elements of one tensor may be on several ranks unless
    `partition` requires whole tensors."""

    def __init__(
        self,
        comm: Comm,
        rule: Rule,
        optim: torch.optim.Optimizer,
        groups: Groups,
        partition: str,
        share_dtype: Optional[str],
    ) -> None:
        """Create the shard. `optim` has the options of `groups` and no parameters. `share_dtype` is
        the dtype to which float32 parameters, which then have master weights, are rounded on every
        rank. Collective. Raises the errors of Core.add."""
        super().__init__(comm)
        self.rule = rule
        self.optim = optim
        self._partition = partition
        self._masters: dict[str, Any] = (
            {} if share_dtype is None else {"master": "float32", "share_dtype": share_dtype}
        )
        self._live = self._registered(groups, None)
        try:
            self.core.seal()
        except BaseException:
            self.core.close()
            raise

    def _registered(self, groups: Groups, trained: Optional[Sequence[bool]]) -> _Live:
        live = _Live(Core(self.comm, self.rule.name, self._partition, **self._masters))
        try:
            for group in groups:
                first = len(live.core.bound)
                mine = None if trained is None else trained[first : first + len(group["params"])]
                live.add(self.rule, group, settings_of(self.rule, group), mine)
        except BaseException:
            live.core.close()
            raise
        return live

    @property
    def core(self) -> Core:
        return self._live.core

    def _rule_of(self, group: Mapping[str, Any]) -> Rule:
        return self.rule

    def compare_group(self, group: dict[str, Any]) -> None:
        def add(trial: Core) -> None:
            self._check(group)
            names = names_of(group, len(self.core.bound), self.core.names)
            trial.add(group["params"], names, settings_of(self.rule, group))

        self.core.compare(add)

    def _check(self, group: dict[str, Any]) -> None:
        options = options_of(group)
        rule, reason = rule_of(type(self.optim), [options], group["params"])
        if rule is not self.rule:
            raise ValueError(
                f"the new group cannot be updated by {self.rule.name} like the groups before: "
                f"{reason or 'decoupled_weight_decay differs'}"
            )
        self.optim.add_param_group({"params": [], **options})
        for name, value in self.optim.param_groups.pop().items():
            group.setdefault(name, value)

    def add_group(self, group: dict[str, Any]) -> None:
        self._live.add(self.rule, group, settings_of(self.rule, group))
        self.optim.add_param_group({"params": [], **options_of(group)})
        self.core.seal()

    def step(
        self, groups: Groups, closure: Closure, arguments: Mapping[str, Any], hand: Optional[Hand]
    ) -> Any:
        if arguments:
            raise TypeError(
                f"{type(self.optim).__name__}.step() has no argument {', '.join(arguments)}"
            )
        loss = loss_of(self.comm, closure)
        self._live.push(self._rule_of, groups)
        copy_options(groups, self.optim.param_groups)
        core = self.core
        core.follow_memory()
        if self._masters:
            follow_masters(core, self._masters["share_dtype"])
        core.follow_trained(None if hand is None else hand.trained)
        if hand is None:
            self.update(self._own(core.gradients()), "none")
        elif hand.contributes:
            self.update(core.gradients(), "sum")
        else:
            self.update([None] * len(core.bound), "sum")
        return loss

    def _share_owned(self) -> None:
        if self._partition == "even":
            # libzero's owners have parts of tensors, so take the ranks that own whole tensors in
            # the original.
            self.core.share_owned_by("greedy")
        else:
            self.core.share_owned()

    def _own(self, gradients: Sequence[Optional[torch.Tensor]]) -> list[Optional[torch.Tensor]]:
        """If ranks own whole tensors, keep only the gradients of tensors that this rank owns, as an
        optimizer over these tensors would do. A tensor without elements has no owner."""
        if self._partition == "even":
            return list(gradients)
        owned = set(self.core.owned())
        return [
            grad if grad is None or number in owned or grad.numel() == 0 else None
            for number, grad in enumerate(gradients)
        ]

    def update(self, gradients: Sequence[Optional[torch.Tensor]], reduction: Reduction) -> None:
        """Take a step with these gradients, one per parameter. Nothing happens if no rank has
        gradients. Collective."""
        core = self.core
        if not core.bound:
            return
        absent = [number for number, one in enumerate(gradients) if one is None]
        before = self._counts(absent)
        try:
            core.begun_apart(
                lambda: core.optimizer.step(gradients, reduction, stream=core.stream),
                self._share_owned,
            )
        except ZeroError as error:
            # If no rank has a gradient, the step of torch.optim silently does nothing.
            if error.code != ERR_STATE or any(one is not None for one in gradients):
                raise
        core.wrote(number for number, one in enumerate(gradients) if one is not None)
        after = self._counts(absent)
        core.wrote(number for number in absent if before.get(number) != after.get(number))

    def _counts(self, numbers: Sequence[int]) -> dict[int, float]:
        """Return how often each of these parameters has been updated. An update counts if any rank
        had a gradient."""
        core = self.core
        if core.comm.world == 1:
            return {}
        if core.comm.device != "host":
            # Reading the counts would wait for the GPU, so every parameter that may have been
            # updated is returned.
            may = [number for number in numbers if core.bound[number].param.requires_grad]
            return dict.fromkeys(may, math.nan)
        known = [number for number in numbers if core.bound[number].trainable]
        return {number: core.optimizer.state_get_scalar(number, "step") for number in known}

    def owned(self, groups: Groups) -> Owned:
        return Owned(self.core, self._rule_of, groups)

    def initial_state(self, groups: Groups) -> dict[int, dict[str, Any]]:
        return {**_state.initial(self.core, self._rule_of, groups)}

    def expected_state(
        self, groups: Groups, only: Optional[torch.Tensor] = None
    ) -> dict[int, dict[str, Any]]:
        return {**_state.expected(self.core, self._rule_of, groups, only)}

    def gather_state(self, groups: Groups, to: Optional[int]) -> dict[int, dict[str, Any]]:
        return {**_state.gather(self.core, self._rule_of, groups, to)}

    def prepare_load(
        self, groups: Groups, state: Mapping[int, Mapping[str, Any]]
    ) -> Callable[[], None]:
        rule, reason = rule_of(type(self.optim), groups, ())
        if rule is not self.rule:
            other = f"decoupled_weight_decay makes them options of {'' if rule is None else rule.name}"
            raise ValueError(f"the loaded options are not for {self.rule.name}: {reason or other}")
        entries = entries_of(self._rule_of, groups, state)
        # State cannot be removed, and a failure must change nothing, so the load uses a new
        # optimizer.
        live = self._registered(groups, self.core.trained())

        def load() -> None:
            try:
                live.core.seal()
                # The next step detects values that the program has written, as it would without a
                # load.
                _state.put(live.core, self._rule_of, groups, entries, keep_values=True)
                live.core.seal()
            except BaseException:
                live.core.close()
                raise
            copy_options(groups, self.optim.param_groups)
            self._live, before = live, self._live
            before.core.close()

        return load


class _Live:
    """The optimizer in libzero, and the settings that each group last received."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._groups: list[Optional[Group]] = []
        self._told: list[dict[str, float]] = []

    def add(
        self,
        rule: Rule,
        group: Mapping[str, Any],
        settings: dict[str, float],
        trained: Optional[Sequence[bool]] = None,
    ) -> None:
        for key, values in ((OWN_RULE, rules()), ("state_dtype", STATE_DTYPES)):
            if group.get(key) in values:
                raise ValueError(f"the key {key!r} of a group is only for libzero.torch.Optimizer")
        names = names_of(group, len(self.core.bound), self.core.names)
        first = len(self.core.bound)
        self._groups.append(self.core.add(group["params"], names, settings, trained=trained))
        for one in self.core.bound[first:]:
            one.takes_sparse = functools.partial(takes_sparse, rule, group)
        self._told.append(settings)

    def push(self, rule_of_group: RuleOf, groups: Groups) -> None:
        """Pass changed options in `groups` to libzero, for example after a scheduler step."""
        tell_changed(rule_of_group, self._groups, self._told, groups)

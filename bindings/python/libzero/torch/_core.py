# SPDX-License-Identifier: Apache-2.0
"""The common base class of libzero's optimizers for torch. It registers tensors, and follows their
changes from step to step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Optional

import torch
from torch.autograd.graph import increment_version

from .. import Comm, Group, MismatchError, Optimizer, PeerError, ZeroError
from .._zero_h import ERR_STATE
from ._group import agreed
from ._rules import arguments_of
from ._tensors import Bound


class Core:
    """An optimizer of libzero for torch tensors, which are numbered over all groups in order.

    Parameters of 16 bits are updated in their own type, as in torch.optim. With master weights, the
    next step would lose the values that the program writes into a parameter.
    """

    def __init__(self, comm: Comm, rule: Any, partition: str, **options: Any) -> None:
        """libzero.Optimizer describes `rule` and `options`."""
        self.comm = comm
        self._rule = rule
        self._options: dict[str, Any] = {"master": "none", **options, "partition": partition}
        self.optimizer = Optimizer(comm, rule, **self._options)
        self.bound: list[Bound] = []
        self._trained: list[bool] = []
        self._owned: Optional[list[int]] = None  # for sealed parameters, whose owners never change

    def add(
        self,
        params: Sequence[torch.Tensor],
        names: Sequence[str],
        settings: Mapping[str, float],
        *,
        trained: Optional[Sequence[bool]] = None,
        owners: Optional[Sequence[int]] = None,
        fixed: Mapping[str, Any] = MappingProxyType({}),
    ) -> Optional[Group]:
        """Register a group, completely or not at all. Returns None for an empty group. `trained`
        selects the parameters to train, regardless of requires_grad. `owners` gives the ranks that
        own the parameters with the partition "manual". `fixed` is from fixed_of().
        Raises the errors of Bound, and ArgumentError if settings are out of range or memory
        overlaps."""
        bound = [Bound(param, name) for param, name in zip(params, names)]
        if not bound:
            return None
        told = [one.register() for one in bound]
        for one, param, chosen in zip(bound, told, trained or ()):
            param.frozen = not (chosen and one.trainable)
        for param, owner in zip(told, owners or ()):
            param.owner = owner
        options: dict[str, Any] = {**settings, **arguments_of(fixed)}
        group = self.optimizer.register(told, **options)
        self.bound += bound
        self._trained += [not param.frozen for param in told]
        return group

    def compare(self, add: Callable[[Core], object]) -> None:
        """Check whether a call of `add` on this core will succeed, without adding anything, because
        a group cannot be removed later. If the check fails on one rank, all ranks raise an
        exception. Raises MismatchError, PeerError or ValueError if another rank is about to add a
        different group. Collective."""
        # Every rank creates the same number of optimizers, even if it raises an exception.
        trial, whole = (Core(self.comm, self._rule, **self._options) for _ in range(2))
        try:
            with agreed(self.comm, "the new group"):
                add(trial)
                # This raises ArgumentError if a name or the memory is already in use.
                whole.optimizer.register([one.register() for one in (*self.bound, *trial.bound)])
            self._refuse_other_counts(len(trial.bound))
            trial.seal()
        finally:
            trial.close()
            whole.close()

    def _refuse_other_counts(self, count: int) -> None:
        fewest, most = (int(self.comm.all_reduce(count, op)) for op in ("min", "max"))
        if fewest != most:
            raise ValueError(
                f"the new group has {count} parameters on this rank, and {fewest} to {most} on "
                "all ranks; every rank must add the same"
            )

    def seal(self) -> None:
        """Fix the owners of all parameters. Collective. Raises MismatchError or PeerError if ranks
        added different parameters."""
        self._owned = None
        if self.bound:
            self.optimizer.seal()

    def begun_apart(self, call: Callable[[], object], share: Callable[[], object]) -> None:
        """Run `call`, which is the first use of gradients. If libzero reports on all ranks that
        they begin with different parameters, run `share` and then `call` again. (The original
        optimizers do not check this.) Collective."""
        try:
            call()
        except (MismatchError, PeerError) as error:
            if "do not begin with the same parameters" not in str(error):
                raise
            share()
            call()

    def share_owned(self) -> None:
        """Copy the values of the owners to all ranks, as a step of the original optimizers does.
        Collective."""
        self.optimizer.share_params(keep_masters=True, stream=self.stream)
        owned = set(self.owned())
        self.wrote(number for number in range(len(self.bound)) if number not in owned)

    def share_owned_by(self, partition: str) -> None:
        """Copy the values of the ranks that would own the whole tensors under another `partition`.
        Collective."""
        once = Core(self.comm, "sgd", partition)
        try:
            params = [one.param for one in self.bound]
            once.add(params, [one.name for one in self.bound], {}, trained=[True] * len(params))
            once.seal()
            once.share_owned()
        finally:
            once.close()
        self.take_as_alike()

    def take_as_alike(self) -> None:
        """Continue with each rank's own values. This must not be used with master weights.
        Collective."""
        if self.bound:
            self.optimizer.broadcast_params(None, stream=self.stream)

    def follow_memory(self) -> None:
        """Look up the current memory of each parameter. Raises the errors of Bound.moved before
        anything has changed."""
        moved = set(self.moved_now())
        if moved:
            self.optimizer.bind(
                [one.view() if number in moved else None for number, one in enumerate(self.bound)]
            )
            for one in self.bound:
                one.address, one.strides = one.param.data_ptr(), one.param.stride()

    def moved_now(self) -> list[int]:
        """Return the numbers of the parameters that are not at the address that libzero has for
        them. Raises the errors of Bound.moved."""
        return [number for number, one in enumerate(self.bound) if one.moved()]

    def follow_trained(self, trained: Optional[Sequence[bool]] = None) -> None:
        """Train the parameters that have requires_grad or a gradient, or that another rank trains.
        Parameters remain trained, because a parameter without a gradient is not updated, and a
        left-over gradient may exist on only one rank."""
        chosen = self.trained() if trained is None else trained
        for number, (before, now) in enumerate(zip(self._trained, chosen)):
            if before != now:
                self.optimizer.set_trainable(number, now)
                self._trained[number] = now

    def trained(self) -> list[bool]:
        return [before or one.trained for before, one in zip(self._trained, self.bound)]

    def gradients(self) -> list[Optional[torch.Tensor]]:
        """Return one gradient per parameter, with None for a missing gradient. Raises the errors of
        Bound.gradient."""
        return [one.gradient() for one in self.bound]

    def owned(self) -> list[int]:
        """Return the parameters of which this rank owns elements."""
        if self._owned is None:
            self._owned = sorted({part.param for part in self.optimizer.owned_ranges()})
        return self._owned

    def owners(self) -> list[int]:
        """Return the rank that owns each parameter, if ranks own whole tensors. The result is 0 for
        a parameter without elements."""
        found = [0] * len(self.bound)
        for rank in range(self.comm.world):
            for part in self.optimizer.owned_ranges(rank):
                found[part.param] = rank
        return found

    def reduced(self, number: int) -> Optional[torch.Tensor]:
        """Return the reduced gradient of a parameter that this rank owns completely, in new memory
        with the parameter's shape, dtype and device. Return None if no rank had a gradient."""
        bound = self.bound[number]
        try:
            values = torch.from_numpy(self.optimizer.grad_get(number))
        except ZeroError as error:
            if error.code != ERR_STATE:
                raise
            return None
        view = bound.view()
        return bound.out_of_order(values.reshape(view.shape).to(bound.device, view.dtype))

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.bound}

    def wrote(self, numbers: Iterable[int]) -> None:
        """Notify autograd that these parameters have new values, so that it does not continue an
        older graph."""
        for number in numbers:
            increment_version(self.bound[number].param)

    @property
    def stream(self) -> Any:
        """The stream on which libzero's work is queued."""
        if self.comm.device == "host" or not self.bound:
            return None
        return torch.cuda.current_stream(self.bound[0].device)

    def close(self) -> None:
        self.optimizer.close()

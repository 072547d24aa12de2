# SPDX-License-Identifier: Apache-2.0
"""OSS, with the arguments and methods of fairscale's class."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from .. import ZeroError
from .._zero_h import ERR_STATE
from ._core import Core
from ._rules import Chosen
from ._scaler import Asked
from ._shard import Closure, Params
from ._sharded import ShardedOptimizer

Filter = Callable[[list[torch.Tensor]], Iterable[torch.Tensor]]


class OSS(ShardedOptimizer):
    """A replacement for fairscale.optim.OSS: change the import.

        optimizer = OSS(model.parameters(), optim=torch.optim.AdamW, lr=1e-3)

    `params`: tensors, (name, tensor), or groups, in float32, float64, bfloat16 or float16, in any
    mixture, dense in any memory format; frozen parameters may have any dtype. All are on the CPU,
    or all on this rank's GPU. Each parameter belongs to one rank: in order, each goes to the rank
    that has the least. `optim`: for the ten classes of torch.optim that libzero implements (Adam,
    AdamW, SGD, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop), libzero's kernels make the
    updates. For any other class, and for options that libzero lacks, an instance of the class
    updates the tensors that this rank owns.

    A step uses .grad on each parameter's owner: averaged on every rank, which
    DistributedDataParallel provides, or on the owner alone, which ShardedDataParallel provides.
    Each step follows changes of requires_grad.

    `broadcast_fp16`: float32 parameters are rounded to float16 when they are published, the same on
    every rank. Owners keep the bits that rounding cuts off, which are in state_dict() as "master".
    It has no effect on classes that libzero lacks, and a step raises ValueError if a parameter
    exceeds the range of float16. `broadcast_buffer_size` and `force_broadcast_object` are accepted
    and have no effect.

    The constructor, add_param_group, step, clip_grad_norm, consolidate_state_dict, state_dict with
    all_ranks and load_state_dict are collective over `group`. Ranks that pass different parameters
    or options raise a MismatchError or PeerError that names the first difference.

    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = OSS(model.parameters(), optim=torch.optim.SGD, lr=0.1, momentum=0.9)
    >>> model(torch.ones(2, 4)).sum().backward()
    """

    def __init__(
        self,
        params: Params,
        optim: Chosen = torch.optim.SGD,
        group: Optional[dist.ProcessGroup] = None,
        broadcast_buffer_size: int = -1,
        broadcast_fp16: bool = False,
        force_broadcast_object: bool = False,
        **default: Any,
    ) -> None:
        self.broadcast_fp16 = broadcast_fp16
        self._reducers: list[weakref.ref[Any]] = []  # those of ShardedDataParallel
        # Parameters whose .grad here is the mean of all ranks', and nothing was added to it since.
        self._means: set[torch.Tensor] = set()
        super().__init__(
            params,
            optim,
            group,
            ("greedy_in_order", "greedy_in_order"),
            default,
            share_dtype="float16" if broadcast_fp16 else None,
        )

    @property
    def group(self) -> dist.ProcessGroup:
        """The process group of its ranks."""
        return self.process_group

    def step(self, closure: Closure = None, **kwargs: Any) -> Any:
        """Update the parameters that this rank owns and copy the new values to every rank. Returns
        the result of `closure`, which is this rank's loss; all ranks must pass a closure, or no
        rank. If it raises on one rank, the others raise an error that names that rank. A parameter
        without gradient on its owner is not updated. If parameters moved to another device, or
        changed their dtype or memory format, the step follows with their state. TypeError for
        arguments that the step of the class does not accept.

        >>> optimizer.step()
        """
        if closure is None:
            self._catch_up()
            return self._update(None, kwargs, None)
        given = closure

        def caught_up() -> Any:
            loss = given()
            self._catch_up()
            return loss

        self._follow_change()
        return self._update(caught_up, kwargs, None)

    def clip_grad_norm(
        self, max_norm: float, norm_type: float = 2.0, filter_params_fn: Optional[Filter] = None
    ) -> torch.Tensor:
        """Scale gradients so that their norm, taken over all of them as one vector, is at most
        `max_norm`. Returns the norm before scaling as a tensor without dimensions, in float32, or
        float64 if a parameter is float64. Every element counts once, and the bits are the same for
        any number of ranks. If the norm is not finite, gradients are not scaled. `filter_params_fn`
        receives the parameters with gradients that this rank owns, and returns the ones that count.
        ValueError if norm_type is not above 0.

        >>> optimizer.clip_grad_norm(1.0) > 1
        tensor(True)
        """
        self._catch_up()
        core = self._sharded().core
        return _clip(core, float(max_norm), float(norm_type), filter_params_fn)

    def partition_parameters(self) -> list[list[dict[str, Any]]]:
        """Return, for each rank, the groups with the parameters that the rank owns.

        >>> len(optimizer.partition_parameters()[0][0]["params"])
        2
        """
        owners = self._sharded().core.owners()
        found: list[list[dict[str, Any]]] = [[] for _ in range(self.world_size)]
        number = 0
        for group in self.param_groups:
            mine: list[list[torch.Tensor]] = [[] for _ in range(self.world_size)]
            for param in group["params"]:
                mine[owners[number]].append(param)
                number += 1
            for groups, params in zip(found, mine):
                groups.append({**group, "params": params})
        return found

    def refresh_trainable(self) -> None:
        """Read requires_grad now; each step does this, too. Owners stay. Local.

        >>> model.bias.requires_grad = False
        >>> optimizer.refresh_trainable()
        """
        self._sharded().core.follow_trained()

    def consolidate_state_dict(self, recipient_rank: int = 0) -> None:
        """Gather the whole state on one rank of the group, or on all ranks (-1), for its
        state_dict(). Call it on every rank. ValueError if the group has no such rank.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(recipient_rank=0)
        """
        if not -1 <= recipient_rank < self.world_size:
            raise ValueError(
                f"recipient_rank is {recipient_rank}, and the group has ranks 0 to "
                f"{self.world_size - 1}; -1 stands for all of them"
            )
        self._gather(None if recipient_rank == -1 else recipient_rank)

    def state_dict(self, all_ranks: bool = False) -> dict[str, Any]:
        """Return a state_dict in the unsharded optimizer's format, with state on the CPU, as
        gathered here by consolidate_state_dict. With `all_ranks`, gather it on all ranks first;
        call it then on every rank. RuntimeError if the state was gathered elsewhere, or if steps
        were made since.

        >>> optimizer.step()
        >>> optimizer.state_dict(all_ranks=True)["state"][0]["momentum_buffer"].shape
        torch.Size([3, 4])
        """
        if all_ranks:
            self.consolidate_state_dict(-1)
        return self._whole_state_dict(f"consolidate_state_dict({self.rank})")

    def _takes_overflow(self, asked: Asked) -> bool:
        self._catch_up()
        return super()._takes_overflow(asked)

    # ---- What ShardedDataParallel has to do with it ----

    def _catch_up(self) -> None:
        """Reduce gradients that other ranks are waiting for, and look up the current memory of
        parameters."""
        self._follow_change()
        for reference in self._reducers:
            reducer = reference()
            if reducer is not None:
                reducer.reduce_waiting()


def oss_within(optimizer: Any) -> Any:
    """Return the OSS inside a wrapper, like fairscale's AdaScale; otherwise the optimizer
    itself."""
    found = optimizer
    while found is not None and not isinstance(found, OSS):
        found = getattr(found, "__dict__", {}).get("_optimizer")
    return optimizer if found is None else found


def _clip(
    core: Core, max_norm: float, norm_type: float, chosen: Optional[Filter]
) -> torch.Tensor:
    """Scale .grad on this rank by max_norm / (norm + 1e-6) if that is below 1. Return the norm of
    the gradients that owners have, limited to `chosen`. Collective; ValueError if norm_type is not
    above 0."""
    if not norm_type > 0:
        raise ValueError(f"norm_type is {norm_type}; expected a number above 0, or infinity")
    core.follow_memory()
    core.follow_trained()
    gradients = core.gradients()
    owned = [number for number in core.owned() if gradients[number] is not None]
    if chosen is not None:
        kept = {id(param) for param in chosen([core.bound[number].param for number in owned])}
        owned = [number for number in owned if id(core.bound[number].param) in kept]
    mine = set(owned)
    counted = [grad if number in mine else None for number, grad in enumerate(gradients)]
    norm = _norm(core, counted, norm_type)
    factor = max_norm / (norm + 1e-6)
    # A norm that is not finite says that no factor would do.
    if math.isfinite(norm) and factor < 1:
        for bound in core.bound:
            if bound.param.grad is not None:
                bound.param.grad.detach().mul_(factor)
    double = any(bound.dtype == torch.float64 for bound in core.bound)
    device = core.bound[0].device if core.bound else None
    return torch.tensor(norm, dtype=torch.float64 if double else torch.float32, device=device)


def _norm(core: Core, gradients: list[Optional[torch.Tensor]], norm_type: float) -> float:
    optimizer = core.optimizer
    if not core.bound:
        return 0.0
    try:
        core.begun_apart(
            lambda: optimizer.reduce_grads(gradients, "none", stream=core.stream), core.share_owned
        )
    except ZeroError as error:
        # No rank has any.
        if error.code != ERR_STATE or any(grad is not None for grad in gradients):
            raise
        return 0.0
    try:
        return optimizer.clip_grad_norm(math.inf, norm_type, stream=core.stream)
    finally:
        optimizer.drop_grads()

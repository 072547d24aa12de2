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
    """A replacement for fairscale.optim.OSS. To use it, change the import.

        optimizer = OSS(model.parameters(), optim=torch.optim.AdamW, lr=1e-3)

    `params` lists tensors, (name, tensor), or groups. Parameters may be float32, float64, bfloat16
    or float16, in any combination. Frozen parameters may have any dtype. Parameters must be dense,
    and may have any memory format. Either all parameters are on the CPU, or all are on this rank's
    GPU. Each parameter belongs to one rank. Parameters are assigned in order, each to the rank that
    owns the fewest elements at that point. `optim` is the optimizer class. For ten classes of
    torch.optim (Adam, AdamW, SGD, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop),
    libzero's kernels perform the updates. For any other class, and for options that libzero does
    not support, an instance of the class updates the tensors that this rank owns.

    A step uses .grad on the owner of each parameter. These gradients must be averaged over the
    ranks. DistributedDataParallel provides averaged gradients on every rank, and
    ShardedDataParallel provides them on the owner only. Each step takes changes to requires_grad
    into account.

    With `broadcast_fp16`, a step rounds float32 parameters to float16 on every rank. Owners keep
    the unrounded values, which state_dict() returns as "master". A step raises ValueError if a
    parameter exceeds the range of float16. The option has no effect for classes that libzero does
    not implement. `broadcast_buffer_size` and `force_broadcast_object` are accepted and have no
    effect.

    The constructor, add_param_group, step, clip_grad_norm, consolidate_state_dict, state_dict with
    all_ranks, and load_state_dict are collective over `group`. If ranks pass different parameters
    or options, they raise a MismatchError or PeerError that names the first difference.

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
        self._reducers: list[weakref.ref[Any]] = []  # reducers of ShardedDataParallel
        # Parameters whose .grad on this rank is the mean over all ranks, with nothing added since.
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
        """The process group of the ranks of this optimizer."""
        return self.process_group

    def step(self, closure: Closure = None, **kwargs: Any) -> Any:
        """Update the parameters that this rank owns, and copy the new values to every rank. Returns
        the result of `closure`, which is the loss of this rank. Either all ranks or no rank must
        pass a closure. If a closure raises an exception on one rank, the other ranks raise an error
        that names that rank. A parameter that has no gradient on its owner is not updated. If
        parameters have moved to another device, or have changed their dtype or memory format, the
        step also converts their state. Raises TypeError for arguments that the step method of the
        class does not accept.

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
        """Scale gradients so that their norm, computed over all gradients as one vector, is at most
        `max_norm`. Returns the norm before scaling as a zero-dimensional tensor, which is float64
        if any parameter is float64, and float32 otherwise. Every element counts once, and the
        result is bitwise identical for any number of ranks. If the norm is not finite, gradients
        are not scaled. `filter_params_fn` receives the parameters with gradients that this rank
        owns, and returns the parameters to include in the norm. Raises ValueError if norm_type is
        not above 0.

        >>> optimizer.clip_grad_norm(1.0) > 1
        tensor(True)
        """
        self._catch_up()
        core = self._sharded().core
        return _clip(core, float(max_norm), float(norm_type), filter_params_fn)

    def partition_parameters(self) -> list[list[dict[str, Any]]]:
        """Return, for each rank, the groups with the parameters that this rank owns.

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
        """Read requires_grad now. Each step also does this. Owners do not change. Local.

        >>> model.bias.requires_grad = False
        >>> optimizer.refresh_trainable()
        """
        self._sharded().core.follow_trained()

    def consolidate_state_dict(self, recipient_rank: int = 0) -> None:
        """Gather the whole state for state_dict() on one rank of the group, or on all ranks if the
        rank is -1. Call this on every rank. Raises ValueError if the group has no such rank.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(recipient_rank=0)
        """
        if not -1 <= recipient_rank < self.world_size:
            raise ValueError(
                f"recipient_rank is {recipient_rank}, but the group has ranks 0 to "
                f"{self.world_size - 1}; -1 stands for all of them"
            )
        self._gather(None if recipient_rank == -1 else recipient_rank)

    def state_dict(self, all_ranks: bool = False) -> dict[str, Any]:
        """Return a state_dict in the format of the unsharded optimizer, with state on the CPU. It
        contains the state that consolidate_state_dict gathered on this rank. With `all_ranks`, this
        method first gathers the state on all ranks, and must be called on every rank. Raises
        RuntimeError if the state was gathered on another rank, or if a step has been taken since
        then.

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
        """Reduce the gradients for which other ranks are waiting, and look up the current memory of
        parameters."""
        self._follow_change()
        for reference in self._reducers:
            reducer = reference()
            if reducer is not None:
                reducer.reduce_waiting()


def oss_within(optimizer: Any) -> Any:
    """Return the OSS inside a wrapper such as fairscale's AdaScale, or the optimizer itself if
    there is no wrapper."""
    found = optimizer
    while found is not None and not isinstance(found, OSS):
        found = getattr(found, "__dict__", {}).get("_optimizer")
    return optimizer if found is None else found


def _clip(
    core: Core, max_norm: float, norm_type: float, chosen: Optional[Filter]
) -> torch.Tensor:
    """Scale .grad on this rank by max_norm / (norm + 1e-6) if that factor is below 1. Return the
    norm of the gradients on the owners of parameters, limited to parameters that `chosen` returns.
    Collective. Raises ValueError if norm_type is not above 0."""
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
    # If the norm is not finite, no factor can be computed.
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
        # No rank has a gradient.
        if error.code != ERR_STATE or any(grad is not None for grad in gradients):
            raise
        return 0.0
    try:
        return optimizer.clip_grad_norm(math.inf, norm_type, stream=core.stream)
    finally:
        optimizer.drop_grads()

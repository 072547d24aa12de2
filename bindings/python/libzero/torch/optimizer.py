# SPDX-License-Identifier: Apache-2.0
"""Optimizer: libzero for a torch training loop, without a wrapper around the model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Optional, Union, cast, get_args

import torch
import torch.distributed as dist

from .. import Comm, Result, Statistics
from .._params import OPTIONS
from .._values import check_word
from ..typing import Device
from ._checkpoints import Checkpoints
from ._group import comm_of, process_group
from ._native import NativeShard
from ._native_core import Wishes
from ._rules import Named, choose
from ._scaler import Asked
from ._shard import Closure, Params, listed_params, unless_refused
from .typing import Arenas, Options, Partition, Reduction

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ARENAS = {False: "", True: "per_rank", "shared": "shared"}

Group = Union[dist.ProcessGroup, Comm, None]
Buffers = Union[Mapping[str, torch.Tensor], Iterable[tuple[str, torch.Tensor]]]


class Optimizer(Checkpoints):
    """Replaces DistributedDataParallel and an optimizer. It reduces gradients to their owners
    during the backward pass, updates each rank's shard, and copies the new parameters to every
    rank.

        optimizer = libzero.torch.Optimizer(model.named_parameters(), "adamw", lr=3e-4)
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
        optimizer.save("run/step-1000")

    `params`: tensors, (name, tensor), or groups, as in torch.optim. They are float32, float64,
    bfloat16 or float16, in any mixture, dense in any memory format; frozen parameters may also be
    int32 and int64. All are on the CPU, or all on this rank's GPU. Checkpoints identify parameters
    by name, or by number if they have no names. `optimizer`: "adamw", "adam", "sgd", "rmsprop",
    "adagrad", "adadelta", "adamax", "nadam", "radam", "rprop" or the class of torch.optim, with
    torch's options as **others; "lion", "lamb" or "lars"; or a CustomOptimizer.

    `process_group`: a torch process group, or a libzero.Comm, which is used directly. By default it
    is torch's default group if torch.distributed is initialized. Otherwise it is the group of ranks
    that a launcher started, or this process alone. `buffers`: the model's other tensors, like
    model.named_buffers(), in the dtypes of parameters, int32 or int64. They receive rank 0's values
    now, and are saved. The model may write into these tensors, like batch norm does, but must not
    replace them. `reduction`: "mean" over the ranks, or "sum".

    `arenas`: True moves parameters and gradients to memory in which libzero works without copies; a
    step then sets .grad to None. "shared" keeps one copy of the parameters for all ranks of a host.
    If the program writes into one, all ranks see the change, so all must write the same values, and
    no rank may read while another writes. `overlap`: announce gradients as they are computed, and
    sum them during the backward pass; False leaves the sums to the step. None chooses False if the
    torch threads of all ranks leave no core idle. Results are the same bit for bit. `others`: any
    other option of libzero.Optimizer except overlap_gather, and torch's options of the rule.

    Every rank makes the same calls in the same order: the constructor, add_param_group,
    clip_grad_norm, clip_grad_value, step, save, load, the broadcasts, consolidate_state_dict and
    load_state_dict. Parameters receive rank 0's values when they are added. Ranks that pass
    different parameters or options raise a MismatchError or PeerError that names the first
    difference.

    Until a step, .grad is this rank's own gradient. To clip, use clip_grad_norm, which sees the
    average. The step uses gradients that the program changes before it, at the cost of the overlap.
    A change after a clip raises RuntimeError, unless all gradients are new. Do not wrap the model
    in DistributedDataParallel, which also reduces, and do not use torch.amp.GradScaler, which
    decides on each rank alone: see loss_scale.

    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = libzero.torch.Optimizer(model.parameters(), "sgd", lr=0.1, momentum=0.9)
    >>> model(torch.ones(2, 4)).sum().backward()
    """

    def __init__(
        self,
        params: Params,
        optimizer: Named = "adamw",
        *,
        process_group: Group = None,
        buffers: Buffers = (),
        arenas: Arenas = False,
        overlap: Optional[bool] = None,
        reduction: Reduction = "mean",
        partition: Partition = "even",
        **others: Unpack[Options],
    ) -> None:
        self._shard = None
        listed = listed_params(params, type(self).__name__)
        settings: dict[str, Any] = {**others}
        known = OPTIONS - {"overlap_gather"}
        options: dict[str, Any] = {"partition": partition, "master": "float32"}
        options.update({name: settings.pop(name) for name in others if name in known})
        choice = choose(optimizer, settings)
        check_word(partition, "partition", get_args(Partition))
        check_word(reduction, "reduction", get_args(Reduction))
        if not isinstance(arenas, (bool, str)) or arenas not in _ARENAS:
            raise ValueError(f"arenas is {arenas!r}; expected False, True or 'shared'")
        with unless_refused(listed):
            torch.optim.Optimizer.__init__(self, listed, choice.template.defaults)
            self.state = self._new_state()
            self._steps = 0
            self._fresh = True
            self._in_arena = False  # as this class sees to arenas itself
            self._gathered = None
            self._device = self._only_device()
            self._join_group(process_group)
            chosen = _idle_cores(self._comm) if overlap is None else overlap
            wishes = Wishes(choice, options, _ARENAS[arenas], chosen, reduction)
            try:
                self._shard = self._native = NativeShard(self._comm, wishes, self.param_groups)
                self._native.add_buffers(dict(buffers))
            except BaseException:
                self.close()
                raise

    def _join_group(self, group: Group) -> None:
        self._own_comm = not isinstance(group, Comm)
        if isinstance(group, Comm):
            self._comm = group
        elif group is None and not (dist.is_available() and dist.is_initialized()):
            device = "host" if self._device.type == "cpu" else self._device.type
            ordinal = self._device.index
            self._comm = Comm.from_env(device=cast(Device, device), device_ordinal=ordinal)
        else:
            self._comm = comm_of(process_group(group), self._device)
        self.rank = self._comm.rank
        self.world_size = self._comm.world

    # ---- Train ----

    def step(self, closure: Closure = None, **kwargs: Any) -> Any:
        """Reduce the remaining gradients, update this rank's shard, and copy the new parameters to
        every rank. Returns the result of `closure`, which is this rank's loss; result() returns the
        outcome for all ranks. A parameter without gradient on any rank is not updated; ZeroError
        (STATE) if no parameter has a gradient.

        >>> optimizer.step()
        >>> optimizer.result().step
        1
        """
        if kwargs:
            raise TypeError(f"step() has no argument {', '.join(kwargs)}")
        return self._update(closure, {}, None)

    def _takes_overflow(self, asked: Asked) -> bool:
        raise RuntimeError(
            "GradScaler decides on each rank alone; leave it out: create the optimizer with "
            "loss_scale=65536.0, and call optimizer.scale(loss).backward()"
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients, like torch's method, and discard everything that the backward pass
        announced or a clip reduced.

        >>> optimizer.zero_grad()
        """
        if self._shard is not None:
            self._native.drop()
        super().zero_grad(set_to_none)

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context manager in which backward passes accumulate gradients on this rank
        alone. Use it for all micro-batches except the last. The last backward pass announces the
        sums. This saves the reductions; results are the same without it.

        >>> with optimizer.no_sync():
        ...     model(torch.ones(2, 4)).sum().backward()
        >>> model(torch.ones(2, 4)).sum().backward()
        """
        self._sharded()
        return self._native.gradients.no_sync()

    def clip_grad_norm(
        self,
        max_norm: float,
        norm_type: float = 2.0,
        params: Optional[Iterable[torch.Tensor]] = None,
    ) -> float:
        """Scale the reduced gradients so that their norm is at most `max_norm`. Returns the norm
        before scaling, the same on every rank. `params` limits both the norm and the scaling to
        these parameters. Use it between backward and step, instead of
        torch.nn.utils.clip_grad_norm_.

        >>> norm = optimizer.clip_grad_norm(1.0)
        """
        self._sharded()
        numbers = None if params is None else self._numbers_of(params)
        self._native.reduce(self.param_groups)
        core = self._native.core
        return core.optimizer.clip_grad_norm(max_norm, norm_type, numbers, stream=core.stream)

    def clip_grad_value(self, max_value: float) -> None:
        """Clamp every element of the reduced gradients to [-max_value, max_value].

        >>> optimizer.clip_grad_value(0.5)
        """
        self._sharded()
        self._native.reduce(self.param_groups)
        core = self._native.core
        core.optimizer.clip_grad_value(max_value, stream=core.stream)

    def _numbers_of(self, params: Iterable[torch.Tensor]) -> list[int]:
        given = [params] if isinstance(params, torch.Tensor) else list(params)
        known = {one.param: number for number, one in enumerate(self._native.core.bound)}
        foreign = [tuple(param.shape) for param in given if param not in known]
        if foreign:
            raise ValueError(f"a tensor of shape {foreign[0]} is not a parameter of this optimizer")
        return [known[param] for param in given]

    @property
    def loss_scale(self) -> float:
        """The factor to multiply the next loss by; gradients are divided by it. With
        Optimizer(loss_scale=65536.0) it follows the rule of torch's GradScaler: all ranks skip a
        step whose gradients are not finite, and all have the same scale."""
        return self._sharded().core.optimizer.loss_scale

    @loss_scale.setter
    def loss_scale(self, scale: float) -> None:
        self._sharded().core.optimizer.loss_scale = scale

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the scaled loss. Its backward() produces the gradients that step() expects.

        >>> optimizer.zero_grad()
        >>> optimizer.scale(model(torch.ones(2, 4)).sum()).backward()
        """
        return loss * self.loss_scale

    def result(self) -> Result:
        """Return the outcome of the last step: its number, which counts from the start or from a
        load_state_dict(), the norm of the gradients, and whether it was skipped. On a GPU, this
        waits for the step.

        >>> optimizer.step()
        >>> optimizer.result().skipped
        0
        """
        return self._sharded().core.optimizer.result()

    def broadcast_params(self, root: Optional[int] = 0) -> None:
        """Copy every parameter from rank `root` to all. None copies nothing and declares that all
        ranks wrote the same values. Masters are set from the parameters. Call this after a write
        through .data to parameters that have masters; steps detect all other writes.

        >>> optimizer.zero_grad()
        >>> optimizer.broadcast_params()
        """
        self._sharded()
        self._native.broadcast_params(root)

    def broadcast_buffers(self, root: int = 0) -> None:
        """Copy every buffer from rank `root` to all; the program chooses when.

        >>> model = torch.nn.BatchNorm1d(4)
        >>> buffers = model.named_buffers()
        >>> optimizer = libzero.torch.Optimizer(model.named_parameters(), buffers=buffers)
        >>> optimizer.broadcast_buffers()
        """
        self._sharded()
        self._native.broadcast_buffers(root)

    def join(self) -> int:
        """Call this when this rank runs out of batches. It makes the other ranks' steps with them,
        with zeros for gradients and with the current options of their param_groups, until every
        rank has joined. Returns the rank that joined last. See libzero.Optimizer.join and its
        uneven_inputs.

        >>> uneven = torch.nn.Linear(4, 3)
        >>> optimizer = libzero.torch.Optimizer(uneven.parameters(), uneven_inputs="world")
        >>> optimizer.join()
        0
        """
        self._sharded()
        last = self._native.join(self.param_groups)
        self._fresh = False
        self._gathered = None
        return last

    # ---- State ----

    def consolidate_state_dict(self, to: Optional[int] = 0) -> None:
        """Gather the whole state on rank `to`, or on all ranks if None, for its state_dict().
        Collective.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(to=None)
        """
        if to is not None and not 0 <= to < self.world_size:
            raise ValueError(f"to is {to}, and the group has ranks 0 to {self.world_size - 1}")
        self._gather(to)

    def state_dict(self) -> dict[str, Any]:
        """Return a state_dict in the unsharded optimizer's format, with state on the CPU. It
        contains the state that consolidate_state_dict gathered here, or the initial state before
        the first step. 16-bit parameters have a "master", too. RuntimeError if the state was
        gathered elsewhere, or if steps were made since.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict()
        >>> optimizer.state_dict()["state"][0]["momentum_buffer"].shape
        torch.Size([3, 4])
        """
        return self._whole_state_dict(f"consolidate_state_dict(to={self.rank})")

    def stats(self) -> Statistics:
        """Return this rank's bytes by kind, and its seconds and bytes since the start.

        >>> optimizer.step()
        >>> optimizer.stats().steps
        1
        """
        return self._sharded().core.optimizer.stats()

    @property
    def comm(self) -> Comm:
        """The comm of the optimizer's ranks."""
        return self._comm

    def close(self) -> None:
        """Free the state, and the comm unless it was passed in; closing again has no effect.
        Parameters keep their values, even in arenas, and all hooks are removed.

        >>> optimizer.close()
        """
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.close()
        if self._own_comm:
            self._comm.close()

    def __enter__(self) -> Optimizer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _idle_cores(comm: Comm) -> bool:
    """Return whether a core can work during a backward pass; with a GPU, it can. Ranks need not
    agree."""
    if comm.device != "host":
        return True
    here = min(comm.world, int(os.environ.get("LOCAL_WORLD_SIZE") or comm.world))
    return len(os.sched_getaffinity(0)) > here * torch.get_num_threads()

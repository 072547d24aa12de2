# SPDX-License-Identifier: Apache-2.0
"""Optimizer: libzero for a training loop of torch's, without a wrapper around the model."""

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
    """Reduces gradients to their owners during the backward, updates each rank's share, and puts
    the new parameters on every rank: in place of DistributedDataParallel and an optimizer.

        optimizer = libzero.torch.Optimizer(model.named_parameters(), "adamw", lr=3e-4)
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
        optimizer.save("run/step-1000")

    `params`: tensors, (name, tensor), or groups, as torch.optim takes them, in float32, float64,
    bfloat16 or float16, mixed as you like, dense in any memory format; frozen ones also int32 and
    int64. All on the CPU, or all on this rank's GPU. Checkpoints know parameters by name, or by
    number where they have none. `optimizer`: "adamw", "adam", "sgd", "rmsprop", "adagrad",
    "adadelta", "adamax", "nadam", "radam", "rprop" or the class of torch.optim, with torch's
    options as **others; "lion", "lamb" or "lars"; or a CustomOptimizer.

    `process_group`: the default one where torch.distributed is initialized, else the ranks that a
    launcher started, or this process alone; a libzero.Comm is taken as it is. `buffers`: what else
    the model has, as model.named_buffers(), in the dtypes of parameters, int32 or int64: it gets
    rank 0's values now, and is saved; the model goes on to write into these tensors, as batch norm
    does, and does not put others in their place. `reduction`: "mean" over the ranks, or "sum".

    `arenas`: True moves parameters and gradients to memory where libzero works without copies; a
    step then leaves no gradient behind, .grad is None. "shared" keeps one copy of the parameters
    for all ranks of a host: what a program itself writes into one, all ranks see, so all write the
    same, and no rank reads while another writes. `overlap`: gradients are announced as they come,
    and summed while the backward goes on; False leaves that to the step, and None does where the
    threads of torch, of all ranks, leave no core idle. Bits are the same. `others`: any other
    option of libzero.Optimizer but overlap_gather, and torch's options of the rule.

    The constructor, add_param_group, clip_grad_norm, clip_grad_value, step, save, load, the
    broadcasts, consolidate_state_dict and load_state_dict are made by every rank in the same
    order. Parameters get rank 0's values when they are added. Ranks that pass different ones, or
    other options, get a MismatchError or PeerError that names the first.

    Until a step, .grad is this rank's own: clip by clip_grad_norm, which sees the average. What a
    program changes of a gradient before the step counts, and costs the overlap; after a clip it is
    a RuntimeError, unless all gradients are new ones. Not for a model in DistributedDataParallel,
    which reduces as well, nor with torch.amp.GradScaler, which decides on each rank alone: see
    loss_scale.

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
            raise ValueError(f"arenas is {arenas!r}; there are False, True and 'shared'")
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
        """Reduce what is not reduced yet, update this rank's share, and put the new parameters on
        every rank. Returns what `closure` did, this rank's loss; result() tells what the ranks
        agreed. A parameter without gradient on any rank is left alone; ZeroError (STATE) if that is
        all of them.

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
        """As torch's; and what the backward has announced, or a clip reduced, is forgotten.

        >>> optimizer.zero_grad()
        """
        if self._shard is not None:
            self._native.drop()
        super().zero_grad(set_to_none)

    def no_sync(self) -> AbstractContextManager[None]:
        """While it is entered, backwards add up gradients on this rank alone: for all micro-batches
        but the last, whose backward announces the sums. Saves the reductions; without it results
        are the same.

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
        """Scale the reduced gradients so that their norm is at most `max_norm`; returns it from
        before, the same on every rank. `params`: those of which alone the norm is taken, and which
        alone are scaled. In place of torch.nn.utils.clip_grad_norm_, between backward and step.

        >>> norm = optimizer.clip_grad_norm(1.0)
        """
        self._sharded()
        numbers = None if params is None else self._numbers_of(params)
        self._native.reduce(self.param_groups)
        core = self._native.core
        return core.optimizer.clip_grad_norm(max_norm, norm_type, numbers, stream=core.stream)

    def clip_grad_value(self, max_value: float) -> None:
        """Bring every element of the reduced gradients into [-max_value, max_value].

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
            raise ValueError(f"a tensor of shape {foreign[0]} is no parameter of this optimizer")
        return [known[param] for param in given]

    @property
    def loss_scale(self) -> float:
        """What the next loss is multiplied with, and its gradients are divided by: with
        Optimizer(loss_scale=65536.0) it follows the rule of torch's GradScaler, all ranks skip a
        step whose gradients are not finite, and all have the same scale."""
        return self._sharded().core.optimizer.loss_scale

    @loss_scale.setter
    def loss_scale(self, scale: float) -> None:
        self._sharded().core.optimizer.loss_scale = scale

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss whose backward() makes the gradients that step() takes.

        >>> optimizer.zero_grad()
        >>> optimizer.scale(model(torch.ones(2, 4)).sum()).backward()
        """
        return loss * self.loss_scale

    def result(self) -> Result:
        """What the ranks agreed in the last step: its number, which counts from the start, or from
        a load_state_dict(), the norm of gradients, whether it was skipped. On a GPU it waits for
        the step.

        >>> optimizer.step()
        >>> optimizer.result().skipped
        0
        """
        return self._sharded().core.optimizer.result()

    def broadcast_params(self, root: Optional[int] = 0) -> None:
        """Copy every parameter from rank `root` to all; None says that all wrote the same. Masters are
        taken anew, so who writes by .data into parameters that have some calls it; steps follow what
        is written in any other way.

        >>> optimizer.zero_grad()
        >>> optimizer.broadcast_params()
        """
        self._sharded()
        self._native.broadcast_params(root)

    def broadcast_buffers(self, root: int = 0) -> None:
        """Copy every buffer from rank `root` to all, whenever the program wants it.

        >>> model = torch.nn.BatchNorm1d(4)
        >>> buffers = model.named_buffers()
        >>> optimizer = libzero.torch.Optimizer(model.named_parameters(), buffers=buffers)
        >>> optimizer.broadcast_buffers()
        """
        self._sharded()
        self._native.broadcast_buffers(root)

    def join(self) -> int:
        """This rank has no more batches: make the others' steps with them, with zeros for
        gradients, and with the options that their param_groups have meanwhile, until every rank is
        here. Returns the rank that came last. See libzero.Optimizer.join, and its uneven_inputs.

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
        """Bring the whole state to rank `to`, or all (None), for its state_dict(). Collective.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(to=None)
        """
        if to is not None and not 0 <= to < self.world_size:
            raise ValueError(f"to is {to}, and there are ranks 0 to {self.world_size - 1}")
        self._gather(to)

    def state_dict(self) -> dict[str, Any]:
        """As the unsharded optimizer's, with state on the CPU, as consolidate_state_dict brought it
        here, or as it is before the first step; 16-bit parameters have a "master", too.
        RuntimeError if it brought it elsewhere, or if steps were made since.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict()
        >>> optimizer.state_dict()["state"][0]["momentum_buffer"].shape
        torch.Size([3, 4])
        """
        return self._whole_state_dict(f"consolidate_state_dict(to={self.rank})")

    def stats(self) -> Statistics:
        """Bytes by kind, and seconds and bytes so far, of this rank.

        >>> optimizer.step()
        >>> optimizer.stats().steps
        1
        """
        return self._sharded().core.optimizer.stats()

    @property
    def comm(self) -> Comm:
        """The comm of its ranks."""
        return self._comm

    def close(self) -> None:
        """Give the state back, and the comm unless it was passed; again is fine. Parameters keep
        their values, in arenas too, and no hook is left.

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
    """Whether something else than a backward can run: a GPU does those. Ranks need not agree."""
    if comm.device != "host":
        return True
    here = min(comm.world, int(os.environ.get("LOCAL_WORLD_SIZE") or comm.world))
    return len(os.sched_getaffinity(0)) > here * torch.get_num_threads()

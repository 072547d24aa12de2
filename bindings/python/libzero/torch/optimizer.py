# SPDX-License-Identifier: Apache-2.0
"""libzero's optimizer for a torch training loop. It needs no wrapper around the model."""

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
from ._rules import Named, choose, drop_other_options, with_own_options
from ._scaler import Asked
from ._shard import Closure, Params, listed_params, unless_refused
from .typing import Arenas, Options, Partition, Reduction

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ARENAS = {False: "", True: "per_rank", "shared": "shared"}

Group = Union[dist.ProcessGroup, Comm, None]
Buffers = Union[Mapping[str, torch.Tensor], Iterable[tuple[str, torch.Tensor]]]


class Optimizer(Checkpoints):
    """A replacement for DistributedDataParallel together with an optimizer. It reduces gradients to
    their owners during the backward pass, updates the shard of each rank, and copies the new
    parameters to every rank.

        optimizer = libzero.torch.Optimizer(model.named_parameters(), "adamw", lr=3e-4)
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
        optimizer.save("run/step-1000")

    `params` lists tensors, (name, tensor), or groups, as in torch.optim. Parameters may be float32,
    float64, bfloat16 or float16, in any combination. Frozen parameters may also be int32 or int64.
    Parameters must be dense, and may have any memory format. Either all parameters are on the CPU,
    or all are on this rank's GPU. Checkpoints identify parameters by name, or by number if they
    have no names. `optimizer` is the name of a rule, such as "adamw", "sgd" or "lion", a class from
    torch.optim, or a CustomOptimizer. Names and classes are accepted for the rules Adam, AdamW,
    SGD, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam and Rprop, with torch's options as
    **others. Other rules of libzero, which libzero.rules() lists, have only a name. The key "rule"
    of a group is the name of the group's own rule, for example "sgd" in a model that AdamW trains.
    The key "state_dtype" of a group is "bfloat16" if its state is stored in 16 bits, as described
    at libzero.Optimizer.register.

    `process_group` is a torch process group, or a libzero.Comm, which is used directly. The default
    is torch's default group if torch.distributed is initialized. Otherwise, the default is the
    group of ranks that a launcher started, or this process alone. `buffers` lists the other tensors
    of the model, for example model.named_buffers(). Their dtype may be int32, int64 or any dtype of
    parameters. Buffers receive the values of rank 0 now, and are saved in checkpoints. The model
    may write to these tensors, for example in batch norm, but must not replace them. `reduction` is
    "mean" over the ranks, or "sum".

    Set `arenas` to True to move parameters and gradients to memory that libzero updates in place. A
    step then sets .grad to None. With "shared", all ranks of a host also share one copy of the
    parameters. If a program writes to a shared parameter, all ranks see the change. All ranks must
    therefore write the same values, and no rank may read a parameter while another rank writes it.
    Set `overlap` to True to announce gradients as they are computed and to sum them during the
    backward pass, or to False to sum them in the step. If `overlap` is None, False is selected if
    the torch threads of all ranks on this host leave no core idle. Results are bitwise identical in
    all cases. `others` are torch's options for the rule, and any other option of libzero.Optimizer
    except overlap_gather.

    The constructor, add_param_group, clip_grad_norm, clip_grad_value, step, save, load, the
    broadcasts, consolidate_state_dict and load_state_dict are collective. Every rank must make
    these calls in the same order. Parameters receive the values of rank 0 when they are added. If
    ranks pass different parameters or options, they raise a MismatchError or PeerError that names
    the first difference.

    Before a step, .grad is the gradient that this rank computed. To clip, use clip_grad_norm, which
    works on the averaged gradients. A program may change gradients before the step, which then uses
    the changed gradients without overlap. A change after a clip raises RuntimeError unless all
    gradients are replaced. Do not wrap the model in DistributedDataParallel, because it would
    reduce gradients a second time. Do not use torch.amp.GradScaler, because it decides
    independently on each rank whether to skip a step. Use loss_scale instead.

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
            self._in_arena = False  # this class manages arenas itself
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
        every rank. Returns the result of `closure`, which is the loss of this rank. result()
        returns the outcome for all ranks. A parameter that has no gradient on any rank is not
        updated. Raises ZeroError (ZERO_ERR_STATE) if no parameter has a gradient.

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
        """Clear gradients like torch's method, and discard the gradients that the backward pass has
        announced or a clip has reduced.

        >>> optimizer.zero_grad()
        """
        if self._shard is not None:
            self._native.drop()
        super().zero_grad(set_to_none)

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context manager in which backward passes accumulate gradients on this rank only.
        Use it for all micro-batches except the last one. The last backward pass announces the sums.
        This avoids reductions, and does not change results.

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
        before scaling, which is the same on every rank. `params` limits both the norm and the
        scaling to these parameters. Call this method between backward and step, instead of
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
        """The factor by which to multiply the next loss. Gradients are divided by this factor. With
        Optimizer(loss_scale=65536.0), it follows the rule of torch's GradScaler. All ranks have the
        same scale, and all ranks skip a step whose gradients are not finite."""
        return self._sharded().core.optimizer.loss_scale

    @loss_scale.setter
    def loss_scale(self, scale: float) -> None:
        self._sharded().core.optimizer.loss_scale = scale

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the scaled loss. The backward pass of the scaled loss produces the gradients that
        step() expects.

        >>> optimizer.zero_grad()
        >>> optimizer.scale(model(torch.ones(2, 4)).sum()).backward()
        """
        return loss * self.loss_scale

    def result(self) -> Result:
        """Return the outcome of the last step. It includes the number of steps since the start or
        since a load_state_dict(), the norm of the gradients, and whether the step was skipped. On a
        GPU, this waits for the step.

        >>> optimizer.step()
        >>> optimizer.result().skipped
        0
        """
        return self._sharded().core.optimizer.result()

    def broadcast_params(self, root: Optional[int] = 0) -> None:
        """Copy every parameter from rank `root` to all ranks. If `root` is None, nothing is copied,
        and the call declares that all ranks wrote the same values. Master weights are set from the
        parameters. Call this after a write through .data to parameters that have master weights.
        Steps detect all other writes.

        >>> optimizer.zero_grad()
        >>> optimizer.broadcast_params()
        """
        self._sharded()
        self._native.broadcast_params(root)

    def broadcast_buffers(self, root: int = 0) -> None:
        """Copy every buffer from rank `root` to all ranks. The program decides when to call this
        method.

        >>> model = torch.nn.BatchNorm1d(4)
        >>> buffers = model.named_buffers()
        >>> optimizer = libzero.torch.Optimizer(model.named_parameters(), buffers=buffers)
        >>> optimizer.broadcast_buffers()
        """
        self._sharded()
        self._native.broadcast_buffers(root)

    def join(self) -> int:
        """Call this when this rank runs out of batches. The method joins the steps of the other
        ranks, contributing zero gradients, until every rank has joined. The steps use the current
        options in the param_groups of the other ranks. Returns the rank that joined last. See
        libzero.Optimizer.join for details and for the option uneven_inputs.

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
        """Gather the whole state for state_dict() on rank `to`, or on all ranks if `to` is None.
        Collective.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict(to=None)
        """
        if to is not None and not 0 <= to < self.world_size:
            raise ValueError(f"to is {to}, but the group has ranks 0 to {self.world_size - 1}")
        self._gather(to)

    def state_dict(self) -> dict[str, Any]:
        """Return a state_dict in the format of the unsharded optimizer, with state on the CPU. It
        contains the state that consolidate_state_dict gathered on this rank, or the initial state
        before the first step. The state of 16-bit parameters also has a "master". Raises
        RuntimeError if the state was gathered on another rank, or if a step has been taken since
        then.

        >>> optimizer.step()
        >>> optimizer.consolidate_state_dict()
        >>> optimizer.state_dict()["state"][0]["momentum_buffer"].shape
        torch.Size([3, 4])
        """
        return self._whole_state_dict(f"consolidate_state_dict(to={self.rank})")

    def stats(self) -> Statistics:
        """Return the statistics of this rank, which are memory by kind, and totals of time and
        bytes since the start.

        >>> optimizer.step()
        >>> optimizer.stats().steps
        1
        """
        return self._sharded().core.optimizer.stats()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, which must be the same on every rank. Its key "rule" is the
        name of its own rule, and its other options then start with the defaults of that rule.
        Owners are chosen for the new group only, and existing owners do not change. If this raises
        an exception, the group is not added.

        >>> bias = torch.nn.Parameter(torch.ones(3))
        >>> optimizer.add_param_group({"params": [bias], "rule": "lion", "lr": 1e-4})
        """
        super().add_param_group(with_own_options(param_group))
        drop_other_options(self.param_groups[-1], param_group, self.defaults)

    @property
    def comm(self) -> Comm:
        """The comm of this optimizer's ranks."""
        return self._comm

    def close(self) -> None:
        """Free the state, and the comm unless the program passed one. Closing an optimizer again
        has no effect. Parameters keep their values, even in arenas, and all hooks are removed.

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
    """Return whether a core is idle during a backward pass, which is always the case with a GPU.
    The result may differ between ranks."""
    if comm.device != "host":
        return True
    here = min(comm.world, int(os.environ.get("LOCAL_WORLD_SIZE") or comm.world))
    return len(os.sched_getaffinity(0)) > here * torch.get_num_threads()

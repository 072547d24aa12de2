# SPDX-License-Identifier: Apache-2.0
"""Describes the tensors of a model for libzero, with the memory of each, its layout, and its place
in an arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional, cast

import torch
from torch.autograd.graph import increment_version

from .. import Comm, Optimizer, Param, partition_plan
from .._zero_h import MEMORIES
from .._buffers import ArenaMemory
from ..typing import Dtype

_TRAINED = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_KEPT = (torch.int32, torch.int64)


class SparseGradientError(ValueError, RuntimeError):
    """A gradient is sparse, and torch's class also raises an error for sparse gradients with this
    rule and these options."""


class Bound:
    """One parameter, with its tensor, its name, and the address of its memory when it was
    registered.

    `dims` is the order of dimensions in which the memory is C-contiguous, for example (0, 2, 3, 1)
    for channels-last. In libzero, the parameter, its gradient and its state have this order. A
    frozen parameter whose dtype libzero does not support, such as a quantized weight, is `carried`.
    Its name is known to libzero, but libzero does not have its elements.
    """

    # Return whether the rule and options of the group make the same update for a sparse gradient as
    # for a dense one.
    takes_sparse: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, param: torch.Tensor, name: str) -> None:
        """Raises TypeError for a sparse or wrapped tensor, and for a dtype that cannot be trained.
        Raises ValueError if the memory has gaps, or if elements share memory."""
        self.param = param
        self.name = name
        self.carried = _real(param) not in (*_TRAINED, *_KEPT)
        self.dims = _dims_of(param, name)
        self.address = param.data_ptr()
        self.dtype = param.dtype
        self.shape = tuple(param.shape)
        self.strides = param.stride()
        self.device = param.device

    def view(self) -> torch.Tensor:
        """Return the memory of the parameter as a contiguous tensor without a graph. A complex
        number becomes two real numbers."""
        if self.carried:
            return torch.empty(0, dtype=torch.int32, device=self.param.device)
        return self.in_order(self.param.detach())

    def in_order(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return `tensor`, which has the shape of the parameter, with its dimensions in libzero's
        order."""
        ordered = tensor.permute(self.dims)
        return torch.view_as_real(ordered) if ordered.is_complex() else ordered

    def out_of_order(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor whose dimensions are in libzero's order with the shape of the parameter.
        This is the reverse of in_order."""
        if self.dtype.is_complex:
            tensor = torch.view_as_complex(tensor)
        inverse = [self.dims.index(dim) for dim in range(len(self.dims))]
        return tensor.permute(inverse)

    def register(self) -> Param:
        """Return the Param for libzero. Its name includes the order of dimensions, so that ranks
        with different orders raise an error."""
        view = self.view()
        name = self.name
        if self.dims != tuple(range(len(self.dims))):
            name = f"{name} in order {self.dims}"
        if self.carried:
            name = f"{name} of {self.dtype} {self.shape}"
        return Param(
            name,
            view,
            dtype=cast(Dtype, str(view.dtype).rpartition(".")[2]),
            frozen=not self.trained,
        )

    @property
    def trained(self) -> bool:
        """Return whether the next step may update the parameter. Optimizers of torch check only the
        gradient."""
        return self.trainable and (self.param.requires_grad or self.param.grad is not None)

    @property
    def trainable(self) -> bool:
        return self.dtype not in _KEPT and not self.carried

    @property
    def changed(self) -> bool:
        """Return whether the parameter has moved to another device, or has changed its dtype or
        memory format."""
        param = self.param
        if param.dtype != self.dtype or param.device != self.device:
            return True
        if param.stride() == self.strides or tuple(param.shape) != self.shape:
            return False
        return _dims_of(param, self.name) != self.dims

    def moved(self) -> bool:
        """Return whether the memory of the parameter has moved. Raises ValueError if the tensor is
        no longer the same parameter."""
        param = self.param
        if (
            param.data_ptr() == self.address
            and param.dtype == self.dtype
            and param.shape == self.shape
            and param.stride() == self.strides
        ):
            return False
        for what, now, before in (
            ("dtype", param.dtype, self.dtype),
            ("shape", tuple(param.shape), self.shape),
            ("device", param.device, self.device),
        ):
            if now != before:
                raise ValueError(
                    f"parameter {self.name} was {what} {before} when it was added and is {now} now; "
                    "create a new optimizer after such a change"
                )
        if _dims_of(param, self.name) != self.dims:
            raise ValueError(
                f"parameter {self.name} has a different memory format than when it was added; "
                "create a new optimizer after such a change"
            )
        return True

    def gradient(self, given: Optional[torch.Tensor] = None) -> Optional[torch.Tensor]:
        """Return the gradient for libzero, which is `given` or the gradient of the parameter. It is
        copied only if its dtype or memory format differs from the parameter's. Return None if there
        is no gradient, or if the parameter is not trained. Raises TypeError or ValueError if the
        gradient does not fit the parameter."""
        grad = self.param.grad if given is None else given
        if grad is not None and self.carried:
            raise TypeError(
                f"parameter {self.name} is {self.dtype}, which libzero does not train, and has a "
                "gradient"
            )
        if grad is None or not self.trainable:
            return None
        if grad.layout is torch.sparse_coo:
            if not self.takes_sparse():
                raise SparseGradientError(
                    f"the gradient of parameter {self.name} is sparse; sparse ones are for SGD and "
                    "Adagrad without weight decay, and not for ShardedDataParallel"
                )
            grad = grad.to_dense()
        if grad.layout is not torch.strided:
            raise TypeError(
                f"the gradient of parameter {self.name} is {_layout(grad)}; libzero needs a dense one"
            )
        if tuple(grad.shape) != self.shape:
            raise ValueError(
                f"the gradient of parameter {self.name} has shape {tuple(grad.shape)}, the "
                f"parameter has {self.shape}"
            )
        if grad.device != self.device:
            raise ValueError(
                f"the gradient of parameter {self.name} is on {grad.device}, the parameter on "
                f"{self.device}"
            )
        if not _has_memory(grad):
            raise ValueError(f"the memory of the gradient of parameter {self.name} was freed")
        # Autograd may leave the conjugate or negative bit set instead of changing the memory.
        plain = grad.detach().resolve_conj().resolve_neg()
        return self.in_order(plain.to(self.dtype)).contiguous()


def _dims_of(tensor: torch.Tensor, name: str) -> tuple[int, ...]:
    """Return the order of dimensions in which `tensor` is C-contiguous."""
    if tensor.layout is not torch.strided:
        raise TypeError(f"parameter {name} is {_layout(tensor)}; libzero needs a dense tensor")
    if hasattr(tensor, "__tensor_flatten__"):
        raise TypeError(
            f"parameter {name} is a {type(tensor).__name__}, which has no memory of its own; "
            "libzero needs a plain tensor"
        )
    real = _real(tensor)
    if real not in _TRAINED and tensor.requires_grad:
        names = ", ".join(str(dtype).rpartition(".")[2] for dtype in _TRAINED)
        raise TypeError(f"parameter {name} is {tensor.dtype}; libzero trains {names}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"parameter {name} is on {tensor.device.type!r}; libzero supports 'cpu' and 'cuda'"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(
            f"parameter {name} is a view that conjugates or negates its memory; pass its "
            "resolve_conj().resolve_neg()"
        )
    if not _has_memory(tensor):
        raise ValueError(f"the memory of parameter {name} was freed, or never existed")
    dims = tuple(range(tensor.dim()))
    if tensor.is_contiguous() or real not in (*_TRAINED, *_KEPT):
        return dims
    strides = tensor.stride()
    dims = tuple(sorted(dims, key=lambda dim: -strides[dim]))
    if not tensor.permute(dims).is_contiguous():
        raise ValueError(
            f"parameter {name} of shape {tuple(tensor.shape)} has strides {tuple(strides)}, so its "
            "memory has gaps or shares elements; libzero needs a dense tensor"
        )
    return dims


def _real(tensor: torch.Tensor) -> torch.dtype:
    return tensor.dtype.to_real() if tensor.dtype.is_complex else tensor.dtype


def _has_memory(tensor: torch.Tensor) -> bool:
    """Return whether the storage of a tensor includes its last element. This is not the case after
    resize_(0)."""
    if tensor.numel() == 0:
        return True
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= needed and tensor.data_ptr() != 0


def _layout(tensor: torch.Tensor) -> str:
    return str(tensor.layout).rpartition(".")[2]


class Homes:
    """Moves parameters and gradients into arenas. If `shared` is set, all ranks of a host share one
    copy of the parameters. Otherwise, each rank has its own copy. Collective. An arena is freed
    with the last tensor in it, even if the optimizer is freed earlier.

    `data` contains the place of each parameter, in libzero's order of dimensions. `grads` contains
    a tensor with the shape and memory format of each parameter, and None for integer parameters,
    which have no gradient. Without `with_grads`, all of its entries are None. `undo` moves the
    parameters back to their earlier memory.
    """

    def __init__(
        self,
        comm: Comm,
        rule: Any,
        bound: Sequence[Bound],
        options: Mapping[str, Any],
        *,
        groups: Sequence[Mapping[str, Any]] = (),
        shared: bool = False,
        with_grads: bool = True,
    ) -> None:
        """libzero.partition_plan describes `rule`, `options` and `groups`."""
        shapes = [tuple(one.view().shape) for one in bound]
        told = [replace(one.register(), data=None, shape=size) for one, size in zip(bound, shapes)]
        plan = partition_plan(told, comm.world, rule, groups=groups, **options)
        data = _arena(comm, plan.arena_bytes, "shared" if shared else "per_rank")
        own = _arena(comm, plan.grad_arena_bytes, "per_rank") if with_grads else None
        self._before = [(one, one.param.data) for one in bound]
        self.data: list[torch.Tensor] = []
        self.grads: list[Optional[torch.Tensor]] = []
        for one, size, offset, grad_offset in zip(bound, shapes, plan.offsets, plan.grad_offsets):
            new = _tensor(data, offset, size, one)
            # One rank writes memory that ranks share. No other rank reads it before the seal.
            if not shared or comm.rank == 0:
                new.copy_(one.view())
            self.data.append(new)
            one.param.data = one.out_of_order(new)
            one.address, one.strides = one.param.data_ptr(), one.param.stride()
            grad = _tensor(own, grad_offset, size, one) if own and one.trainable else None
            self.grads.append(None if grad is None else one.out_of_order(grad))

    def undo(self) -> None:
        for one, data in self._before:
            one.param.data = data
            one.address, one.strides = data.data_ptr(), data.stride()


def _arena(comm: Comm, size: int, kind: str) -> ArenaMemory:
    return comm._arena_memory(max(size, 64), MEMORIES[kind])


def _tensor(arena: ArenaMemory, offset: int, shape: tuple[int, ...], one: Bound) -> torch.Tensor:
    """Return a tensor with a separate storage, so that saving one parameter does not save all."""
    dtype = one.view().dtype
    # numpy has no bfloat16, and old versions of torch have no uint16, so use another 16-bit dtype.
    name = "float16" if dtype == torch.bfloat16 else str(dtype).rpartition(".")[2]
    array = arena.view(offset, shape, name)
    if one.device.type == "cpu":
        return torch.from_numpy(array).view(dtype)
    return torch.as_tensor(array, device=one.device).view(dtype)


class Buffers:
    """The buffers of a model by name, each with its registered memory."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, optimizer: Optimizer, buffers: Mapping[str, torch.Tensor]) -> None:
        """Register buffers. Raises TypeError for a dtype that libzero does not support, and all
        errors of libzero.Optimizer."""
        for name, tensor in buffers.items():
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"buffer {name} is a {type(tensor).__name__}, not a tensor")
        places = {name: tensor.detach() for name, tensor in buffers.items()}
        optimizer.register_buffers(places)
        self._known.update((name, (buffers[name], place)) for name, place in places.items())

    def register(self, optimizer: Optimizer) -> None:
        """Register the same buffers with another optimizer."""
        if self._known:
            optimizer.register_buffers({name: place for name, (_, place) in self._known.items()})

    def follow_memory(self) -> None:
        """Move buffers that the program has moved, for example with .data, and their values, back
        to their registered memory. Raises ValueError if a tensor is no longer the same buffer."""
        for name, (tensor, place) in self._known.items():
            if tensor.shape != place.shape or tensor.dtype != place.dtype:
                raise ValueError(
                    f"buffer {name} was {place.dtype} of shape {tuple(place.shape)} when it was "
                    f"given and is {tensor.dtype} of shape {tuple(tensor.shape)} now; create a new "
                    "optimizer after such a change"
                )
            if tensor.data_ptr() != place.data_ptr():
                place.copy_(tensor)
                tensor.data = place

    def wrote(self) -> None:
        """Notify autograd that buffers have new values."""
        for tensor, _ in self._known.values():
            increment_version(tensor)

# SPDX-License-Identifier: Apache-2.0
"""A torch parameter as libzero sees it: dense memory, whatever the order of its dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import torch

from .. import Param

_TRAINED = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_KEPT = (torch.int32, torch.int64)


class SparseGradientError(ValueError, RuntimeError):
    """A sparse gradient for a rule or options to which torch's class gives an error as well."""


class Bound:
    """One parameter: the tensor, its name, and where its memory was when libzero was told.

    `dims` is the order of dimensions in which the memory is C-contiguous, (0, 2, 3, 1) for
    channels-last: libzero gets the parameter, its gradient and its state in that order. Frozen ones
    of a dtype that libzero lacks, as quantized weights, are `carried`: it knows of them, and has
    none of their elements.
    """

    # Whether the rule and options of its group update by a sparse gradient as by a dense one.
    takes_sparse: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, param: torch.Tensor, name: str) -> None:
        """TypeError for a sparse or wrapped tensor and for a dtype that cannot be trained, ValueError
        for memory with gaps or elements that share a place."""
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
        """The parameter's memory as a contiguous tensor without a graph; complex numbers are two."""
        if self.carried:
            return torch.empty(0, dtype=torch.int32, device=self.param.device)
        return self.in_order(self.param.detach())

    def in_order(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor`, of the parameter's shape, with dimensions as libzero has them."""
        ordered = tensor.permute(self.dims)
        return torch.view_as_real(ordered) if ordered.is_complex() else ordered

    def out_of_order(self, tensor: torch.Tensor) -> torch.Tensor:
        """The reverse: a tensor of libzero's with the parameter's shape."""
        if self.dtype.is_complex:
            tensor = torch.view_as_complex(tensor)
        inverse = [self.dims.index(dim) for dim in range(len(self.dims))]
        return tensor.permute(inverse)

    def register(self) -> Param:
        """What libzero is told. The order of dimensions is part of the name, so that ranks with
        different ones find out."""
        view = self.view()
        name = self.name
        if self.dims != tuple(range(len(self.dims))):
            name = f"{name} in order {self.dims}"
        if self.carried:
            name = f"{name} of {self.dtype} {self.shape}"
        return Param(
            name,
            view,
            dtype=str(view.dtype).rpartition(".")[2],
            frozen=not self.trained,
        )

    @property
    def trained(self) -> bool:
        """Whether the next step may update it: torch's optimizers look at the gradient alone."""
        return self.trainable and (self.param.requires_grad or self.param.grad is not None)

    @property
    def trainable(self) -> bool:
        return self.dtype not in _KEPT and not self.carried

    @property
    def changed(self) -> bool:
        """Whether it is on another device by now, or of another dtype or memory format."""
        param = self.param
        if param.dtype != self.dtype or param.device != self.device:
            return True
        if param.stride() == self.strides or tuple(param.shape) != self.shape:
            return False
        return _dims_of(param, self.name) != self.dims

    def moved(self) -> bool:
        """Whether its memory is elsewhere by now. ValueError if what is there is no longer the same
        parameter."""
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
                    "make a new optimizer after such a change"
                )
        if _dims_of(param, self.name) != self.dims:
            raise ValueError(
                f"parameter {self.name} has another memory format than when it was added; make a "
                "new optimizer after such a change"
            )
        return True

    def gradient(self, given: Optional[torch.Tensor] = None) -> Optional[torch.Tensor]:
        """The gradient (`given`, or the parameter's own) as libzero reads it, copied only if dtype
        or memory format are not the parameter's. None: there is none, or it is not trained. TypeError
        and ValueError for one that does not fit."""
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
            raise ValueError(f"the memory of the gradient of parameter {self.name} was given back")
        # Autograd may leave complex ones conjugated, and others negative, but for a flag.
        plain = grad.detach().resolve_conj().resolve_neg()
        return self.in_order(plain.to(self.dtype)).contiguous()


def _dims_of(tensor: torch.Tensor, name: str) -> tuple[int, ...]:
    """The order of dimensions in which `tensor` is C-contiguous."""
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
            f"parameter {name} is on {tensor.device.type!r}; libzero has 'cpu' and 'cuda'"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(
            f"parameter {name} is a view that conjugates or negates its memory; give its "
            "resolve_conj().resolve_neg()"
        )
    if not _has_memory(tensor):
        raise ValueError(f"the memory of parameter {name} was given back, or was never there")
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
    """Whether its storage reaches to its last element, as it does not after resize_(0)."""
    if tensor.numel() == 0:
        return True
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= needed and tensor.data_ptr() != 0


def _layout(tensor: torch.Tensor) -> str:
    return str(tensor.layout).rpartition(".")[2]

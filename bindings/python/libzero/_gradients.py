# SPDX-License-Identifier: Apache-2.0
"""Gradients of all ranks: reducing, clipping and unscaling."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable
from typing import Any, Optional, Union

from . import _params, _values, _zero_h
from ._abi import lib
from ._overlap import Overlap, reduce_flags
from ._ranks import Arrays, Ranks
from .typing import NumberDtype, Reduction


class Gradients(Overlap, Ranks):
    """The Optimizer's methods for gradients."""

    def reduce_grads(
        self,
        grads: Arrays | None = None,
        reduction: Reduction = "mean",
        accumulate: bool = False,
        *,
        stream: Any = None,
    ) -> None:
        """Sum every gradient over the ranks, in rank order, to its owners. "mean" divides the sum
        by the number of ranks; "none" means that gradients are already reduced.

        Without `grads`, the registered gradients are reduced. Otherwise `grads` gives one array for
        each parameter in order of registration, or a mapping by name. None means that this rank has
        no gradient. Arrays have the parameter's shape and gradient dtype. If no rank has a gradient
        of a parameter, it is not updated; if only some ranks have one, the others count as zeros.
        With `accumulate`, owners keep the sum and add to the sums of earlier such calls, one call
        per micro-batch. Collective. ZERO_ERR_STATE if gradients are reduced twice without
        `accumulate`.

        >>> optimizer.reduce_grads({"w": gradient}, "sum")
        >>> optimizer.step()
        True
        """
        flags = reduce_flags(reduction, accumulate)
        memory = None if grads is None else self._gradients(grads)
        addresses = None if memory is None else _params.pointers(memory)
        count = 0 if memory is None else len(memory)
        behind = _values.stream(stream)
        lib().zero_reduce_grads(self._handle.open(), addresses, count, flags, behind)
        self._announced.clear()

    def clip_grad_norm(
        self,
        max_norm: float,
        norm_type: float = 2.0,
        params: Iterable[Union[str, int]] | None = None,
        *,
        stream: Any = None,
    ) -> float:
        """Scale the gradients so that their p-norm, taken over all of them as one vector, is at
        most `max_norm`. Returns the norm before scaling, with the same bits on every rank.
        `norm_type` is p, above 0 or math.inf. `params` limits both the norm and the scaling to
        these names or numbers, each listed once and the same on every rank. Reduces first if
        gradients are not reduced. Waits for the norm, even on a GPU; Optimizer(max_grad_norm=...)
        clips there without waiting. Collective.

        >>> optimizer.clip_grad_norm(1.0)
        3.4641016151377544
        """
        behind = _values.stream(stream)
        most, kind = _values.double(max_norm, "max_norm"), _values.double(norm_type, "norm_type")
        norm = c.c_double()
        numbers = [] if params is None else [self._number(param) for param in params]
        chosen = None if params is None else (c.c_int64 * len(numbers))(*numbers)
        lib().zero_clip_grad_norm(
            self._handle.open(), chosen, len(numbers), most, kind, c.byref(norm), behind
        )
        return norm.value

    def clip_grad_value(self, max_value: float, *, stream: Any = None) -> None:
        """Clamp every element of the gradients to [-max_value, max_value]. Reduces first if
        gradients are not reduced. Collective.

        >>> optimizer.clip_grad_value(0.5)
        """
        limit = _values.double(max_value, "max_value")
        lib().zero_clip_grad_value(self._handle.open(), limit, _values.stream(stream))

    @property
    def loss_scale(self) -> float:
        """The factor to multiply the next loss by; gradients are divided by it. Set it from your
        own scaler, or to restart the dynamic scale of `loss_scale=`. Setting it is local; set the
        same value on every rank. From 2**-100 to 2**100.

        >>> optimizer.loss_scale = 1024
        """
        scale = c.c_double()
        lib().zero_group_get(self._handle.open(), _zero_h.ALL_GROUPS, b"loss_scale", c.byref(scale))
        return scale.value

    @loss_scale.setter
    def loss_scale(self, scale: float) -> None:
        value = _values.double(scale, "loss_scale")
        lib().zero_group_set(self._handle.open(), _zero_h.ALL_GROUPS, b"loss_scale", value)

    def read_loss_scale_from(self, address: Optional[int], dtype: NumberDtype = "float32") -> None:
        """Read the loss scale from GPU memory, like Group.read_from, if it is not dynamic. Each
        reduction divides its gradients by the value that it reads there. None returns to the last
        value set.

        >>> optimizer.read_loss_scale_from(scale_on_gpu.data_ptr())  # doctest: +SKIP
        """
        at = _values.number_at(address, dtype)
        lib().zero_group_set_from(self._handle.open(), _zero_h.ALL_GROUPS, b"loss_scale", *at)

    def drop_grads(self) -> None:
        """Discard the reduced sums; writes no gradient. Local, on every rank.

        >>> optimizer.reduce_grads()
        >>> optimizer.drop_grads()
        """
        lib().zero_drop_grads(self._handle.open())
        self._announced.clear()

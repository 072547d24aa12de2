# SPDX-License-Identifier: Apache-2.0
"""Reduces, clips and unscales the gradients of all ranks."""

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
    """The methods of Optimizer that work on gradients."""

    def reduce_grads(
        self,
        grads: Arrays | None = None,
        reduction: Reduction = "mean",
        accumulate: bool = False,
        *,
        stream: Any = None,
    ) -> None:
        """Sum every gradient over the ranks, in rank order, and leave the sum on the ranks that own
        the parameter. With "mean", the sum is divided by the number of ranks. With "none", the
        gradients have already been reduced.

        Without `grads`, the registered gradients are reduced. Otherwise, `grads` is either one
        array per parameter, in registration order, or a mapping from names to arrays. None means
        that this rank has no gradient for that parameter. Arrays must have the parameter's shape
        and gradient dtype. A parameter is not updated if no rank has a gradient for it. If only
        some ranks have a gradient, the missing gradients count as zeros. With `accumulate`, the
        result is added to the sums of earlier calls with `accumulate`; make one call per
        micro-batch. Collective. Raises ZeroError (ZERO_ERR_STATE) if gradients are reduced twice
        without `accumulate`.

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
        """Scale the gradients so that their p-norm, computed over all gradients as one vector, is
        at most `max_norm`. Returns the norm before scaling, which is bitwise identical on every
        rank. `norm_type` is p, a number above 0 or math.inf. `params` limits both the norm and the
        scaling to the parameters with these names or numbers. It must list each parameter once, and
        be the same on every rank. Gradients that have not been reduced are reduced first. The call
        waits for the norm, even on a GPU, where Optimizer(max_grad_norm=...) clips without waiting.
        Collective.

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
        """Clamp every element of the gradients to [-max_value, max_value]. Gradients that have not
        been reduced are reduced first. Collective.

        >>> optimizer.clip_grad_value(0.5)
        """
        limit = _values.double(max_value, "max_value")
        lib().zero_clip_grad_value(self._handle.open(), limit, _values.stream(stream))

    @property
    def loss_scale(self) -> float:
        """The factor by which to multiply the next loss. Gradients are divided by this factor. Set
        it if you have your own scaler, or to restart the dynamic scale that `loss_scale=` enables.
        The value must be in the range from 2**-100 to 2**100, and the same on every rank. Setting
        it is local.

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
        """Read the loss scale from GPU memory, like Group.read_from. The loss scale must not be
        dynamic. Each reduction divides its gradients by the value that it reads at this address.
        None restores the value that was last set.

        >>> optimizer.read_loss_scale_from(scale_on_gpu.data_ptr())  # doctest: +SKIP
        """
        at = _values.number_at(address, dtype)
        lib().zero_group_set_from(self._handle.open(), _zero_h.ALL_GROUPS, b"loss_scale", *at)

    def drop_grads(self) -> None:
        """Discard the reduced sums without writing to any gradient. Local, but every rank must make
        this call.

        >>> optimizer.reduce_grads()
        >>> optimizer.drop_grads()
        """
        lib().zero_drop_grads(self._handle.open())
        self._announced.clear()

# SPDX-License-Identifier: Apache-2.0
"""Overlaps steps with the backward and forward passes. A program can announce gradients one by one,
begin a step before them, and wait for single parameters."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _abi, _params, _values, _zero_h
from ._abi import lib
from ._buffers import Buffer
from ._state import StateAccess
from .typing import Array, Reduction

REGISTERED: Any = object()


class Overlap(StateAccess):
    """The methods of Optimizer that overlap steps with computation."""

    _names: list[str]
    _shapes: list[tuple[int, ...]]
    _grad_dtypes: list[str]
    _grads: list[Optional[Buffer]]
    _announced: dict[int, Optional[Buffer]]
    _ending: list[Optional[Buffer]]
    _overlap_gather: bool

    def step_begin(self, reduction: Reduction = "mean", *, stream: Any = None) -> None:
        """Begin a step before the backward pass. The settings of the step are fixed by this call.
        On a local comm, a parameter is updated as soon as every rank has announced its gradient
        with grad_ready. Do not read or write the parameter from that announcement until step()
        returns. step() completes the step, and the results are bitwise identical to those of step()
        alone. Collective. Raises ZeroError (ZERO_ERR_STATE) with max_grad_norm, a dynamic loss
        scale, nonfinite="skip" or "error", LAMB, LARS and custom rules, because these need all
        gradients first.

        >>> optimizer.step_begin()
        >>> optimizer.grad_ready("w")
        >>> optimizer.step()
        True
        """
        options = _abi.create(_zero_h.StepOptions)
        options.reduce_flags = reduce_flags(reduction, False)
        options.stream = _values.stream(stream)
        lib().zero_step_begin(self._handle.open(), c.byref(options))

    def grad_ready(
        self, param: Union[str, int], grad: Array | None = REGISTERED, *, stream: Any = None
    ) -> None:
        """Announce during the backward pass that this rank's gradient for a parameter is final. By
        default, this is the registered gradient. `grad` is another array of the parameter's shape,
        or None if there is no gradient. The next reduce_grads, clip or step uses the gradient. Do
        not change the gradient until that call has returned, because it may be summed earlier on a
        local comm. `stream` is the stream whose queued work produces the gradient. Local. This
        method may be called from any thread. Raises ValueError if `grad` is not given and no
        gradient is registered.

        >>> optimizer.grad_ready("w", np.zeros(3, np.float32))
        """
        number = self.param_index(param) if isinstance(param, str) else param
        chosen = _values.int64(number, "parameter")
        if not 0 <= chosen < len(self._names):
            raise IndexError(f"parameter {chosen} does not exist: there are {len(self._names)}")
        if grad is REGISTERED:
            memory = self._grads[chosen]
            if memory is None:
                raise ValueError(f"parameter {self._names[chosen]!r} has no registered gradient")
        else:
            what, dtype = f"gradient of {self._names[chosen]!r}", self._grad_dtypes[chosen]
            gpu, shape = self._comm.device != "host", self._shapes[chosen]
            memory = _params.memory_of(grad, what, shape, dtype, dtype, gpu=gpu, written=False)
        address, behind = _params.address(memory), _values.stream(stream)
        lib().zero_grad_ready(self._handle.open(), chosen, address, behind)
        self._announced[chosen] = memory

    def param_wait(self, param: Union[str, int, None] = None, *, stream: Any = None) -> None:
        """Wait until a parameter, given by name or number, may be read. None waits for all
        parameters. With Optimizer(overlap_gather=True), step() returns once the step can no longer
        be rejected. On local and solo comms, parameters are then updated in the background, in
        registration order. Do not read or write a parameter, or write to its gradient, until this
        method has returned for that parameter. Every other method first waits for the whole step.
        On a GPU, later work on `stream` waits, and the host does not. If the comm has broken in the
        meantime, this raises the failure that broke it. Local. This method may be called from any
        thread. Raises KeyError for an unknown name.

        >>> optimizer.step()
        True
        >>> optimizer.param_wait("w")
        """
        if isinstance(param, str):
            if param not in self._names:
                raise KeyError(f"{param!r}: no parameter has that name")
            param = self._names.index(param)  # param_index would wait for the step
        chosen = _zero_h.ALL_PARAMS if param is None else _values.int64(param, "parameter")
        lib().zero_param_wait(self._handle.open(), chosen, _values.stream(stream))

    def _keep_until_next_step(self, grads: Sequence[Optional[Buffer]] | None) -> None:
        """Keep gradients alive if the step ends in the background, because it then reads them after
        step() has returned. After any other step, the memory belongs to the caller again."""
        if self._overlap_gather:
            self._ending = [*self._announced.values(), *(grads or ())]
        self._announced.clear()


def reduce_flags(reduction: Reduction, accumulate: bool) -> int:
    flags = _values.choice(_zero_h.REDUCTIONS, reduction, "reduction")
    return flags | (_zero_h.REDUCE_ACCUMULATE if accumulate else 0)

# SPDX-License-Identifier: Apache-2.0
"""What goes on beside the backward and the forward: gradients that are announced one by one, steps
that begin before them, and parameters that are waited for one by one."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _abi, _params, _structs, _values
from ._abi import lib
from ._buffers import Buffer
from ._state import StateAccess
from .typing import Array, Reduction

REGISTERED: Any = object()


class Overlap(StateAccess):
    """What Optimizer has of these."""

    _names: list[str]
    _shapes: list[tuple[int, ...]]
    _grad_dtypes: list[str]
    _grads: list[Optional[Buffer]]
    _announced: dict[int, Optional[Buffer]]
    _ending: list[Optional[Buffer]]
    _overlap_gather: bool

    def step_begin(self, reduction: Reduction = "mean", *, stream: Any = None) -> None:
        """Begin a step before the backward: settings are fixed now, and a parameter whose gradient
        every rank has announced by grad_ready is updated at once, on a local comm. So it is neither
        read nor written from its announcement until step() returns, which does the rest, with the
        same bits. Collective. ZERO_ERR_STATE with max_grad_norm, a dynamic loss scale, nonfinite
        "skip" and "error", LAMB, LARS and rules of your own, which need all gradients first.

        >>> optimizer.step_begin()
        >>> optimizer.grad_ready("w")
        >>> optimizer.step()
        True
        """
        options = _abi.create(_structs.StepOptions)
        options.reduce_flags = reduce_flags(reduction, False)
        options.stream = _values.stream(stream)
        lib().zero_step_begin(self._handle.open(), c.byref(options))

    def grad_ready(
        self, param: Union[str, int], grad: Array | None = REGISTERED, *, stream: Any = None
    ) -> None:
        """Announce, during the backward, that this rank's gradient of a parameter is final: the
        registered one, or `grad`, of the parameter's shape, of which None says that there is none.
        It stays as it is until the next reduce_grads, clip or step returns, which takes it; on a
        local comm it may be summed before. `stream` is that whose work so far makes the gradient.
        Local; from any thread. ValueError where none is registered.

        >>> optimizer.grad_ready("w", np.zeros(3, np.float32))
        """
        number = self.param_index(param) if isinstance(param, str) else param
        chosen = _values.int64(number, "parameter")
        if not 0 <= chosen < len(self._names):
            raise IndexError(f"parameter {chosen} of {len(self._names)}")
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
        """Wait until a parameter, by name or number, may be read (None: all of them). With
        Optimizer(overlap_gather=True) step() returns as soon as nothing can refuse the step any
        more, and on local comms and alone parameters are updated meanwhile, first those that were
        registered first. Until this returns for it, a parameter is neither read nor written, and
        its gradient not written. Every other method first waits for the whole step. On a GPU what
        is queued on `stream` later waits, and the host does not. Raises what broke the comm
        meanwhile. Local; from any thread. KeyError for a name that no parameter has.

        >>> optimizer.step()
        True
        >>> optimizer.param_wait("w")
        """
        if isinstance(param, str):
            if param not in self._names:
                raise KeyError(f"{param!r}: no parameter has that name")
            param = self._names.index(param)  # libzero's own look-up would wait for the step
        chosen = _abi.ALL_PARAMS if param is None else _values.int64(param, "parameter")
        lib().zero_param_wait(self._handle.open(), chosen, _values.stream(stream))

    def _keep_until_next_step(self, grads: Sequence[Optional[Buffer]] | None) -> None:
        """A step that ends in the background reads gradients after it has returned; after any other
        their memory is the caller's."""
        if self._overlap_gather:
            self._ending = [*self._announced.values(), *(grads or ())]
        self._announced.clear()


def reduce_flags(reduction: Reduction, accumulate: bool) -> int:
    flags = _values.choice(_abi.REDUCTIONS, reduction, "reduction")
    return flags | (_abi.REDUCE_ACCUMULATE if accumulate else 0)

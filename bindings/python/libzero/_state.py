# SPDX-License-Identifier: Apache-2.0
"""Access to single tensors of the state, and the calls for manual steps. This module needs
numpy."""

from __future__ import annotations

import ctypes as c
import math
from typing import TYPE_CHECKING, Any, Callable, Optional, Union, overload

from . import _values, _zero_h
from ._abi import lib
from ._handles import OptimHandle
from .comm import Comm
from .typing import DLPackArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# A parameter, given by its number in registration order or by its name.
Which = Union[int, str]

_MOST_NAMES = 16


class StateAccess:
    """The methods of Optimizer that access its state. Tensors of state have the names that torch
    uses, for example "exp_avg" and "momentum_buffer". The master weights of 16-bit parameters are
    called "master". The name None selects the values that a step updates, which are the master
    weights, or the parameter itself if it has no master weights. Arrays are float64 for float64
    parameters and float32 for all other parameters."""

    _handle: OptimHandle
    _comm: Comm
    _shapes: list[tuple[int, ...]]
    _dtypes: list[str]

    def state_names(self, param: Which) -> tuple[str, ...]:
        """Return the names of the tensors of state that a parameter has now. A save would write
        these tensors. Local.

        >>> optimizer.step()
        True
        >>> optimizer.state_names("w")
        ('momentum_buffer',)
        """
        names, count = (c.c_char_p * _MOST_NAMES)(), c.c_size_t()
        number = self._number(param)
        lib().zero_state_info(
            self._handle.open(), number, None, names, _MOST_NAMES, c.byref(count)
        )
        return tuple(name.decode() for name in names[: count.value] if name is not None)

    def state_get(
        self, param: Which, name: str | None = None, first: int = 0, count: int | None = None
    ) -> NDArray[Any]:
        """Return `count` elements in row-major order, starting at index `first`. By default, return
        all elements from `first` to the end. This rank must own these elements. The result is a
        flat array of float32, or of float64 for float64 parameters. Local. Raises ArgumentError if
        the parameter has no state of this name, or if another rank owns one of the elements.

        >>> optimizer.step()
        True
        >>> optimizer.state_get("w", "momentum_buffer")
        array([2., 2., 2.], dtype=float32)
        """
        return self._read(lib().zero_state_get, param, (_name(name),), first, count)

    def state_set(
        self,
        param: Which,
        name: str | None,
        values: ArrayLike | DLPackArray | None = None,
        first: int = 0,
    ) -> None:
        """Set the elements that this rank owns, among the elements starting at index `first`. Every
        rank must call this for the same parameters and names. A rank may pass the whole tensor, any
        part of it, or None if it owns none of the elements. Values may have any shape and dtype,
        and are read in row-major order. Local.

        >>> optimizer.seal()
        >>> optimizer.state_set("w", "momentum_buffer", np.zeros(3))
        """
        import numpy

        number = self._number(param)
        array: Any = [] if values is None else values
        if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            array = numpy.from_dlpack(array)
        given = numpy.ascontiguousarray(array, self._type(number))
        lib().zero_state_set(
            self._handle.open(),
            number,
            _name(name),
            _values.int64(first, "first"),
            given.size,
            given.ctypes.data if given.size else None,
        )

    def state_get_scalar(self, param: Which | None, name: str) -> float:
        """Return the scalar "step" of a parameter, or "mu_product" with nadam. None selects the
        optimizer's own value. Local.

        >>> optimizer.step()
        True
        >>> optimizer.state_get_scalar("w", "step")
        1.0
        """
        value = c.c_double()
        number, word = self._number(param), _values.text(name, "name")
        lib().zero_state_get(self._handle.open(), number, word, 0, 1, c.byref(value))
        return value.value

    def state_set_scalar(self, param: Which | None, name: str, value: float) -> None:
        """Set a scalar. Every rank must set the same value. None sets the value of every parameter
        and the optimizer's own value. Local.

        >>> optimizer.seal()
        >>> optimizer.state_set_scalar(None, "step", 1000)
        """
        number, word = self._number(param), _values.text(name, "name")
        given = c.c_double(_values.double(value, name))
        lib().zero_state_set(self._handle.open(), number, word, 0, 1, c.byref(given))

    @overload
    def state_gather(self, param: Which, name: str | None = None) -> NDArray[Any]: ...
    @overload
    def state_gather(
        self, param: Which, name: str | None = None, to: int | None = None
    ) -> Optional[NDArray[Any]]: ...
    def state_gather(
        self, param: Which, name: str | None = None, to: int | None = None
    ) -> Optional[NDArray[Any]]:
        """Return a whole tensor in the parameter's shape, as float32, or as float64 for float64
        parameters. If `to` is a rank, only that rank returns the tensor, and all other ranks return
        None. If `to` is None, every rank returns the tensor. Collective.

        >>> optimizer.state_gather("w")
        array([1., 1., 1.], dtype=float32)
        """
        import numpy

        number = self._number(param)
        target = _zero_h.ALL_RANKS if to is None else _values.int32(to, "to")
        out = None
        if to is None or target == self._comm.rank:
            out = numpy.empty(self._shapes[number], self._type(number))
        lib().zero_state_gather(
            self._handle.open(),
            number,
            _name(name),
            target,
            out.ctypes.data if out is not None and out.size else None,
            0 if out is None else out.size,
        )
        return out

    def grad_get(
        self, param: Which, first: int = 0, count: int | None = None
    ) -> NDArray[Any]:
        """Return the reduced gradient of the elements that this rank owns, as a step would use it.
        The result is a flat array of float32, or of float64 for float64 parameters. Local. Raises
        ZeroError (ZERO_ERR_STATE) if the gradients have not been reduced.

        >>> optimizer.reduce_grads()
        >>> optimizer.grad_get("w")
        array([2., 2., 2.], dtype=float32)
        """
        return self._read(lib().zero_grad_get, param, (), first, count)

    def share_params(self, *, keep_masters: bool = False, stream: Any = None) -> None:
        """Copy the ranges that this rank owns from its own parameters to every rank. In a manual
        step, this replaces step(), after the rank has written new values into these ranges. The
        reduced sums are discarded. Set `keep_masters` if state_set has set master weights.
        Collective.

        >>> weight -= 0.1 * gradient
        >>> optimizer.share_params()
        """
        flags = _zero_h.SHARE_KEEP_MASTERS if keep_masters else 0
        lib().zero_share_params(self._handle.open(), flags, _values.stream(stream))

    def param_index(self, name: str) -> int:
        """Return the number of a parameter in registration order. Local. Raises ArgumentError for
        an unknown name.

        >>> optimizer.param_index("w")
        0
        """
        index = c.c_int64()
        lib().zero_param_index(self._handle.open(), _values.text(name, "parameter"), c.byref(index))
        return index.value

    def _number(self, param: Which | None) -> int:
        if param is None:
            return _zero_h.ALL_PARAMS
        if isinstance(param, str):
            return self.param_index(param)
        number = _values.int64(param, "parameter")
        if not 0 <= number < len(self._shapes):
            count = len(self._shapes)
            raise IndexError(f"parameter {number} does not exist: {count} are registered")
        return number

    def _type(self, number: int) -> str:
        return "float64" if self._dtypes[number] == "float64" else "float32"

    def _read(
        self,
        function: Callable[..., Any],
        param: Which,
        name: tuple[Optional[bytes], ...],
        first: int,
        count: int | None,
    ) -> NDArray[Any]:
        import numpy

        number, start = self._number(param), _values.int64(first, "first")
        if count is None:
            count = max(0, math.prod(self._shapes[number]) - start)
        out = numpy.empty(_values.int64(count, "count"), self._type(number))
        address = out.ctypes.data if out.size else None
        function(self._handle.open(), number, *name, start, out.size, address)
        return out


def _name(name: str | None) -> bytes | None:
    return None if name is None else _values.text(name, "name")

# SPDX-License-Identifier: Apache-2.0
"""Group: settings of parameters that were registered together."""

from __future__ import annotations

import ctypes as c
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Optional

from . import _values
from ._abi import ALL_GROUPS, lib
from ._structs import OptimHandle
from .typing import NumberDtype, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Group:
    """Settings of the parameters of one register(), the same on every rank before the next step.
    Optimizer.settings is that of all groups together. Values are floats; flags are 0 or 1.

    >>> optimizer = Optimizer(Comm.solo(), "sgd", lr=0.5)
    >>> group = optimizer.register({"w": np.ones(3, np.float32)}, momentum=0.9)
    >>> group
    <Group 0>
    """

    __slots__ = ("_handle", "_known", "number")  # group.lr = 0.1 is an error, not a silence

    def __init__(self, handle: OptimHandle, number: int, known: Collection[str]) -> None:
        self._handle = handle
        self._known = known
        self.number = number

    def __getitem__(self, name: str) -> float:
        """A setting's value. ArgumentError for a name that the rule has not.

        >>> group["momentum"]
        0.9
        """
        value = c.c_double()
        encoded = _values.setting(name, self._known)
        lib().zero_group_get(self._handle.open(), self.number, encoded, c.byref(value))
        return value.value

    def __setitem__(self, name: str, value: float) -> None:
        """Set it from the next step on; local, and the same on every rank. ArgumentError: a name
        that the rule has not, or a value out of range; ZERO_ERR_STATE for amsgrad and centered,
        which are fixed when parameters are registered.

        >>> group["lr"] = 0.1
        """
        encoded = _values.setting(name, self._known)
        number = _values.double(value, f"setting {name!r}")
        lib().zero_group_set(self._handle.open(), self.number, encoded, number)

    def update(self, **settings: Unpack[Settings]) -> None:
        """Set several, as by group[name] = value, one after the other.

        >>> group.update(lr=0.05, weight_decay=0.01)
        """
        given: dict[str, Any] = {**settings}
        for name, value in given.items():
            self[name] = value

    def read_from(self, name: str, address: Optional[int], dtype: NumberDtype = "float32") -> None:
        """Read a setting from memory of the GPU on: one number of dtype "float32" or "float64" at
        `address` (tensor.data_ptr()), which each step reads when it is made, by a launch of a
        captured step too. None: the value that was set, as before. The memory stays there, and
        every rank reads the same number. On the host ZeroError (ZERO_ERR_UNSUPPORTED).

        >>> group.read_from("lr", lr_on_gpu.data_ptr())  # doctest: +SKIP
        """
        encoded = _values.setting(name, self._known)
        at = _values.number_at(address, dtype)
        lib().zero_group_set_from(self._handle.open(), self.number, encoded, *at)

    def __repr__(self) -> str:
        return f"<Group {'of all' if self.number == ALL_GROUPS else self.number}>"

# SPDX-License-Identifier: Apache-2.0
"""Settings of parameters that were registered together."""

from __future__ import annotations

import ctypes as c
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Optional

from . import _values
from ._abi import lib
from ._handles import OptimHandle
from ._zero_h import ALL_GROUPS
from .typing import NumberDtype, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Group:
    """The settings of the parameters that one register() call added. They must be the same on every
    rank when the next step begins. Optimizer.settings is a Group that stands for all groups. Values
    are floats, and flags are 0 or 1.

    >>> optimizer = Optimizer(Comm.solo(), "sgd", lr=0.5)
    >>> group = optimizer.register({"w": np.ones(3, np.float32)}, momentum=0.9)
    >>> group
    <Group 0>
    """

    __slots__ = ("_handle", "_known", "number")  # makes group.lr = 0.1 raise an error

    def __init__(self, handle: OptimHandle, number: int, known: Collection[str]) -> None:
        self._handle = handle
        self._known = known
        self.number = number

    def __getitem__(self, name: str) -> float:
        """Return the value of a setting. Raises ArgumentError if the rule has no setting of this
        name.

        >>> group["momentum"]
        0.9
        """
        value = c.c_double()
        encoded = _values.setting(name, self._known)
        lib().zero_group_get(self._handle.open(), self.number, encoded, c.byref(value))
        return value.value

    def __setitem__(self, name: str, value: float) -> None:
        """Change a setting, starting with the next step. Set the same value on every rank. Local.
        Raises ArgumentError if the rule has no setting of this name, or if the value is out of
        range. Raises ZeroError (ZERO_ERR_STATE) for amsgrad and centered, which are fixed when
        parameters are registered.

        >>> group["lr"] = 0.1
        """
        encoded = _values.setting(name, self._known)
        number = _values.double(value, f"setting {name!r}")
        lib().zero_group_set(self._handle.open(), self.number, encoded, number)

    def update(self, **settings: Unpack[Settings]) -> None:
        """Change several settings, one after another, as group[name] = value does.

        >>> group.update(lr=0.05, weight_decay=0.01)
        """
        given: dict[str, Any] = {**settings}
        for name, value in given.items():
            self[name] = value

    def read_from(self, name: str, address: Optional[int], dtype: NumberDtype = "float32") -> None:
        """Read a setting from GPU memory, starting with the next step. `address`, for example
        tensor.data_ptr(), is the address of one number with the dtype "float32" or "float64". Each
        step reads the number when it runs. Each launch of a captured step also reads it. None
        restores the value that was set. The memory must stay valid, and every rank must read the
        same number. Raises ZeroError (ZERO_ERR_UNSUPPORTED) on the host.

        >>> group.read_from("lr", lr_on_gpu.data_ptr())  # doctest: +SKIP
        """
        encoded = _values.setting(name, self._known)
        at = _values.number_at(address, dtype)
        lib().zero_group_set_from(self._handle.open(), self.number, encoded, *at)

    def __repr__(self) -> str:
        return f"<Group {'of all' if self.number == ALL_GROUPS else self.number}>"

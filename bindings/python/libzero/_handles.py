# SPDX-License-Identifier: Apache-2.0
"""Handles, and the base classes of structs and results for _zero_h.py."""

from __future__ import annotations

import ctypes as c
from typing import Any, TypeVar

H = TypeVar("H", bound="Handle")


class Handle(c.c_void_p):
    """A handle of the library. A closed handle, or a handle of another kind, is never passed to C.
    `owner` is the Python class that holds handles of this kind."""

    owner = ""

    @classmethod
    def from_param(cls, value: object) -> Any:
        if not isinstance(value, cls):
            raise TypeError(f"a {cls.owner} handle is needed, not {type(value).__name__}")
        if not value.value:
            raise ValueError(f"this {cls.owner} is closed")
        return value

    def open(self: H) -> H:
        """Return this handle. Raises ValueError if the handle is closed. (ctypes would wrap this
        exception if a closed handle were passed to C.)"""
        return type(self).from_param(self)  # type: ignore[no-any-return]


class CommHandle(Handle):
    owner = "Comm"


class OptimHandle(Handle):
    owner = "Optimizer"


class Struct(c.Structure):
    """A struct of zero.h. `c_name` is its name in zero.h, and its first field holds its size."""

    c_name = ""


class Status:
    """The type zero_status of results. A negative status raises an exception."""

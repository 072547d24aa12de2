# SPDX-License-Identifier: Apache-2.0
"""Handles, and the bases of structs and results, for _zero_h.py."""

from __future__ import annotations

import ctypes as c
from typing import Any, TypeVar

H = TypeVar("H", bound="Handle")


class Handle(c.c_void_p):
    """A token of the library. One that is closed or of another kind never reaches C. `owner` is the
    class that has such ones."""

    owner = ""

    @classmethod
    def from_param(cls, value: object) -> Any:
        if not isinstance(value, cls):
            raise TypeError(f"a handle of {cls.owner} is needed, not {type(value).__name__}")
        if not value.value:
            raise ValueError(f"this {cls.owner} is closed")
        return value

    def open(self: H) -> H:
        """This handle; ValueError if it is closed. (ctypes wraps what from_param raises.)"""
        return type(self).from_param(self)  # type: ignore[no-any-return]


class CommHandle(Handle):
    owner = "Comm"


class OptimHandle(Handle):
    owner = "Optimizer"


class Struct(c.Structure):
    """A struct of zero.h: `c_name` is its name there, and its first field its size."""

    c_name = ""


class Status:
    """As restype: zero_status. A negative one raises."""

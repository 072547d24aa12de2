# SPDX-License-Identifier: Apache-2.0
"""Converts Python values to C. A value that does not fit is reported and never truncated."""

from __future__ import annotations

import ctypes as c
import difflib
import math
import operator
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Optional

from ._dtypes import dtypes_of
from ._errors import ArgumentError
from ._zero_h import ERR_ARGUMENT
from .typing import NumberDtype


def int32(value: int, what: str) -> int:
    """Return `value` for an int32_t. Without this check, ctypes would silently truncate a number
    that is too large."""
    return _integer(value, what, 32)


def int64(value: int, what: str) -> int:
    return _integer(value, what, 64)


def _integer(value: int, what: str, bits: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}") from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise OverflowError(f"{what} {number} does not fit in {bits} bits")
    return number


def stream(value: Any) -> int | None:
    """Return a CUDA stream for a `void *`. None stands for the default stream, and an int is a
    cudaStream_t. For a torch, CuPy or cuda.core stream, or another object with one of their
    interfaces, return the handle of the object."""
    if hasattr(value, "__cuda_stream__"):
        version, handle = value.__cuda_stream__()
        if version != 0:
            raise TypeError(f"stream has version {version} of __cuda_stream__; only 0 is supported")
    elif hasattr(value, "cuda_stream"):
        handle = value.cuda_stream
    elif hasattr(value, "ptr"):
        handle = value.ptr
    else:
        handle = value
    if handle is None:
        return None
    number = int64(handle, "stream")
    if number < 0:
        raise ValueError(f"stream is {number}, which is not a cudaStream_t")
    return number


def named(value: Any, what: str) -> Sequence[Any]:
    """Return a tuple that begins with a name. Raises TypeError for an array without a name."""
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], str):
        return value
    raise TypeError(f"a {what} is (name, data), not {type(value).__name__} alone: give it a name")


def refuse_nested(given: Mapping[str, Any] | None) -> None:
    """Raise TypeError if a mapping of names contains another mapping, as the parameters of Flax
    do."""
    for name, value in (given or {}).items():
        path, below = str(name), value
        while isinstance(below, Mapping) and below:
            key, below = next(iter(below.items()))
            path += f".{key}"
        if below is not value:
            raise TypeError(
                f"{name!r} is a {type(value).__name__} of further names; flatten it, so that the "
                f"array in it is named {path!r}: flax.traverse_util.flatten_dict(params, sep='.') "
                "does this, and unflatten_dict(flat, sep='.') undoes it"
            )


def double(value: float, what: str) -> float:
    """Return `value` for a double. A value that is not a number is reported. Text is not parsed."""
    try:
        return math.ldexp(value, 0)
    except TypeError:
        raise TypeError(f"{what} must be a number, not {type(value).__name__}") from None


def text(value: str, what: str) -> bytes:
    """Return `value` for a `const char *`, which would end at a NUL."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    encoded = value.encode()
    if b"\0" in encoded:
        raise ValueError(f"{what} {value!r} contains a NUL character")
    return encoded


def path(value: str | os.PathLike[str]) -> bytes:
    """Return `value` as the directory argument of a call."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError("directory contains a NUL character")
    return encoded


def unknown(value: object, what: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """Return the error text for a word that is not in `known`. The text suggests similar words from
    `known` and `others`."""
    listed = list(known)
    given = str(value).lower()

    # Typing errors are usually near the end of a word, and do not change its length.
    def agreement(word: str) -> tuple[int, int]:
        return len(os.path.commonprefix([word, given])), -abs(len(word) - len(given))

    close = difflib.get_close_matches(given, [*listed, *others], n=10)
    near = sorted(close, key=agreement, reverse=True)[:3]
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"{what} {value!r} is unknown; expected one of {', '.join(listed)}{meant}"


def check_word(value: str, what: str, known: Collection[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueError(unknown(value, what, known))


def choice(table: Mapping[str, int], value: str, what: str) -> int:
    check_word(value, what, table)
    return table[value]


def number_at(address: Optional[int], dtype: NumberDtype) -> tuple[Optional[int], int]:
    """Return the C values (address, dtype) of one number in device memory. For None, return a null
    address."""
    what = choice(dtypes_of(NumberDtype), dtype, "dtype")
    return None if address is None else operator.index(address), what


def setting(name: str, known: Collection[str], others: Iterable[str] = ()) -> bytes:
    """Return the name of one of the `known` settings. This is checked here because C does not
    suggest similar names."""
    encoded = text(name, "setting")
    if name not in known:
        message = unknown(name, "setting", known, others)
        raise ArgumentError(ERR_ARGUMENT, "ZERO_ERR_ARGUMENT", message)
    return encoded


def settings(
    values: Mapping[str, Any], known: Collection[str], others: Iterable[str] = ()
) -> tuple[Any, Any, int]:
    """Return (names, values, count) for the fields of a struct. The struct then keeps the arrays
    alive."""
    names = (c.c_char_p * len(values))(*[setting(name, known, others) for name in values])
    numbers = (c.c_double * len(values))(
        *[double(value, f"setting {name!r}") for name, value in values.items()]
    )
    return names, numbers, len(values)

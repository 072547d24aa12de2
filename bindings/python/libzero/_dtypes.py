# SPDX-License-Identifier: Apache-2.0
"""The sizes of element types, and their names in numpy and in the buffer protocol."""

from __future__ import annotations

from typing import Any, get_args

from ._zero_h import DTYPES
from .typing import FloatingDtype, HalfDtype

ITEM_BYTES = {
    "float32": 4,
    "float64": 8,
    "int32": 4,
    "int64": 8,
    "bfloat16": 2,
    "float16": 2,
    "uint16": 2,
    "uint8": 1,
}


def dtypes_of(words: Any) -> dict[str, int]:
    """Return the entries of DTYPES with these names."""
    return {word: DTYPES[word] for word in get_args(words)}


# Gradients and trained parameters have one of these dtypes. Frozen parameters may have any of
# DTYPES.
FLOATING = dtypes_of(FloatingDtype)
HALF = dtypes_of(HalfDtype)

# The keys are kind and size, as in numpy's typestr.
ARRAY_TYPES = {
    "f4": "float32",
    "f8": "float64",
    "i4": "int32",
    "i8": "int64",
    "f2": "float16",
    "u2": "uint16",
    "u1": "uint8",
}

# The kind for each format letter of the buffer protocol.
BUFFER_KINDS = {"e": "f", "f": "f", "d": "f", "i": "i", "l": "i", "q": "i", "n": "i", "H": "u"}

# The format letters for memoryviews. Some Python versions cannot read half floats.
VIEW_FORMATS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "uint8": "B"}
HALF_FORMAT = "H"

_NAMES = {number: name for name, number in DTYPES.items()}


def name_of(number: int) -> str:
    return _NAMES[number]


def typestr_of(name: str) -> str:
    """Return the name of the type in numpy. For bfloat16, which numpy lacks, return the name of
    uint16."""
    known = {name: code for code, name in ARRAY_TYPES.items()}
    code = known.get(name, "u2")
    return f"{'|' if code == 'u1' else '<'}{code}"

# SPDX-License-Identifier: Apache-2.0
"""A rank's own bytes in checkpoints: what Optimizer has of them."""

from __future__ import annotations

import ctypes as c
from typing import Optional, Union

from . import _values
from ._abi import lib
from ._structs import OptimHandle
from .comm import Comm


class Extras:
    """Random states, the position in the data, a configuration: by names, of each rank."""

    _handle: OptimHandle
    _comm: Comm

    def state_extra_set(
        self, name: str, value: Optional[Union[bytes, bytearray, memoryview]]
    ) -> None:
        """Let every later save hold these bytes of this rank under `name`, in place of those before;
        None removes them. A rank has at most 256 names of 1 to 255 bytes, and 16 MiB. What all ranks
        shall read one rank sets. Local. ArgumentError for an empty value, and for too much.

        >>> import json
        >>> optimizer.state_extra_set("position", json.dumps({"epoch": 3, "batch": 17}).encode())
        """
        word, given = _values.text(name, "name"), None if value is None else _bytes(value)
        count = 0 if given is None else len(given)
        lib().zero_state_extra_set(self._handle.open(), word, given, count)

    def state_extra_get(self, name: str, rank: int | None = None) -> bytes:
        """After a load, what `rank` of those that saved had set; the rank of the same number as this
        one by default. Local. ArgumentError for what was not loaded.

        A load also sets, in place of all that this rank has set, what the rank of the same number
        saved: set after it what shall differ.

        >>> optimizer.state_extra_set("position", b"17")
        >>> optimizer.save("run/step-1")
        >>> optimizer.load("run")
        >>> optimizer.state_extra_get("position")
        b'17'
        """
        word = _values.text(name, "name")
        of = self._comm.rank if rank is None else _values.int32(rank, "rank")
        handle, count = self._handle.open(), c.c_size_t()
        lib().zero_state_extra_get(handle, of, word, None, 0, c.byref(count))
        value = c.create_string_buffer(count.value)
        lib().zero_state_extra_get(handle, of, word, value, count, c.byref(count))
        return value.raw

    def state_extra_list(self) -> list[tuple[int, str]]:
        """The rank and the name of all that was loaded, sorted. Local.

        >>> optimizer.state_extra_set("position", b"17")
        >>> optimizer.save("run/step-1")
        >>> optimizer.load("run")
        >>> optimizer.state_extra_list()
        [(0, 'position')]
        """
        handle, count = self._handle.open(), c.c_size_t()
        lib().zero_state_extra_list(handle, None, None, 0, c.byref(count))
        ranks, names = (c.c_int32 * count.value)(), (c.c_char_p * count.value)()
        lib().zero_state_extra_list(handle, ranks, names, count, c.byref(count))
        return [(rank, name.decode()) for rank, name in zip(ranks, names) if name is not None]


def _bytes(value: bytes | bytearray | memoryview) -> bytes:
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise TypeError(f"the value of an extra is bytes, not {type(value).__name__}") from None

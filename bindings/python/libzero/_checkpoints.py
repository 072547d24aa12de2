# SPDX-License-Identifier: Apache-2.0
"""The methods of Optimizer that save and load checkpoints, and store a rank's own bytes in them."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any, Optional, Union

from . import _abi, _values, _zero_h
from ._abi import lib
from ._handles import OptimHandle
from .comm import Comm


class Checkpoints:
    """Checkpoints of parameters and optimizer state. Each rank can also store its own bytes in them
    under a name, for example a random state, the position in the data, or a configuration."""

    _handle: OptimHandle
    _comm: Comm

    def save(self, directory: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Save the parameters, rank 0's buffers, the state, the settings and the step number as the
        checkpoint `directory`, which is the same path on every rank. The checkpoint is either
        complete and on stable storage, or it does not exist. If `replace` is set, an existing
        checkpoint is replaced. Collective. On failure, CheckpointError gives the file, the
        operation and the reason.

        >>> optimizer.save("run/step-1000")
        """
        lib().zero_state_save(self._handle.open(), _values.path(directory), _save_options(replace))

    def save_begin(self, directory: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Begin a `save` of the current state, which threads write while training continues. Data
        that a step is about to change is copied first. The copy needs as much memory as this rank
        writes, and that memory is kept for the next save. Until `save_wait` returns, change
        parameters only through calls of this package. The checkpoint appears once a later
        collective call has detected that all ranks have written their parts. Collective. Raises
        ZeroError if a save is already in progress.

        >>> optimizer.save_begin("run/step-1000")
        >>> result = optimizer.step()
        >>> optimizer.save_wait()
        """
        lib().zero_state_save_begin(self._handle.open(), _values.path(directory), _save_options(replace))

    @property
    def save_ended(self) -> bool:
        """True if collective calls have detected that the save in progress is complete or has
        failed. The value is the same on all ranks. `save_wait` reports whether the save succeeded.
        Local. Raises ZeroError if no save is in progress."""
        done = c.c_int32()
        lib().zero_state_save_poll(self._handle.open(), c.byref(done))
        return done.value != 0

    def save_wait(self) -> None:
        """Wait until the save in progress is on stable storage. Collective. If the save failed,
        CheckpointError gives the reason, and training may continue.

        >>> optimizer.save_begin("run/step-2000")
        >>> optimizer.save_wait()
        """
        lib().zero_state_save_wait(self._handle.open())

    def load(self, directory: str | os.PathLike[str], *, keep_settings: bool = False) -> None:
        """Load a checkpoint, or the newest intact checkpoint in a folder of checkpoints. Any number
        of ranks may have saved it, and values are restored bit for bit. If `keep_settings` is set,
        lr and the other settings keep their current values. Collective. Raises CheckpointError if
        the checkpoint is damaged, or if it belongs to another model; the message then lists every
        difference. After a failure, either nothing has changed, or steps raise CheckpointError
        until a load succeeds.

        >>> optimizer.save("run/step-1000")
        >>> optimizer.load("run")
        """
        options = _abi.create(_zero_h.LoadOptions)
        options.flags = _zero_h.LOAD_KEEP_SETTINGS if keep_settings else 0
        lib().zero_state_load(self._handle.open(), _values.path(directory), c.byref(options))

    def state_extra_set(
        self, name: str, value: Optional[Union[bytes, bytearray, memoryview]]
    ) -> None:
        """Store `value` for this rank under `name` in every later save. It replaces the bytes that
        were stored under this name before, and None removes them. A rank may have at most 256 names
        of 1 to 255 bytes each, and at most 16 MiB in total. All ranks together may have at most 1
        GiB. A value that one rank sets is available to all ranks after a load. Local. Raises
        ArgumentError if the value is empty or a limit is exceeded.

        >>> import json
        >>> optimizer.state_extra_set("position", json.dumps({"epoch": 3, "batch": 17}).encode())
        """
        word, given = _values.text(name, "name"), None if value is None else _bytes(value)
        count = 0 if given is None else len(given)
        lib().zero_state_extra_set(self._handle.open(), word, given, count)

    def state_extra_get(self, name: str, rank: int | None = None) -> bytes:
        """Return the bytes that the given rank had stored in the loaded checkpoint. By default,
        that is the rank with the same number as this rank. Local. Raises ArgumentError if the
        checkpoint has no such bytes.

        A load replaces this rank's stored bytes with the bytes that the rank with the same number
        saved. After the load, set the values that should differ.

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
        """Return the rank and the name of every value stored in the loaded checkpoint, in sorted
        order. Local.

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


def _save_options(replace: bool) -> Any:
    options = _abi.create(_zero_h.SaveOptions)
    options.flags = _zero_h.SAVE_REPLACE if replace else 0
    return c.byref(options)


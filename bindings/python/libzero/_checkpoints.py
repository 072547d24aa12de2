# SPDX-License-Identifier: Apache-2.0
"""The Optimizer's methods that save, load, and keep a rank's own bytes in checkpoints."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any, Optional, Union

from . import _abi, _values, _zero_h
from ._abi import lib
from ._handles import OptimHandle
from .comm import Comm


class Checkpoints:
    """Checkpoints of parameters and state, with bytes of each rank by name, like random states, the
    position in the data, or a configuration."""

    _handle: OptimHandle
    _comm: Comm

    def save(self, directory: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Save parameters, rank 0's buffers, state, settings and step as the checkpoint
        `directory`, the same path on every rank. The checkpoint is either complete and on stable
        storage, or does not exist. `replace` replaces an existing checkpoint. Collective.
        CheckpointError names the file, the operation and the reason.

        >>> optimizer.save("run/step-1000")
        """
        lib().zero_state_save(self._handle.open(), _values.path(directory), _save_options(replace))

    def save_begin(self, directory: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Begin a `save` of the current state; threads write it while training continues. Data that
        a step is about to change is copied first. This needs memory for a copy of everything that
        this rank writes, which is kept for the next save. Until `save_wait`, change parameters only
        through this package's calls. The checkpoint appears once a later collective call has found
        that all ranks have written. Collective. ZeroError: a save is already in progress.

        >>> optimizer.save_begin("run/step-1000")
        >>> result = optimizer.step()
        >>> optimizer.save_wait()
        """
        lib().zero_state_save_begin(self._handle.open(), _values.path(directory), _save_options(replace))

    @property
    def save_ended(self) -> bool:
        """Return whether collective calls have found that the save in progress is complete or has
        failed, with the same result on all ranks. `save_wait` reports which. Local. ZeroError: no
        save is in progress."""
        done = c.c_int32()
        lib().zero_state_save_poll(self._handle.open(), c.byref(done))
        return done.value != 0

    def save_wait(self) -> None:
        """Wait until the save in progress is on stable storage. Collective. CheckpointError gives
        the reason if there is no checkpoint; training may continue.

        >>> optimizer.save_begin("run/step-2000")
        >>> optimizer.save_wait()
        """
        lib().zero_state_save_wait(self._handle.open())

    def load(self, directory: str | os.PathLike[str], *, keep_settings: bool = False) -> None:
        """Load a checkpoint, or the latest sound one in a folder of checkpoints, bit for bit, saved
        by any number of ranks. With `keep_settings`, lr and the other settings keep their values.
        Collective. CheckpointError: the checkpoint is damaged, or belongs to another model, with
        every difference listed. Either nothing has changed, or steps raise CheckpointError until a
        load succeeds.

        >>> optimizer.save("run/step-1000")
        >>> optimizer.load("run")
        """
        options = _abi.create(_zero_h.LoadOptions)
        options.flags = _zero_h.LOAD_KEEP_SETTINGS if keep_settings else 0
        lib().zero_state_load(self._handle.open(), _values.path(directory), c.byref(options))

    def state_extra_set(
        self, name: str, value: Optional[Union[bytes, bytearray, memoryview]]
    ) -> None:
        """Store these bytes of this rank under `name` in every later save; they replace the bytes
        stored before, and None removes them. A rank has at most 256 names of 1 to 255 bytes, and 16
        MiB; all ranks together have 1 GiB. Set a value on one rank to make it available to all.
        Local. ArgumentError if the value is empty or a limit is exceeded.

        >>> import json
        >>> optimizer.state_extra_set("position", json.dumps({"epoch": 3, "batch": 17}).encode())
        """
        word, given = _values.text(name, "name"), None if value is None else _bytes(value)
        count = 0 if given is None else len(given)
        lib().zero_state_extra_set(self._handle.open(), word, given, count)

    def state_extra_get(self, name: str, rank: int | None = None) -> bytes:
        """Return the bytes that `rank` had stored in the loaded checkpoint, by default the rank of
        the same number as this one. Local. ArgumentError if the checkpoint has no such bytes.

        A load replaces this rank's stored bytes by the bytes that the rank of the same number
        saved. Set anything that should differ after the load.

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
        """Return the rank and the name of all stored bytes in the loaded checkpoint, sorted. Local.

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


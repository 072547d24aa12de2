# SPDX-License-Identifier: Apache-2.0
"""Lists the checkpoints in a folder, and deletes old checkpoints."""

from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass

from . import _abi, _values
from ._abi import lib
from ._zero_h import Checkpoint as Listed


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint. `name` is the name of its directory in the folder. `step` is the
    number of steps before the save, `world` is the number of ranks that saved it, and `bytes` is
    the total size of its files."""

    name: str
    step: int
    world: int
    bytes: int


def list_checkpoints(folder: str | os.PathLike[str]) -> list[Checkpoint]:
    """Return the complete checkpoints in a folder, newest first. Optimizer.load prefers them in
    this order. If the folder does not exist, the list is empty. This function needs no comm. Raises
    CheckpointError if a checkpoint that cannot be read may be the newest.

    >>> list_checkpoints("run")
    []
    """
    path, count, room = _values.path(folder), c.c_size_t(), 0
    while True:
        found = (Listed * room)(*[_abi.create(Listed) for _ in range(room)])
        lib().zero_state_list(path, found if room else None, room, c.byref(count))
        if count.value <= room:
            break
        room = count.value
    return [
        Checkpoint(os.fsdecode(one.name), one.step, one.world, one.bytes)
        for one in found[: count.value]
    ]


def prune_checkpoints(
    folder: str | os.PathLike[str], keep_last: int, keep_every: int = 0
) -> int:
    """Delete the complete checkpoints in a folder, except the newest `keep_last` (at least 1) and
    any checkpoint whose step is a multiple of `keep_every`. Returns the number of deleted
    checkpoints. Every byte of the newest checkpoint is verified first. If that checkpoint is
    damaged, this raises CheckpointError and deletes nothing. Only checkpoints are deleted. Call
    this on one rank, after a save. This function needs no comm.

    >>> prune_checkpoints("run", keep_last=3, keep_every=1000)
    0
    """
    deleted = c.c_size_t()
    last, every = _values.int64(keep_last, "keep_last"), _values.int64(keep_every, "keep_every")
    lib().zero_state_prune(_values.path(folder), last, every, c.byref(deleted))
    return deleted.value

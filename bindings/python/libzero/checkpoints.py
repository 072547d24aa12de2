# SPDX-License-Identifier: Apache-2.0
"""Folders of checkpoints: what is in them, and deleting what is old."""

from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass

from . import _abi, _values
from ._abi import lib
from ._structs import CheckpointOf


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: the `name` of its directory in the folder, the `step` and the `world`
    size of its save, and the `bytes` of all its files."""

    name: str
    step: int
    world: int
    bytes: int


def list_checkpoints(folder: str | os.PathLike[str]) -> list[Checkpoint]:
    """The complete checkpoints in a folder, newest first, as Optimizer.load takes them; none if there
    is no such folder. Needs no comm. CheckpointError where one that cannot be read may be the newest.

    >>> list_checkpoints("run")
    []
    """
    path, count, room = _values.path(folder), c.c_size_t(), 0
    while True:
        found = (CheckpointOf * room)(*[_abi.create(CheckpointOf) for _ in range(room)])
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
    """Delete the complete checkpoints in a folder, but the newest `keep_last` (at least 1) and those
    whose step is a multiple of `keep_every`; returns how many. First every byte of the newest is
    verified. Nothing but checkpoints is deleted. One rank calls it, after a save. Needs no comm.
    CheckpointError if the newest is damaged, and then all stay.

    >>> prune_checkpoints("run", keep_last=3, keep_every=1000)
    0
    """
    deleted = c.c_size_t()
    last, every = _values.int64(keep_last, "keep_last"), _values.int64(keep_every, "keep_every")
    lib().zero_state_prune(_values.path(folder), last, every, c.byref(deleted))
    return deleted.value

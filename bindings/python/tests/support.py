# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads, memory of every kind, and names that no other test uses."""

from __future__ import annotations

import ctypes as c
import importlib.util
import itertools
import os
import threading
import unittest
from collections.abc import Callable
from typing import Any, TypeVar

from libzero import Comm

HAS_NUMPY = importlib.util.find_spec("numpy") is not None
needs_numpy = unittest.skipUnless(HAS_NUMPY, "numpy is not installed")
DEADLINES = {"timeout_ms": 20_000, "late_ms": 20_000, "rendezvous_ms": 20_000}

T = TypeVar("T")
_numbers = itertools.count()


def new_name(what: str = "test") -> str:
    return f"{what}-{os.getpid()}-{next(_numbers)}"


def run_ranks(world: int, body: Callable[[Comm], T]) -> list[T]:
    """body(comm) as `world` threads of a local comm; their results, or the first exception."""
    name = new_name("threads")
    results: list[Any] = [None] * world
    errors: list[BaseException | None] = [None] * world

    def run(rank: int) -> None:
        try:
            with Comm.local(name, rank, world, **DEADLINES) as comm:
                try:
                    results[rank] = body(comm)
                except BaseException:
                    comm.abort("a test failed")
                    raise
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        thread.join(60)
        if thread.is_alive():
            raise AssertionError(f"rank {rank} hangs")
    found = [error for error in errors if error is not None]
    # An abort is what the others see of it.
    found.sort(key=lambda error: "a test failed" in str(error))
    if found:
        raise found[0]
    return results


def floats(*values: float) -> Any:
    """Plain memory, without numpy."""
    return (c.c_float * len(values))(*values)

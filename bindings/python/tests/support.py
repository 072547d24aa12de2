# SPDX-License-Identifier: Apache-2.0
"""Runs ranks as threads and processes, and provides memory of every kind and unique names."""

from __future__ import annotations

import ctypes as c
import importlib.util
import itertools
import multiprocessing
import os
import threading
import unittest
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from libzero import Comm

HAS_NUMPY = importlib.util.find_spec("numpy") is not None
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_numpy = unittest.skipUnless(HAS_NUMPY, "numpy is not installed")
needs_torch = unittest.skipUnless(HAS_NUMPY and HAS_TORCH, "torch is not installed")
DEADLINES = {"timeout_ms": 20_000, "late_ms": 20_000, "rendezvous_ms": 20_000}

T = TypeVar("T")
_numbers = itertools.count()


def new_name(what: str = "test") -> str:
    return f"{what}-{os.getpid()}-{next(_numbers)}"


def run_ranks(world: int, body: Callable[[Comm], T]) -> list[T]:
    """Run body(comm) in `world` threads of a local comm. Return the results, or raise the first
    exception."""
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
    # The other ranks only see an abort, so its error comes last.
    found.sort(key=lambda error: "a test failed" in str(error))
    if found:
        raise found[0]
    return results


def run_processes(target: Callable[..., None], world: int = 2) -> list[Any]:
    """Run target(name, rank, connection), a function of a module, in each process. Return what each
    process sends."""
    name, context = new_name("processes"), multiprocessing.get_context("spawn")
    started: list[tuple[Any, Connection]] = []
    for rank in range(world):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(name, rank, sending))
        process.start()
        sending.close()
        started.append((process, receiving))
    results: list[Any] = []
    for rank, (process, receiving) in enumerate(started):
        if not receiving.poll(60):
            raise AssertionError(f"rank {rank} hangs")
        results.append(receiving.recv())
        process.join(60)
    return results


def floats(*values: float) -> Any:
    """Return memory without numpy."""
    return (c.c_float * len(values))(*values)

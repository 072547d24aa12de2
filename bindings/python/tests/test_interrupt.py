# SPDX-License-Identifier: Apache-2.0
"""Tests that Ctrl-C ends each call that waits for other ranks."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import libzero
from libzero import Comm, CommError, InterruptedCallError, Optimizer, allocate
from support import DEADLINES, HAS_NUMPY, new_name, run_processes

SOON_S = 2  # the deadline is 20; without other load, the call takes less than 0.2

# Each call waits, because the other rank never makes it.
CALLS: dict[str, Callable[[Comm, Optimizer], object]] = {
    "arena": lambda comm, _optim: comm.arena((5,)),
    "all_reduce": lambda comm, _optim: comm.all_reduce(1.0),
    "barrier": lambda comm, _optim: comm.barrier(),
    "broadcast": lambda comm, _optim: comm.broadcast(bytearray(4)),
    "split": lambda comm, _optim: comm.split(0),
    "broadcast_params": lambda _comm, optim: optim.broadcast_params(),
    "clip_grad_norm": lambda _comm, optim: optim.clip_grad_norm(1.0),
    "join": lambda _comm, optim: optim.join(),
    "load": lambda _comm, optim: optim.load(tempfile.mkdtemp()),
    "rebalance": lambda _comm, optim: optim.rebalance(),
    "reduce_grads": lambda _comm, optim: optim.reduce_grads(),
    "save": lambda _comm, optim: optim.save(tempfile.mkdtemp() + "/checkpoint"),
    "share_params": lambda _comm, optim: optim.share_params(),
    "step": lambda _comm, optim: optim.step(),
}
if HAS_NUMPY:
    CALLS["state_gather"] = lambda _comm, optim: optim.state_gather("w")


def interrupt_soon(after_s: float, sent: list[float]) -> None:
    def send() -> None:
        time.sleep(after_s)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


def time_to_end(call: Callable[[], object]) -> float:
    """Return the seconds from Ctrl-C to the exception."""
    sent: list[float] = []
    interrupt_soon(0.15, sent)
    try:
        call()
    except KeyboardInterrupt as interrupt:
        assert isinstance(interrupt.__cause__, InterruptedCallError), repr(interrupt.__cause__)
        return time.monotonic() - sent[0]
    raise AssertionError("it was not interrupted")


def hear_signals() -> None:
    """Handle SIGINT as at a terminal. Shells let background processes ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def be_interrupted(name: str, rank: int, out: Connection) -> None:
    """Interrupt rank 0 in every call. Rank 1 makes none of the calls, and reads the failure
    afterwards."""
    hear_signals()
    results: dict[str, Any] = {}
    for call, run in CALLS.items():
        comm = Comm.local(f"{name}-{call}", rank, 2, **DEADLINES)
        optim = Optimizer(comm, "adamw", uneven_inputs="world")
        memory = allocate(comm, {"w": (5,)})
        optim.register(memory.params)
        optim.broadcast_params()
        optim.step()
        if rank == 0:
            took_s = time_to_end(lambda run=run, comm=comm, optim=optim: run(comm, optim))  # type: ignore[misc]
            failure = comm.failure()
            results[call] = (took_s, failure.rank if failure else -1, failure and failure.params_consistent)
        else:
            text = ""
            while not text:
                failure = comm.failure()
                text = failure.message if failure else ""
                time.sleep(0.01)
            try:
                comm.barrier()
            except CommError as error:
                results[call] = (error.name, text)
        optim.close()
        comm.close()
    out.send(results)


def wait_for_a_step_that_ends_later(name: str, rank: int, out: Connection) -> None:
    """Rank 1 takes only one of two steps, so that rank 0 waits for the end of its first step."""
    hear_signals()
    comm = Comm.local(name, rank, 2, **DEADLINES)
    optim = Optimizer(comm, "sgd", overlap_gather=True)
    memory = allocate(comm, {"w": (5,)})
    optim.register(memory.params)
    optim.broadcast_params()
    if rank == 0:
        out.send(time_to_end(lambda: [optim.step() for _ in range(2)]))
        return
    optim.step()
    out.send(0)
    time.sleep(1)


class InterruptTest(unittest.TestCase):
    def setUp(self) -> None:
        self.before = signal.getsignal(signal.SIGINT)
        hear_signals()

    def tearDown(self) -> None:
        signal.signal(signal.SIGINT, self.before)

    def test_every_wait_for_ranks_ends_soon_and_the_others_hear_who_was_interrupted(self) -> None:
        first, second = run_processes(be_interrupted)
        for call in CALLS:
            took_s, rank, consistent = first[call]
            self.assertLess(took_s, SOON_S, call)
            self.assertEqual((rank, consistent), (0, True), call)
            name, text = second[call]
            self.assertEqual(name, "ZERO_ERR_ABORTED", call)
            self.assertIn("rank 0 was interrupted", text, call)

    def test_a_step_that_ends_in_the_background_is_no_shelter(self) -> None:
        self.assertLess(run_processes(wait_for_a_step_that_ends_later)[0], SOON_S)

    def test_a_rendezvous_ends_soon_for_rank_0_and_for_its_guests(self) -> None:
        for rank in (0, 1):
            took_s = time_to_end(lambda rank=rank: Comm.local(new_name(), rank, 2, **DEADLINES))  # type: ignore[misc]
            self.assertLess(took_s, SOON_S)

    def test_a_handler_that_raises_nothing_leaves_an_error_of_its_own(self) -> None:
        notes: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, _frame: notes.append(number))
        try:
            interrupt_soon(0.1, [])
            with self.assertRaisesRegex(InterruptedCallError, "rank 1 was interrupted"):
                Comm.local(new_name(), 1, 2, **DEADLINES)
            self.assertEqual(notes, [signal.SIGINT])
        finally:
            signal.signal(signal.SIGINT, before)

    def test_who_wants_no_interrupts_has_none(self) -> None:
        notes: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, _frame: notes.append(number))
        libzero.interrupt_waits(False)
        try:
            interrupt_soon(0.05, [])
            with self.assertRaisesRegex(CommError, "ZERO_ERR_RENDEZVOUS"):
                Comm.local(new_name(), 1, 2, rendezvous_ms=300)
            self.assertEqual(notes, [signal.SIGINT])
        finally:
            libzero.interrupt_waits()
            signal.signal(signal.SIGINT, before)

    def test_a_rank_that_is_a_thread_is_not_interrupted(self) -> None:
        name, ended = new_name(), []

        def wait() -> None:
            try:
                Comm.local(name, 1, 2, rendezvous_ms=400)
            except CommError as error:
                ended.append(error.name)

        thread = threading.Thread(target=wait)
        thread.start()
        interrupt_soon(0.1, [])
        with self.assertRaises(KeyboardInterrupt):
            time.sleep(5)
        thread.join()
        self.assertEqual(ended, ["ZERO_ERR_RENDEZVOUS"])


if __name__ == "__main__":
    unittest.main()

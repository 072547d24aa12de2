# SPDX-License-Identifier: Apache-2.0
"""Tests ranks that are processes."""

from __future__ import annotations

import os
import signal
import sys
import unittest
from multiprocessing.connection import Connection

from libzero import Comm, CommError, Optimizer, ZeroError, allocate
from support import DEADLINES, run_processes


def train(name: str, rank: int, out: Connection) -> None:
    with Comm.local(name, rank, 2, **DEADLINES) as comm, Optimizer(comm, "sgd", lr=0.5) as optim:
        memory = allocate(comm, {"w": (1500,)})
        optim.register(memory.params)
        if rank == 0:
            for at in range(1500):
                memory.data["w"][at] = at
        optim.broadcast_params()
        for step in range(3):
            for at in range(1500):
                memory.grads["w"][at] = rank + step
            optim.step()
        out.send((list(map(float, memory.data["w"])), optim.stats().copied_bytes))
        comm.barrier()


def die_in_step(name: str, rank: int, out: Connection) -> None:
    comm = Comm.local(name, rank, 2, **DEADLINES)
    if rank == 1:
        out.send(("", -1))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.barrier()
    except CommError as error:
        failure = comm.failure()
        out.send((error.name, failure.rank if failure else -1))


class ProcessTest(unittest.TestCase):
    def test_two_processes_train_in_shared_memory(self) -> None:
        first, second = run_processes(train)
        self.assertEqual(first, second)
        self.assertEqual(first, ([at - 0.5 * (0.5 + 1.5 + 2.5) for at in range(1500)], 0))

    def test_survivor_hears_who_died(self) -> None:
        self.assertEqual(run_processes(die_in_step)[0], ("ZERO_ERR_PEER_DEAD", 1))

    @unittest.skipUnless(sys.platform == "linux", "needs fork")
    def test_child_of_a_fork_is_refused(self) -> None:
        with Comm.solo() as comm:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                name = "no error"
                try:
                    comm.barrier()
                except ZeroError as error:
                    name = error.name
                os.write(write, name.encode())
                os._exit(0)
            os.close(write)
            os.waitpid(child, 0)
            self.assertEqual(os.read(read, 100), b"ZERO_ERR_FORKED")
            os.close(read)
            comm.barrier()


if __name__ == "__main__":
    unittest.main()

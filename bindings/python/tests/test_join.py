# SPDX-License-Identifier: Apache-2.0
"""Tests ranks whose inputs end at different times."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import Any

from libzero import ArgumentError, Comm, CommError, Optimizer, ZeroError
from support import floats, run_ranks


def model(comm: Comm, weight: Any, uneven_inputs: str = "world") -> Optimizer:
    optimizer = Optimizer(comm, "sgd", lr=1, uneven_inputs=uneven_inputs)
    optimizer.register({"w": weight}, grads={"w": floats(3)})
    return optimizer


class JoinTest(unittest.TestCase):
    def test_ranks_join_when_their_inputs_end_and_all_have_the_same_parameters(self) -> None:
        # Rank r has r batches with the gradient 3, so the first step has two ranks and the second
        # has one.
        for uneven_inputs, expected in (("world", -3.0), ("active", -6.0)):

            def body(comm: Comm, uneven_inputs: str = uneven_inputs) -> list[float]:
                weight, mean = floats(0), floats(comm.rank)
                with model(comm, weight, uneven_inputs) as optimizer:
                    optimizer.register_buffers({"mean": mean})
                    for _ in range(comm.rank):
                        optimizer.step()
                    self.assertEqual(optimizer.join(), 2)
                    after = weight[0]
                    optimizer.step()
                return [after, weight[0], mean[0]]

            self.assertEqual(run_ranks(3, body), [[expected, expected - 3, 2]] * 3)

    def test_what_a_rank_added_up_is_part_of_the_next_step_and_of_no_other(self) -> None:
        def body(comm: Comm) -> float:
            weight = floats(0)
            with model(comm, weight) as optimizer:
                if comm.rank == 1:
                    for _ in range(2):
                        optimizer.step()
                optimizer.join({"w": floats(1)})
            return weight[0]

        self.assertEqual(run_ranks(2, body), [-(3 + 1) / 2 - 3 / 2] * 2)

    def test_all_ranks_stop_with_the_first_if_asked_for(self) -> None:
        def body(comm: Comm) -> tuple[int, float]:
            weight, made = floats(0), 0
            with model(comm, weight, "error") as optimizer:
                with self.assertRaisesRegex(ZeroError, "rank 1 has run out of inputs") as caught:
                    for _ in range(3 - comm.rank):
                        optimizer.step()
                        made += 1
                    optimizer.join()
                self.assertEqual(caught.exception.name, "ZERO_ERR_STATE")
            return made, weight[0]

        self.assertEqual(run_ranks(2, body), [(2, -6.0)] * 2)

    def test_wrong_arguments_are_named(self) -> None:
        with Comm.solo() as comm:
            with self.assertRaisesRegex(ValueError, "uneven_inputs 'maybe'"):
                Optimizer(comm, uneven_inputs="maybe")
            with model(comm, floats(0), "off") as optimizer:
                with self.assertRaisesRegex(ZeroError, "uneven_inputs"):
                    optimizer.join()
            with model(comm, floats(0)) as optimizer:
                with self.assertRaisesRegex(ValueError, "shape"):
                    optimizer.join({"w": floats(1, 2)})
                with self.assertRaises(KeyError):
                    optimizer.join({"v": floats(1)})
                self.assertEqual(optimizer.join(), 0)

    def test_a_rank_that_cannot_join_is_named_and_nobody_waits(self) -> None:
        def body(comm: Comm) -> str:
            gradient = floats(1)
            optimizer = Optimizer(comm, "sgd", uneven_inputs="world")
            optimizer.register([("w", floats(0), gradient), ("v", floats(0), floats(1))])
            try:
                if comm.rank == 0:
                    with self.assertRaises(ArgumentError):
                        optimizer.join([gradient, gradient])
                else:
                    with self.assertRaisesRegex(ZeroError, "rank 0 in Optimizer.step.* overlaps"):
                        optimizer.step()
                optimizer.join()
                return ""
            finally:
                optimizer.close()

        self.assertEqual(run_ranks(2, body), [""] * 2)

    def test_an_exception_in_the_loop_of_a_rank_ends_the_others_calls_and_joins(self) -> None:
        def body(comm: Comm) -> str:
            with model(comm, floats(0)) as optimizer:
                try:
                    optimizer.step()
                    if comm.rank == 0:
                        raise EOFError("no such file")
                    if comm.rank == 1:
                        optimizer.join()
                    while True:
                        optimizer.step()
                except EOFError as error:
                    comm.abort(str(error))
                    return "raised"
                except CommError as error:
                    self.assertIn("no such file", error.message)
                    return error.name

        self.assertEqual(run_ranks(3, body), ["raised"] + ["ZERO_ERR_ABORTED"] * 2)


@unittest.skipUnless("ZERO_RUN" in os.environ, "ZERO_RUN names no zero-run")
class ProcessesTest(unittest.TestCase):
    def run_program(self, program: str) -> subprocess.CompletedProcess[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(textwrap.dedent(program))
            file.flush()
            command = [os.environ["ZERO_RUN"], "-n", "3", sys.executable, file.name]
            return subprocess.run(command, capture_output=True, text=True, timeout=60)

    PROGRAM = """
        import ctypes, libzero
        comm = libzero.Comm.from_env()
        weight, grad = (ctypes.c_float * 1)(), (ctypes.c_float * 1)(6)
        optimizer = libzero.Optimizer(comm, "sgd", lr=1, uneven_inputs="active")
        optimizer.register({"w": weight}, grads={"w": grad})
        for batch in range(2 * comm.rank):
            optimizer.step()
            %s
        print(f"rank {comm.rank} follows {optimizer.join()} at {weight[0]}")
    """

    def test_processes_join(self) -> None:
        done = self.run_program(self.PROGRAM % "pass")
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(3):
            self.assertIn(f"rank {rank} follows 2 at -24.0", done.stdout)

    def test_an_exception_ends_the_job_with_its_rank_named(self) -> None:
        done = self.run_program(self.PROGRAM % "if comm.rank == 2: raise EOFError('no batch')")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("EOFError: no batch", done.stdout + done.stderr)
        self.assertNotIn("follows", done.stdout)


if __name__ == "__main__":
    unittest.main()

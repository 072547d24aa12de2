# SPDX-License-Identifier: Apache-2.0
"""Tests that messages of the library use the Python names of calls and arguments."""

from __future__ import annotations

import inspect
import tempfile
import unittest
from pathlib import Path

import libzero
from libzero import _abi, _custom, _words
from libzero._abi import in_python
from libzero._group import Group

from support import floats, run_ranks

HOMES = {"Comm": libzero.Comm, "Group": Group, "Optimizer": libzero.Optimizer}


class Words(unittest.TestCase):
    def test_every_function_of_the_header_has_a_name_that_exists(self) -> None:
        self.assertEqual(_abi.SIGNATURES.keys() - _abi.CALLS.keys(), _words._INTERNAL)
        self.assertLessEqual(set(_words._CALLS), set(_abi.SIGNATURES))
        for name, told in _abi.CALLS.items():
            owner, _, method = told.partition(".")
            if method:
                self.assertTrue(hasattr(HOMES[owner], method), f"{name}: {told}")
            else:
                self.assertTrue(hasattr(libzero, owner), f"{name}: {told}")

    def test_every_constant_is_an_argument_that_exists(self) -> None:
        classes = (*HOMES.values(), _custom.CustomOptimizer, libzero.Param)
        known = {
            argument
            for one in classes
            for _, method in inspect.getmembers(one, callable)
            if hasattr(method, "__annotations__") or inspect.isfunction(method)
            for argument in _arguments(method)
        }
        for one in classes:
            known |= set(_arguments(one))
        for name, told in _abi.CONSTANTS.items():
            argument, equals, _ = told.partition("=")
            if equals:
                self.assertIn(argument, known, f"{name}: {told}")

    def test_what_is_no_word_of_the_header_stays(self) -> None:
        for text in (
            "set ZERO_MASTER_ADDR and ZERO_RANK",
            "parameter 'zero_step' of '/run/zero_step'",
            "a step of /run/zero_step failed (ZERO_ERR_STATE)",
            "no words at all, zero_or_more",
        ):
            self.assertEqual(in_python(text), text)

    def test_fields_stand_without_their_struct(self) -> None:
        self.assertEqual(
            in_python("zero_join needs zero_options.uneven_inputs, which is ZERO_UNEVEN_OFF"),
            'Optimizer.join needs uneven_inputs, which is uneven_inputs="off"',
        )

    def test_a_save_over_another_names_the_argument_that_allows_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with libzero.Comm.solo() as comm, libzero.Optimizer(comm, "sgd") as optimizer:
                optimizer.register({"w": floats(1, 1, 1)})
                optimizer.save(Path(folder) / "one")
                with self.assertRaises(libzero.ZeroError) as caught:
                    optimizer.save(Path(folder) / "one")
        self.assertTrue(caught.exception.message.startswith("Optimizer.save: "), caught.exception)
        self.assertIn("replace=True", caught.exception.message)

    def test_other_ranks_and_failures_are_told_in_the_same_words(self) -> None:
        def body(comm: libzero.Comm) -> tuple[str, str]:
            optimizer = libzero.Optimizer(comm, "sgd")
            optimizer.register({"w": floats(1, 1, 1)})
            optimizer.seal()
            try:
                if comm.rank == 0:
                    optimizer.step([None])
                else:
                    optimizer.broadcast_params()
            except libzero.ZeroError as error:
                failure = comm.failure()
                assert failure is not None
                return error.message, failure.message
            return "", ""

        for told in run_ranks(2, body):
            for message in told:
                self.assertIn("Optimizer.step", message)
                self.assertIn("Optimizer.broadcast_params", message)
                self.assertNotIn("zero_", message)


def _arguments(called: object) -> list[str]:
    try:
        return list(inspect.signature(called).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []


if __name__ == "__main__":
    unittest.main()

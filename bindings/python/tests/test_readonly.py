# SPDX-License-Identifier: Apache-2.0
"""Tests that gradients may be read-only memory. Parameters may not be read-only. Arrays of libraries that promise
immutability and mappings of mappings are rejected."""

from __future__ import annotations

import ctypes as c
import itertools
import mmap
import struct
import tempfile
import unittest
from typing import Any

from libzero import Comm, Optimizer, allocate
from support import floats, needs_numpy, run_ranks
from test_dlpack import Array

READ_ONLY = 1


def protected(*values: float) -> memoryview:
    """Return floats in a read-only page. Writing to it ends the process."""
    with tempfile.TemporaryFile() as file:
        file.write(struct.pack(f"{len(values)}f", *values))
        file.flush()
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("f")


def of_package(module: str, memory: Any, kind: str = "ArrayImpl", **more: Any) -> Array:
    return type(kind, (Array,), {"__module__": module})(c.addressof(memory), (len(memory),), **more)


class GradientsTest(unittest.TestCase):
    def test_no_call_writes_to_gradients_outside_of_arenas(self) -> None:
        def body(comm: Comm) -> list[float]:
            found = []
            for options, in_arena in itertools.product(
                (
                    {},
                    {"max_grad_norm": 0.5},
                    {"loss_scale": 2.0, "nonfinite": "skip"},
                    {"wire_dtype": "bfloat16", "predivide_factor": 2.0},
                ),
                (False, True),
            ):
                weights = allocate(comm, {"w": 4}).data["w"] if in_arena else floats(0, 0, 0, 0)
                grads = {"w": protected(8, -4, 2, 8 * (1 + comm.rank))}
                with Optimizer(comm, "sgd", lr=1.0, **options) as optimizer:
                    optimizer.register({"w": weights}, grads=grads)
                    optimizer.broadcast_params()
                    optimizer.step()
                    optimizer.step(grads, reduction="sum")
                    optimizer.reduce_grads(accumulate=True)
                    optimizer.step(accumulate=True)
                    optimizer.clip_grad_norm(0.25)
                    optimizer.clip_grad_value(0.125)
                    optimizer.step()
                    optimizer.bind(grads=grads)
                    optimizer.reduce_grads()
                    optimizer.drop_grads()
                    optimizer.grad_ready("w", grads["w"])
                    optimizer.step()
                    optimizer.step(reduction="none")
                self.assertEqual(list(grads["w"]), [8, -4, 2, 8 * (1 + comm.rank)])
                found.append(weights[0])
            return found

        for world in (1, 2):
            for found in run_ranks(world, body):
                self.assertTrue(all(value < 0 for value in found), found)

    def test_a_gradient_that_is_read_only_trains_like_one_that_is_not(self) -> None:
        results = []
        for grads in (floats(2, -2), protected(2, -2), memoryview(bytes(floats(2, -2))).cast("f")):
            weights = floats(1, 2)
            with Comm.solo() as comm, Optimizer(comm, "sgd", lr=0.5) as optimizer:
                optimizer.register({"w": weights})
                optimizer.step({"w": grads})
            results.append(list(weights))
        self.assertEqual(results, [[0, 3]] * 3)

    @needs_numpy
    def test_arrays_of_numpy_that_are_read_only_are_gradients(self) -> None:
        import numpy as np

        frozen = np.full(4, 2, np.float32)
        frozen.flags.writeable = False
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(frozen))
            file.flush()
            mapped = np.memmap(file.name, np.float32, "r", shape=(4,))
            for grad in (frozen, mapped):
                weights = np.ones(4, np.float32)
                with Comm.solo() as comm, Optimizer(comm, "sgd", lr=0.5) as optimizer:
                    optimizer.register({"w": weights}, grads={"w": grad})
                    optimizer.step()
                self.assertEqual(weights.tolist(), [0] * 4)

    def test_a_read_only_view_of_an_arena_is_refused(self) -> None:
        words = "gradient of 'w' is a read-only view of an arena, where ranks sum gradients in place"

        def refused(grads: Any) -> None:
            for take in (
                lambda: optimizer.register({"v": floats(1, 2)}, grads={"v": grads}),
                lambda: optimizer.step({"w": grads}),
                lambda: optimizer.reduce_grads([grads], accumulate=True),
                lambda: optimizer.bind(grads={"w": grads}),
                lambda: optimizer.grad_ready("w", grads),
            ):
                with self.assertRaisesRegex(ValueError, words.replace("'w'", "'[wv]'")):
                    take()

        with Comm.solo() as comm, Optimizer(comm, "sgd") as optimizer:
            memory = allocate(comm, {"w": 2})
            optimizer.register(memory.params)
            refused(memoryview(memory.grads["w"]).toreadonly())
            if hasattr(memory.grads["w"], "flags"):  # numpy is installed
                grads = memory.grads["w"][:]
                grads.flags.writeable = False
                refused(grads)


class ParametersTest(unittest.TestCase):
    def test_arrays_that_never_change_are_refused_where_they_would(self) -> None:
        memory = floats(1, 2)
        for module, library in (
            ("jaxlib._jax", "JAX"),
            ("flax.nnx.variablelib", "JAX"),
            ("tensorflow.python.framework.ops", "TensorFlow"),
            ("pyarrow.lib", "Arrow"),
        ):
            array = of_package(module, memory)
            words = f"is an array of {library}, which promises .* never change; .*libzero.allocate"
            with Comm.solo() as comm, Optimizer(comm, "sgd", lr=0.5) as optimizer:
                for take in (
                    lambda: optimizer.register({"w": array}),
                    lambda: optimizer.register_buffers({"w": array}),
                    lambda: comm.broadcast(array),
                    lambda: comm.all_reduce(array),
                ):
                    with self.assertRaisesRegex(TypeError, words):
                        take()
                optimizer.register({"w": floats(0, 0)})
                with self.assertRaisesRegex(TypeError, f"parameter 'w' {words}"):
                    optimizer.bind({"w": array})
                optimizer.step({"w": array})
            self.assertEqual(list(memory), [1, 2])

    def test_a_class_of_the_program_made_of_theirs_never_changes_either(self) -> None:
        theirs = type(of_package("flax.nnx.variablelib", floats(1)))
        own = type("Own", (theirs,), {"__module__": "model"})(c.addressof(floats(1)), (1,))
        with Comm.solo() as comm, self.assertRaisesRegex(TypeError, "array of JAX"):
            Optimizer(comm).register({"w": own})

    def test_the_flag_of_dlpack_is_heeded(self) -> None:
        memory = floats(1, 2)
        array = Array(c.addressof(memory), (2,), flags=READ_ONLY)
        with Comm.solo() as comm, Optimizer(comm, "sgd", lr=0.5) as optimizer:
            with self.assertRaisesRegex(ValueError, "parameter 'w' is read-only"):
                optimizer.register({"w": array})
            weights = floats(0, 0)
            optimizer.register({"w": weights})
            optimizer.step({"w": array})
        self.assertEqual(list(weights), [-0.5, -1])

    def test_what_keras_does_not_show_is_refused_with_where_to_read(self) -> None:
        for module in ("keras.src.backend", "tensorflow.python.ops.resource_variable_ops"):
            variable = type("Variable", (), {"__module__": module})()
            with (
                Comm.solo() as comm,
                self.assertRaisesRegex(TypeError, "'w': Variable is neither .*docs/frameworks.md"),
            ):
                Optimizer(comm).register({"w": variable})

    def test_nested_names_are_refused_with_what_they_are_flat(self) -> None:
        nested: Any = {"layers": {0: {"w": floats(1, 2)}}}
        words = "'layers' is a dict of further names; .* the array in it is named 'layers.0.w'"
        with Comm.solo() as comm, Optimizer(comm) as optimizer:
            optimizer.register({"layers.0.w": floats(1, 2)})
            for take in (
                lambda: optimizer.register(nested),
                lambda: optimizer.register({"v": floats(1)}, grads=nested),
                lambda: optimizer.register_buffers(nested),
                lambda: optimizer.step(nested),
                lambda: optimizer.bind(nested),
                lambda: allocate(comm, nested),
            ):
                with self.assertRaisesRegex(TypeError, words):
                    take()


if __name__ == "__main__":
    unittest.main()

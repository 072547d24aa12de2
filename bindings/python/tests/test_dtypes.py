# SPDX-License-Identifier: Apache-2.0
"""Tests that parameters and gradients of every dtype train as numpy computes it, with roundings
written from their definitions."""

from __future__ import annotations

import array
import ctypes as c
import sys
import tempfile
import unittest
from functools import partial
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any
from unittest import mock

from libzero import Comm, Optimizer, Param, allocate, partition_plan
from libzero._buffers import buffer_of
from support import DEADLINES, floats, needs_numpy, needs_torch, run_processes, run_ranks

ROUNDINGS = {"float32": "even", "remainder": "away"}
STEPS = 4
SIZE = 3000


def widened(bits: Any) -> Any:
    """Return float32 values, whose upper halves are the bfloat16 values."""
    import numpy as np

    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values: Any, ties: str) -> Any:
    """Round float32 values to the nearest bfloat16. A tie goes to the value with an even last bit,
    or to the value farther from zero."""
    import numpy as np

    bits = values.astype(np.float32).view(np.uint32)
    lower, rest = bits >> 16, bits & 0xFFFF
    odd = lower & 1 == 1 if ties == "even" else np.ones(len(bits), bool)
    up = (rest > 0x8000) | ((rest == 0x8000) & odd)
    return (lower + up).astype(np.uint16)


def start() -> Any:
    import numpy as np

    return rounded(np.random.default_rng(7).normal(size=SIZE).astype(np.float32), "even")


def gradient(rank: int, step: int) -> Any:
    """Return multiples of 2^-9. Some of them put master weights halfway between two parameter
    values."""
    import numpy as np

    drawn = np.random.default_rng(100 * step + rank).integers(-200, 200, SIZE)
    return (drawn / 512).astype(np.float32)


def expected(ties: str, narrow: bool) -> Any:
    """Compute SGD with momentum on the mean over two ranks, with float32 master weights."""
    import numpy as np

    master, momentum = widened(start()), np.zeros(SIZE, np.float32)
    for step in range(STEPS):
        grads = [gradient(rank, step) for rank in (0, 1)]
        if narrow:
            grads = [widened(rounded(grad, "even")) for grad in grads]
        mean = (grads[0] + grads[1]) * np.float32(0.5)
        momentum = mean if step == 0 else momentum * np.float32(0.5) + mean
        master = master - np.float32(0.25) * momentum
    return rounded(master, ties)


def train(comm: Comm, master: str, grad_dtype: str | None) -> tuple[list[int], int, int]:
    memory = allocate(comm, {"w": (SIZE,)}, "sgd", dtype="bfloat16", grad_dtype=grad_dtype)
    with Optimizer(comm, "sgd", lr=0.25, momentum=0.5, master=master) as optimizer:
        optimizer.register(memory.params)
        if comm.rank == 0:
            memory.data["w"][:] = start()
        optimizer.broadcast_params()
        for step in range(STEPS):
            grad = gradient(comm.rank, step)
            memory.grads["w"][:] = grad if grad_dtype == "float32" else rounded(grad, "even")
            optimizer.step()
        stats = optimizer.stats()
        out = memory.data["w"].tolist(), stats.copied_bytes, stats.state_bytes
        comm.barrier()
    return out


def train_as_process(name: str, rank: int, out: Connection) -> None:
    with Comm.local(name, rank, 2, **DEADLINES) as comm:
        out.send([train(comm, master, "float32") for master in ROUNDINGS])


@needs_numpy
class MasterTest(unittest.TestCase):
    def test_roundings_differ_where_it_is_a_tie(self) -> None:
        self.assertNotEqual(expected("even", False).tolist(), expected("away", False).tolist())

    def test_bfloat16_trains_on_threads_by_masters_and_by_remainders(self) -> None:
        for master, ties in ROUNDINGS.items():
            for grad_dtype in (None, "float32"):
                with self.subTest(master, grad_dtype=grad_dtype):
                    wanted = expected(ties, narrow=grad_dtype is None).tolist()
                    body = partial(train, master=master, grad_dtype=grad_dtype)
                    for params, copied, _ in run_ranks(2, body):
                        self.assertEqual((params, copied), (wanted, 0))

    def test_bfloat16_trains_on_two_processes(self) -> None:
        first, second = run_processes(train_as_process)
        for at, ties in enumerate(ROUNDINGS.values()):
            wanted = expected(ties, narrow=False).tolist()
            self.assertEqual((first[at][0], second[at][0]), (wanted, wanted))
        # An element has 4 bytes of master weight or 2 bytes of remainder, and 4 bytes of momentum.
        # The layout rounds up.
        count = (SIZE + 15) // 16 * 16
        self.assertEqual([a[2] + b[2] for a, b in zip(first, second)], [8 * count, 6 * count])

    def test_masters_are_saved_and_remainders_load_them(self) -> None:
        import numpy as np

        for saver, loader in (("float32", "remainder"), ("remainder", "float32")):
            with self.subTest(saver), tempfile.TemporaryDirectory() as folder, Comm.solo() as comm:
                steps: list[Any] = []
                for master in (saver, loader):
                    weight, momentum = np.full(9, 0x3F80, np.uint16), {"lr": 1e-3, "momentum": 0.9}
                    with Optimizer(comm, "sgd", master=master, **momentum) as optimizer:
                        optimizer.register([Param("w", weight, dtype="bfloat16")])
                        if steps:
                            optimizer.load(folder + "/one")
                        # Each update is less than half a unit in the last place of the parameter.
                        for _ in range(3):
                            optimizer.step([np.full(9, 0x3F80, np.uint16)])
                        steps.append(weight.copy())
                        if master == saver:
                            optimizer.save(folder + "/one")
                master, momentum = np.float32(1), np.float32(0)
                for _ in range(6):
                    momentum = momentum * np.float32(0.9) + np.float32(1)
                    master = master - np.float32(1e-3) * momentum
                self.assertEqual(steps[1].tolist(), rounded(np.full(9, master), "even").tolist())


@needs_numpy
class DtypeTest(unittest.TestCase):
    def test_float16_is_the_rounding_of_its_master(self) -> None:
        import numpy as np

        def body(comm: Comm) -> Any:
            weight = np.linspace(-1, 1, 100).astype(np.float16)
            grad = np.full(100, 3e-4 * (comm.rank + 1), np.float16)
            with Optimizer(comm, "sgd", lr=0.5) as optimizer:
                optimizer.register({"w": weight}, grads={"w": grad})
                for _ in range(5):
                    optimizer.step()
            return weight

        master = np.linspace(-1, 1, 100).astype(np.float16).astype(np.float32)
        grads = [np.float32(np.float16(3e-4 * (rank + 1))) for rank in (0, 1)]
        for _ in range(5):
            master = master - np.float32(0.5) * ((grads[0] + grads[1]) * np.float32(0.5))
        for weight in run_ranks(2, body):
            np.testing.assert_array_equal(weight, master.astype(np.float16))

    def test_float64_is_computed_in_float64(self) -> None:
        import numpy as np

        def body(comm: Comm) -> Any:
            weight = np.ones(5)
            with Optimizer(comm, "sgd", lr=1e-3) as optimizer:
                optimizer.register({"w": weight})
                optimizer.step([np.full(5, 1e-9 * (comm.rank + 1))])
            return weight

        mean = (1e-9 + 2e-9) * 0.5
        self.assertNotEqual(1 - 1e-3 * mean, 1)
        for weight in run_ranks(2, body):
            np.testing.assert_array_equal(weight, np.full(5, 1 - 1e-3 * mean))

    def test_dtypes_mix_in_one_optimizer(self) -> None:

        dtypes = {"a": "bfloat16", "b": "float16", "c": "float64"}
        shapes = {"a": (2000,), "b": (3, 5), "c": (70,), "d": (1025,)}

        def body(comm: Comm) -> tuple[list[list[float]], int]:
            grad_dtypes = {"a": "float32", "d": "float64"}
            memory = allocate(comm, shapes, dtype=dtypes, grad_dtype=grad_dtypes)
            self.assertEqual(
                repr(memory),
                "<Allocation of a bfloat16 (2000,), b float16 (3, 5), c float64 (70,), d float32 (1025,)>",
            )
            self.assertEqual(
                {name: str(array.dtype) for name, array in memory.data.items()},
                {"a": "uint16", "b": "float16", "c": "float64", "d": "float32"},
            )
            self.assertEqual(
                {name: str(array.dtype) for name, array in memory.grads.items()},
                {"a": "float32", "b": "float16", "c": "float64", "d": "float64"},
            )
            with Optimizer(comm, "sgd", lr=0.5) as optimizer:
                optimizer.register(memory.params)
                optimizer.broadcast_params()
                for grad in memory.grads.values():
                    grad[...] = 2 * comm.rank + 1
                optimizer.step()
                data = dict(memory.data, a=widened(memory.data["a"]))
                values = [sorted(set(data[name].ravel().tolist())) for name in shapes]
                return values, optimizer.stats().copied_bytes

        self.assertEqual(run_ranks(2, body), [([[-1.0]] * 4, 0)] * 2)

    def test_an_allocation_shows_no_more_than_its_first_arrays(self) -> None:
        with Comm.solo() as comm:
            memory = allocate(comm, {f"layer.{number}": (64, 64) for number in range(100)})
            self.assertRegex(repr(memory), r"layer.7 float32 \(64, 64\), ... 92 more>$")

    def test_plan_lays_gradients_out_by_their_own_size(self) -> None:
        plan = partition_plan({"a": 2000, "b": 48}, 2, dtype="bfloat16", grad_dtype="float32")
        self.assertGreaterEqual(plan.grad_arena_bytes, 4 * 2048)
        self.assertLess(plan.arena_bytes, plan.grad_arena_bytes)
        last = max(range(2), key=lambda at: plan.offsets[at])
        self.assertEqual(plan.grad_offsets[last], 2 * plan.offsets[last])
        sizes = [
            partition_plan({"a": 16}, 1, "sgd", dtype="bfloat16", master=master).state_bytes
            for master in ROUNDINGS
        ]
        self.assertEqual(sizes, [64, 32])

    def test_gradients_come_later_in_another_dtype(self) -> None:
        import numpy as np

        with Comm.solo() as comm, Optimizer(comm, "sgd", lr=1) as optimizer:
            weight = np.zeros(2, np.uint16)
            optimizer.register([Param("w", weight, dtype="bfloat16", grad_dtype="float32")])
            optimizer.step([np.ones(2, np.float32)])
            self.assertEqual(widened(weight).tolist(), [-1, -1])
            with self.assertRaisesRegex(TypeError, "gradient of 'w' is float64; float32 is needed"):
                optimizer.step([np.ones(2)])
            with self.assertRaisesRegex(TypeError, "gradient of 'w' is uint16; expected one"):
                optimizer.step([np.ones(2, np.uint16)])
            with self.assertRaisesRegex(TypeError, "parameter 'w' is float32; bfloat16 is needed"):
                optimizer.bind([np.zeros(2, np.float32)])
            other = np.zeros(2, np.uint16)
            optimizer.bind([other], [np.ones(2, np.float32)])
            optimizer.broadcast_params()
            optimizer.step()
            self.assertEqual(widened(other).tolist(), [-1, -1])


class MemoryTest(unittest.TestCase):
    def test_16_bits_need_a_word(self) -> None:
        plain, lent = (c.c_uint16 * 3)(0x3F80, 0, 0), (c.c_uint16 * 3)(0x3F80, 0, 0)
        values = array.array("H", plain)
        for memory in (plain, values, (c.addressof(lent), (3,))):
            with Comm.solo() as comm, Optimizer(comm, "sgd", lr=1) as optimizer:
                optimizer.register([Param("w", memory, dtype="bfloat16")])
                optimizer.step([(c.c_uint16 * 3)(0x3F80, 0x3F80, 0)])
        for bits in (plain, values, lent):
            self.assertEqual(list(bits), [0, 0xBF80, 0])

    def test_wrong_dtypes_are_refused_by_name(self) -> None:
        half, single = (c.c_uint16 * 2)(), floats(0, 0)
        cases: list[tuple[Param, type[Exception], str]] = [
            (Param("w", half), TypeError, "'w' is uint16; expected one of float32, .*; pass dtype"),
            (Param("w", half, dtype="float32"), TypeError, "parameter 'w' is uint16; expected one"),
            (Param("w", single, dtype="bfloat16"), TypeError, "'w' is float32; bfloat16 is needed"),
            (Param("w", single, half), TypeError, "gradient of 'w' is uint16; expected one of"),
            (Param("w", single, single, grad_dtype="float16"), TypeError, "of 'w' is float32; fl"),
            (Param("w", (c.c_int32 * 2)()), TypeError, "'w' is int32; expected one of float32, "),
            (Param("w", half, dtype="int32"), ValueError, "'w': dtype 'int32' is unknown"),
            (Param("w", single, grad_dtype="f2"), ValueError, "'w': grad_dtype 'f2' is unknown"),
        ]
        with Comm.solo() as comm, Optimizer(comm) as optimizer:
            for param, kind, message in cases:
                with self.subTest(message), self.assertRaisesRegex(kind, message):
                    optimizer.register([param])
            with self.assertRaisesRegex(ValueError, "master 'half' is unknown; expected one"):
                Optimizer(comm, master="half")
            with self.assertRaisesRegex(ValueError, "'w': dtype 'float8' is unknown"):
                allocate(comm, {"w": 1}, dtype="float8")
            with self.assertRaisesRegex(KeyError, "'v': no parameter has that name"):
                partition_plan({"w": 1}, 1, dtype={"v": "bfloat16"})
            with self.assertRaisesRegex(TypeError, "data is uint16; expected one of float32"):
                comm.all_reduce(half)

    def test_memory_says_its_dtype(self) -> None:
        def exported(typestr: str, name: str) -> Any:
            interface = {"data": (4096, False), "shape": (2,), "typestr": typestr, "version": 3}
            return SimpleNamespace(__array_interface__=interface, dtype=SimpleNamespace(name=name))

        for typestr, name, dtype in (
            ("<f2", "float16", "float16"),
            ("<V2", "bfloat16", "bfloat16"),  # the form of ml_dtypes
            ("<V2", "void16", "<V2"),
            ("<u2", "uint16", "uint16"),
        ):
            self.assertEqual(buffer_of(exported(typestr, name), "it").dtype, dtype)
        self.assertEqual(buffer_of((4096, (2,)), "it", "bfloat16").bytes, 4)

    def test_without_numpy_views_of_16_bits_train(self) -> None:
        with mock.patch.dict(sys.modules, {"numpy": None}), Comm.solo() as comm:
            for dtype, one in (("bfloat16", 0x3F80), ("float16", 0x3C00)):
                memory = allocate(comm, {"w": (3,)}, dtype=dtype)
                with Optimizer(comm, "sgd", lr=1) as optimizer:
                    optimizer.register(memory.params)
                    memory.grads["w"][1] = one
                    optimizer.step()
                    self.assertEqual(list(memory.data["w"]), [0, one | 0x8000, 0])


@needs_torch
class TorchTest(unittest.TestCase):
    def test_bfloat16_tensors_train_as_they_are(self) -> None:
        import torch

        def body(comm: Comm) -> Any:
            weight = torch.linspace(-2, 2, 64).to(torch.bfloat16)
            grad = torch.full((64,), 0.25 * (comm.rank + 1), dtype=torch.bfloat16)
            with Optimizer(comm, "sgd", lr=0.125) as optimizer:
                optimizer.register({"w": weight}, grads={"w": grad})
                for _ in range(3):
                    optimizer.step()
            return weight

        start = torch.linspace(-2, 2, 64).to(torch.bfloat16).to(torch.float32)
        wanted = (start - 3 * 0.125 * 0.375).to(torch.bfloat16)
        for weight in run_ranks(2, body):
            self.assertTrue(torch.equal(weight, wanted))

    def test_arena_is_seen_as_a_tensor(self) -> None:
        import torch

        with Comm.solo() as comm, Optimizer(comm, "sgd", lr=1) as optimizer:
            memory = allocate(comm, {"w": (4,)}, dtype="bfloat16")
            weight = torch.from_numpy(memory.data["w"]).view(torch.bfloat16)
            torch.from_numpy(memory.grads["w"]).view(torch.bfloat16).fill_(-1.5)
            optimizer.register(memory.params)
            optimizer.step()
            self.assertEqual(weight.tolist(), [1.5] * 4)


if __name__ == "__main__":
    unittest.main()

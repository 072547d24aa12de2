# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import array
import ctypes as c
import gc
import sys
import unittest
import weakref
from types import SimpleNamespace
from typing import Any
from unittest import mock

from libzero import (
    OWNER_SPLIT,
    ArgumentError,
    Comm,
    Optimizer,
    Param,
    ZeroError,
    allocate,
    partition_plan,
)
from libzero._buffers import buffer_of
from support import floats, needs_numpy, run_ranks

without_numpy = mock.patch.dict(sys.modules, {"numpy": None})


class GradientsTest(unittest.TestCase):
    def test_gradients_of_a_call_are_read_where_they_are_now(self) -> None:
        """Engines allocate new gradients in each backward pass. The old gradients are overwritten
        here."""

        def body(comm: Comm, reduction: str) -> list[float]:
            values = floats(*[0] * 3000)
            found = []
            with Optimizer(comm, "sgd", lr=1.0) as optimizer:
                optimizer.register({"w": values})
                old: list[Any] = []
                for _ in range(4):
                    for grad in old:
                        grad[:] = [1e6] * 3000
                    old.append(floats(*[1.0] * 3000))
                    optimizer.step([old[-1]], reduction)
                    found += [min(values), max(values)]
            return found

        for world, reduction in ((1, "mean"), (1, "none"), (2, "mean"), (2, "none"), (3, "none")):
            for found in run_ranks(world, lambda comm, how=reduction: body(comm, how)):
                self.assertEqual(found, [-1, -1, -2, -2, -3, -3, -4, -4], (world, reduction))

    @needs_numpy
    def test_gradients_of_a_call_are_let_go_when_the_step_has_ended(self) -> None:
        import numpy

        for overlap in (False, True):
            values, grad = numpy.zeros(100, "f4"), numpy.ones(100, "f4")
            kept = weakref.ref(grad)
            with Comm.solo() as comm, Optimizer(comm, "sgd", overlap_gather=overlap) as optimizer:
                optimizer.register({"w": values})
                optimizer.step([grad])
                del grad
                self.assertEqual(kept() is not None, overlap)


class ArenaSizeTest(unittest.TestCase):
    def test_owners_of_whole_tensors_need_no_more_room_on_one_host(self) -> None:
        """A model of 60 MiB on 8 ranks has one tensor of 48 MiB and small tensors. Nothing is
        copied."""
        mib = 1 << 18
        shapes = {"embedding": (48 * mib,), **{f"layer{i}": (mib // 4 + i,) for i in range(48)}}
        model = 4 * sum(count for (count,) in shapes.values())

        def body(comm: Comm) -> tuple[float, int, float]:
            plan = partition_plan(shapes, 8, "sgd", "greedy", comm=comm)
            memory = allocate(comm, shapes, "sgd", "greedy")
            with Optimizer(comm, "sgd", "greedy", lr=1.0) as optimizer:
                optimizer.register(memory.params)
                optimizer.broadcast_params()
                for grad in memory.grads.values():
                    grad[-1] = 8.0 * comm.rank
                optimizer.step()
                last = [float(one[-1]) for one in memory.data.values()]
                self.assertEqual(last, [-28.0] * len(shapes))
                return plan.arena_bytes / model, optimizer.stats().copied_bytes, max(last)

        for ratio, copied, _ in run_ranks(8, body):
            self.assertLessEqual(ratio, 1.2)
            self.assertEqual(copied, 0)
        self.assertGreater(partition_plan(shapes, 8, "sgd", "greedy").arena_bytes / model, 6)

    def test_a_layout_is_for_the_world_of_its_comm(self) -> None:
        with Comm.solo() as comm, self.assertRaisesRegex(ValueError, "world is 2, but the plan's"):
            partition_plan({"w": (5,)}, 2, comm=comm)


class BufferTest(unittest.TestCase):
    def test_plain_memory_says_what_it_is(self) -> None:
        memory = floats(1, 2, 3, 4)
        for value, shape in (
            (memory, (4,)),
            (memoryview(memory), (4,)),
            (memoryview(memory).cast("B").cast("f", [2, 2]), (2, 2)),
            ((c.c_float * 2 * 2).from_buffer(memory), (2, 2)),
            ((c.addressof(memory), (2, 2)), (2, 2)),
            ((c.addressof(memory), 4), (4,)),
        ):
            buffer = buffer_of(value, "it")
            self.assertEqual(buffer.address, c.addressof(memory))
            self.assertEqual((buffer.shape, buffer.dtype), (shape, "float32"))
            self.assertEqual((buffer.bytes, buffer.elements), (16, 4))

    def test_dtypes_of_the_buffer_protocol(self) -> None:
        for code, dtype in (("f", "float32"), ("d", "float64"), ("i", "int32"), ("q", "int64")):
            self.assertEqual(buffer_of(array.array(code, [1]), "it").dtype, dtype)
        self.assertEqual(buffer_of(array.array("l", [1]), "it").dtype, "int64")
        self.assertEqual(buffer_of(bytearray(3), "it").dtype, "B")

    def test_array_cannot_be_resized_while_it_is_lent(self) -> None:
        values = array.array("f", [1, 2])
        buffer = buffer_of(values, "it")
        with self.assertRaises(BufferError):
            values.append(3)
        del buffer
        values.append(3)

    def test_what_is_no_dense_memory_is_refused(self) -> None:
        strided = memoryview(array.array("f", [1, 2, 3, 4]))[::2]
        cases: list[tuple[Any, type[Exception], str]] = [
            (strided, ValueError, "it is not contiguous"),
            (b"1234", ValueError, "read-only"),
            ((0, (2,)), ValueError, "address 0"),
            ((1, 2, 3), TypeError, "must be \\(address, shape\\)"),
            ((64, (2, -1)), ValueError, "negative dimension"),
            (1.5, TypeError, "number"),
            ("text", TypeError, "str is neither"),
        ]
        for value, kind, message in cases:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                buffer_of(value, "it")

    def test_tensor_is_known_by_its_data_ptr(self) -> None:
        def tensor(dtype: str, contiguous: bool = True, device: str = "cpu") -> Any:
            return SimpleNamespace(
                data_ptr=lambda: 4096,
                shape=(2, 3),
                dtype=f"torch.{dtype}",
                device=SimpleNamespace(type=device),
                is_contiguous=lambda: contiguous,
                element_size=lambda: 4,
            )

        buffer = buffer_of(tensor("float32"), "it")
        self.assertEqual((buffer.address, buffer.shape, buffer.bytes), (4096, (2, 3), 24))
        self.assertEqual(buffer.dtype, "float32")
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            buffer_of(tensor("float32", contiguous=False), "it")
        with self.assertRaisesRegex(ValueError, "it is on a GPU; host memory is needed"):
            buffer_of(tensor("float32", device="cuda"), "it")
        self.assertTrue(buffer_of(tensor("float32", device="cuda"), "it", gpu=True).gpu)
        with self.assertRaisesRegex(ValueError, "device 'xpu'; libzero supports 'cpu' and 'cuda'"):
            buffer_of(tensor("float32", device="xpu"), "it", gpu=True)
        with (
            Comm.solo() as comm,
            Optimizer(comm) as optimizer,
            self.assertRaisesRegex(TypeError, "parameter 'w' is float8_e5m2; expected one of "),
        ):
            optimizer.register({"w": tensor("float8_e5m2")})


class ArenaTest(unittest.TestCase):
    def test_without_numpy_it_is_a_memoryview(self) -> None:
        with without_numpy, Comm.solo() as comm:
            view = comm.arena((2, 3))
            self.assertIsInstance(view, memoryview)
            self.assertEqual((view.format, view.shape), ("f", (2, 3)))
            view[1, 2] = 1.5
            self.assertEqual(view.tolist(), [[0, 0, 0], [0, 0, 1.5]])
            self.assertEqual(comm.arena(100, "per_rank").format, "B")
            self.assertEqual(comm.arena((), dtype="int64").format, "q")
            self.assertEqual(comm.arena((3,), dtype="bfloat16").format, "H")
            self.assertEqual(comm.arena((3,), dtype="float16").nbytes, 6)
            self.assertEqual(buffer_of(view, "it").dtype, "float32")

    @needs_numpy
    def test_with_numpy_it_is_an_array(self) -> None:
        import numpy as np

        with Comm.solo() as comm:
            view = comm.arena((2, 3), dtype="float64")
            self.assertEqual((view.dtype, view.shape), (np.float64, (2, 3)))
            self.assertEqual(comm.arena(100).dtype, np.uint8)
            self.assertEqual(comm.arena((3,), dtype="float16").dtype, np.float16)
            self.assertEqual(comm.arena((3,), dtype="bfloat16").dtype, np.uint16)
            self.assertEqual(comm.arena(()).shape, ())
            view += 1
            self.assertEqual(view.sum(), 6)

    def test_shared_is_one_copy_and_per_rank_is_not(self) -> None:
        def body(comm: Comm) -> tuple[list[float], list[float]]:
            shared, own = comm.arena((2,)), comm.arena((2,), "per_rank")
            shared[comm.rank] = own[comm.rank] = comm.rank + 1
            comm.barrier()
            return list(shared), list(own)

        self.assertEqual(run_ranks(2, body), [([1, 2], [1, 0]), ([1, 2], [0, 2])])

    def test_memory_lives_as_long_as_a_view(self) -> None:
        for context in (without_numpy, mock.patch.dict(sys.modules)):
            with context:
                comm = Comm.solo()
                view = comm.arena((1 << 20,))
                part = view[5:9]
                comm.close()
                del view, comm
                gc.collect()
                part[0] = 2.5
                self.assertEqual(list(part), [2.5, 0, 0, 0])

    def test_last_view_frees_it(self) -> None:
        freed: list[int] = []
        with mock.patch("libzero._buffers._free_arena", freed.append), Comm.solo() as comm:
            view = comm.arena(64)
            part = view[:4]
            del view
            gc.collect()
            self.assertEqual(freed, [])
            del part
            gc.collect()
            self.assertEqual(len(freed), 1)

    def test_wrong_arguments_are_refused(self) -> None:
        with Comm.solo() as comm:
            with self.assertRaisesRegex(ValueError, "kind 'mine' is unknown"):
                comm.arena(64, "mine")
            with self.assertRaisesRegex(ValueError, "dtype 'float8' is unknown"):
                comm.arena((2,), dtype="float8")
            with self.assertRaisesRegex(ZeroError, "bytes is 0"):
                comm.arena(0)


class PlanTest(unittest.TestCase):
    def test_plan_needs_no_ranks(self) -> None:
        plan = partition_plan({"a": (300, 10), "b": (7,), "c": ()}, 3)
        self.assertEqual(sum(plan.elements), 3008)
        self.assertEqual((len(plan.offsets), len(plan.elements)), (3, 3))
        self.assertEqual(plan.owners[0], OWNER_SPLIT)
        self.assertGreaterEqual(plan.arena_bytes, 4 * 3008)
        self.assertTrue(all(offset % 64 == 0 for offset in plan.offsets))
        self.assertGreater(plan.state_bytes, 0)

    def test_partition_and_owner_are_heard(self) -> None:
        params = [Param("a", shape=10, owner=1), Param("b", shape=20, owner=0, order=-1)]
        manual = partition_plan(params, 2, partition="manual")
        self.assertEqual((manual.owners, manual.elements), ((1, 0), (20, 10)))
        greedy = partition_plan({"a": 1, "b": 5, "c": 4}, 2, partition="greedy")
        self.assertEqual(greedy.owners, (1, 0, 1))
        self.assertEqual(partition_plan({"a": 8}, 1, "sgd").state_bytes, 0)
        with self.assertRaisesRegex(ZeroError, "world is 0"):
            partition_plan({"a": 8}, 0)

    def test_allocated_parameters_are_never_copied(self) -> None:
        def body(comm: Comm) -> int:
            memory = allocate(comm, {"a": (300, 10), "b": (7,), "c": ()}, partition="greedy")
            with Optimizer(comm, partition="greedy") as optimizer:
                optimizer.register(memory.params)
                if comm.rank == 0:
                    memory.data["b"][3] = 1
                optimizer.broadcast_params()
                memory.grads["b"][3] = 1
                optimizer.step()
                self.assertAlmostEqual(float(memory.data["b"][3]), 0.999, 3)
                return optimizer.stats().copied_bytes

        self.assertEqual(run_ranks(2, body), [0, 0])
        with without_numpy:
            self.assertEqual(run_ranks(2, body), [0, 0])


class InstancesTest(unittest.TestCase):
    @needs_numpy
    def test_copies_of_the_state_train_alike(self) -> None:
        def end(comm: Comm, instances: int) -> tuple[float, list[Any]]:
            memory = allocate(comm, {"w": (3000,)}, instances=instances)
            with Optimizer(comm, instances=instances) as optimizer:
                optimizer.register(memory.params)
                for step in range(2):
                    memory.grads["w"][:] = comm.rank + step
                    optimizer.step()
                return float(memory.data["w"][2999]), optimizer.owned_ranges()

        ends = run_ranks(4, lambda comm: (end(comm, 0)[0], *end(comm, 2)))
        for rank, (one, two, owned) in enumerate(ends):
            self.assertEqual(one, two)
            self.assertEqual(owned, ends[rank % 2][2])
        with Comm.solo() as comm, self.assertRaisesRegex(ArgumentError, "instances is 2"):
            Optimizer(comm, instances=2)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Tests how Python recognizes arrays and streams of GPUs. Stand-ins with the same interfaces
replace the packages and the GPU."""

from __future__ import annotations

import ctypes as c
import unittest
from types import SimpleNamespace
from typing import Any

from libzero import ArgumentError, Comm, Optimizer, Param, allocate
from libzero._buffers import buffer_of
from libzero._params import prepare
from libzero._values import stream


class Array:
    """An array that shows its memory in the form of CuPy and Numba."""

    def __init__(self, shape: tuple[int, ...] = (2, 3), typestr: str = "<f4", **more: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (0x7F0000000000, False),
            "shape": shape,
            "typestr": typestr,
            "version": 3,
            "stream": 1,
            **more,
        }


def on_gpu(comm: Comm) -> Comm:
    """Return a comm that Python takes for a comm on a GPU. Its memory is on the host."""
    comm._device = "cuda"
    return comm


class ArrayTest(unittest.TestCase):
    def test_it_is_known_by_its_interface(self) -> None:
        buffer = buffer_of(Array(strides=None), "it", gpu=True)
        self.assertEqual((buffer.address, buffer.shape), (0x7F0000000000, (2, 3)))
        self.assertEqual((buffer.dtype, buffer.bytes, buffer.gpu), ("float32", 24, True))
        self.assertEqual(buffer_of(Array(typestr="<f2"), "it", gpu=True).dtype, "float16")
        half = Array(typestr="<V2")
        half.dtype = SimpleNamespace(name="bfloat16")  # type: ignore[attr-defined]
        self.assertEqual(buffer_of(half, "it", gpu=True).dtype, "bfloat16")

    def test_what_is_not_dense_writable_memory_is_refused(self) -> None:
        for array, message in (
            (Array(strides=(4, 8)), "it is not contiguous"),
            (Array(data=(4096, True)), "it is read-only"),
            (Array(mask=Array(typestr="|b1")), "it has a mask"),
        ):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                buffer_of(array, "it", gpu=True)

    def test_it_is_a_parameter_or_gradient_where_the_comm_is_on_a_gpu(self) -> None:
        prepared = prepare(Param("w", Array(), Array(typestr="<f8")), gpu=True)
        self.assertEqual((prepared.dtype, prepared.grad_dtype), ("float32", "float64"))
        with self.assertRaisesRegex(ValueError, "gradient of 'w' has shape \\(3,\\)"):
            prepare(Param("w", Array(), Array((3,))), gpu=True)

    def test_it_is_none_where_the_comm_is_on_the_host(self) -> None:
        with Comm.solo() as comm, Optimizer(comm) as optimizer:
            with self.assertRaisesRegex(ValueError, "parameter 'w' is on a GPU; host memory"):
                optimizer.register({"w": Array()})
            with self.assertRaisesRegex(ValueError, "buffer 'b' is on a GPU"):
                optimizer.register_buffers({"b": Array()})
            weights = (c.c_float * 6)()
            optimizer.register({"w": weights})
            for call in (optimizer.step, optimizer.reduce_grads, lambda g: optimizer.bind(grads=g)):
                with self.assertRaisesRegex(ValueError, "gradient of 'w' is on a GPU"):
                    call({"w": Array((6,))})
            with self.assertRaisesRegex(ValueError, "gradient of 'w' is on a GPU"):
                optimizer.grad_ready("w", Array((6,)))

    def test_values_of_the_callers_own_are_the_hosts_everywhere(self) -> None:
        with Comm.solo() as comm:
            for call in (on_gpu(comm).broadcast, comm.all_reduce):
                with self.assertRaisesRegex(ValueError, "data is on a GPU"):
                    call(Array())

    def test_arenas_are_shown_by_the_same_interface_and_live_as_long(self) -> None:
        with Comm.solo() as comm:
            memory = allocate(on_gpu(comm), {"w": (4, 2)}, dtype="bfloat16")
            shown = memory.data["w"].__cuda_array_interface__
            self.assertEqual((shown["shape"], shown["typestr"]), ((4, 2), "<u2"))
            self.assertEqual(shown["version"], 3)
            self.assertFalse(hasattr(memory.data["w"], "__array_interface__"))
            # The memory is on the host, so the test can read it and train with it.
            found = (c.c_uint16 * 8).from_address(shown["data"][0])
            found[:] = [0x3F80] * 8
            with Optimizer(comm, "sgd", lr=1.0) as optimizer:
                optimizer.register(memory.params)
                grads = memory.grads["w"].__cuda_array_interface__["data"][0]
                (c.c_uint16 * 8).from_address(grads)[:] = [0x3F80] * 8
                optimizer.broadcast_params()
                optimizer.step()
            self.assertEqual(list(found), [0] * 8)


class StreamTest(unittest.TestCase):
    def test_each_package_has_its_way(self) -> None:
        self.assertIsNone(stream(None))
        self.assertEqual(stream(0), 0)
        self.assertEqual(stream(77), 77)
        self.assertEqual(stream(SimpleNamespace(cuda_stream=78)), 78)  # torch
        self.assertEqual(stream(SimpleNamespace(ptr=79)), 79)  # CuPy
        both = SimpleNamespace(__cuda_stream__=lambda: (0, 80), ptr=81)  # cuda.core
        self.assertEqual(stream(both), 80)

    def test_what_is_no_stream_is_named(self) -> None:
        with self.assertRaisesRegex(TypeError, "stream must be an int, not str"):
            stream("main")
        with self.assertRaisesRegex(ValueError, "stream is -1"):
            stream(-1)
        with self.assertRaisesRegex(TypeError, "version 1 of __cuda_stream__"):
            stream(SimpleNamespace(__cuda_stream__=lambda: (1, 80)))

    def test_every_method_hands_it_on_and_the_host_has_none(self) -> None:
        weights, grads = (c.c_float * 4)(), (c.c_float * 4)()
        named = SimpleNamespace(cuda_stream=64)
        with Comm.solo() as comm, Optimizer(comm, uneven_inputs="world") as optimizer:
            optimizer.register({"w": weights}, grads={"w": grads})
            optimizer.seal()
            for call in (
                optimizer.broadcast_params,
                optimizer.reduce_grads,
                optimizer.clip_grad_value,
                optimizer.clip_grad_norm,
                optimizer.step,
                optimizer.step_begin,
                optimizer.param_wait,
                optimizer.grad_ready,
                optimizer.share_params,
                optimizer.rebalance,
                optimizer.join,
            ):
                given: tuple[Any, ...] = ()
                if call in (optimizer.clip_grad_value, optimizer.clip_grad_norm):
                    given = (1.0,)
                elif call == optimizer.grad_ready:
                    given = ("w",)
                with self.subTest(call.__name__):
                    with self.assertRaisesRegex(ArgumentError, "stream must be NULL on the host"):
                        call(*given, stream=named)
            with self.assertRaisesRegex(ArgumentError, "stream must be NULL on the host"):
                optimizer.clip_grad_norm(1.0, params=["w"], stream=64)
            optimizer.register_buffers({"b": (c.c_float * 2)()})
            with self.assertRaisesRegex(ArgumentError, "stream must be NULL on the host"):
                optimizer.broadcast_buffers(stream=named)


if __name__ == "__main__":
    unittest.main()

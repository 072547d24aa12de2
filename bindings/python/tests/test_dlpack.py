# SPDX-License-Identifier: Apache-2.0
"""Tests arrays of libraries that support only DLPack."""

from __future__ import annotations

import ctypes as c
import gc
import unittest
from typing import Any, Optional

from libzero import Comm, Optimizer, Param
from libzero._buffers import buffer_of
from libzero._dlpack import Managed, ManagedVersioned, Tensor
from support import floats, needs_numpy

HOST, PINNED, CUDA, METAL = 1, 3, 2, 8
FLOAT, BFLOAT = 2, 4

_new_capsule = c.pythonapi.PyCapsule_New
_new_capsule.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
_new_capsule.restype = c.py_object


class Array:
    """Memory at `address`, shown in the form of a library that is older or newer than DLPack
    1.0."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: Optional[tuple[int, ...]] = None,
        kind: tuple[int, int] = (FLOAT, 32),
        *,
        device: int = HOST,
        offset: int = 0,
        flags: Optional[int] = None,
        major: int = 1,
    ) -> None:
        self.device, self.asked = device, {}
        self.shape = (c.c_int64 * len(shape))(*shape)
        self.strides = (c.c_int64 * len(shape))(*strides) if strides else None
        tensor = Tensor(address, device, 0, len(shape), *kind, 1, self.shape, self.strides, offset)
        self.new = flags is not None
        self.managed: Any = (
            ManagedVersioned(major, 0, None, None, flags, tensor)
            if self.new
            else Managed(tensor, None, None)
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **arguments: Any) -> Any:
        if not self.new and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.asked = arguments
        name = b"dltensor_versioned" if self.new else b"dltensor"
        return _new_capsule(c.addressof(self.managed), name, None)


class DlpackTest(unittest.TestCase):
    def test_old_and_new_capsules_say_what_they_are(self) -> None:
        for flags in (None, 0):
            for strides in (None, (3, 1)):
                array = Array(4096, (2, 3), strides, flags=flags, offset=64)
                buffer = buffer_of(array, "it")
                self.assertEqual((buffer.address, buffer.shape), (4160, (2, 3)))
                self.assertEqual((buffer.dtype, buffer.bytes, buffer.gpu), ("float32", 24, False))
        self.assertEqual(buffer_of(Array(4096, (2,), kind=(BFLOAT, 16)), "it").dtype, "bfloat16")
        self.assertFalse(buffer_of(Array(4096, (2,), device=PINNED), "it").gpu)

    def test_memory_of_a_gpu_is_known_and_its_stream_is_left_alone(self) -> None:
        array = Array(4096, (2,), device=CUDA, flags=0)
        self.assertTrue(buffer_of(array, "it", gpu=True).gpu)
        self.assertEqual(array.asked["stream"], -1)
        with self.assertRaisesRegex(ValueError, "it is on a GPU; host memory is needed"):
            buffer_of(array, "it")

    def test_what_cannot_be_used_is_refused(self) -> None:
        for array, words in (
            (Array(4096, (2, 3), (1, 2)), "not contiguous"),
            (Array(4096, (2,), flags=1), "read-only"),
            (Array(4096, (2,), flags=0, major=2), "it uses DLPack 2; libzero supports 1"),
            (Array(4096, (2,), device=METAL), "it is on DLPack device 8"),
        ):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                buffer_of(array, "it", gpu=True)
        with (
            Comm.solo() as comm,
            Optimizer(comm) as optimizer,
            self.assertRaisesRegex(TypeError, "parameter 'w' is DLPack's type 5 of 64 bits"),
        ):
            optimizer.register({"w": Array(4096, (2,), kind=(5, 64))})

    def test_an_array_needs_a_name(self) -> None:
        nameless: Any = [Array(4096, (2,))]
        with Comm.solo() as comm, Optimizer(comm) as optimizer:
            for what, call in (
                ("parameter", optimizer.register),
                ("buffer", optimizer.register_buffers),
            ):
                words = rf"a {what} is \(name, data\), not Array alone: give it a name"
                with self.subTest(what), self.assertRaisesRegex(TypeError, words):
                    call(nameless)

    def test_parameters_and_gradients_are_trained_where_they_are(self) -> None:
        weights, grads = floats(1, 2), floats(1, -1)
        with Comm.solo() as comm, Optimizer(comm, "sgd", lr=0.5) as optimizer:
            array, gradient = (Array(c.addressof(memory), (2,)) for memory in (weights, grads))
            optimizer.register({"w": array}, grads={"w": gradient})
            optimizer.step()
        self.assertEqual(list(weights), [0.5, 2.5])

    def test_a_library_that_does_not_show_its_memory_is_named_with_its_reason(self) -> None:
        class Shy(Array):
            def __dlpack__(self, **arguments: Any) -> Any:
                if self.shown is not None:
                    return self.shown
                raise BufferError("this one needs a gradient")

        for shown, kind, words in (
            (None, ValueError, "'w': Shy does not export its memory by DLPack: this one needs"),
            (3, TypeError, "'w': Shy.__dlpack__\(\) returned no DLPack tensor"),
        ):
            shy = Shy(4096, (2,))
            shy.shown = shown
            with (
                Comm.solo() as comm,
                Optimizer(comm) as optimizer,
                self.assertRaisesRegex(kind, words),
            ):
                optimizer.register({"w": shy})

    def test_it_is_taken_wherever_arrays_are(self) -> None:
        weights, grads, mean = floats(1, 2), floats(2, -2), floats(5)

        def shown(memory: Any) -> Array:
            return Array(c.addressof(memory), (len(memory),))

        with Comm.solo() as comm, Optimizer(comm, "sgd", lr=0.5) as optimizer:
            comm.broadcast(shown(weights))
            comm.all_reduce(shown(weights))
            optimizer.register([Param("w", shown(weights))])
            optimizer.register_buffers({"mean": shown(mean)})
            optimizer.broadcast_buffers()
            optimizer.step({"w": shown(grads)})
            optimizer.bind({"w": shown(weights)}, [shown(grads)])
            optimizer.step()
            optimizer.grad_ready("w", shown(grads))
            optimizer.step()
        self.assertEqual(list(weights), [-2, 5])

    def test_memory_is_let_go_of_once_it_is_not_registered_any_more(self) -> None:
        gone = []
        weights = floats(1, 2)

        @c.CFUNCTYPE(None, c.c_void_p)
        def destroy(_capsule: int) -> None:
            gone.append(True)

        class Lent(Array):
            def __dlpack__(self, **arguments: Any) -> Any:
                return _new_capsule(c.addressof(self.managed), b"dltensor", destroy)

        with Comm.solo() as comm, Optimizer(comm, "sgd") as optimizer:
            optimizer.register({"w": Lent(c.addressof(weights), (2,))})
            gc.collect()
            self.assertEqual(gone, [])
            optimizer.bind({"w": floats(3, 4)})
            gc.collect()
            self.assertEqual(gone, [True])

    @needs_numpy
    def test_state_is_set_from_it(self) -> None:
        momentum = floats(3, 4)
        with Comm.solo() as comm, Optimizer(comm, "sgd", momentum=0.9) as optimizer:
            optimizer.register({"w": floats(1, 2)})
            optimizer.seal()
            optimizer.state_set("w", "momentum_buffer", Array(c.addressof(momentum), (2,)))
            self.assertEqual(list(optimizer.state_get("w", "momentum_buffer")), [3, 4])

    @needs_numpy
    def test_memory_of_numpy_lives_as_long_as_it_is_registered(self) -> None:
        import numpy as np

        gone = []

        class Owner(np.ndarray):  # type: ignore[type-arg]
            def __del__(self) -> None:
                if self.base is None:
                    gone.append(True)

        class Only:
            """An object with DLPack only, as from libraries that numpy does not know."""

            def __init__(self, array: Any) -> None:
                self.array = array

            def __dlpack_device__(self) -> Any:
                return self.array.__dlpack_device__()

            def __dlpack__(self, **arguments: Any) -> Any:
                return self.array.__dlpack__(**arguments)

        values = Owner((4,), np.float32)
        values[:] = 1
        buffer = buffer_of(Only(values), "it")
        self.assertEqual(buffer.address, values.ctypes.data)
        del values
        gc.collect()
        self.assertEqual(gone, [])
        del buffer
        gc.collect()
        self.assertEqual(gone, [True])


if __name__ == "__main__":
    unittest.main()

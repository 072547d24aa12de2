# SPDX-License-Identifier: Apache-2.0
"""Tests loss scaling, clipping by value, and gradients that have already been reduced, through the
Python package."""

from __future__ import annotations

import ctypes as c
import math
import unittest

import libzero
from support import needs_numpy


class Model:
    def __init__(self, **options: object) -> None:
        self.data = (c.c_float * 4)(1, 1, 1, 1)
        self.grad = (c.c_float * 4)()
        self.optimizer = libzero.Optimizer(libzero.Comm.solo(), "sgd", lr=1.0, **options)
        self.optimizer.register([("w", self.data, self.grad)])

    def step(self, *gradient: float, **arguments: object) -> bool:
        self.grad[:] = gradient
        return self.optimizer.step(**arguments)


class ScaleTest(unittest.TestCase):
    def test_a_skipped_step_backs_off_and_good_ones_grow(self) -> None:
        model = Model(loss_scale=8.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=2)
        self.assertTrue(model.step(8, 8, 8, 8))
        self.assertEqual(list(model.data), [0, 0, 0, 0])
        self.assertFalse(model.step(8, math.inf, 8, 8))
        self.assertEqual(model.optimizer.loss_scale, 2.0)
        self.assertTrue(model.step(2, 2, 2, 2))
        self.assertTrue(model.step(2, 2, 2, 2))
        self.assertEqual(model.optimizer.result().loss_scale, 8.0)
        self.assertEqual(list(model.data), [-2, -2, -2, -2])
        model.optimizer.loss_scale = 16
        self.assertEqual(model.optimizer.loss_scale, 16.0)

    def test_what_steps_on_a_gpu_read_from_memory_is_refused_on_the_host(self) -> None:
        optimizer = Model().optimizer
        number = c.c_float(1)
        for read in (
            lambda dtype: optimizer.settings.read_from("lr", c.addressof(number), dtype),
            lambda dtype: optimizer.read_loss_scale_from(c.addressof(number), dtype),
        ):
            with self.assertRaisesRegex(libzero.ZeroError, "on the host, set its value"):
                read("float64")
            with self.assertRaisesRegex(ValueError, "dtype 'bfloat16' is unknown"):
                read("bfloat16")

    def test_clipping_by_value_limits_every_element(self) -> None:
        model = Model()
        model.grad[:] = (3, -3, 0.25, 0)
        model.optimizer.clip_grad_value(0.5)
        model.optimizer.step()
        self.assertEqual(list(model.data), [0.5, 1.5, 0.75, 1])

    def test_gradients_that_are_reduced_stay_as_they_are(self) -> None:
        model = Model()
        self.assertTrue(model.step(1, 2, 3, 4, reduction="none"))
        self.assertEqual(list(model.data), [0, -1, -2, -3])
        self.assertEqual(list(model.grad), [1, 2, 3, 4])

    def test_an_announced_gradient_is_the_one_that_counts(self) -> None:
        model = Model()
        model.grad[:] = (9, 9, 9, 9)
        model.optimizer.grad_ready("w", (c.c_float * 4)(1, 2, 3, 4))
        with self.assertRaisesRegex(libzero.ZeroError, "already announced"):
            model.optimizer.grad_ready(0)
        self.assertTrue(model.optimizer.step())
        self.assertEqual(list(model.data), [0, -1, -2, -3])
        model.optimizer.grad_ready(0)
        self.assertTrue(model.optimizer.step())
        self.assertEqual(list(model.data), [-9, -10, -11, -12])
        with self.assertRaisesRegex(ValueError, "shape"):
            model.optimizer.grad_ready(0, (c.c_float * 3)())

    def test_a_step_begins_before_its_gradients_come(self) -> None:
        model = Model()
        before = model.optimizer.stats()
        model.optimizer.step_begin()
        with self.assertRaisesRegex(libzero.ZeroError, "a step has begun"):
            model.optimizer.step_begin()
        model.optimizer.grad_ready("w", (c.c_float * 4)(1, 2, 3, 4))
        with self.assertRaisesRegex(libzero.ZeroError, "announced"):
            model.optimizer.drop_grads()
        self.assertTrue(model.optimizer.step())
        self.assertEqual(list(model.data), [0, -1, -2, -3])
        after = model.optimizer.stats()
        self.assertEqual(after.steps, before.steps + 1)
        self.assertIn(after.early_updates, (0, 4))
        with self.assertRaisesRegex(libzero.ZeroError, "max_grad_norm is 1"):
            Model(max_grad_norm=1.0).optimizer.step_begin()

    def test_a_step_may_end_in_the_background(self) -> None:
        model = Model(overlap_gather=True)
        for step in range(1, 4):
            self.assertTrue(model.step(1, 1, 1, 1))
            model.optimizer.param_wait("w")
            self.assertEqual(list(model.data), [1 - step] * 4)
            model.optimizer.param_wait()
        self.assertEqual(model.optimizer.result().step, 3)
        with self.assertRaisesRegex(KeyError, "no parameter"):
            model.optimizer.param_wait("v")
        with self.assertRaisesRegex(libzero.ZeroError, "parameter 1 does not exist"):
            model.optimizer.param_wait(1)

    def test_the_owner_adds_up_micro_batches(self) -> None:
        model = Model()
        model.grad[:] = (1, 2, 3, 4)
        model.optimizer.reduce_grads(accumulate=True)
        with self.assertRaisesRegex(libzero.ZeroError, "reduce flags are 5"):
            model.optimizer.reduce_grads(reduction="sum", accumulate=True)
        self.assertTrue(model.step(1, 1, 1, 1, accumulate=True))
        self.assertEqual(list(model.data), [-1, -2, -3, -4])
        self.assertEqual(list(model.grad), [1, 1, 1, 1])

    def test_gradients_are_rounded_to_the_type_of_the_wire(self) -> None:
        model = Model(wire_dtype="bfloat16")
        self.assertTrue(model.step(1 + 2**-12, 2**-40, -3, 0))
        self.assertEqual(list(model.data), [0, 1, 4, 1])
        with self.assertRaisesRegex(ValueError, "wire_dtype"):
            Model(wire_dtype="float32")

    @needs_numpy
    def test_parameters_are_rounded_to_the_type_that_they_are_shared_in(self) -> None:
        for master, left in (("float32", -1 - 2**-11), ("none", -1)):
            model = Model(share_dtype="bfloat16", master=master)
            for _ in range(2):
                self.assertTrue(model.step(1 + 2**-12, 0, -3, 0))
            self.assertEqual(list(model.data), [-1, 1, 7, 1])
            self.assertEqual(model.optimizer.state_get(0, None)[0], left)

    def test_gradients_are_divided_before_they_are_rounded(self) -> None:
        model = Model(wire_dtype="float16", predivide_factor=4)
        self.assertTrue(model.step(2.0**17, 1, 2, 3))
        self.assertEqual(list(model.data), [1 - 2**17, 0, -1, -2])
        with self.assertRaisesRegex(libzero.ZeroError, "predivide_factor is 3"):
            Model(predivide_factor=3)

    def test_nonfinite_gradients_are_an_error_if_asked_for(self) -> None:
        model = Model(nonfinite="error")
        with self.assertRaisesRegex(libzero.NonfiniteError, "1 elements"):
            model.step(1, math.nan, 1, 1)
        self.assertEqual(list(model.data), [1, 1, 1, 1])


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Tests that update rules written in Python give bitwise the same results as built-in rules, and
tests the exceptions that they raise."""

from __future__ import annotations

import tempfile
import unittest
from typing import Any

from libzero import (
    ArgumentError,
    CallbackError,
    CheckpointError,
    Comm,
    CustomOptimizer,
    Optimizer,
    Param,
    PeerError,
    Update,
    ZeroError,
    allocate,
    partition_plan,
)
from support import floats, needs_numpy, run_ranks

SHAPES = {"w": (37, 50), "bias": (61,), "wide": (300,), "scale": ()}
DTYPES = {"wide": "float64", "bias": "bfloat16"}


def plain_sgd(update: Update) -> None:
    """Compute SGD element by element, without numpy."""
    momentum = update.slots["momentum"]
    for i in range(update.count):
        momentum[i] = update.settings["mu"] * momentum[i] + update.gradient[i]
        update.values[i] = update.values[i] - update.lr * momentum[i]


def sgd(update: Update) -> None:
    """Give bitwise the same results as ZERO_OPTIMIZER_SGD with momentum."""
    momentum, real = update.slots["momentum"], update.values.dtype.type
    if update.step == 1:
        momentum[:] = update.gradient
    else:
        momentum *= real(update.settings["mu"])
        momentum += update.gradient
    update.values -= real(update.lr) * momentum


RULE = CustomOptimizer(sgd, slots=["momentum"], settings={"mu": 0.9, "lr": 0.1})


class Model:
    def __init__(self, comm: Comm, rule: Any, partition: str = "even", **settings: float) -> None:
        import numpy as np

        wide = {"bias": "float32"}
        memory = allocate(comm, SHAPES, rule, partition, dtype=DTYPES, grad_dtype=wide)
        self.grads = memory.grads
        self.data = memory.data
        self.optimizer = Optimizer(comm, rule, partition, **settings)
        self.optimizer.register(memory.params)
        if comm.rank == 0:
            for number, name in enumerate(("w", "wide")):
                drawn = np.random.default_rng(number).normal(size=SHAPES[name])
                memory.data[name][...] = drawn
        self.optimizer.broadcast_params()

    def step(self, number: int) -> bool:
        import numpy as np

        for name, grad in self.grads.items():
            grad[...] = np.random.default_rng(number * 10 + len(name)).normal(size=grad.shape)
        return self.optimizer.step()

    def state(self) -> list[Any]:
        return [self.optimizer.state_gather(name).tolist() for name in SHAPES]


class Rules(unittest.TestCase):
    @needs_numpy
    def test_a_rule_of_python_has_the_bits_of_the_one_compiled_in(self) -> None:
        def body(comm: Comm) -> None:
            for partition in ("even", "greedy"):
                own = Model(comm, RULE, partition)
                compiled_in = Model(comm, "sgd", partition, lr=0.1, momentum=0.9)
                for number in range(4):
                    own.step(number)
                    compiled_in.step(number)
                self.assertEqual(own.state(), compiled_in.state())
                own.optimizer.close()
                compiled_in.optimizer.close()

        run_ranks(2, body)

    def test_it_works_without_numpy(self) -> None:
        rule = CustomOptimizer(plain_sgd, slots=["momentum"], settings={"mu": 0.5, "lr": 1})
        with Comm.solo() as comm, Optimizer(comm, rule) as optimizer:
            data, grad = floats(1, 2, 3), floats(1, 0.5, 0)
            optimizer.register([("w", data, grad)])
            optimizer.step()
            self.assertEqual(list(data), [0, 1.5, 3])
            optimizer.step()
            self.assertEqual(list(data), [-1.5, 0.75, 3])
            self.assertEqual(optimizer.state_names("w"), ("momentum",))

    @needs_numpy
    def test_a_group_follows_it_beside_another_rule(self) -> None:
        def descend(update: Update) -> None:
            seen.append((update.name, update.shape))
            for i in range(update.count):
                update.values[i] -= update.lr * update.gradient[i]

        seen: list[Any] = []
        rule = CustomOptimizer(descend, whole_tensors=True)
        own, other = floats(*[1.0] * 6), floats(1, 1)
        with Comm.solo() as comm, Optimizer(comm, "sgd", lr=0.5) as optimizer:
            optimizer.register(
                {"own": own}, grads={"own": floats(*[0.5] * 6)}, optimizer=rule, lr=0.25
            )
            optimizer.register({"other": other}, grads={"other": floats(0.5, 0.5)})
            optimizer.step()
        self.assertEqual((list(own), list(other)), ([0.875] * 6, [0.75] * 2))
        self.assertEqual(seen, [("own", (6,))])

    def test_it_is_told_about_whole_tensors_in_their_shape(self) -> None:
        def body(comm: Comm) -> None:
            seen: dict[str, Update] = {}

            def look(update: Update) -> None:
                seen[update.name] = update
                self.assertEqual(update.values.shape, SHAPES[update.name])
                self.assertEqual(update.gradient.shape, SHAPES[update.name])
                self.assertEqual(update.slots["a"].shape, SHAPES[update.name])
                self.assertEqual(str(update.values.dtype), update.dtype)
                self.assertEqual(model.optimizer.settings["lr"], 1e-3)
                with self.assertRaises(ZeroError) as caught:
                    model.optimizer.step()
                self.assertEqual(caught.exception.name, "ZERO_ERR_BUSY")

            rule = CustomOptimizer(look, slots=["a"], settings={"own": 4}, whole_tensors=True)
            model = Model(comm, rule)
            model.step(0)
            owned = [model.optimizer.names[one.param] for one in model.optimizer.owned_ranges()]
            self.assertEqual(sorted(seen), sorted(owned))
            for name, update in seen.items():
                self.assertEqual(update.dtype, "float64" if name == "wide" else "float32")
                self.assertEqual((update.first, update.count), (0, update.values.size))
                self.assertEqual(update.shape, SHAPES[name])
                self.assertEqual(update.settings, {"lr": 1e-3, "weight_decay": 0, "own": 4})
                self.assertEqual(update.step, 1)
            model.optimizer.close()

        run_ranks(2, body)

    @needs_numpy
    def test_its_state_is_saved_and_loaded(self) -> None:
        with tempfile.TemporaryDirectory() as folder:

            def save(comm: Comm) -> list[Any]:
                model = Model(comm, RULE)
                model.step(0)
                model.optimizer.save(f"{folder}/one")
                model.step(1)
                return model.state()

            def load(comm: Comm) -> list[Any]:
                model = Model(comm, RULE, "greedy")
                model.optimizer.load(f"{folder}/one")
                model.step(1)
                other = CustomOptimizer(sgd, slots=["velocity"])
                with self.assertRaisesRegex(CheckpointError, "'velocity' is declared"):
                    Model(comm, other).optimizer.load(f"{folder}/one")
                return model.state()

            self.assertEqual(run_ranks(4, save)[0], run_ranks(2, load)[0])

    def test_a_plan_counts_its_state(self) -> None:
        plan = partition_plan({"w": 4096}, 2, RULE)
        self.assertEqual(plan.state_bytes, 2048 * 4)


    @needs_numpy
    def test_its_state_moves_to_other_owners(self) -> None:
        def body(comm: Comm) -> list[Any]:
            model = Model(comm, RULE, "manual")
            model.step(0)
            before = [model.optimizer.state_gather(name, "momentum").tolist() for name in SHAPES]
            model.optimizer.rebalance({name: 1 for name in SHAPES})
            self.assertEqual(
                [model.optimizer.state_gather(name, "momentum").tolist() for name in SHAPES], before
            )
            self.assertEqual(len(model.optimizer.owned_ranges()), 4 if comm.rank == 1 else 0)
            model.step(1)
            return model.state()

        def still(comm: Comm) -> list[Any]:
            model = Model(comm, RULE)
            model.step(0)
            model.step(1)
            return model.state()

        self.assertEqual(run_ranks(2, body)[0], run_ranks(2, still)[0])


class Failures(unittest.TestCase):
    def test_what_it_raises_comes_out_of_the_step_and_the_others_are_told(self) -> None:
        for culprit in range(2):
            thrown = KeyboardInterrupt("enough\0 of \U0001f98e" * 200)

            def body(comm: Comm) -> None:
                fails = [comm.rank == culprit]

                def rule(update: Update) -> None:
                    for i in range(update.count):
                        update.values[i] = 7
                    if fails[0]:
                        raise thrown

                data, grad = floats(*[0] * 3000), floats(*[0] * 3000)
                with Optimizer(comm, CustomOptimizer(rule)) as optimizer:
                    optimizer.register([("w", data, grad)])
                    if fails[0]:
                        with self.assertRaises(KeyboardInterrupt) as caught:
                            optimizer.step()
                        self.assertIs(caught.exception, thrown)
                        cause = caught.exception.__cause__
                        self.assertIsInstance(cause, CallbackError)
                        self.assertIn("parameter 'w', the update of elements ", str(cause))
                    else:
                        with self.assertRaisesRegex(PeerError, "KeyboardInterrupt: enough  of "):
                            optimizer.step()
                    self.assertEqual(set(data), {0})
                    self.assertEqual(optimizer.result().step, 0)
                    fails[0] = False
                    optimizer.step()
                    self.assertEqual(set(data), {7})

            run_ranks(2, body)

    def test_what_it_writes_outside_of_its_arrays_is_found(self) -> None:
        import ctypes as c

        def rule(update: Update) -> None:
            address = c.addressof(c.c_char.from_buffer(update.values))
            c.memset(address + 12, 1, 1)

        with Comm.solo() as comm, Optimizer(comm, CustomOptimizer(rule)) as optimizer:
            optimizer.register([("w", floats(1, 2, 3), floats(1, 2, 3))])
            with self.assertRaisesRegex(
                CallbackError, "past the end of 'values', which has 12 bytes"
            ):
                optimizer.step()

    def test_what_it_keeps_stays_readable(self) -> None:
        kept: list[Update] = []
        with Comm.solo() as comm:
            with Optimizer(comm, CustomOptimizer(kept.append, slots=["a"])) as optimizer:
                optimizer.register([("w", floats(1, 2, 3), floats(4, 5, 6))])
                optimizer.step()
                optimizer.step()
        for update in kept:
            update.values[0] = 7
            self.assertEqual(list(update.values), [7, 2, 3])
            self.assertEqual(list(update.gradient), [4, 5, 6])
            self.assertEqual(list(update.slots["a"]), [0, 0, 0])

    def test_arrays_that_would_be_lost_are_refused(self) -> None:
        def values(update: Update) -> None:
            update.values = floats(7)

        def slots(update: Update) -> None:
            update.slots["a"] = floats(7)

        def step(update: Update) -> None:
            update.step = 2

        for rule, place in ((values, "values"), (slots, "slots"), (step, "step")):
            with Comm.solo() as comm:
                with Optimizer(comm, CustomOptimizer(rule, slots=["a"])) as optimizer:
                    data = floats(1)
                    optimizer.register([("w", data, floats(1))])
                    with self.assertRaisesRegex(TypeError, f"{place}.* is lent by the library"):
                        optimizer.step()
                    self.assertEqual(list(data), [1])

    def test_wrong_declarations_are_refused(self) -> None:
        with Comm.solo() as comm:
            for rule in (
                CustomOptimizer(lambda update: None),
                CustomOptimizer(plain_sgd, slots=["a.b"]),
                CustomOptimizer(plain_sgd, slots=["a"] * 2),
                CustomOptimizer(plain_sgd, slots=list("abcdefghi")),
                CustomOptimizer(plain_sgd, settings={"lr": -1}),
                CustomOptimizer(plain_sgd, name="a b"),
            ):
                with self.assertRaises(ArgumentError):
                    Optimizer(comm, rule)
            wrong: Any
            for wrong in ([3], "momentum"):
                with self.assertRaises(TypeError):
                    Optimizer(comm, CustomOptimizer(plain_sgd, slots=wrong))

    def test_a_rule_is_let_go_with_its_optimizer(self) -> None:
        import weakref

        class Rule:
            def __call__(self, update: Update) -> None:
                pass

        rule = Rule()
        gone = weakref.ref(rule)
        with Comm.solo() as comm, Optimizer(comm, CustomOptimizer(rule)) as optimizer:
            optimizer.register([Param("w", floats(1), floats(1))])
            del rule
            optimizer.step()
            self.assertIsNotNone(gone())
        self.assertIsNone(gone())


if __name__ == "__main__":
    unittest.main()

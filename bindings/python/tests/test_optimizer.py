# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import array
import ctypes as c
import gc
import math
import re
import tempfile
import threading
import time
import unittest
import weakref
from pathlib import Path
from typing import Any

from libzero import (
    ArgumentError,
    CheckpointError,
    Comm,
    ModelBuffer,
    Optimizer,
    OwnedRange,
    Param,
    PeerError,
    ZeroError,
    allocate,
    partition_plan,
    rules,
)
from support import floats, needs_numpy, needs_torch, run_ranks


def sgd(comm: Comm) -> Optimizer:
    return Optimizer(comm, "sgd", lr=0.5)


class ArgumentTest(unittest.TestCase):
    def test_wide_numbers_do_not_reach_c(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            optimizer.register({"w": floats(1)})
            optimizer.seal()
            for what, call in (
                ("root", lambda: optimizer.broadcast_params(1 << 32)),
                ("rank", lambda: optimizer.owned_ranges(1 << 32)),
                ("threads", lambda: Optimizer(comm, threads=(1 << 32) + 3)),
                ("bucket_bytes", lambda: Optimizer(comm, bucket_bytes=1 << 64)),
                ("owner", lambda: optimizer.register([Param("a", floats(1), owner=1 << 33)])),
                ("order", lambda: optimizer.register([Param("b", floats(1), order=1 << 64)])),
                ("dimension", lambda: partition_plan({"a": ((1 << 64) + 1,)}, 1)),
                ("world", lambda: partition_plan({"a": 1}, (1 << 32) + 1)),
            ):
                with self.subTest(what), self.assertRaisesRegex(OverflowError, what):
                    call()

    def test_wrong_types_are_named(self) -> None:
        wrong: Any = "1"
        with Comm.solo() as comm, sgd(comm) as optimizer:
            group = optimizer.register({"w": floats(1)})
            for what, call in (
                ("root", lambda: optimizer.broadcast_params(wrong)),
                ("rank", lambda: optimizer.owned_ranges(wrong)),
                ("threads", lambda: Optimizer(comm, threads=wrong)),
                ("setting 'lr'", lambda: Optimizer(comm, lr=wrong)),
                ("setting 'lr'", lambda: group.update(lr=wrong)),
                ("max_norm", lambda: optimizer.clip_grad_norm(wrong)),
                ("norm_type", lambda: optimizer.clip_grad_norm(1, wrong)),
                ("max_grad_norm", lambda: Optimizer(comm, max_grad_norm=wrong)),
            ):
                with self.subTest(what), self.assertRaisesRegex(TypeError, f"^{what} must be a"):
                    call()


class RulesTest(unittest.TestCase):
    def test_a_rule_tells_its_settings_and_state(self) -> None:
        rule = rules()["adamw"]
        self.assertEqual((rule.number, rule.settings["beta1"]), (0, 0.9))
        self.assertEqual(rule.ranges["beta1"], "in [0, 1)")
        self.assertEqual(
            rule.slots, {"exp_avg": None, "exp_avg_sq": None, "max_exp_avg_sq": "amsgrad"}
        )
        self.assertIn("lars", rules())

    def test_the_page_of_rules_has_their_settings(self) -> None:
        page = Path(__file__).resolve().parents[3] / "docs/optimizers.md"
        rows = re.findall(r"^\| ([A-Z]+) \| (.+) \|$", page.read_text(encoding="utf-8"), re.M)
        told = {}
        for name, settings in rows:
            pairs = (word.split(": ") for word in settings.split(", "))
            told[name.lower()] = {key: float(value) for key, value in pairs} | {"maximize": 0.0}
        self.assertEqual(told, {name: dict(rule.settings) for name, rule in rules().items()})

    def test_the_header_has_their_settings(self) -> None:
        header = Path(__file__).resolve().parents[3] / "include/zero.h"
        rows = re.findall(
            r"^ \*   ([A-Z]+) +(lr .+(?:\n \* {12}.+)*)", header.read_text(encoding="utf-8"), re.M
        )
        told = {}
        for name, settings in rows:
            words = re.findall(r"(\w+) ([-.e\d]+)", settings)
            told[name.lower()] = {key: float(value) for key, value in words} | {"maximize": 0.0}
        self.assertEqual(told, {name: dict(rule.settings) for name, rule in rules().items()})


class StepTest(unittest.TestCase):
    def test_two_ranks_step_on_the_mean_of_their_gradients(self) -> None:
        def body(comm: Comm) -> list[float]:
            weight, grad = floats(1, 2, 3), floats(*[comm.rank * 2.0] * 3)
            with sgd(comm) as optimizer:
                optimizer.register({"w": weight}, grads={"w": grad})
                optimizer.broadcast_params()
                self.assertTrue(optimizer.step())
            return list(weight)

        self.assertEqual(run_ranks(2, body), [[0.5, 1.5, 2.5]] * 2)

    def test_sum_is_not_divided_by_the_number_of_ranks(self) -> None:
        def body(comm: Comm) -> list[float]:
            weight = floats(4)
            with sgd(comm) as optimizer:
                optimizer.register({"w": weight})
                optimizer.step([floats(1)], "sum")
                optimizer.reduce_grads({"w": floats(1)}, "sum")
                optimizer.step()
            return list(weight)

        self.assertEqual(run_ranks(2, body), [[2.0]] * 2)

    def test_broadcast_takes_the_root_s_parameters(self) -> None:
        def body(comm: Comm) -> list[float]:
            weight = floats(comm.rank, comm.rank)
            with sgd(comm) as optimizer:
                optimizer.register([("w", weight)])
                optimizer.broadcast_params(1)
                optimizer.broadcast_params(None)
            return list(weight)

        self.assertEqual(run_ranks(2, body), [[1, 1]] * 2)

    def test_missing_gradient_leaves_the_parameter_alone(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            a, b = floats(1), floats(1)
            optimizer.register({"a": a, "b": b})
            optimizer.step({"b": floats(1)})
            optimizer.step([None, floats(1)])
            self.assertEqual((a[0], b[0]), (1, 0))
            with self.assertRaises(ZeroError) as caught:
                optimizer.step({})
            self.assertEqual(caught.exception.name, "ZERO_ERR_STATE")

    def test_frozen_parameters_stay_until_they_are_trained_again(self) -> None:
        def body(comm: Comm) -> list[float]:
            a, b = floats(1), floats(1)
            with sgd(comm) as optimizer:
                optimizer.register([Param("a", a, floats(1)), Param("b", b, floats(1), frozen=True)])
                optimizer.step()
                optimizer.set_trainable("b", True)
                optimizer.set_trainable(0, False)
                optimizer.step()
                for wrong in (2, -1):
                    said = f"parameter {wrong} does not exist: 2 are registered"
                    with self.assertRaisesRegex(IndexError, said):
                        optimizer.set_trainable(wrong, False)
            return [a[0], b[0]]

        self.assertEqual(run_ranks(2, body), [[0.5, 0.5]] * 2)

    def test_integers_are_registered_frozen_and_broadcast(self) -> None:
        def body(comm: Comm) -> list[float]:
            ids, weight = array.array("q", [comm.rank, 1 << 60]), floats(1)
            with sgd(comm) as optimizer:
                optimizer.register(
                    [Param("w", weight, floats(1)), Param("ids", ids, dtype="int64", frozen=True)]
                )
                optimizer.broadcast_params(1)
                optimizer.step()
                optimizer.bind([None, ids])
                with self.assertRaisesRegex(ZeroError, "'ids' is int64"):
                    optimizer.set_trainable("ids", True)
                with self.assertRaisesRegex(ValueError, "dtype 'int64'"):
                    optimizer.register([Param("more", ids, dtype="int64")])
                with self.assertRaisesRegex(TypeError, "'more' is int64"):
                    optimizer.register([Param("more", ids, frozen=True)])
            return [*ids, weight[0]]

        self.assertEqual(run_ranks(2, body), [[1, 1 << 60, 0.5]] * 2)

    def test_buffers_come_from_any_rank_and_return_with_a_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "c"

            def body(comm: Comm) -> list[float]:
                weight, mean = floats(1), floats(comm.rank, comm.rank)
                seen, half = array.array("q", [comm.rank]), array.array("H", [comm.rank])
                with sgd(comm) as optimizer:
                    optimizer.register([Param("w", weight, floats(1))])
                    with self.assertRaises(ZeroError) as none:
                        optimizer.broadcast_buffers()
                    self.assertEqual(none.exception.name, "ZERO_ERR_STATE")
                    optimizer.register_buffers({"mean": mean, "seen": seen})
                    optimizer.register_buffers([ModelBuffer("half", half, "bfloat16")])
                    optimizer.broadcast_buffers(1)
                    self.assertEqual([*mean, *seen, *half], [1, 1, 1, 1])
                    seen[0], mean[1] = 7 + comm.rank, comm.rank
                    optimizer.save(path)
                    seen[0] = 0
                    optimizer.load(path)
                    optimizer.step()
                return [*mean, *seen, *half, weight[0]]

            self.assertEqual(run_ranks(2, body), [[1, 0, 7, 1, 0.5]] * 2)

    def test_buffers_that_cannot_be_are_refused_without_effect(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            weight, mean = floats(1), floats(1, 2)
            optimizer.register({"w": weight})
            words = array.array("H", [1])
            for error, buffers, says in (
                (ArgumentError, {"w": mean}, "'w' is already a parameter"),
                (ArgumentError, {"fine": mean, "b": weight}, "overlaps"),
                (ArgumentError, [], "no buffers"),
                (TypeError, {"b": array.array("b", [1])}, "int64"),
                (TypeError, {"b": words}, "16-bit"),
                (TypeError, [("b", mean, "int32")], "int32 is needed"),
                (ValueError, [("b", words, "half")], "dtype 'half'"),
                (TypeError, {"b": 3.0}, "number"),
            ):
                with self.assertRaisesRegex(error, says):
                    optimizer.register_buffers(buffers)  # type: ignore[arg-type]
            with self.assertRaisesRegex(ArgumentError, "root 1"):
                optimizer.register_buffers([("fine", mean, "float32")])
                optimizer.broadcast_buffers(1)

    def test_buffers_are_kept_alive_until_close(self) -> None:
        with Comm.solo() as comm:
            optimizer = sgd(comm)
            memory = (c.c_float * 3)()
            alive = weakref.ref(memory)
            optimizer.register_buffers({"b": memory})
            del memory
            gc.collect()
            self.assertIsNotNone(alive())
            optimizer.broadcast_buffers()
            optimizer.close()
            gc.collect()
            self.assertIsNone(alive())

    @needs_torch
    def test_the_buffers_of_a_torch_module_are_registered_as_they_are(self) -> None:
        import torch

        with Comm.solo() as comm, sgd(comm) as optimizer:
            norm = torch.nn.BatchNorm1d(4)
            optimizer.register([(name, p.detach()) for name, p in norm.named_parameters()])
            optimizer.register_buffers(dict(norm.named_buffers()))
            norm(torch.rand(8, 4))
            optimizer.broadcast_buffers()
            self.assertEqual(int(norm.num_batches_tracked), 1)
            with self.assertRaisesRegex(TypeError, "bool"):
                optimizer.register_buffers({"mask": torch.zeros(3, dtype=torch.bool)})

    def test_parameters_have_settings_of_their_own(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            a, b = floats(1), floats(1)
            optimizer.register(
                [Param("a", a, floats(1), lr_scale=0.5), Param("b", b, floats(0), weight_decay=1)]
            )
            optimizer.step()
            self.assertEqual((a[0], b[0]), (0.75, 0.5))
            with self.assertRaisesRegex(ArgumentError, "'c': lr_scale"):
                optimizer.register([Param("c", floats(1), lr_scale=-1)])

    def test_clip_returns_the_norm_before(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            weight = floats(0, 0)
            optimizer.register({"w": weight}, grads={"w": floats(3, 4)})
            self.assertEqual(optimizer.clip_grad_norm(1.0), 5)
            optimizer.step()
            result = optimizer.result()
            self.assertEqual((result.step, result.status, result.grad_norm), (1, 0, 5))
            self.assertAlmostEqual(result.clip_factor, 0.2, 6)
            self.assertAlmostEqual(weight[1], -0.4, 6)
            self.assertEqual(optimizer.clip_grad_norm(9.0, math.inf), 4)

    def test_clip_of_some_leaves_the_others(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            a, b, d = floats(0, 0), floats(0), floats(0)
            optimizer.register({"a": a, "b": b}, grads={"a": floats(3, 4), "b": floats(8)})
            optimizer.register({"d": d}, grads={"d": floats(12)})
            self.assertEqual(optimizer.clip_grad_norm(1.0, params=["d", 0]), 13)
            self.assertAlmostEqual(optimizer.clip_grad_norm(math.inf, params=["d"]), 12 / 13, 6)
            self.assertEqual(optimizer.clip_grad_norm(9.0, 1.0, params=[1]), 8)
            self.assertEqual(optimizer.clip_grad_norm(1.0, params=[]), 0)
            optimizer.step()
            self.assertAlmostEqual(a[1], -0.5 * 4 / 13, 6)
            self.assertEqual(b[0], -4)
            for wrong in ([0, 0], ["a", 0], [None]):
                with self.assertRaises(ArgumentError):
                    optimizer.clip_grad_norm(1.0, params=wrong)
            with self.assertRaises(IndexError):
                optimizer.clip_grad_norm(1.0, params=[3])

    def test_nonfinite_gradients_skip_where_asked(self) -> None:
        with Comm.solo() as comm, Optimizer(comm, nonfinite="skip") as optimizer:
            weight = floats(1)
            optimizer.register({"w": weight})
            self.assertFalse(optimizer.step([floats(math.nan)]))
            self.assertEqual(weight[0], 1)
            result = optimizer.result()
            self.assertEqual((result.step, result.skipped, result.nonfinite), (0, 1, 1))

    def test_drop_allows_a_new_reduce(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            weight, grad = floats(1), floats(1)
            optimizer.register({"w": weight}, grads={"w": grad})
            optimizer.reduce_grads()
            with self.assertRaises(ZeroError):
                optimizer.reduce_grads()
            optimizer.drop_grads()
            optimizer.reduce_grads([floats(2)])
            optimizer.step()
            self.assertEqual(weight[0], 0)

    def test_result_does_not_raise_the_error_of_the_step(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            optimizer.register({"w": floats(1)})
            with self.assertRaises(ZeroError) as caught:
                optimizer.step()
            self.assertIn(optimizer.result().status, (0, caught.exception.code))

    def test_wrong_gradient_of_one_rank_is_a_peer_error_on_the_other(self) -> None:
        def body(comm: Comm) -> str:
            with sgd(comm) as optimizer:
                optimizer.register({"w": floats(1, 2)}, lr=0.25 * (comm.rank + 1))
                try:
                    optimizer.step([floats(1, 1)])
                except ZeroError as error:
                    self.assertIn("lr", error.message)
                    return error.name
            raise AssertionError("no error")

        self.assertEqual(sorted(run_ranks(2, body)), ["ZERO_ERR_MISMATCH", "ZERO_ERR_PEER"])


class BuildTest(unittest.TestCase):
    def test_a_setting_is_no_attribute_of_a_group_or_an_optimizer(self) -> None:
        with Comm.solo() as comm, Optimizer(comm, "sgd") as optimizer:
            group = optimizer.register({"w": array.array("f", [1.0])})
            with self.assertRaises(AttributeError):
                group.lr = 0.1  # type: ignore[attr-defined]
        with self.assertRaisesRegex(AttributeError, r"optimizer.settings\['lr'\]"):
            optimizer.lr = 0.1  # type: ignore[attr-defined]

    def test_settings_are_read_and_written_by_group(self) -> None:
        with Comm.solo() as comm, Optimizer(comm, lr=0.1) as optimizer:
            first = optimizer.register({"a": floats(1)})
            second = optimizer.register([Param("b", floats(1))], lr=0.2, weight_decay=0)
            self.assertEqual((first["lr"], second["lr"], second["weight_decay"]), (0.1, 0.2, 0))
            optimizer.settings["lr"] = 0.3
            second.update(lr=0.4, beta1=0.5)
            self.assertEqual((first["lr"], second["lr"], second["beta1"]), (0.3, 0.4, 0.5))
            self.assertEqual([group.number for group in optimizer.groups], [0, 1])
            with self.assertRaisesRegex(ArgumentError, "'momentum'"):
                first["momentum"] = 1
            with self.assertRaisesRegex(ArgumentError, "beta1"):
                first["beta1"] = 2

    def test_a_group_follows_its_own_rule(self) -> None:
        own, other = floats(1, 1), floats(1, 1)
        grads = {"own": floats(0.5, 0.5), "other": floats(0.5, 0.5)}
        with Comm.solo() as comm, Optimizer(comm, "lion", lr=0.25, weight_decay=0) as optimizer:
            optimizer.register({"own": own}, grads={"own": grads["own"]})
            group = optimizer.register(
                {"other": other}, grads={"other": grads["other"]}, optimizer="SGD", momentum=0.9
            )
            self.assertEqual((group["lr"], group["momentum"]), (1e-3, 0.9))
            group["lr"] = 0.5
            optimizer.step()
            self.assertEqual((list(own), list(other)), ([0.75] * 2, [0.75] * 2))
            with self.assertRaisesRegex(ArgumentError, "setting 'momentum' is unknown; expected one of lr, beta1"):
                optimizer.groups[0]["momentum"]
            wrong: Any = "adamv"
            with self.assertRaisesRegex(ValueError, "adamw"):
                optimizer.register({"more": floats(1, 2)}, optimizer=wrong)

    def test_unknown_choices_name_what_there_is(self) -> None:
        with Comm.solo() as comm:
            with self.assertRaisesRegex(ValueError, "optimizer 'lanb' is unknown; expected one of"):
                Optimizer(comm, "lanb")
            with self.assertRaisesRegex(ValueError, "partition 'odd'"):
                Optimizer(comm, partition="odd")
            with self.assertRaisesRegex(ArgumentError, "'momentum'"):
                Optimizer(comm, momentum=0.9)
            with self.assertRaisesRegex(ArgumentError, "bucket_bytes"):
                Optimizer(comm, bucket_bytes=1)

    def test_failed_register_adds_nothing(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            optimizer.register({"a": floats(1)})
            for name in ("a", ""):
                with self.assertRaises(ArgumentError):
                    optimizer.register({"b": floats(1), name: floats(2)})
            with self.assertRaises(KeyError):
                optimizer.register({"b": floats(1)}, grads={"c": floats(1)})
            with self.assertRaisesRegex(ValueError, "NUL"):
                optimizer.register({"b\0": floats(1)})
            self.assertEqual(optimizer.names, ("a",))
            self.assertEqual(len(optimizer.groups), 1)

    def test_padding_belongs_to_the_parameter_where_it_says_so(self) -> None:
        memory = floats(*[0.0] * 64)
        start = (c.addressof(memory) + 63) // 64 * 64
        for padded in (False, True):
            with Comm.solo() as comm, sgd(comm) as optimizer:
                optimizer.register([Param("a", (start, (3,)), padded=padded)])
                if padded:
                    with self.assertRaisesRegex(ArgumentError, "overlap"):
                        optimizer.register([Param("b", (start + 12, (2,)))])
                else:
                    optimizer.register([Param("b", (start + 12, (2,)))])

    def test_bind_gives_new_memory(self) -> None:
        with Comm.solo() as comm, sgd(comm) as optimizer:
            optimizer.register([Param("a", shape=(2,)), Param("b", shape=())])
            with self.assertRaises(ZeroError):
                optimizer.step([floats(1, 1), (1234, ())])
            a, b = floats(1, 2), floats(3)
            scalar = memoryview(b).cast("B").cast("f", [])
            optimizer.bind([a, scalar], {"a": floats(1, 1)})
            optimizer.step()
            self.assertEqual((list(a), b[0]), ([0.5, 1.5], 3))
            other = floats(9, 9)
            optimizer.bind(data={"a": other})
            optimizer.step()
            self.assertEqual((list(a), list(other)), ([0.5, 1.5], [8.5, 8.5]))

    def test_owned_ranges_cover_every_element_once(self) -> None:
        def body(comm: Comm) -> list[OwnedRange]:
            with Optimizer(comm) as optimizer:
                optimizer.register([("a", floats(*[0.0] * 5000)), ("b", floats(1, 2))])
                with self.assertRaises(ZeroError):
                    optimizer.owned_ranges()
                optimizer.seal()
                self.assertEqual(optimizer.param_index("b"), 1)
                with self.assertRaises(ArgumentError):
                    optimizer.param_index("c")
                mine = optimizer.owned_ranges()
                self.assertEqual(mine, optimizer.owned_ranges(comm.rank))
                owned = sum(count for _, _, count in mine)
                stats = optimizer.stats()
                self.assertEqual((stats.owned_elements, stats.parameter_elements), (owned, 5002))
                return mine

        ranges = [entry for mine in run_ranks(2, body) for entry in mine]
        elements = [(param, at) for param, first, n in ranges for at in range(first, first + n)]
        wanted = [(0, at) for at in range(5000)] + [(1, 0), (1, 1)]
        self.assertEqual(sorted(elements), wanted)

    def test_memory_stays_alive_until_close(self) -> None:
        class Memory:
            def __init__(self) -> None:
                self.memory = memoryview(floats(1, 2)).cast("B").cast("f")

            @property
            def __array_interface__(self) -> dict[str, Any]:
                address = c.addressof(c.c_char.from_buffer(self.memory.cast("B")))
                return {"data": (address, False), "shape": (2,), "typestr": "<f4", "version": 3}

        with Comm.solo() as comm:
            optimizer = sgd(comm)
            memory, grad = Memory(), Memory()
            alive = [weakref.ref(memory), weakref.ref(grad)]
            optimizer.register({"w": memory}, grads={"w": grad})
            del memory, grad
            gc.collect()
            optimizer.step()
            self.assertTrue(all(reference() for reference in alive))
            optimizer.close()
            gc.collect()
            self.assertFalse(any(reference() for reference in alive))

    def test_closed_optimizer_is_refused(self) -> None:
        with Comm.solo() as comm:
            optimizer = sgd(comm)
            group = optimizer.register({"w": floats(1)})
            optimizer.close()
            optimizer.close()
            for call in (optimizer.step, optimizer.seal, optimizer.stats, lambda: group["lr"]):
                with self.assertRaisesRegex(ValueError, "this Optimizer is closed"):
                    call()

    def test_comm_lives_on_inside_its_optimizer(self) -> None:
        comm = Comm.solo()
        weight = floats(1)
        optimizer = sgd(comm)
        comm.close()
        optimizer.register({"w": weight})
        optimizer.step([floats(1)])
        self.assertEqual(weight[0], 0.5)
        optimizer.close()
        with self.assertRaises(ValueError):
            Optimizer(comm)

    def test_second_thread_is_busy_and_not_queued(self) -> None:
        from libzero import _abi

        def body(comm: Comm) -> list[str]:
            names: list[str] = []
            with sgd(comm) as optimizer:
                optimizer.register({"w": floats(1)})
                optimizer.seal()
                if comm.rank == 1:
                    comm_ready.wait(20)
                    optimizer.step([floats(1)])
                    return names
                stepping = threading.Thread(target=optimizer.step, args=([floats(1)],))
                stepping.start()
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    try:
                        optimizer.stats()
                    except ZeroError as error:
                        names.append(error.name)
                        break
                comm_ready.set()
                stepping.join()
            return names

        comm_ready = threading.Event()
        self.assertEqual(_abi.lib().zero_status_name(-3), b"ZERO_ERR_BUSY")
        self.assertEqual(run_ranks(2, body)[0], ["ZERO_ERR_BUSY"])


class CheckpointTest(unittest.TestCase):
    def test_what_two_ranks_saved_one_loads(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs" / "step-2"

            def body(comm: Comm) -> list[float]:
                memory = allocate(comm, {"w": (2000,), "b": ()})
                with Optimizer(comm, lr=0.125) as optimizer:
                    optimizer.register(memory.params)
                    optimizer.broadcast_params()
                    for _ in range(2):
                        memory.grads["w"][5] = 1 + comm.rank
                        optimizer.step()
                    optimizer.save(path)
                    with self.assertRaises(ZeroError):
                        optimizer.save(path)
                    optimizer.save_begin(path, replace=True)
                    saved = [float(value) for value in memory.data["w"]]
                    with self.assertRaises(ZeroError):
                        optimizer.save_begin(path, replace=True)
                    # The ranks share one copy of the parameter, which the other rank may still be
                    # saving.
                    with self.assertRaises(ZeroError) as busy:
                        optimizer.state_set("w", None, floats(*[1.0] * 2000))
                    self.assertEqual(busy.exception.name, "ZERO_ERR_BUSY")
                    while not optimizer.save_ended:
                        optimizer.step()
                    optimizer.save_wait()
                    with self.assertRaises(ZeroError):
                        optimizer.save_wait()
                return saved

            saved = run_ranks(2, body)[0]
            self.assertLess(saved[5], 0)
            with Comm.solo() as comm, Optimizer(comm) as optimizer:
                weight, bias = floats(*[0.0] * 2000), memoryview(floats(1)).cast("B").cast("f", [])
                group = optimizer.register({"w": weight, "b": bias})
                optimizer.load(path.parent)
                self.assertEqual(list(weight), saved)
                self.assertEqual((optimizer.result().step, group["lr"]), (2, 0.125))
                group["lr"] = 0.25
                optimizer.load(path, keep_settings=True)
                self.assertEqual(group["lr"], 0.25)

    def test_checkpoint_errors_say_which_and_why(self) -> None:
        with tempfile.TemporaryDirectory() as folder, Comm.solo() as comm:
            with Optimizer(comm) as optimizer:
                optimizer.register({"w": floats(1, 2)})
                optimizer.save(f"{folder}/one")
                with self.assertRaises(CheckpointError) as caught:
                    optimizer.load(f"{folder}/none")
                self.assertEqual(caught.exception.name, "ZERO_ERR_CKPT_INVALID")
                self.assertIn("none", caught.exception.message)
                with self.assertRaisesRegex(ValueError, "NUL"):
                    optimizer.save("a\0b")
            with Optimizer(comm) as optimizer:
                optimizer.register({"v": floats(1, 2)})
                with self.assertRaises(CheckpointError) as caught:
                    optimizer.load(f"{folder}/one")
                self.assertEqual(caught.exception.name, "ZERO_ERR_CKPT_MISMATCH")
                self.assertRegex(caught.exception.message, "v. is not in the checkpoint")


@needs_numpy
class NumpyTest(unittest.TestCase):
    def test_numpy_parameters_and_gradients_train(self) -> None:
        import numpy as np

        def body(comm: Comm) -> Any:
            weight = np.full((3, 2), comm.rank, np.float32)
            with sgd(comm) as optimizer:
                optimizer.register({"w": weight})
                optimizer.broadcast_params()
                optimizer.step({"w": np.full((3, 2), comm.rank, np.float32)})
            return weight

        for weight in run_ranks(2, body):
            np.testing.assert_array_equal(weight, np.full((3, 2), -0.25, np.float32))

    def test_wrong_arrays_are_named(self) -> None:
        import numpy as np

        good = np.zeros((4, 2), np.float32)
        readonly = good.copy()
        readonly.flags.writeable = False
        cases: list[tuple[Any, type[Exception], str]] = [
            (np.zeros(3, np.int64), TypeError, "parameter 'w' is int64; expected one of float32, "),
            (np.zeros(3, ">f4"), TypeError, "is >f4; .*; its byte order is not"),
            ((c.c_float.__ctype_be__ * 3)(), TypeError, "is >f; .*; its byte order is not"),
            (good[:, :1], ValueError, "parameter 'w' is not contiguous"),
            (good.T, ValueError, "not contiguous"),
            (good[::2], ValueError, "not contiguous"),
            (readonly, ValueError, "read-only"),
            (np.float32(1), TypeError, "is a number"),
            ([1.0, 2.0], TypeError, "list is neither"),
        ]
        with Comm.solo() as comm, sgd(comm) as optimizer:
            for value, kind, message in cases:
                with self.subTest(message), self.assertRaisesRegex(kind, message):
                    optimizer.register({"w": value})
            optimizer.register({"w": good})
            with self.assertRaisesRegex(ValueError, r"gradient of 'w' has shape \(2, 4\)"):
                optimizer.step([np.zeros((2, 4), np.float32)])
            with self.assertRaisesRegex(TypeError, "gradient of 'w' is float64"):
                optimizer.step([np.zeros((4, 2))])
            with self.assertRaisesRegex(ValueError, "2 arrays given for 1"):
                optimizer.step([good, good])
            with self.assertRaisesRegex(KeyError, "'v'"):
                optimizer.step({"v": good})

    def test_one_dimension_of_any_stride_is_contiguous(self) -> None:
        import numpy as np

        column = np.zeros((4, 2), np.float32)[:1, :]
        with Comm.solo() as comm, sgd(comm) as optimizer:
            optimizer.register({"a": column, "b": np.zeros((0, 3), np.float32)[:, ::2]})
            optimizer.step([np.ones((1, 2), np.float32), None])
            self.assertEqual(column.tolist(), [[-0.5, -0.5]])

    def test_peers_learn_that_a_gradient_is_missing_only_here(self) -> None:
        import numpy as np

        def body(comm: Comm) -> float:
            weight = np.zeros(1, np.float32)
            with sgd(comm) as optimizer:
                optimizer.register({"w": weight})
                optimizer.step([np.ones(1, np.float32) if comm.rank == 0 else None])
            return float(weight[0])

        self.assertEqual(run_ranks(2, body), [-0.25, -0.25])


class PeerTest(unittest.TestCase):
    def test_unregistered_rank_fails_alone_and_the_others_hear_why(self) -> None:
        def body(comm: Comm) -> str:
            with sgd(comm) as optimizer:
                optimizer.register({"w": floats(1) if comm.rank == 0 else floats(1, 2)})
                try:
                    optimizer.seal()
                except PeerError as error:
                    self.assertIn("'w'", error.message)
                    return "peer"
                except ZeroError as error:
                    self.assertIn("'w'", error.message)
                    return "culprit"
            raise AssertionError("no error")

        self.assertEqual(sorted(run_ranks(2, body)), ["culprit", "peer"])


if __name__ == "__main__":
    unittest.main()

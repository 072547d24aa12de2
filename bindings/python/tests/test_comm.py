# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import array
import ctypes as c
import gc
import os
import threading
import unittest
import weakref
from typing import Any
from unittest import mock

from libzero import (
    ArgumentError,
    Comm,
    CommError,
    MismatchError,
    PeerError,
    ZeroError,
    build_info,
    nccl_unique_id,
)
from support import DEADLINES, floats, needs_numpy, new_name, run_ranks


class SoloTest(unittest.TestCase):
    def test_solo_is_rank_0_of_1(self) -> None:
        with Comm.solo() as comm:
            self.assertEqual((comm.rank, comm.world), (0, 1))
            comm.barrier()
            self.assertEqual(repr(comm), "<Comm, rank 0 of 1>")

    def test_a_gpu_that_is_not_there_is_unsupported_and_says_why(self) -> None:
        info = build_info()["devices"]
        if "(driver" in info:
            self.skipTest("this machine has a CUDA driver")
        said = "no CUDA driver is installed" if "(no driver)" in info else "built without CUDA"
        for create in (Comm.solo, Comm.from_env):
            with self.assertRaisesRegex(ZeroError, said) as caught:
                create(device="cuda")
            self.assertEqual(caught.exception.name, "ZERO_ERR_UNSUPPORTED")

    def test_an_nccl_comm_without_a_gpu_says_why(self) -> None:
        with self.assertRaisesRegex(ValueError, "unique_id has 3 bytes, not 128"):
            Comm.nccl(b"abc", 0, 1)
        with self.assertRaisesRegex(ArgumentError, "rank 2 does not exist in a world of 2"):
            Comm.nccl(bytes(128), 2, 2)
        with self.assertRaisesRegex(ArgumentError, "nccl_comm"):
            Comm.wrap_nccl(0)
        if "(driver" in build_info()["devices"]:
            self.skipTest("this machine has a CUDA driver")
        with self.assertRaisesRegex(ZeroError, "no CUDA driver|built without CUDA") as caught:
            Comm.nccl(bytes(128), 0, 1)
        self.assertEqual(caught.exception.name, "ZERO_ERR_UNSUPPORTED")

    def test_an_nccl_id_has_128_bytes_or_says_where_nccl_was_looked_for(self) -> None:
        try:
            drawn = nccl_unique_id()
        except CommError:
            self.skipTest("NCCL is here, and draws no id on this machine")
        except ZeroError as error:
            self.assertEqual(error.name, "ZERO_ERR_UNSUPPORTED")
            self.assertRegex(str(error), "libnccl.so.2")
        else:
            self.assertEqual(len(drawn), 128)
            self.assertNotEqual(drawn, nccl_unique_id())

    def test_devices_have_names_and_numbers(self) -> None:
        with Comm.solo(device="host", device_ordinal=0) as comm:
            self.assertEqual(comm.device, "host")
        with self.assertRaisesRegex(ValueError, "device 'tpu' is unknown; expected one of host"):
            Comm.solo(device="tpu")
        with self.assertRaisesRegex(ArgumentError, "device_ordinal is 1; on the host it must be 0"):
            Comm.solo(device_ordinal=1)
        with self.assertRaisesRegex(ArgumentError, "device_ordinal=None, which only Comm.from_env takes"):
            Comm.solo(device="cuda", device_ordinal=-1)
        with self.assertRaisesRegex(ArgumentError, "device_ordinal is -2; ordinals start at 0"):
            Comm.from_env(device="cuda", device_ordinal=-2)

    def test_how_nccl_works_is_passed_on(self) -> None:
        identity = bytes(128)
        with self.assertRaisesRegex(ArgumentError, "reduce_ctas is 65; it must be from 1 to 64"):
            Comm.nccl(identity, 0, 1, reduce_ctas=65)
        with self.assertRaisesRegex(ArgumentError, "reduce_ctas is -1"):
            Comm.from_env(reduce_ctas=-1)
        with self.assertRaisesRegex(ArgumentError, "rank 1 does not exist in a world of 1"):
            Comm.nccl(identity, 1, 1, reduce_ctas=8, gather_on_kernels=True)

    def test_env_without_a_launcher_is_solo(self) -> None:
        names = ("ZERO_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
        clean = {name: value for name, value in os.environ.items() if name not in names}
        with mock.patch.dict(os.environ, clean, clear=True), Comm.from_env() as comm:
            self.assertEqual((comm.rank, comm.world), (0, 1))

    def test_env_that_is_wrong_says_so(self) -> None:
        with (
            mock.patch.dict(os.environ, {"ZERO_RANK": "3", "ZERO_WORLD_SIZE": "2"}),
            self.assertRaisesRegex(ZeroError, "3"),
        ):
            Comm.from_env()

    def test_env_of_several_hosts_asks_for_gpus_and_then_for_a_place_to_meet(self) -> None:
        variables = {
            "OMPI_COMM_WORLD_RANK": "0",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
        }
        with mock.patch.dict(os.environ, variables):
            with self.assertRaisesRegex(ZeroError, 'several hosts .*device="cuda"'):
                Comm.from_env()
            with self.assertRaisesRegex(ArgumentError, "set ZERO_MASTER_ADDR"):
                Comm.from_env(device="cuda")

    def test_close_twice_is_fine_and_use_after_it_is_not(self) -> None:
        comm = Comm.solo()
        comm.close()
        comm.close()
        self.assertEqual(repr(comm), "<Comm, closed>")
        for call in (comm.barrier, comm.abort, comm.failure, lambda: comm.rank):
            with self.assertRaisesRegex(ValueError, "this Comm is closed"):
                call()

    def test_wrong_rank_is_an_argument_error_with_its_text(self) -> None:
        with self.assertRaises(ArgumentError) as caught:
            Comm.local(new_name(), 2, 2)
        self.assertEqual((caught.exception.code, caught.exception.name), (-1, "ZERO_ERR_ARGUMENT"))
        self.assertIn("2", caught.exception.message)

    def test_wide_numbers_and_nul_do_not_reach_c(self) -> None:
        with self.assertRaises(OverflowError):
            Comm.local(new_name(), 1 << 32, 2)
        with self.assertRaisesRegex(OverflowError, "late_ms"):
            Comm.solo(late_ms=1 << 64)
        with Comm.solo() as comm, self.assertRaisesRegex(OverflowError, "bytes"):
            comm.arena((1 << 64) + 64)
        with self.assertRaisesRegex(ValueError, "NUL"):
            Comm.local("a\0b", 0, 1)

    def test_arguments_of_a_wrong_type_are_named(self) -> None:
        wrong: Any = "0"
        with Comm.solo() as comm:
            for what, call in (
                ("root", lambda: comm.broadcast(bytearray(4), wrong)),
                ("color", lambda: comm.split(wrong)),
                ("name", lambda: Comm.local(5, 0, 1)),  # type: ignore[arg-type]
                ("timeout_ms", lambda: Comm.solo(timeout_ms=wrong)),
            ):
                with self.subTest(what), self.assertRaisesRegex(TypeError, f"^{what} must be a"):
                    call()

    def test_failure_is_no_cycle_that_keeps_the_callers_frames(self) -> None:
        class Local:
            pass

        def fail() -> weakref.ref[Local]:
            local = Local()
            try:
                Comm.local(new_name(), 2, 2)
            except ArgumentError:
                return weakref.ref(local)
            raise AssertionError("no error")

        gc.disable()
        self.addCleanup(gc.enable)
        self.assertIsNone(fail()())

    def test_deadlines_reach_c(self) -> None:
        with self.assertRaisesRegex(ArgumentError, "timeout_ms"):
            Comm.solo(timeout_ms=-1)

    def test_a_rank_that_never_comes_is_a_comm_error(self) -> None:
        with self.assertRaises(CommError) as caught:
            Comm.local(new_name(), 0, 2, rendezvous_ms=100)
        self.assertEqual(caught.exception.name, "ZERO_ERR_RENDEZVOUS")


class CollectiveTest(unittest.TestCase):
    def test_broadcast_copies_bytes_of_any_kind(self) -> None:
        def body(comm: Comm) -> tuple[bytes, list[float], list[int]]:
            data = bytearray(b"root" if comm.rank == 1 else b"....")
            numbers, whole = floats(comm.rank, 7), array.array("q", [comm.rank])
            comm.broadcast(data, 1)
            comm.broadcast(numbers, 1)
            comm.broadcast(whole)
            return bytes(data), list(numbers), list(whole)

        self.assertEqual(run_ranks(3, body), [(b"root", [1, 7], [0])] * 3)

    def test_all_reduce_takes_numbers_and_arrays(self) -> None:
        def body(comm: Comm) -> tuple[float, float, list[float], list[int]]:
            numbers, whole = floats(comm.rank, 1), array.array("i", [comm.rank])
            comm.all_reduce(numbers)
            comm.all_reduce(whole, "max")
            return (
                comm.all_reduce(comm.rank + 0.5),
                comm.all_reduce(comm.rank + 1, "min"),
                list(numbers),
                list(whole),
            )

        self.assertEqual(run_ranks(3, body), [(4.5, 1, [3, 3], [2])] * 3)

    def test_number_keeps_its_kind(self) -> None:
        with Comm.solo() as comm:
            self.assertIs(type(comm.all_reduce(1 << 60)), int)
            self.assertEqual(comm.all_reduce(1 << 60), 1 << 60)
            self.assertIs(type(comm.all_reduce(1.0)), float)
            with self.assertRaises(OverflowError):
                comm.all_reduce(1 << 63)

    def test_wrong_arguments_name_what_there_is(self) -> None:
        with Comm.solo() as comm:
            with self.assertRaisesRegex(ValueError, "'mean' is unknown; expected one of sum, min"):
                comm.all_reduce(1, "mean")
            with self.assertRaisesRegex(TypeError, "data is B"):
                comm.all_reduce(bytearray(4))
            with self.assertRaisesRegex(ValueError, "read-only"):
                comm.broadcast(b"1234")
            with self.assertRaisesRegex(ArgumentError, "root 1"):
                comm.broadcast(bytearray(4), 1)

    @needs_numpy
    def test_numpy_scalars_are_numbers_and_not_memory(self) -> None:
        import numpy as np

        with Comm.solo() as comm:
            self.assertEqual(comm.all_reduce(np.float32(2.5)), 2.5)
            self.assertEqual(comm.all_reduce(np.int64(3)), 3)
            with self.assertRaisesRegex(TypeError, "is a number"):
                comm.broadcast(np.float32(2.5))

    def test_split_orders_by_key_and_negative_takes_no_seat(self) -> None:
        def body(comm: Comm) -> object:
            child = comm.split(-1 if comm.rank == 0 else 5, -comm.rank)
            if child is None:
                return None
            with child:
                return child.rank, child.world, child.all_reduce(comm.rank)

        self.assertEqual(run_ranks(3, body), [None, (1, 2, 3), (0, 2, 3)])

    def test_fault_of_one_rank_is_a_peer_error_on_the_others(self) -> None:
        def body(comm: Comm) -> tuple[type, str]:
            try:
                comm.broadcast(bytearray(4), 7 if comm.rank == 1 else 0)
            except ZeroError as error:
                comm.barrier()  # the comm is still usable
                return type(error), error.message
            raise AssertionError("no error")

        results = run_ranks(3, body)
        self.assertEqual([kind for kind, _ in results], [PeerError, ArgumentError, PeerError])
        for _, message in results:
            self.assertIn("root 7", message)

    def test_different_arguments_are_a_mismatch(self) -> None:
        def body(comm: Comm) -> type:
            try:
                comm.broadcast(bytearray(4 + comm.rank))
            except ZeroError as error:
                return type(error)
            raise AssertionError("no error")

        self.assertEqual(set(run_ranks(2, body)), {MismatchError, PeerError})

    def test_abort_from_another_thread_ends_a_wait(self) -> None:
        name, seat = new_name(), []
        ready = threading.Event()

        def other() -> None:
            with Comm.local(name, 1, 2, **DEADLINES) as comm:
                seat.append(comm)
                ready.wait(20)
                comm.abort("enough")

        thread = threading.Thread(target=other)
        thread.start()
        with Comm.local(name, 0, 2, **DEADLINES) as comm:
            self.assertIsNone(comm.failure())
            threading.Timer(0.1, ready.set).start()
            with self.assertRaisesRegex(CommError, "enough"):
                comm.barrier()
            failure = comm.failure()
            assert failure is not None
            self.assertEqual((failure.name, failure.rank), ("ZERO_ERR_ABORTED", 1))
            self.assertIn("enough", failure.message)
            self.assertTrue(failure.params_consistent)
        thread.join()


class HandleTest(unittest.TestCase):
    def test_a_comm_without_a_group_is_told_what_makes_one(self) -> None:
        wrong: Any = Comm
        for arguments in ((), (0, 2), ("my-run",)):
            with self.assertRaisesRegex(TypeError, r"use Comm\.from_env\(\), which joins the ranks"):
                wrong(*arguments)

    def test_null_and_foreign_objects_do_not_reach_c(self) -> None:
        from libzero import _abi, _handles

        barrier = _abi.lib().zero_comm_barrier
        for wrong in (None, 0, 1234, c.c_void_p(5), "comm", _handles.OptimHandle(5)):
            with self.subTest(wrong), self.assertRaisesRegex(c.ArgumentError, "Comm"):
                barrier(wrong)

    def test_stale_token_is_refused_by_c(self) -> None:
        from libzero import _abi, _handles

        comm = Comm.solo()
        stale = _handles.CommHandle(comm._handle.value)
        comm.close()
        with self.assertRaises(ArgumentError):
            _abi.lib().zero_comm_barrier(stale)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import struct
import threading
import unittest
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from libzero import ArgumentError, Collectives, Comm, CommError, Optimizer, ZeroError, allocate
from support import floats


class Board:
    """Collectives between threads. Each thread publishes its bytes, waits, and copies what it
    needs."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.barrier = threading.Barrier(world, timeout=20)
        self.posted: list[bytes] = [b""] * world
        self.children: dict[int, Board] = {}
        self.freed: list[int] = []
        self.lock = threading.Lock()

    def post(self, rank: int, data: bytes) -> list[bytes]:
        self.posted[rank] = data
        self.barrier.wait()
        taken = list(self.posted)
        self.barrier.wait()
        return taken

    def collectives(self, rank: int) -> Collectives:
        def gather(send: memoryview, recv: memoryview) -> None:
            recv[:] = b"".join(self.post(rank, bytes(send)))

        def all_to_all(send: memoryview, recv: memoryview) -> None:
            size = len(send) // self.world
            parts = self.post(rank, bytes(send))
            recv[:] = b"".join(part[rank * size : (rank + 1) * size] for part in parts)

        def split(color: int, child_rank: int, world: int) -> Collectives | None:
            if color < 0:
                return None
            with self.lock:
                child = self.children.setdefault(color, Board(world))
            return child.collectives(child_rank)

        return Collectives(
            gather, gather, all_to_all, split=split, free=lambda: self.freed.append(rank)
        )


def reduce_scatter(board: Board, rank: int) -> Callable[[memoryview, memoryview, str], None]:
    def sum_my_part(send: memoryview, recv: memoryview, dtype: str) -> None:
        code = {"float32": "f", "float64": "d"}[dtype]
        parts = board.post(rank, bytes(send))
        numbers = f"{len(recv) // struct.calcsize(code)}{code}"
        mine = [struct.unpack_from(numbers, part, rank * len(recv)) for part in parts]
        recv[:] = struct.pack(numbers, *map(sum, zip(*mine)))

    return sum_my_part


def run_board(board: Board, body: Callable[[int], Any]) -> list[Any]:
    results: list[Any] = [None] * board.world

    def run(rank: int) -> None:
        try:
            results[rank] = body(rank)
        except BaseException as error:
            board.barrier.abort()
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(board.world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


class UserCommTest(unittest.TestCase):
    def test_user_comm_trains_as_any_other(self) -> None:
        board = Board(2)

        def train(collectives: Collectives, rank: int) -> list[float]:
            weight = floats(*[1.0] * 3000)
            with Comm.user(collectives, rank, 2) as comm, Optimizer(comm, "sgd", lr=0.5) as optim:
                optim.register({"w": weight})
                optim.broadcast_params()
                optim.step([floats(*[rank + 1.0] * 3000)])
                self.assertEqual(comm.all_reduce(rank, "max"), 1)
            return list(weight)

        def by_reduce_scatter(rank: int) -> list[float]:
            collectives = board.collectives(rank)
            return train(
                replace(
                    collectives,
                    all_to_all=None,
                    split=None,
                    reduce_scatter=reduce_scatter(board, rank),
                ),
                rank,
            )

        wanted = [[0.25] * 3000] * 2
        self.assertEqual(
            run_board(board, lambda rank: train(board.collectives(rank), rank)), wanted
        )
        self.assertEqual(sorted(board.freed), [0, 1])
        self.assertEqual(run_board(board, by_reduce_scatter), wanted)

    def test_every_dtype_travels_by_each_way_of_summing(self) -> None:
        board, dtypes = Board(2), {"a": "bfloat16", "b": "float64", "c": "float16"}

        def train(collectives: Collectives, rank: int) -> list[float]:
            with Comm.user(collectives, rank, 2) as comm, Optimizer(comm, "sgd", lr=1) as optim:
                memory = allocate(comm, dict.fromkeys(dtypes, (2001,)), "sgd", dtype=dtypes)
                optim.register(memory.params)
                grads, one = memory.grads, 0x3F80 + 0x80 * rank  # 1 and 2
                for at in range(2001):
                    grads["a"][at], grads["b"][at] = one, 1e-12 * (rank + 1)
                optim.step()
                return [value for array in memory.data.values() for value in array.tolist()]

        def by_reduce_scatter(rank: int) -> list[float]:
            own = reduce_scatter(board, rank)
            collectives = board.collectives(rank)
            return train(
                replace(collectives, all_to_all=None, split=None, reduce_scatter=own), rank
            )

        # -1.5 in bfloat16, and sums that float32 could not represent.
        wanted = [[0xBFC0] * 2001 + [-(1e-12 + 2e-12) * 0.5] * 2001 + [0] * 2001] * 2
        self.assertEqual(
            run_board(board, lambda rank: train(board.collectives(rank), rank)), wanted
        )
        self.assertEqual(run_board(board, by_reduce_scatter), wanted)

    def test_allocated_memory_travels_unpacked(self) -> None:
        board = Board(2)

        def body(rank: int) -> int:
            with Comm.user(board.collectives(rank), rank, 2) as comm, Optimizer(comm) as optim:
                memory = allocate(comm, {"a": (3001,), "b": (7,)})
                optim.register(memory.params)
                optim.step()
                return optim.stats().copied_bytes

        self.assertEqual(run_board(board, body), [0, 0])

    def test_split_makes_a_group_of_its_own(self) -> None:
        board = Board(3)

        def body(rank: int) -> object:
            with Comm.user(board.collectives(rank), rank, 3) as comm:
                child = comm.split(-1 if rank == 1 else 0)
                if child is None:
                    return None
                with child:
                    return child.rank, child.world, child.all_reduce(rank)

        self.assertEqual(run_board(board, body), [(0, 2, 2), None, (1, 2, 2)])
        self.assertEqual(sorted(board.freed), [0, 1, 2])
        self.assertEqual(sorted(board.children[0].freed), [0, 1])

    def test_exception_comes_out_of_the_call_that_ran_it(self) -> None:
        class Mine(BaseException):
            pass

        def exchange(send: memoryview, recv: memoryview) -> None:
            raise Mine("the network is down")

        with Comm.user(Collectives(exchange, exchange, exchange), 0, 1) as comm:
            with self.assertRaisesRegex(Mine, "the network is down") as caught:
                comm.barrier()
            cause = caught.exception.__cause__
            assert isinstance(cause, CommError)
            self.assertEqual(cause.name, "ZERO_ERR_COMM")
            # The comm is broken now, so no function runs and the library raises its own error.
            with self.assertRaises(CommError):
                comm.barrier()
            failure = comm.failure()
            assert failure is not None
            self.assertEqual(failure.name, "ZERO_ERR_COMM")

    def test_exception_waits_for_its_own_thread_only(self) -> None:
        def exchange(send: memoryview, recv: memoryview) -> None:
            raise KeyboardInterrupt

        with Comm.user(Collectives(exchange, exchange, exchange), 0, 1) as comm:
            with self.assertRaises(KeyboardInterrupt):
                comm.barrier()
        with Comm.solo() as solo, self.assertRaises(ArgumentError):
            solo.broadcast(bytearray(1), 7)

    def test_failing_call_inside_a_callback_is_not_lost(self) -> None:
        inner = Comm.solo()

        def exchange(send: memoryview, recv: memoryview) -> None:
            with self.assertRaises(ArgumentError):
                inner.broadcast(bytearray(1), 7)
            inner.barrier()
            recv[:] = send

        with Comm.user(Collectives(exchange, exchange, exchange), 0, 1) as comm:
            comm.barrier()
            self.assertIsNone(comm.failure())
        inner.close()

    def test_views_are_dead_after_the_callback(self) -> None:
        kept: list[memoryview] = []

        def exchange(send: memoryview, recv: memoryview) -> None:
            self.assertTrue(send.readonly)
            self.assertFalse(recv.readonly)
            recv[:] = send
            kept.extend((send, recv))

        with Comm.user(Collectives(exchange, exchange, exchange), 0, 1) as comm:
            comm.barrier()
        self.assertGreaterEqual(len(kept), 2)
        for view in kept:
            with self.assertRaisesRegex(ValueError, "released"):
                bytes(view)

    def test_missing_functions_are_named(self) -> None:
        def nothing(send: memoryview, recv: memoryview) -> None:
            pass

        with self.assertRaisesRegex(ArgumentError, "all_to_all or reduce_scatter"):
            Comm.user(Collectives(nothing, nothing), 0, 1)

    def test_comm_without_split_says_so(self) -> None:
        board = Board(1)
        collectives = replace(board.collectives(0), split=None)
        with Comm.user(collectives, 0, 1) as comm, self.assertRaises(ZeroError) as caught:
            comm.split(0)
        self.assertEqual(caught.exception.name, "ZERO_ERR_UNSUPPORTED")

    def test_split_must_return_what_the_parent_has(self) -> None:
        board = Board(1)
        bare = replace(board.collectives(0), all_to_all=None)
        for child, message in ((None, "returned None"), (bare, "that have all_to_all if and only if")):
            collectives = replace(board.collectives(0), split=lambda *_, child=child: child)
            with (
                Comm.user(collectives, 0, 1) as comm,
                self.assertRaisesRegex(TypeError, message),
            ):
                comm.split(0)

    def test_collectives_live_until_the_last_optimizer(self) -> None:
        board = Board(1)
        collectives = board.collectives(0)
        alive = weakref.ref(collectives)
        comm = Comm.user(collectives, 0, 1)
        optimizer = Optimizer(comm)
        del collectives
        comm.close()
        gc.collect()
        self.assertEqual(board.freed, [])
        optimizer.register({"w": floats(1)})
        optimizer.step([floats(1)])
        optimizer.close()
        gc.collect()
        self.assertEqual(board.freed, [0])
        self.assertIsNone(alive())


if __name__ == "__main__":
    unittest.main()

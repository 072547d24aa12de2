# SPDX-License-Identifier: Apache-2.0
"""Runs ranks as processes that meet over gloo in a file. The same processes run many cases. They are forked from a
process that has imported torch, because the import takes longer than most cases."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import tempfile
import traceback
import unittest
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PATIENCE_S = 1200 if os.environ.get("ZERO_TEST_NIGHTLY") else 240

Case = Callable[[int, int], Any]


def _rank(cases: Sequence[Case], rank: int, world: int, store: str, sending: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=180),
    )
    for case in cases:
        torch.manual_seed(0)
        try:
            sending.send((True, case(rank, world)))
        except BaseException:
            # The other ranks may wait for this rank, so later results are not reliable.
            sending.send((False, traceback.format_exc()))
            return
    dist.destroy_process_group()


def run_cases(world: int, cases: Sequence[Case]) -> dict[str, list[Any]]:
    """Return the results of case(rank, world) on each rank, by name of the case. Results are numbers, lists and
    strings. Cases are functions of a module. If a case raises an exception, the result of this case and of all later
    cases is an AssertionError."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "libzero.torch"])
    found: dict[str, list[Any]] = {case.__name__: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        started = []
        for rank in range(world):
            receiving, sending = context.Pipe(duplex=False)
            arguments = (cases, rank, world, store, sending)
            process = context.Process(target=_rank, args=arguments, daemon=True)
            process.start()
            sending.close()
            started.append((process, receiving))
        problems = [""] * world
        # Receive results case by case, because a rank blocks until its result has been received.
        for case in cases:
            for rank, (_, receiving) in enumerate(started):
                value: Any = None
                if not problems[rank]:
                    sound, value = _received(receiving)
                    problems[rank] = "" if sound else f"rank {rank} in {case.__name__}: {value}"
                problem = problems[rank]
                found[case.__name__].append(AssertionError(problem) if problem else value)
        for process, _ in started:
            process.join(5)
            if process.is_alive():
                process.kill()
    return found


def _received(receiving: Connection) -> tuple[bool, Any]:
    if not receiving.poll(PATIENCE_S):
        return False, "hangs"
    try:
        return receiving.recv()  # type: ignore[no-any-return]
    except EOFError:
        return False, "died"


class OneRank(unittest.TestCase):
    """Tests that run in this process, as the only rank of a group."""

    folder: Any

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        store = Path(cls.folder.name) / "store"
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)

    @classmethod
    def tearDownClass(cls) -> None:
        dist.destroy_process_group()
        cls.folder.cleanup()


def results_of(found: dict[str, list[Any]], case: Case) -> list[Any]:
    """Return the result of each rank, or raise the failure of the first rank."""
    for value in found[case.__name__]:
        if isinstance(value, AssertionError):
            raise value
    return found[case.__name__]


class InAllWorlds(unittest.TestCase):
    """Cases that the same processes run once, in worlds of these sizes."""

    worlds: Sequence[int]
    cases: Sequence[Case]
    found: dict[int, dict[str, list[Any]]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.found = {world: run_cases(world, cls.cases) for world in cls.worlds}

    def of(self, case: Case) -> Iterator[Any]:
        """Yield the result of each rank of each world."""
        for _, _, found in self.of_ranks(case):
            yield found

    def of_ranks(self, case: Case) -> Iterator[tuple[int, int, Any]]:
        """Yield the world, the rank, and the result of each rank."""
        for world in self.worlds:
            for rank, found in enumerate(results_of(self.found[world], case)):
                yield world, rank, found


def assert_trained_alike(test: unittest.TestCase, found: Sequence[tuple[str, float, bool, bool]]) -> None:
    """Check the results of each optimizer: its name, its difference from the original in units of the tolerance,
    whether all ranks have the same values, and whether any value has changed."""
    for name, difference, same, moved in found:
        test.assertLess(difference, 1, name)
        test.assertTrue(same, name)
        test.assertTrue(moved, name)


def bits(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Return values that compare equal if their bits are equal, except for the signs of zeros and NaNs."""
    return [tensor.detach().double().flatten().tolist() for tensor in tensors]


def everywhere(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether these tensors are bitwise identical on all ranks of the default group."""
    mine = bits(tensors)
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, mine)
    return all(other == mine for other in gathered)


def worst(mine: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> float:
    """Return the largest difference, as a fraction of the tolerance of torch's own optimizer tests. The tolerance is
    1e-5 plus 1.3e-6 of the value, in float32."""
    parts = [0.0]
    for one, other in zip(mine, others):
        if one.numel():
            allowed = 1e-5 + 1.3e-6 * other.detach().double().abs()
            difference = (one.detach().double() - other.detach().double()).abs()
            parts.append(float((difference / allowed).max()))
    return max(parts)

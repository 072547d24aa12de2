# SPDX-License-Identifier: Apache-2.0
"""Measures how much a save delays training: GPT-2 124M on processes of one host, saved at once, saved
in the background, and with torch's async_save of ZeroRedundancyOptimizer's state. Needs LIBZERO_PATH
(or a build) and a disk: --directory. --torch needs requirements.txt.

Times are medians over rounds of the slowest rank. `stall` is how long the call that begins a save
blocks training. `total` is the time until the checkpoint is complete. Steps are compared with steps of
the same round without a save."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Callable

from gpt2 import gpt2_shapes

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # each rank computes on one core
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bindings" / "python"))


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compute(products: int) -> None:
    """Keeps this rank's core busy, like a backward pass on the host."""
    import numpy as np

    a = np.ones((256, 256), np.float32)
    for _ in range(products):
        a = np.minimum(a @ a, 1)


def products_in(seconds: float) -> int:
    """Returns how many products compute() makes in this time on an otherwise idle core."""
    some = 200
    compute(some)
    return round(some * seconds / timed(lambda: compute(some)))


class Libzero:
    def __init__(self, rank: int, world: int, name: str) -> None:
        import libzero

        self.comm = libzero.Comm.local(name, rank, world)
        memory = libzero.allocate(self.comm, gpt2_shapes())
        for array in [*memory.data.values(), *memory.grads.values()]:
            array[...] = 0.01
        self.optimizer = libzero.Optimizer(self.comm, "adamw", lr=1e-3)
        self.optimizer.register(memory.params)
        self.step()

    def step(self) -> None:
        self.optimizer.step()

    def stall(self, directory: str) -> float:
        return timed(lambda: self.optimizer.save_begin(directory))

    def finish(self) -> None:
        self.optimizer.save_wait()

    def at_once(self, directory: str) -> float:
        return timed(lambda: self.optimizer.save(directory))


class Torch:
    def __init__(self, rank: int, world: int, name: str) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.optim import ZeroRedundancyOptimizer

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file:///tmp/{name}", rank=rank, world_size=world)
        self.rank = rank
        self.params = {k: torch.nn.Parameter(torch.full(s, 0.01)) for k, s in gpt2_shapes().items()}
        for param in self.params.values():
            param.grad = torch.full_like(param, 0.01)
        self.optimizer = ZeroRedundancyOptimizer(self.params.values(), torch.optim.AdamW, lr=1e-3)
        self.pending: Any = None
        self.group = dist.new_group()  # steps use the default group meanwhile
        self.step()

    def step(self) -> None:
        self.optimizer.step()

    def stall(self, directory: str) -> float:
        import torch.distributed.checkpoint as dcp

        def begin() -> None:
            own = self.optimizer.optim.state_dict()["state"]
            state: dict[str, Any] = {f"model.{key}": param.detach() for key, param in self.params.items()}
            for number, slots in own.items():
                state |= {f"optim.{self.rank}.{number}.{slot}": value for slot, value in slots.items()}
            self.pending = dcp.async_save(state, checkpoint_id=directory, process_group=self.group)

        return timed(begin)

    def finish(self) -> None:
        self.pending.result()

    def at_once(self, directory: str) -> float:
        return timed(lambda: (self.stall(directory), self.finish()))


def one_save(subject: Any, way: str, given: argparse.Namespace, barrier: Any, target: str) -> dict[str, float]:
    pause: dict[str, Callable[[], None]] = {
        "bare": lambda: None,
        "waiting": lambda: time.sleep(given.pause),
        "computing": lambda: compute(given.products),
    }
    row: dict[str, float] = {}

    def step(name: str) -> None:
        start = time.perf_counter()
        pause[way]()
        barrier.wait()
        row[f"{way}: {name} step"] = timed(subject.step)
        row[f"{way}: {name} step and its pause"] = time.perf_counter() - start

    alone: dict[str, list[float]] = {}
    for _ in range(3):
        step("usual")
        for key, value in row.items():
            alone.setdefault(key, []).append(value)
    row.update((key, statistics.median(values)) for key, values in alone.items())
    barrier.wait()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    row[f"{way}: stall"] = subject.stall(target)
    for name in ("first", "second", "third"):
        step(name)
    row[f"{way}: end"] = timed(subject.finish)
    row[f"{way}: total"] = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    row[f"{way}: CPU"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return row


def rounds(subject: Any, given: argparse.Namespace, barrier: Any) -> list[dict[str, float]]:
    """Makes all saves of one kind one after the other, as a training would."""
    barrier.wait()
    given.products = products_in(given.pause)
    rows: list[dict[str, float]] = [{} for _ in range(given.rounds)]
    for way in ("at once", *given.ways):
        for number, row in enumerate(rows):
            target = os.path.join(given.directory, f"{type(subject).__name__}-{number}")
            barrier.wait()
            if way == "at once":
                row["step"] = statistics.median(timed(subject.step) for _ in range(5))
                barrier.wait()
                row["save at once"] = subject.at_once(target)
            else:
                row.update(one_save(subject, way, given, barrier, target))
            barrier.wait()
            if given.rank == 0:
                shutil.rmtree(target)
    return rows


def one_rank(rank: int, given: argparse.Namespace, name: str, barrier: Any, queue: Any) -> None:
    given.rank = rank
    subject = {"libzero": Libzero, "torch": Torch}[given.subject](rank, given.world, name)
    queue.put(rounds(subject, given, barrier))


def measure(given: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(given.world), context.Queue()
    name = f"save-behind-{uuid.uuid4().hex}"
    ranks = [
        context.Process(target=one_rank, args=(rank, given, name, barrier, queue))
        for rank in range(given.world)
    ]
    for process in ranks:
        process.start()
    of_ranks = [queue.get() for _ in ranks]
    for process in ranks:
        process.join()
    print(f"{given.subject}, {given.world} ranks, {given.rounds} rounds, pause {given.pause} s")
    for key in of_ranks[0][0]:
        slowest = [max(rows[n][key] for rows in of_ranks) for n in range(given.rounds)]
        line = f"  {key:38} {statistics.median(slowest) * 1e3:9.1f} ms, the first {slowest[0] * 1e3:.1f}"
        way, _, what = key.partition(": ")
        alone = f"{way}: usual {what.partition(' ')[2]}"
        if alone in of_ranks[0][0]:
            ratios = [
                max(rows[n][key] for rows in of_ranks) / max(rows[n][alone] for rows in of_ranks)
                for n in range(given.rounds)
            ]
            line += f", {statistics.median(ratios):.3f} of the usual"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds of computing before a step")
    parser.add_argument("--ways", nargs="*", default=["bare", "waiting", "computing"])
    parser.add_argument("--directory", required=True, help="on the disk that is measured")
    parser.add_argument("--torch", action="store_true", help="torch's async_save, too")
    given = parser.parse_args()
    os.makedirs(given.directory, exist_ok=True)
    for given.subject in ("libzero", "torch") if given.torch else ("libzero",):
        measure(given)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Runs ranks in new processes that are forked after torch has been imported. Each process has one
thread, and is supervised until a deadline.

Forking is safe because the parent only imports torch. It has one thread, which is checked.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import json
import os
import re
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import torch
import torch.distributed as dist

# Otherwise the first step of any optimizer imports this in every rank, which takes longer than most
# cases.
with contextlib.suppress(ImportError):
    importlib.import_module("torch._dynamo")

GRACE_S = 30  # after its deadline, a rank without a parent ends itself


@dataclass(frozen=True)
class Report:
    """How a rank ended: "value", "absent" (it does not take part), "error", "abort" or "hang"."""

    kind: str
    numbers: tuple[float, ...] = ()
    sentence: str = ""
    error: str = ""  # the class of the exception
    raised_in: str = ""  # the file of the innermost frame, if a raise statement raised


def last_words(log: str) -> str:
    """Return the reason for an abort from the output of a process."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    for line in reversed(lines):
        if "what():" in line:
            return re.sub(r"^what\(\): *", "", line)
    return lines[-1] if lines else "without a word"


def report_of(action: Callable[[], Any]) -> dict[str, Any]:
    try:
        result = action()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        by_statement = bool(frames) and re.search(r"\braise\b", frames[-1].line or "")
        said = str(error).strip().splitlines()
        return {
            "kind": "error",
            "sentence": said[0] if said else "",
            "error": type(error).__name__,
            "raised_in": frames[-1].filename if by_statement else "",
        }
    if result is None:
        return {"kind": "absent"}
    if isinstance(result, dict):
        return {
            "kind": "value",
            "by_rank": {str(rank): list(numbers) for rank, numbers in result.items()},
        }
    return {"kind": "value", "numbers": [float(number) for number in result]}


class Process:
    """One rank. Like a rank that continues to train, it stays after its report until it is killed,
    so that the other ranks never find that it has ended. After an exception, it ends immediately,
    as a program would."""

    def __init__(self, action: Callable[[], Any], log: str, deadline_s: float) -> None:
        self.log = log
        self.said: Optional[dict[str, Any]] = None
        self.read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._be(action, write_end, deadline_s)
            finally:
                os._exit(1)
        os.close(write_end)

    def _be(self, action: Callable[[], Any], write_end: int, deadline_s: float) -> None:
        signal.alarm(int(deadline_s) + GRACE_S)
        output = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        torch.set_num_threads(1)
        said = report_of(action)
        os.write(write_end, json.dumps(said).encode())
        os.close(write_end)
        while said["kind"] != "error":
            signal.pause()

    def hear(self) -> None:
        """Receive the report, or find out how the process ended without one. Blocks until either is
        known."""
        chunks = []
        while chunk := os.read(self.read_end, 65536):
            chunks.append(chunk)
        if chunks:
            self.said = json.loads(b"".join(chunks))
            return
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        how = (
            signal.Signals(os.WTERMSIG(status)).name
            if os.WIFSIGNALED(status)
            else f"exit {os.WEXITSTATUS(status)}"
        )
        self.said = {"kind": "abort", "error": how, "sentence": last_words(self.log)}

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        os.close(self.read_end)


class Job:
    """All ranks of a case on one side, or the process that computes the right result."""

    def __init__(
        self, actions: list[Callable[[str], Any]], deadline_s: float, lost: frozenset[int]
    ) -> None:
        self._actions, self._deadline_s, self._lost = actions, deadline_s, lost
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None
        self._processes: list[Process] = []
        self._ends_at = 0.0
        self.reports: list[Report] = []

    def start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="peers-")
        store = os.path.join(self._folder.name, "store")
        self._ends_at = time.monotonic() + self._deadline_s
        for rank, action in enumerate(self._actions):
            log = os.path.join(self._folder.name, f"rank{rank}.log")
            with_store = functools.partial(action, store)
            self._processes.append(Process(with_store, log, self._deadline_s))

    def awaited(self) -> dict[int, Process]:
        """Return the processes that have not yet reported, by the descriptor that becomes readable
        with the report."""
        return {
            process.read_end: process
            for rank, process in enumerate(self._processes)
            if process.said is None and rank not in self._lost
        }

    def done(self) -> bool:
        return not self.awaited() or time.monotonic() >= self._ends_at

    def finish(self) -> None:
        for rank, process in enumerate(self._processes):
            process.end()
            said: dict[str, Any] = (
                {"kind": "absent"} if rank in self._lost else process.said or {"kind": "hang"}
            )
            by_rank: Optional[dict[str, list[float]]] = said.pop("by_rank", None)
            if by_rank is None:
                self.reports.append(Report(**{**said, "numbers": tuple(said.get("numbers", ()))}))
                continue
            for other in range(1 + max(map(int, by_rank))):
                numbers = by_rank.get(str(other))
                self.reports.append(
                    Report("absent") if numbers is None else Report("value", tuple(numbers))
                )
        if self._folder is not None:
            self._folder.cleanup()


def member(
    train: Callable[[int], Any], rank: int, world: int, timeout_s: float
) -> Callable[[str], Any]:
    """Return the action of a rank, which joins the group through the store and trains."""

    def action(store: str) -> Any:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=timeout_s),
        )
        return train(rank)

    return action


def run_all(jobs: list[Job], at_once: int) -> None:
    """Run the jobs in their order, at most `at_once` at a time."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"{threads} threads run where only a process of one thread may fork")
    waiting, running = list(jobs), list[Job]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                running[-1].start()
            awaited = {fd: process for job in running for fd, process in job.awaited().items()}
            ready, _, _ = select.select(list(awaited), [], [], 0.2)
            for fd in ready:
                awaited[fd].hear()
            for job in [job for job in running if job.done()]:
                job.finish()
                running.remove(job)
    finally:
        for job in running:
            job.finish()

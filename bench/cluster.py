# SPDX-License-Identifier: Apache-2.0
"""Times a step of GPT-2 124M over links between the hosts of tests/cluster, which tc shapes.

    LIBZERO_PATH=build/src venv/bin/python bench/cluster.py --hosts 2 --ranks-per-host 2 --rate 1gbit

These run in turns: libzero under mpirun (an MPI of tests/mpi), with gradients as they are and with
--wire; torch's gloo with ZeroRedundancyOptimizer; and the floor. The floor is a plain TCP stream in both
directions with the bytes that each host has to send, which are 2 (H - 1) / H of the parameters' bytes.
Prints the step time of the slowest rank, and the TCP traffic out of and into a host, as the interfaces
count it. The hosts share the cores of this machine, so computations are slower than on a cluster.
Needs requirements.txt."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "bindings" / "python")]

import cluster  # noqa: E402
import launchers  # noqa: E402
import mpis  # noqa: E402
from gpt2 import gpt2_shapes  # noqa: E402

SUBJECTS = ("libzero", "libzero bf16", "torch")
Step = Callable[[], Any]


def libzero_step(wire: str | None) -> tuple[int, Step, Step]:
    import libzero

    comm = libzero.Comm.from_env()
    memory = libzero.allocate(comm, gpt2_shapes())
    for array in [*memory.data.values(), *memory.grads.values()]:
        array[...] = 0.01
    options: dict[str, Any] = {"wire_dtype": wire} if wire else {}
    optimizer = libzero.Optimizer(comm, "adamw", lr=1e-3, **options)
    optimizer.register(memory.params)
    return comm.rank, optimizer.step, comm.barrier


def torch_step() -> tuple[int, Step, Step]:
    import torch
    import torch.distributed as dist

    from compare_torch import make_variants

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    variant = "zero_redundancy_optimizer"
    return rank, make_variants([variant], rank, world, lambda: None)[0][variant], dist.barrier


def run_rank(subject: str, steps: int) -> None:
    """Runs a launcher's rank. Prints its times and, on one rank per host, the traffic of its link."""
    wire = "bfloat16" if subject.endswith("bf16") else None
    _, step, barrier = torch_step() if subject == "torch" else libzero_step(wire)
    seconds: list[float] = []
    turn(step, barrier)  # the first step allocates
    before = cluster.traffic("eth0")
    for _ in range(steps):
        seconds.append(turn(step, barrier))
    went = cluster.traffic("eth0").since(before).payload()
    print(json.dumps({"seconds": seconds, "payload": [each / steps for each in went]}), flush=True)
    barrier()


def turn(step: Callable[[], Any], barrier: Callable[[], Any]) -> float:
    barrier()
    begin = time.perf_counter()
    step()
    taken = time.perf_counter() - begin
    barrier()
    return taken


def run_subject(made: Any, subject: str, asked: argparse.Namespace) -> tuple[float, list[float]]:
    """Returns the median time of steps of the slowest rank, and the MB out of and into the busiest host."""
    program = [sys.executable, __file__, "--rank", subject, "--steps", str(asked.steps)]
    environment = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    launcher: Any = launchers.NoLauncher()
    if subject != "torch":
        mpi = mpis.find(asked.mpi)
        if mpi is None:
            sys.exit(mpis.why_not(asked.mpi))
        launcher, environment["ZERO_MPI_PATH"] = launchers.Mpirun(mpi), str(mpi.library)
    status, said = launcher.run(made.hosts, asked.ranks_per_host, program, **environment)
    ranks = [json.loads(one) for one in re.findall(r'{"seconds".*?}', said)]  # lines may run together
    if (subject == "torch" and status != 0) or len(ranks) != asked.hosts * asked.ranks_per_host:
        sys.exit(said)
    slowest = [max(step) for step in zip(*(rank["seconds"] for rank in ranks))]
    payload = [max(each) / 1e6 for each in zip(*(rank["payload"] for rank in ranks))]
    return statistics.median(slowest), payload


def run_stream(hosts: list[Any], size: int) -> float:
    """Returns the seconds in which this many bytes pass between two hosts, in both directions at once."""
    ends = [
        subprocess.Popen(
            host.command([sys.executable, str(ROOT / "tests/cluster/stream.py"), way,
                          hosts[0].address, str(size)]),
            stdout=subprocess.PIPE, text=True,
        )
        for host, way in zip(hosts, ("listen", "connect"))
    ]  # fmt: skip
    return max(float(end.communicate()[0]) for end in ends)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks-per-host", type=int, default=2)
    parser.add_argument("--mpi", choices=mpis.NAMES, default="mpich")
    parser.add_argument("--subjects", nargs="*", choices=SUBJECTS, default=SUBJECTS)
    parser.add_argument("--rate", default="1gbit", help="of each link, in tc's words")
    parser.add_argument("--packets", action="store_true", help="links count them as a wire would")
    parser.add_argument("--rounds", type=int, default=3, help="each begins all ranks anew")
    parser.add_argument("--steps", type=int, default=3, help="in a round")
    parser.add_argument("--rank", choices=SUBJECTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    asked = parse()
    if asked.rank:
        return run_rank(asked.rank, asked.steps)
    if why_not := cluster.enter():
        sys.exit(why_not)
    elements = sum(math.prod(shape) for shape in gpt2_shapes().values())
    least = 2 * (asked.hosts - 1) * 4 * elements // asked.hosts
    taken: dict[str, list[float]] = {name: [] for name in ("stream", *asked.subjects)}
    payloads: dict[str, list[float]] = {"stream": [least / 1e6, least / 1e6]}
    with cluster.Cluster(asked.hosts, asked.rate, asked.packets) as made:
        for _ in range(asked.rounds):
            taken["stream"].append(run_stream(made.hosts, least))
            for subject in asked.subjects:
                seconds, payloads[subject] = run_subject(made, subject, asked)
                taken[subject].append(seconds)
    print(f"{asked.hosts} hosts, {asked.ranks_per_host} ranks each, links of {asked.rate}, "
          f"{os.cpu_count()} cores; {asked.rounds} rounds of {asked.steps} steps")
    print(f"{'subject':14}{'median s':>10}{'of stream':>11}{'MB out':>9}{'MB in':>9}")
    for name, rounds in taken.items():
        ratio = statistics.median(one / floor for one, floor in zip(rounds, taken["stream"]))
        out, into = payloads[name]
        print(f"{name:14}{statistics.median(rounds):10.3f}{ratio:11.3f}{out:9.1f}{into:9.1f}")
    return None


if __name__ == "__main__":
    main()

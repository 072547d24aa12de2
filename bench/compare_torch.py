# SPDX-License-Identifier: Apache-2.0
"""Compares libzero's step with what a torch user can write: GPT-2 124M on processes of one host.

One set of processes holds all variants and runs them in turns, round by round, so that all see the
same machine. The time of a step is that of the slowest rank. Needs requirements.txt and LIBZERO_PATH
(or a build)."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Callable

from gpt2 import gpt2_shapes

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bindings" / "python"))

SETTINGS = {"lr": 1e-3, "weight_decay": 0.01}
BUCKET_ELEMENTS = 25 * 1024 * 1024 // 4
STREAM_ELEMENTS = 32 * 1024 * 1024  # a piece that is larger than the caches

VARIANTS = {
    "libzero": "zero_step: reduce, AdamW, share",
    "in_place": "as many bytes, 4N + 24 a parameter, by Tensor.neg_",
    "copy": "as many bytes by Tensor.copy_",
    "zero_redundancy_optimizer": "all-reduce + ZeroRedundancyOptimizer(AdamW)",
    "zero_redundancy_fused": "the same with fused=True",
    "unsharded_fused": "all-reduce + AdamW(fused=True), whole state on each rank",
    "fairscale_oss": "reduce to owners + OSS(AdamW)",
}


class Model:
    """Parameters of torch. Gradients are views of one flat tensor, like the bucket views of DDP."""

    def __init__(self, rank: int) -> None:
        import torch

        start = torch.Generator().manual_seed(1)
        own = torch.Generator().manual_seed(100 + rank)
        self.params = {
            name: torch.nn.Parameter(torch.randn(shape, generator=start) * 0.02)
            for name, shape in gpt2_shapes().items()
        }
        self.grads = {
            name: torch.randn(param.shape, generator=own) * 0.01
            for name, param in self.params.items()
        }
        self.flat = torch.empty(0)

    def lay_out_grads(self, owner_of: Callable[[Any], int], world: int) -> list[tuple[int, int]]:
        """Makes one flat gradient, owner by owner. Returns each owner's (first, end)."""
        import torch

        self.flat = torch.empty(sum(param.numel() for param in self.params.values()))
        at, spans = 0, []
        for owner in range(world):
            first = at
            for name, param in self.params.items():
                if owner_of(param) == owner:
                    param.grad = self.flat[at : at + param.numel()].view(param.shape)
                    param.grad.copy_(self.grads[name])
                    at += param.numel()
            spans.append((first, at))
        return spans


def pieces(first: int, end: int) -> list[tuple[int, int]]:
    """Returns buckets of 25 MiB."""
    return [(at, min(at + BUCKET_ELEMENTS, end)) for at in range(first, end, BUCKET_ELEMENTS)]


def state_bytes(optimizer: Any) -> int:
    import torch

    return sum(
        value.numel() * value.element_size()
        for state in optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value) and value.numel() > 1
    )


def make_all_reduce(model: Model, world: int) -> Callable[[], None]:
    import torch.distributed as dist

    buckets = [model.flat[first:end] for first, end in pieces(0, model.flat.numel())]

    def all_reduce() -> None:
        works = []
        for bucket in buckets:
            bucket.div_(world)
            works.append(dist.all_reduce(bucket, async_op=True))
        for work in works:
            work.wait()

    return all_reduce


def make_reduce_to_owners(
    model: Model, spans: list[tuple[int, int]], world: int
) -> Callable[[], None]:
    import torch.distributed as dist

    buckets = [
        (owner, model.flat[first:end])
        for owner, span in enumerate(spans)
        for first, end in pieces(*span)
    ]

    def reduce_to_owners() -> None:
        works = []
        for owner, bucket in buckets:
            bucket.div_(world)
            works.append(dist.reduce(bucket, owner, async_op=True))
        for work in works:
            work.wait()

    return reduce_to_owners


def after(first: Callable[[], None], second: Callable[[], Any]) -> Callable[[], None]:
    def both() -> None:
        first()
        second()

    return both


def moved_bytes(world: int) -> int:
    """Returns the bytes that a direct step moves on all ranks. It reads each gradient once, and reads
    and writes the parameter, exp_avg and exp_avg_sq."""
    return (4 * world + 24) * sum(math.prod(shape) for shape in gpt2_shapes().values())


def make_streams(world: int) -> dict[str, Callable[[], None]]:
    """Returns the floors: two ways to move this rank's part of those bytes, half read and half written."""
    import torch

    source, target = torch.randn(STREAM_ELEMENTS), torch.randn(STREAM_ELEMENTS)
    elements = moved_bytes(world) // world // (2 * source.element_size())
    counts = [min(STREAM_ELEMENTS, elements - at) for at in range(0, elements, STREAM_ELEMENTS)]

    def in_place() -> None:
        for count in counts:
            target[:count].neg_()

    def copy() -> None:
        for count in counts:
            target[:count].copy_(source[:count])

    return {"in_place": in_place, "copy": copy}


def make_libzero(model: Model, comm: Any) -> tuple[Any, Any]:
    """Returns the optimizer, and its parameters and gradients with torch's values."""
    import libzero

    memory = libzero.allocate(comm, gpt2_shapes())
    optimizer = libzero.Optimizer(comm, "adamw", threads=1, **SETTINGS)
    optimizer.register(memory.params)
    for name, param in model.params.items():
        if comm.rank == 0:
            memory.data[name][...] = param.detach().numpy()
        memory.grads[name][...] = model.grads[name].numpy()
    optimizer.broadcast_params(0)
    return optimizer, memory


def check_first_step(model: Model, optimizer: Any, memory: Any, world: int) -> float:
    """Returns the largest difference between libzero's first step and torch's, on one tensor."""
    import torch
    import torch.distributed as dist

    name = "wpe.weight"
    param = torch.nn.Parameter(model.params[name].detach().clone())
    # Summed in rank order, like libzero. gloo's order rounds differently with three ranks or more,
    # and where gradients cancel to about eps, AdamW's first step turns that into a difference of
    # about 1e-5.
    parts = [torch.empty_like(param) for _ in range(world)]
    dist.all_gather(parts, model.grads[name])
    param.grad = parts[0].detach().clone()
    for part in parts[1:]:
        param.grad.add_(part)
    param.grad.div_(world)
    torch.optim.AdamW([param], **SETTINGS).step()
    optimizer.step()
    difference = (param.detach() - torch.from_numpy(memory.data[name])).abs().max().item()
    if not difference < 1e-7:
        raise RuntimeError(f"libzero's first step differs from torch's by {difference}")
    return difference


def make_variants(
    names: list[str], rank: int, world: int, make_comm: Callable[[], Any]
) -> tuple[dict[str, Any], Any]:
    """Returns a function for one step of each variant, and one that returns their state bytes."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = Model(rank)
    steps: dict[str, Callable[[], Any]] = {}
    sizes: dict[str, Callable[[], int]] = {}
    params = list(model.params.values())
    own = None
    if "libzero" in names:
        own, memory = make_libzero(model, make_comm())
        difference = check_first_step(model, own, memory, world)
        if rank == 0:
            print(f"first step, largest difference from torch.optim.AdamW: {difference:.1e}")
        steps["libzero"] = own.step
        sizes["libzero"] = lambda: own.stats().state_bytes
    steps.update(make_streams(world))
    sizes.update({"in_place": lambda: 0, "copy": lambda: 0})
    oss = None
    if "fairscale_oss" in names:
        from fairscale.optim import OSS

        oss = OSS(params, torch.optim.AdamW, **SETTINGS)
        owners = {param: oss._param_to_rank[param] for param in params}
    else:
        owners = {param: 0 for param in params}
    spans = model.lay_out_grads(owners.__getitem__, world)
    model.grads.clear()
    all_reduce = make_all_reduce(model, world)
    if oss is not None:
        reduce_to_owners = make_reduce_to_owners(model, spans, world)
        steps["fairscale_oss"] = after(reduce_to_owners, oss.step)
        sizes["fairscale_oss"] = lambda: state_bytes(oss.optim)
    for name, fused in (
        ("zero_redundancy_optimizer", {}),
        ("zero_redundancy_fused", {"fused": True}),
    ):
        if name in names:
            sharded = ZeroRedundancyOptimizer(
                params, optimizer_class=torch.optim.AdamW, **SETTINGS, **fused
            )
            steps[name] = after(all_reduce, sharded.step)
            sizes[name] = lambda sharded=sharded: state_bytes(sharded.optim)
    if "unsharded_fused" in names:
        whole = torch.optim.AdamW(params, fused=True, **SETTINGS)
        steps["unsharded_fused"] = after(all_reduce, whole.step)
        sizes["unsharded_fused"] = lambda: state_bytes(whole)
    ordered = {name: steps[name] for name in names}
    return ordered, lambda: {name: sizes[name]() for name in names}


def run_rank(rank: int, world: int, arguments: argparse.Namespace, job: str, results: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{arguments.directory}/{job}", rank=rank, world_size=world
    )
    import libzero

    steps, sizes = make_variants(
        arguments.variants, rank, world, lambda: libzero.Comm.local(job, rank, world)
    )
    times: dict[str, list[float]] = {name: [] for name in steps}

    def turn(name: str, keep: bool) -> None:
        dist.barrier()
        start = time.perf_counter()
        steps[name]()
        if keep:
            times[name].append(time.perf_counter() - start)

    for name in steps:
        for _ in range(arguments.warmup):
            turn(name, False)
    # Peers take part in every k-th round. The order is reversed each time.
    always = ("libzero", "in_place", "copy")
    stride = -(-arguments.rounds // arguments.peer_rounds)
    for number in range(arguments.rounds):
        names = [n for n in steps if n in always or number % stride == 0]
        for name in names if number % 2 == 0 else reversed(names):
            turn(name, True)
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, (times, sizes()))
    if rank == 0:
        slowest = {
            name: [max(step) for step in zip(*(each[0][name] for each in gathered))]
            for name in steps
        }
        largest = {name: max(each[1][name] for each in gathered) for name in steps}
        results.put((slowest, largest))
    dist.barrier()
    dist.destroy_process_group()


def run_world(world: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Runs all variants on `world` processes. Prints the table, and returns the medians."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    job = f"compare-{uuid.uuid4().hex}"
    ranks = [
        context.Process(target=run_rank, args=(rank, world, arguments, job, results))
        for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    while all(rank.exitcode is None or rank.exitcode == 0 for rank in ranks):
        if all(rank.exitcode == 0 for rank in ranks):
            break
        time.sleep(0.1)
    else:
        for rank in ranks:
            rank.kill()
        sys.exit(f"a rank failed: exit codes {[rank.exitcode for rank in ranks]}")
    times, sizes = results.get()
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    print(f"\n{world} ranks, GPT-2 124M, one thread a rank, {os.cpu_count()} cores")
    print(f"{'variant':28}{'median ms':>10}{'p10':>9}{'p90':>9}{'rounds':>8}{'state MB/rank':>15}"
          f"{'of libzero':>12}  what")
    for name, taken in times.items():
        low, high = spread(taken)
        ratio = f"{medians[name] / medians['libzero']:.1f}x" if "libzero" in medians else "-"
        print(f"{name:28}{medians[name] * 1e3:10.1f}{low * 1e3:9.1f}{high * 1e3:9.1f}{len(taken):8}"
              f"{sizes[name] / 1e6:15.1f}{ratio:>12}  {VARIANTS[name]}")
    for name in ("in_place", "copy"):
        if name in medians:
            print(f"{name}: {moved_bytes(world) / medians[name] / 1e9:.1f} GB/s")
    return medians


def spread(taken: list[float]) -> tuple[float, float]:
    ordered = sorted(taken)
    last = len(ordered) - 1
    return ordered[round(0.1 * last)], ordered[round(0.9 * last)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="4,2", help="numbers of processes, in this order")
    parser.add_argument("--rounds", type=int, default=20, help="steps of libzero")
    parser.add_argument("--peer-rounds", type=int, default=7, help="about this many of the others")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    arguments = parser.parse_args()
    arguments.variants = arguments.variants.split(",")
    unknown = [name for name in arguments.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"unknown variants: {', '.join(unknown)}")
    if min(arguments.rounds, arguments.peer_rounds) < 1:
        parser.error("--rounds and --peer-rounds must be positive")
    return arguments


def main() -> None:
    arguments = parse()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    medians: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as arguments.directory:
        for world in map(int, arguments.ranks.split(",")):
            medians[world] = run_world(world, arguments)
    chosen = medians.get(2) or next(iter(medians.values()))
    fused = ("zero_redundancy_fused", "unsharded_fused")
    peers = [chosen[name] for name in fused if name in chosen]
    if "libzero" in chosen and "zero_redundancy_optimizer" in chosen and peers:
        ratio = chosen["zero_redundancy_optimizer"] / chosen["libzero"]
        print(f"\nzero_redundancy_optimizer {ratio:.1f}x")
        print(f"fastest_torch {min(peers) / chosen['libzero']:.1f}x")


if __name__ == "__main__":
    main()

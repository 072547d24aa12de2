# SPDX-License-Identifier: Apache-2.0
"""Compares a torch training step with libzero.torch.Optimizer and one with DistributedDataParallel and
torch's ZeroRedundancyOptimizer: a model of GPT-2's shape, on processes of one host.

Each variant has separate processes, so that its memory is separate, and they take turns of one step.
All see the same machine, and the same batches from the same start. The time that is not forward and
backward is the difference to a step of the variant "alone" in the same round. Needs requirements.txt
and LIBZERO_PATH (or a build)."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Callable, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bindings" / "python"))

SETTINGS = {"lr": 3e-4, "weight_decay": 0.01}
PATIENCE_S = 300
ALLOWED = 1e-6  # the largest difference of parameters

VARIANTS = {
    "alone": "forward and backward of each rank, nothing else",
    "ddp_zero": "DDP + ZeroRedundancyOptimizer(AdamW)",
    "ddp_zero_tuned": "the same with both bucket views and fused=True",
    "libzero": "libzero.torch.Optimizer, arenas=True, the rest as it is",
    "libzero_shared": 'the same, arenas="shared"',
    "libzero_no_arenas": "the same, arenas=False",
    "libzero_overlap": "as libzero, overlap=True",
}


class Taken(NamedTuple):
    """Seconds of one step."""

    wall: float
    cpu: float


def make_model(arguments: argparse.Namespace) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    width, heads, length = arguments.width, arguments.heads, arguments.length

    linear = functools.partial(nn.Linear, bias=arguments.bias)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = linear(width, 3 * width), linear(width, width)
            self.c_fc, self.c_out = linear(width, 4 * width), linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, count, _ = x.shape
            parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
            q, k, v = (p.view(batch, count, heads, -1).transpose(1, 2) for p in parts)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(mixed.transpose(1, 2).reshape(batch, count, width))
            return x + self.c_out(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte = nn.Embedding(arguments.vocabulary, width)
            self.wpe = nn.Embedding(length, width)
            self.h = nn.ModuleList(Block() for _ in range(arguments.layers))
            self.ln_f = nn.LayerNorm(width)
            for param in self.parameters():
                if param.dim() > 1:
                    nn.init.normal_(param, std=0.02)

        def forward(self, tokens: Any, targets: Any) -> Any:
            x = self.wte(tokens) + self.wpe(torch.arange(length))
            for block in self.h:
                x = block(x)
            logits = functional.linear(self.ln_f(x), self.wte.weight)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    torch.manual_seed(1)
    return Gpt2().to(getattr(torch, arguments.dtype))


def make_step(name: str, arguments: argparse.Namespace) -> tuple[Any, Callable[[Any, Any], Any]]:
    """Returns the model, and a function that runs one step of a variant and returns the loss."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = make_model(arguments)
    called = model
    if name == "alone":
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.0)
    elif name.startswith("ddp"):
        tuned = name == "ddp_zero_tuned"
        called = DistributedDataParallel(model, gradient_as_bucket_view=tuned)
        optimizer = ZeroRedundancyOptimizer(
            called.parameters(),
            torch.optim.AdamW,
            parameters_as_bucket_view=tuned,
            **SETTINGS,
            **({"fused": True} if tuned else {}),
        )
    else:
        import libzero.torch

        arenas = {"libzero_shared": "shared", "libzero_no_arenas": False}.get(name, True)
        optimizer = libzero.torch.Optimizer(
            model.named_parameters(),
            "adamw",
            arenas=arenas,
            overlap=True if name == "libzero_overlap" else None,
            threads=1,
            **SETTINGS,
        )

    def step(tokens: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        loss = called(tokens, targets)
        loss.backward()
        if name != "alone":
            optimizer.step()
        return loss

    if name.startswith("libzero"):
        step.copied = lambda: optimizer.stats().copied_bytes  # type: ignore[attr-defined]
    return model, step


def memory_mib(path: str, key: str) -> float:
    for line in Path(f"/proc/self/{path}").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/{path} has no {key}")


class Sampler:
    """Samples the memory of this process while it is entered. Memory that other processes also map
    counts in part. The largest resident set would count it fully in each process."""

    def __init__(self) -> None:
        self.largest = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(0.002):
            self.largest = max(self.largest, memory_mib("smaps_rollup", "Pss"))

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()


def run_rank(
    name: str, rank: int, world: int, arguments: argparse.Namespace, orders: Connection
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{arguments.directory}/{name}", rank=rank, world_size=world
    )
    model, step = make_step(name, arguments)
    orders.send("ready")
    shape = (arguments.batch, arguments.length + 1)

    def timed(number: int) -> Taken:
        own = torch.Generator().manual_seed(1000 * number + rank)
        tokens = torch.randint(arguments.vocabulary, shape, generator=own)
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        step(tokens[:, :-1], tokens[:, 1:])
        return Taken(time.perf_counter() - start, time.process_time() - cpu_start)

    number = orders.recv()
    while number is not None:
        orders.send(timed(number))
        number = orders.recv()
    copied = getattr(step, "copied", lambda: None)()
    values = {key: param.detach().numpy().copy() for key, param in model.named_parameters()}
    peak = memory_mib("status", "VmHWM")
    with Sampler() as sampler:
        for number in range(3):
            timed(number)
    report = {"VmHWM": peak, "Pss": sampler.largest, "copied": copied}
    orders.send({**report, "values": values if rank == 0 else {}})
    dist.barrier()
    dist.destroy_process_group()


class Variant:
    """The processes of one variant."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.times: list[Taken] = []
        self._pipes, self.ranks = [], []
        for rank in range(arguments.ranks):
            mine, its = context.Pipe()
            given = (name, rank, arguments.ranks, arguments, its)
            process = context.Process(target=run_rank, args=given, daemon=True)
            process.start()
            its.close()
            self._pipes.append(mine)
            self.ranks.append(process)
        self.answers()

    def answers(self) -> list[Any]:
        found = []
        for pipe in self._pipes:
            if not wait([pipe], PATIENCE_S):
                sys.exit(f"{self.name}: a rank did not answer in {PATIENCE_S} s")
            try:
                found.append(pipe.recv())
            except EOFError:
                sys.exit(f"{self.name}: a rank ended")
        return found

    def step(self, number: int) -> Taken:
        """Returns the time of the slowest rank, and the CPU time of all."""
        for pipe in self._pipes:
            pipe.send(number)
        found = self.answers()
        return Taken(max(one.wall for one in found), sum(one.cpu for one in found))

    def end(self) -> list[dict[str, Any]]:
        for pipe in self._pipes:
            pipe.send(None)
        return self.answers()


def spread(taken: list[float]) -> tuple[float, float]:
    ordered = sorted(taken)
    last = len(ordered) - 1
    return ordered[round(0.1 * last)], ordered[round(0.9 * last)]


def furthest(values: dict[str, Any], others: dict[str, Any]) -> tuple[float, float]:
    """Returns the largest difference in all parameters except the biases of keys, and in these biases.
    They shift all scores of a query alike, so their gradient is only rounding, which AdamW scales up."""
    found = [0.0, 0.0]
    for name, value in values.items():
        apart = abs(value - others[name])
        if name.endswith("c_attn.bias"):
            third = len(apart) // 3
            found[1] = max(found[1], float(apart[third : 2 * third].max()))
            apart[third : 2 * third] = 0
        found[0] = max(found[0], float(apart.max()))
    return found[0], found[1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5, help="of these steps, not timed")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument(
        "--no-bias", dest="bias", action="store_false", help="linear layers without biases"
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="alone is always there")
    arguments = parser.parse_args()
    arguments.variants = arguments.variants.split(",")
    unknown = [name for name in arguments.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"unknown variants: {', '.join(unknown)}")
    if "alone" not in arguments.variants:
        arguments.variants.insert(0, "alone")
    if not 0 <= arguments.warmup < arguments.steps:
        parser.error("--steps must be more than --warmup")
    return arguments


def main() -> None:
    arguments = parse()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as arguments.directory:
        variants = [Variant(name, arguments) for name in arguments.variants]
        for number in range(arguments.steps):
            # The order is reversed each time.
            for variant in variants if number % 2 == 0 else reversed(variants):
                taken = variant.step(number)
                if number >= arguments.warmup:
                    variant.times.append(taken)
        reports = {variant.name: variant.end() for variant in variants}
    show(arguments, {variant.name: variant.times for variant in variants}, reports)


def show(
    arguments: argparse.Namespace, times: dict[str, list[Taken]], reports: dict[str, list[Any]]
) -> None:
    count = sum(value.size for value in reports["alone"][0]["values"].values())
    print(
        f"{arguments.ranks} ranks, {arguments.layers} layers, width {arguments.width}, vocabulary "
        f"{arguments.vocabulary}, {arguments.batch} x {arguments.length} tokens a rank, "
        f"{count / 1e6:.1f} M {arguments.dtype} parameters, one thread a rank, {os.cpu_count()} cores, "
        f"{len(times['alone'])} of {arguments.steps} steps timed"
    )
    print(
        f"{'':20}{'step':>8}{'sync and update':>17}{'p10':>8}{'p90':>8}{'CPU of it':>11}"
        f"{'peak RSS':>10}{'peak PSS':>10}{'copied':>9}\n"
        f"{'variant':20}{'ms':>8}{'ms':>17}{'ms':>8}{'ms':>8}{'ms':>11}"
        f"{'MiB':>10}{'MiB':>10}{'MiB':>9}  what"
    )
    beyond = {}
    for name, taken in times.items():
        pairs = list(zip(taken, times["alone"]))
        rest = [one.wall - alone.wall for one, alone in pairs]
        cpu = statistics.median(one.cpu - alone.cpu for one, alone in pairs) / arguments.ranks
        beyond[name] = statistics.median(rest)
        low, high = spread(rest)
        peak, pss = (max(rank[key] for rank in reports[name]) for key in ("VmHWM", "Pss"))
        copied = reports[name][0]["copied"]
        told = "-" if copied is None else f"{copied / 2**20:.1f}"
        print(
            f"{name:20}{statistics.median(one.wall for one in taken) * 1e3:8.1f}"
            f"{beyond[name] * 1e3:17.1f}{low * 1e3:8.1f}{high * 1e3:8.1f}{cpu * 1e3:11.1f}"
            f"{peak:10.1f}{pss:10.1f}{told:>9}  {VARIANTS[name]}"
        )
    if "ddp_zero" in beyond:
        compare(beyond, {name: report[0]["values"] for name, report in reports.items()}, arguments)


def compare(
    beyond: dict[str, float], values: dict[str, dict[str, Any]], arguments: argparse.Namespace
) -> None:
    print(f"\nbeside ddp_zero, after {arguments.steps} steps")
    far = []
    for name, rest in beyond.items():
        if name in ("alone", "ddp_zero"):
            continue
        apart, keys = furthest(values[name], values["ddp_zero"])
        print(
            f"{name:20}{beyond['ddp_zero'] / rest:6.1f}x as fast to synchronise and update; "
            f"parameters within {apart:.1e}"
            + (f", biases of keys within {keys:.1e}" if arguments.bias else "")
        )
        # In finer types, gradients that are only rounding cause no steps, and keys are like all others.
        if not (max(apart, keys) if arguments.dtype == "float64" else apart) <= ALLOWED:
            far.append(name)
    if far:
        sys.exit(f"parameters of {', '.join(far)} are not within {ALLOWED} of ddp_zero's")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Compares libzero's step of one rank on a GPU with torch's fused AdamW and with the copy rate of the
same GPU. The tensors are those of GPT-2 124M and 1.5B, in turns of one run. Needs torch with CUDA and
LIBZERO_PATH (or a build). Exits with 77 if torch or a GPU is missing. --device cpu tests the program
itself."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

from gpt2 import gpt2_shapes

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bindings" / "python"))

SETTINGS = {"lr": 1e-3, "weight_decay": 0.01}
LISTS = {"124M": (768, 12), "1.5B": (1600, 48), "tiny": (16, 2)}
STEP_BYTES = 28  # that AdamW reads and writes per element in float32
COPY_BYTES = 1 << 30
ALLOWED = 1e-6  # the largest difference between the two first steps
SKIPPED = 77


class Clock:
    """Seconds of work on the device, and of the host that queues it."""

    def __init__(self, device: str) -> None:
        import torch

        self._wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def time(self, work: Callable[[], Any], repeats: int) -> tuple[float, float]:
        self._wait()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        queued = time.perf_counter()
        self._wait()
        return (time.perf_counter() - start) / repeats, (queued - start) / repeats


def make_variants(
    device: str, shapes: dict[str, tuple[int, ...]]
) -> tuple[dict[str, Callable[[], Any]], float]:
    """Returns a function for one step of each, and the largest difference after the first step."""
    import libzero
    import torch

    start = torch.Generator(device).manual_seed(1)

    def random(shape: tuple[int, ...], size: float) -> Any:
        return torch.randn(shape, generator=start, device=device) * size

    params = {name: torch.nn.Parameter(random(shape, 0.02)) for name, shape in shapes.items()}
    for param in params.values():
        param.grad = random(tuple(param.shape), 0.01)
    comm = libzero.Comm.solo(device="cuda" if device == "cuda" else "host")
    memory = libzero.allocate(comm, shapes)
    in_arena = {
        name: torch.as_tensor(array, device=device) for name, array in memory.data.items()
    }
    for name, param in params.items():
        in_arena[name].copy_(param.detach())
        torch.as_tensor(memory.grads[name], device=device).copy_(param.grad)
    own = libzero.Optimizer(comm, "adamw", **SETTINGS)
    own.register(memory.params)
    own.seal()
    where = torch.cuda.current_stream() if device == "cuda" else None
    fused = torch.optim.AdamW(list(params.values()), fused=True, **SETTINGS)
    fused.step()
    own.step(stream=where)
    own.result()  # waits for the step
    apart = max(
        float((param.detach() - in_arena[name]).abs().max()) for name, param in params.items()
    )
    return {"torch, fused=True": fused.step, "libzero": lambda: own.step(stream=where)}, apart


def compare(name: str, arguments: argparse.Namespace) -> None:
    import torch

    width, layers = LISTS[name]
    shapes = gpt2_shapes(width, layers)
    count = sum(torch.Size(shape).numel() for shape in shapes.values())
    steps, apart = make_variants(arguments.device, shapes)
    if not apart <= ALLOWED:
        sys.exit(f"{name}: the first steps are {apart:.1e} apart")
    source = torch.randn(arguments.copy_bytes // 4, device=arguments.device)
    target = torch.empty_like(source)
    steps = {**steps, "copy": lambda: target.copy_(source)}
    clock = Clock(arguments.device)
    taken: dict[str, list[tuple[float, float]]] = {one: [] for one in steps}
    repeats = {
        one: max(1, int(arguments.round_seconds / clock.time(step, 3)[0]))
        for one, step in steps.items()
    }
    for number in range(arguments.rounds):
        for one in steps if number % 2 == 0 else reversed(steps):
            taken[one].append(clock.time(steps[one], repeats[one]))
    medians = {one: statistics.median(wall for wall, _ in found) for one, found in taken.items()}
    copy_rate = 2 * arguments.copy_bytes / medians.pop("copy")
    print(f"\nGPT-2 {name}, {count} elements in {len(shapes)} tensors, float32; the first steps are "
          f"{apart:.1e} apart; copy {copy_rate / 1e9:.0f} GB/s; {arguments.rounds} rounds")
    print(f"{'variant':20}{'median ms':>11}{'host us':>10}{'GB/s':>8}{'of copy':>9}")
    for one, median in medians.items():
        host = statistics.median(queued for _, queued in taken[one])
        rate = STEP_BYTES * count / median
        print(f"{one:20}{median * 1e3:11.4f}{host * 1e6:10.0f}{rate / 1e9:8.0f}"
              f"{rate / copy_rate:9.0%}")
    print(f"libzero is {medians['torch, fused=True'] / medians['libzero']:.2f}x as fast")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lists", default="124M,1.5B", help=", ".join(LISTS))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--round-seconds", type=float, default=0.02)
    parser.add_argument("--copy-bytes", type=int, default=COPY_BYTES)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.lists.split(",") if name not in LISTS]
    if unknown:
        parser.error(f"unknown lists: {', '.join(unknown)}")
    return arguments


def main() -> None:
    arguments = parse()
    try:
        import torch
    except ImportError:
        print("skipped: there is no torch")
        sys.exit(SKIPPED)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("skipped: this torch has no GPU")
        sys.exit(SKIPPED)
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "the CPU"
    print(f"torch {torch.__version__} on {name}")
    for one in arguments.lists.split(","):
        compare(one, arguments)


if __name__ == "__main__":
    main()

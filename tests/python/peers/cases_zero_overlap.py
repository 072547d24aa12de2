# SPDX-License-Identifier: Apache-2.0
"""Cases of ZeroRedundancyOptimizer with overlap_with_ddp, which takes steps in the hook of
DistributedDataParallel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from .case import ByRank, Case, Numbers, add
from .models import Weights, plain_steps
from .sides import Side

HOOK, INTERLEAVED = "hook_with_zero_step", "hook_with_zero_step_interleaved"
OPTIMIZER = "ZeroRedundancyOptimizer"
PATCHED = "gloo"
MIB = 1 << 20
WARM_UP = 3  # iterations; the original takes a step only in the last one
RULES: dict[str, tuple[Any, dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
}


class Overlapped:
    """A model that takes steps in its backward pass, with some tensors and buckets of at most so
    many bytes."""

    def __init__(
        self,
        side: Side,
        sizes: Sequence[int],
        bucket_bytes: int,
        group: Any = None,
        rule: str = "sgd",
        shard_buckets: bool = False,
        hook: str = HOOK,
    ) -> None:
        self.model = Weights(*sizes)
        kind, settings = RULES[rule]
        self.wrapped = DistributedDataParallel(
            self.model, process_group=group, bucket_cap_mb=bucket_bytes / MIB
        )
        self.optimizer = side.ZeroRedundancyOptimizer(
            self.model.parameters(),
            optimizer_class=kind,
            process_group=group,
            overlap_with_ddp=True,
            **settings,
        )
        made = side.patched_hook(
            hook, allreduce_hook, self.wrapped, self.optimizer, shard_buckets=shard_buckets
        )
        self.wrapped.register_comm_hook(group, made)

    def train(self, iterations: int) -> list[float]:
        """Train with gradients of 1. Return how far the last iteration moved each tensor."""
        before = self.model.firsts()
        for _ in range(iterations):
            before = self.model.firsts()
            self.wrapped.zero_grad()
            self.wrapped((1.0,) * len(before)).backward()
        return [old - new for old, new in zip(before, self.model.firsts())]


def in_sub_group(ranks: list[int], side: Side, rank: int) -> Optional[Numbers]:
    """Use three buckets, each with two tensors of 64 bytes."""
    group = dist.new_group(ranks)
    return Overlapped(side, (16,) * 6, 100, group).train(WARM_UP + 1) if rank in ranks else None


def right_in_sub_group(ranks: list[int]) -> ByRank:
    return dict.fromkeys(ranks, [0.1] * 6)


def shard_buckets(sizes: Sequence[int], side: Side, rank: int) -> Numbers:
    return Overlapped(side, sizes, MIB, shard_buckets=True).train(WARM_UP + 1)


def interleaved(side: Side, rank: int) -> Numbers:
    return Overlapped(side, (16,) * 6, 100, hook=INTERLEAVED).train(WARM_UP + 1)


def set_rate(optimizer: Any) -> None:
    for group in optimizer.param_groups:
        group["lr"] = 0.0


def load_rate(optimizer: Any) -> None:
    other = torch.optim.SGD(Weights(16, 16).parameters(), lr=0.0)
    optimizer.load_state_dict(other.state_dict())


def without_rate(rule: str, change: Callable[[Any], None], side: Side, rank: int) -> Numbers:
    """Return how far an iteration moves the tensors after the rate has become 0."""
    overlapped = Overlapped(side, (16, 16), MIB, rule=rule)
    overlapped.train(WARM_UP)
    change(overlapped.optimizer)
    return overlapped.train(1)


def warm_up(side: Side, rank: int) -> Numbers:
    overlapped = Overlapped(side, (16, 16), MIB)
    overlapped.train(5)
    return overlapped.model.firsts()


def saved(side: Side, rank: int) -> Numbers | None:
    """Return Adam's counters after the iterations in which the original takes 2 steps."""
    overlapped = Overlapped(side, (16, 16), MIB, rule="adamw")
    overlapped.train(4)
    overlapped.optimizer.consolidate_state_dict()
    if rank != 0:
        return None
    return [float(entry["step"]) for entry in overlapped.optimizer.state_dict()["state"].values()]


def add_overlap(
    name: str,
    where: str,
    what: str,
    train: Callable[..., Any],
    right: Callable[[], Any],
    world: int = 2,
    hook: str = HOOK,
) -> None:
    add(
        Case(
            f"zro-overlap-{name}",
            where,
            what,
            (OPTIMIZER, hook),
            world,
            train,
            right,
            patched=PATCHED,
        )
    )


for members in ([0, 1], [0, 2], [2, 3], [1, 2]):
    add_overlap(
        f"group-{members[0]}{members[1]}",
        "ZRO overlap",
        f"group {{{members[0]}, {members[1]}}} of four, 6 tensors: movement",
        functools.partial(in_sub_group, members),
        functools.partial(right_in_sub_group, members),
        world=4,
    )
add_overlap(
    "interleaved",
    "ZRO overlap",
    "interleaved hook, 6 tensors: movement",
    interleaved,
    lambda: [0.1] * 6,
    hook=INTERLEAVED,
)
for each in ((3, 3, 3, 1), (5, 5, 5, 5, 1), (4, 4, 4, 1)):
    world = 3 if each == (4, 4, 4, 1) else 2
    add_overlap(
        f"shard-buckets-{'-'.join(map(str, each))}",
        "ZRO shard_buckets",
        f"sizes {', '.join(map(str, each))} on {world} ranks: movement",
        functools.partial(shard_buckets, each),
        functools.partial(lambda count: [0.1] * count, len(each)),
        world,
    )
for each_rule in RULES:
    add_overlap(
        f"rate-{each_rule}",
        "ZRO overlap",
        f"{each_rule}, rate set to 0: movement",
        functools.partial(without_rate, each_rule, set_rate),
        lambda: [0.0, 0.0],
    )
add_overlap(
    "rate-loaded",
    "ZRO overlap",
    "sgd, rate 0 loaded: movement",
    functools.partial(without_rate, "sgd", load_rate),
    lambda: [0.0, 0.0],
)
add_overlap(
    "warm-up",
    "ZRO overlap",
    "5 iterations of 0.1",
    warm_up,
    lambda: plain_steps(list(Weights(16, 16).parameters()), [(1.0,)] * 5, lr=0.1),
)
add_overlap(
    "saved",
    "ZRO overlap",
    "AdamW's counters in the state after 4 iterations",
    saved,
    lambda: [4.0, 4.0],
)

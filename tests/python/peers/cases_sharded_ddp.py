# SPDX-License-Identifier: Apache-2.0
"""Cases of ShardedDataParallel with OSS: the gradients of the owners, which steps of SGD show."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import nn

from .case import ByRank, Case, Numbers, Refusal, add
from .models import Weights, plain_steps
from .sides import Side

Factors = Sequence[Optional[float]]
NEEDS = ("OSS", "ShardedDataParallel")
DIRECT, BUCKETS = 0, 2**23
PATHS = {"direct": DIRECT, "buckets": BUCKETS}


def wrapped(
    side: Side, sizes: Sequence[int], buffer: int, group: Any = None, **settings: Any
) -> tuple[Any, Any, Weights]:
    model = Weights(*sizes)
    settings.setdefault("lr", 0.1)
    optimizer = side.OSS(model.parameters(), optim=torch.optim.SGD, group=group, **settings)
    return (
        side.ShardedDataParallel(model, optimizer, process_group=group, reduce_buffer_size=buffer),
        optimizer,
        model,
    )


def train(sharded: Any, optimizer: Any, batches: Sequence[Factors]) -> None:
    for factors in batches:
        sharded.zero_grad(set_to_none=True)
        sharded(factors).backward()
        optimizer.step()


def in_sub_group(ranks: list[int], buffer: int, side: Side, rank: int) -> Optional[Numbers]:
    """The gradients are 1 and 3, so their mean is 2."""
    group = dist.new_group(ranks)
    if rank not in ranks:
        return None
    sharded, optimizer, model = wrapped(side, (1, 1), buffer, group)
    train(sharded, optimizer, [(1.0 + 2 * ranks.index(rank),) * 2] * 3)
    return model.firsts()


def right_in_sub_group(ranks: list[int]) -> ByRank:
    values = plain_steps(list(Weights(1, 1).parameters()), [(2.0,)] * 3, lr=0.1)
    return dict.fromkeys(ranks, values)


def unused(
    buffer: int, batches: Callable[[int], Sequence[Factors]], side: Side, rank: int
) -> Numbers:
    sharded, optimizer, model = wrapped(side, (4, 4, 4), buffer, momentum=0.9, weight_decay=0.1)
    train(sharded, optimizer, batches(rank))
    return model.firsts()


def right_unused(batches: Callable[[int], Sequence[Factors]]) -> Numbers:
    """Return None if both ranks have None, and otherwise the mean with zeros in place of None."""
    means = [
        [None if a is None and b is None else ((a or 0.0) + (b or 0.0)) / 2 for a, b in zip(*pair)]
        for pair in zip(batches(0), batches(1))
    ]
    return plain_steps(
        list(Weights(4, 4, 4).parameters()), means, lr=0.1, momentum=0.9, weight_decay=0.1
    )


def on_no_rank(rank: int) -> Sequence[Factors]:
    return [(1.0 + rank,) * 3] + [(1.0 + rank, 1.0 + rank, None)] * 2


def on_one_rank(rank: int) -> Sequence[Factors]:
    """Rank 0 uses all parameters. Rank 1 omits one that rank 0 owns and one that rank 1 owns."""
    return [(1.0, 1.0, 1.0), (1.0, None, None) if rank else (1.0, 1.0, 1.0)]


def after_exception(side: Side, rank: int) -> Numbers:
    """Raise an exception in no_sync, and then take a step with gradients 2 and 4."""
    sharded, optimizer, model = wrapped(side, (1, 1), DIRECT)
    try:
        with sharded.no_sync():
            raise KeyError("a batch that cannot be read")
    except KeyError:
        pass
    train(sharded, optimizer, [(2.0 + 2 * rank,) * 2])
    return model.firsts()


def two_backwards(buffer: int, side: Side, rank: int) -> Numbers:
    """Run two backward passes after one forward pass, each with gradients 1 and 2, and then take a
    step."""
    sharded, optimizer, model = wrapped(side, (1, 1), buffer)
    loss = sharded((1.0 + rank,) * 2)
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    return model.firsts()


def gradients_kept(buffer: int, side: Side, rank: int) -> Numbers:
    """Run two forward and backward passes with gradients 1 and 2 without clearing them, and then
    take a step."""
    sharded, optimizer, model = wrapped(side, (1, 1, 1, 1), buffer)
    for _ in range(2):
        sharded((1.0 + rank,) * 4).backward()
    optimizer.step()
    return model.firsts()


def set_to_none(side: Side, rank: int) -> Numbers:
    """Take three steps with gradients 2 and 3. The optimizer's zero_grad sets gradients to None."""
    sharded, optimizer, model = wrapped(side, (1, 1), BUCKETS)
    for _ in range(3):
        optimizer.zero_grad()
        sharded((2.0 + rank,) * 2).backward()
        optimizer.step()
    return model.firsts()


def reduce_without_backward(buffer: int, side: Side, rank: int) -> Numbers:
    sharded, optimizer, model = wrapped(side, (1, 1), buffer, weight_decay=0.1)
    train(sharded, optimizer, [(1.0,) * 2])
    sharded.zero_grad(set_to_none=True)
    sharded((1.0,) * 2)
    sharded.reduce()
    optimizer.step()
    return model.firsts()


class Bystander(nn.Module):
    """A model whose loss may not depend on its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Weights(1, 1)

    def forward(self, factors: Factors, offset: torch.Tensor) -> torch.Tensor:
        return self.model(factors) + offset if factors[0] is not None else offset


def without_parameters(buffer: int, side: Side, rank: int) -> Numbers:
    """Take a step with gradient 1 on both ranks. In the next step, rank 0 has gradient 2, and the
    loss of rank 1 has no parameters."""
    model = Bystander()
    optimizer = side.OSS(model.parameters(), optim=torch.optim.SGD, lr=0.1)
    sharded = side.ShardedDataParallel(model, optimizer, reduce_buffer_size=buffer)
    for factors in ((1.0, 1.0), (None, None) if rank else (2.0, 2.0)):
        sharded.zero_grad()
        sharded(factors, torch.zeros((), requires_grad=True)).backward()
        optimizer.step()
    return model.model.firsts()


def mixed_groups(buffer: int, pairs_of_oss: bool, tensors: int, side: Side, rank: int) -> Numbers:
    """Use OSS on pairs of ranks and ShardedDataParallel on all four ranks, or the reverse, and take
    one step with gradients 1, 2, 3 and 4."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = Weights(*[1] * tensors)
    pair = pairs[rank // 2]
    optimizer = side.OSS(
        model.parameters(), optim=torch.optim.SGD, lr=0.1, group=pair if pairs_of_oss else None
    )
    sharded = side.ShardedDataParallel(
        model, optimizer, process_group=None if pairs_of_oss else pair, reduce_buffer_size=buffer
    )
    train(sharded, optimizer, [(1.0 + rank,) * tensors])
    return model.firsts()


def rebuilds(warn: bool, side: Side, rank: int) -> Numbers:
    """Return the number of calls of OSS.refresh_trainable in 20 forward passes after a freeze."""
    sharded, optimizer, model = wrapped(side, (1, 1), BUCKETS)
    sharded = side.ShardedDataParallel(model, optimizer, warn_on_trainable_params_changed=warn)
    train(sharded, optimizer, [(1.0, 1.0)])
    next(iter(model.weights)).requires_grad_(False)
    calls, refresh = [], optimizer.refresh_trainable

    def counted() -> None:
        calls.append(1)
        refresh()

    optimizer.refresh_trainable = counted
    train(sharded, optimizer, [(1.0, 1.0)] * 20)
    return [float(len(calls))]


def steps_of(
    *gradients: Sequence[Optional[float]], count: int = 2, **settings: float
) -> Callable[[], Numbers]:
    return lambda: plain_steps(
        list(Weights(*[1] * count).parameters()), gradients, lr=0.1, **settings
    )


def add_sdp(
    name: str,
    where: str,
    what: str,
    run: Callable[..., Any],
    right: Union[Callable[[], Any], Refusal],
    world: int = 2,
    at_most: bool = False,
) -> None:
    add(Case(f"sdp-{name}", where, what, NEEDS, world, run, right, at_most=at_most))


def add_paths(
    name: str, where: str, what: str, run: Callable[..., Any], right: Callable[[], Any]
) -> None:
    for path, buffer in PATHS.items():
        add_sdp(f"{name}-{path}", f"{where}, {path}", what, functools.partial(run, buffer), right)


for members in ([0, 2], [1, 2]):
    add_sdp(
        f"group-{members[0]}{members[1]}",
        "SDP, direct",
        f"group {{{members[0]}, {members[1]}}} of three ranks, three steps of 0.2",
        functools.partial(in_sub_group, members, DIRECT),
        functools.partial(right_in_sub_group, members),
        world=3,
    )
add_paths(
    "unused",
    "SDP",
    "decay, momentum, third parameter unused in steps 2 and 3",
    lambda buffer, side, rank: unused(buffer, on_no_rank, side, rank),
    functools.partial(right_unused, on_no_rank),
)
add_paths(
    "unused-on-one",
    "SDP",
    "two parameters unused on one rank in step 2",
    lambda buffer, side, rank: unused(buffer, on_one_rank, side, rank),
    functools.partial(right_unused, on_one_rank),
)
add_sdp(
    "exception",
    "SDP",
    "an exception inside `no_sync`, then a step of 0.3",
    after_exception,
    steps_of((3.0,)),
)
add_paths(
    "two-backwards",
    "SDP",
    "two backwards after one forward, gradients 1 and 2, one step",
    two_backwards,
    steps_of((3.0,)),
)
add_paths(
    "gradients-kept",
    "SDP",
    "two forwards and backwards, gradients 1 and 2 kept, one step",
    gradients_kept,
    steps_of((3.0,), count=4),
)
add_sdp(
    "set-to-none",
    "SDP, buckets",
    "the optimizer sets gradients to None, three steps of 0.25",
    set_to_none,
    steps_of(*[(2.5,)] * 3),
)
add_paths(
    "reduce-without-backward",
    "SDP",
    "decay, a step, `reduce()` without a backward, another step",
    reduce_without_backward,
    steps_of((1.0,), (None,), weight_decay=0.1),
)
add_paths(
    "no-parameters",
    "SDP flush",
    "rank 1's loss has no parameters in step 2",
    without_parameters,
    steps_of((1.0,), (1.0,)),
)
for path, buffer in PATHS.items():
    add_sdp(
        f"groups-{path}",
        f"SDP's group, {path}",
        "OSS on pairs, SDP on four ranks, one step",
        functools.partial(mixed_groups, buffer, True, 2),
        steps_of((2.5,)),
        world=4,
    )
for tensors in (2, 4):
    add_sdp(
        f"groups-of-pairs-{tensors}",
        "SDP's group",
        f"OSS on four ranks, SDP on pairs, {tensors} tensors",
        functools.partial(mixed_groups, DIRECT, False, tensors),
        Refusal("an error"),
        world=4,
    )
add_sdp(
    "refresh",
    "SDP refresh",
    "rebuilds in 20 forwards after a freeze, with its warning",
    functools.partial(rebuilds, True),
    lambda: [1.0],
    at_most=True,
)
add_sdp(
    "refresh-silent",
    "SDP refresh",
    "the same without its warning",
    functools.partial(rebuilds, False),
    lambda: [1.0],
    at_most=True,
)

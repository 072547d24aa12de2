# SPDX-License-Identifier: Apache-2.0
"""Tests training that stops and continues as torch documents: with get_state_dict and dcp.save,
then a new optimizer's get_state_dict as the target of dcp.load, and set_state_dict. Results are
compared with training that never stops."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from libzero.torch import OSS, Optimizer, ShardedDataParallel, ZeroRedundancyOptimizer
from support import bits, results_of, run_cases

SAVING, WORLDS = 2, (1, 2, 3)
OPTIONS = {"nested": StateDictOptions(), "flat": StateDictOptions(flatten_optimizer_state_dict=True)}


def folder() -> Path:
    """Return the folder for files of the ranks that one process starts."""
    parent = multiprocessing.parent_process()
    process = os.getpid() if parent is None or parent.pid is None else parent.pid
    return Path(tempfile.gettempdir()) / f"libzero-recipe-{process}"


def with_zero(net: nn.Module, rate: float) -> Any:
    groups = [{"params": [net.weight]}, {"params": [net.bias], "weight_decay": 0.1}]
    return net, ZeroRedundancyOptimizer(groups, torch.optim.AdamW, lr=rate, amsgrad=True)


def with_any_class(net: nn.Module, rate: float) -> Any:
    return net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.ASGD, lr=rate)


def with_oss(net: nn.Module, rate: float) -> Any:
    return net, OSS(net.parameters(), torch.optim.SGD, lr=rate, momentum=0.9, dampening=0.5)


def with_oss_in_halves(net: nn.Module, rate: float) -> Any:
    return net, OSS(net.parameters(), torch.optim.NAdam, lr=rate, broadcast_fp16=True)


def with_module(net: nn.Module, rate: float) -> Any:
    optimizer = OSS(net.parameters(), torch.optim.RMSprop, lr=rate, momentum=0.9, centered=True)
    return ShardedDataParallel(net, optimizer), optimizer


def with_masters(net: nn.Module, rate: float) -> Any:
    net.bfloat16()
    return net, Optimizer(net.named_parameters(), "adamw", lr=rate, arenas=True)


def with_remainders(net: nn.Module, rate: float) -> Any:
    net.bfloat16()
    return net, Optimizer(net.named_parameters(), "sgd", lr=rate, momentum=0.9, master="remainder")


KINDS: tuple[Callable[[nn.Module, float], Any], ...] = (
    with_zero,
    with_any_class,
    with_oss,
    with_oss_in_halves,
    with_module,
    with_masters,
    with_remainders,
)


def made(kind: Any, rate: float, seed: int) -> Any:
    torch.manual_seed(seed)
    return kind(nn.Linear(40, 30), rate)


def train(model: Any, optimizer: Any, steps: range) -> None:
    """Train with gradients whose sums are the same for any number of ranks."""
    dtype = next(model.parameters()).dtype
    for step in steps:
        optimizer.zero_grad()
        model(torch.arange(40.0).add(step).to(dtype)).sum().backward()
        optimizer.step()


def stop(rank: int, world: int) -> Any:
    for kind in KINDS:
        for name, options in OPTIONS.items():
            model, optimizer = made(kind, 0.1, 0)
            train(model, optimizer, range(3))
            optimizer.consolidate_state_dict(-1 if isinstance(optimizer, OSS) else None)
            state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer, options=options)))
            dcp.save(state, checkpoint_id=folder() / f"{kind.__name__}-{name}")
            optimizer.close()


def go_on(rank: int, world: int) -> Any:
    found = []
    for kind in KINDS:
        unstopped, whole = made(kind, 0.1, 0)
        train(unstopped, whole, range(6))
        for name, options in OPTIONS.items():
            model, optimizer = made(kind, 7.0, 1)
            state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer, options=options)))
            dcp.load(state, checkpoint_id=folder() / f"{kind.__name__}-{name}")
            set_state_dict(
                model,
                optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
                options=options,
            )
            rate = optimizer.param_groups[0]["lr"]
            train(model, optimizer, range(3, 6))
            same = bits(list(model.parameters())) == bits(list(unstopped.parameters()))
            found.append((kind.__name__, name, rate, same))
            optimizer.close()
        whole.close()
    return found


class TorchsRecipe(unittest.TestCase):
    def test_a_training_goes_on_in_any_world_as_if_it_had_never_stopped(self) -> None:
        shutil.rmtree(folder(), ignore_errors=True)
        self.addCleanup(shutil.rmtree, folder())
        results_of(run_cases(SAVING, (stop,)), stop)
        for world in WORLDS:
            for found in results_of(run_cases(world, (go_on,)), go_on):
                for kind, name, rate, same in found:
                    self.assertEqual((rate, same), (0.1, True), f"{kind} {name} {world}")

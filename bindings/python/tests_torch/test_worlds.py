# SPDX-License-Identifier: Apache-2.0
"""Tests one training of 50 steps on any number of ranks, which continues from files with changed imports and
without."""

from __future__ import annotations

import io
import unittest
from collections.abc import Callable
from typing import Any

import torch
from models import batch, class_of, mlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from libzero.torch import OSS, ShardedDataParallel, ZeroRedundancyOptimizer
from support import everywhere, results_of, run_cases, worst

WORLDS = (1, 2, 3)
ROWS = 6  # in each batch, over all ranks
STEPS = 25  # steps before the files, and after them
CLASSES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "amsgrad": True}),
    ("RMSprop", {"lr": 0.003, "momentum": 0.5, "centered": True}),
)


def zero(model: nn.Module, chosen: Any, options: dict[str, Any]) -> tuple[Any, nn.Module]:
    parallel = DistributedDataParallel(model)
    return ZeroRedundancyOptimizer(parallel.parameters(), chosen, **options), parallel


def oss(model: nn.Module, chosen: Any, options: dict[str, Any]) -> tuple[Any, nn.Module]:
    return OSS(model.parameters(), chosen, **options), DistributedDataParallel(model)


def oss_sharded(model: nn.Module, chosen: Any, options: dict[str, Any]) -> tuple[Any, nn.Module]:
    optimizer = OSS(model.parameters(), chosen, **options)
    return optimizer, ShardedDataParallel(model, optimizer)


def plain(model: nn.Module, chosen: Any, options: dict[str, Any]) -> tuple[Any, nn.Module]:
    return chosen(model.parameters(), **options), model


SHARDED = (zero, oss, oss_sharded)


def train(optimizer: Any, model: nn.Module, rank: int, world: int, first: int) -> None:
    """Train on this rank's rows of common batches, whose mean is that of one process with all rows."""
    mine = slice(rank * ROWS // world, (rank + 1) * ROWS // world)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.7)
    for step in range(first, first + STEPS):
        inputs, labels = (one[mine].double() for one in batch(step, ROWS))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), labels).backward()
        optimizer.step()
        scheduler.step()


def made(
    make: Callable[..., Any], name: str, options: dict[str, Any]
) -> tuple[nn.Module, Any, Any]:
    model = mlp().double()
    return (model, *make(model, class_of(name), options))


def file_of(model: nn.Module, optimizer: Any) -> bytes:
    """Return a file as programs save it, on every rank."""
    if isinstance(optimizer, (OSS, ZeroRedundancyOptimizer)):
        for rank in range(optimizer.world_size):
            optimizer.consolidate_state_dict(rank)
            if rank == optimizer.rank:
                state = optimizer.state_dict()
    else:
        state = optimizer.state_dict()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": state}, file)
    return file.getvalue()


def load(file: bytes, model: nn.Module, optimizer: Any) -> None:
    saved = torch.load(io.BytesIO(file), weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


def begun(rank: int, world: int) -> Any:
    """Return the files of this rank, by class and kind."""
    files = []
    for name, options in CLASSES:
        for make in SHARDED:
            model, optimizer, parallel = made(make, name, options)
            train(optimizer, parallel, rank, world, 0)
            files.append(file_of(model, optimizer))
            optimizer.close()
    return files


class GoesOn:
    """Continues from each file of each world. Returns the final parameters of rank 0, and whether all ranks have the
    same parameters."""

    __name__ = "goes_on"

    def __init__(self, files: dict[int, list[bytes]]) -> None:
        self._files = files

    def __call__(self, rank: int, world: int) -> Any:
        found = []
        for files in self._files.values():
            for place, file in enumerate(files):
                (name, options), make = (
                    CLASSES[place // len(SHARDED)],
                    SHARDED[place % len(SHARDED)],
                )
                model, optimizer, parallel = made(make, name, {**options, "lr": 77.0})
                load(file, model, optimizer)
                train(optimizer, parallel, rank, world, STEPS)
                params = list(model.parameters())
                found.append(([param.detach().numpy() for param in params], everywhere(params)))
                optimizer.close()
        return found


class Worlds(unittest.TestCase):
    files: dict[int, list[bytes]]
    wanted: list[list[torch.Tensor]]

    @classmethod
    def setUpClass(cls) -> None:
        """Create the files. Those of world 0 are from unsharded runs, which then continue to the wanted results."""
        cls.files = {0: []}
        cls.wanted = []
        for name, options in CLASSES:
            model, optimizer, _ = made(plain, name, options)
            train(optimizer, model, 0, 1, 0)
            cls.files[0] += [file_of(model, optimizer)] * len(SHARDED)
            train(optimizer, model, 0, 1, STEPS)
            cls.wanted.append([param.detach() for param in model.parameters()])
        for world in WORLDS:
            per_rank = results_of(run_cases(world, [begun]), begun)
            # Take the files from each rank in turn, because all ranks have the whole state.
            cls.files[world] = [
                per_rank[place % world][place] for place in range(len(CLASSES) * len(SHARDED))
            ]

    def check(self, place: int, params: list[Any]) -> None:
        wanted = self.wanted[place % (len(CLASSES) * len(SHARDED)) // len(SHARDED)]
        self.assertLess(worst(params, wanted), 1e-6, f"combination {place}")
        self.assertGreater(worst(wanted, [p.double() for p in mlp().parameters()]), 1000)

    def test_what_any_number_of_ranks_saved_goes_on_in_torchs_own(self) -> None:
        for files in self.files.values():
            for place, file in enumerate(files):
                name, options = CLASSES[place // len(SHARDED)]
                model, optimizer, _ = made(plain, name, {**options, "lr": 77.0})
                load(file, model, optimizer)
                train(optimizer, model, 0, 1, STEPS)
                self.check(place, list(model.parameters()))

    def test_what_any_number_of_ranks_or_torch_saved_goes_on_on_any_number(self) -> None:
        goes_on = GoesOn(self.files)
        for world in WORLDS:
            for found in results_of(run_cases(world, [goes_on]), goes_on):
                self.assertEqual(len(found), len(self.files) * len(CLASSES) * len(SHARDED))
                for place, (params, same) in enumerate(found):
                    self.assertTrue(same)
                    self.check(place, [torch.from_numpy(param) for param in params])


if __name__ == "__main__":
    unittest.main()

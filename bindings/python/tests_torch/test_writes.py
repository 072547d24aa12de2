# SPDX-License-Identifier: Apache-2.0
"""Tests that the next step begins with the values that a program writes into parameters with master weights. Results
are compared with fp32 copies that are rounded after each step."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from libzero.torch import Optimizer
from native import refusal
from support import InAllWorlds, bits, everywhere

SHAPES = ((70, 9), (9,), (500,))
RATE = 2.0**-9  # too small to change a bfloat16 value near 1
KINDS: tuple[tuple[torch.dtype, dict[str, Any]], ...] = (
    (torch.bfloat16, {}),
    (torch.bfloat16, {"arenas": True}),
    (torch.float16, {"arenas": "shared", "overlap": True}),
    (torch.float32, {"share_dtype": "bfloat16", "overlap": True}),
)


class Tower(nn.Module):
    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.params = nn.ParameterList(
            torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES
        )


def train(model: Tower, optimizer: Any, steps: int) -> None:
    """Train with gradients that are all 1 on every rank."""
    for _ in range(steps):
        optimizer.zero_grad()
        sum(param.sum() for param in model.params).backward()
        optimizer.step()


def followed(values: Any, steps: int, shown: torch.dtype) -> list[torch.Tensor]:
    """Return the values of parameters after `steps` more steps."""
    masters = [value.float().sub(0) for value in values]
    for master in masters:
        for _ in range(steps):
            master.sub_(RATE)
    return [master.to(shown).float() for master in masters]


def made(seed: int, dtype: torch.dtype, **options: Any) -> tuple[Tower, Optimizer]:
    model = Tower(seed, dtype)
    return model, Optimizer(model.named_parameters(), "sgd", lr=RATE, **options)


def loaded_models(rank: int, world: int) -> Any:
    """Call load_state_dict during training, and then change one parameter in place."""
    found = []
    for dtype, options in KINDS:
        shown = torch.bfloat16 if options.get("share_dtype") else dtype
        model, optimizer = made(0, dtype, **options)
        other = Tower(1, dtype)
        train(model, optimizer, 3)
        written = options.get("arenas") != "shared" or rank == 0
        if written:
            model.load_state_dict(other.state_dict())
        dist.barrier()
        train(model, optimizer, 3)
        wanted = followed(other.params, 3, shown)
        found.append(bits([one.float() for one in model.params]) == bits(wanted))
        dist.barrier()
        if written:
            with torch.no_grad():
                model.params[1].fill_(1.0)
        dist.barrier()
        train(model, optimizer, 1)
        wanted = followed(other.params, 4, shown)
        wanted[1] = followed([torch.ones(9)], 1, shown)[0]
        found.append(bits([one.float() for one in model.params]) == bits(wanted))
        optimizer.close()
    return found


def loaded_in_any_order(rank: int, world: int) -> Any:
    """Load the states of a model and its optimizer. The master weights have the bits that the values of the model
    lack."""
    found = []
    for model_first in (True, False):
        model, optimizer = made(0, torch.bfloat16)
        train(model, optimizer, 3)
        optimizer.consolidate_state_dict(to=None)
        states = model.state_dict(), optimizer.state_dict()
        again, second = made(1, torch.bfloat16)
        train(again, second, 1)
        if model_first:
            again.load_state_dict(states[0])
        second.load_state_dict(states[1])
        if not model_first:
            again.load_state_dict(states[0])
        train(model, optimizer, 3)
        train(again, second, 3)
        found.append(bits(list(model.params)) == bits(list(again.params)))
        # If the master weights belong to another model, the values of the model are used.
        other = Tower(2, torch.bfloat16)
        again.load_state_dict(other.state_dict())
        second.load_state_dict(states[1])
        train(again, second, 2)
        wanted = followed(other.params, 2, torch.bfloat16)
        found.append(bits([one.float() for one in again.params]) == bits(wanted))
        optimizer.close()
        second.close()
    return found


def written_on_one_rank(rank: int, world: int) -> Any:
    """Only the last rank writes, while gradients are announced. No rank waits, all ranks have the same values, and
    the elements that this rank owns continue from the written values."""
    model, optimizer = made(0, torch.bfloat16, overlap=True)
    owned = sum(part.count for part in optimizer._native.core.optimizer.owned_ranges(world - 1))
    found = []
    for value in (8.0, 16.0):
        train(model, optimizer, 2)
        optimizer.zero_grad()
        if value == 8:
            sum(param.sum() for param in model.params).backward()
        if rank == world - 1:
            with torch.no_grad():
                for param in model.params:
                    param.fill_(value)
        if value == 16:  # gathered and saved master weights include the write
            optimizer.consolidate_state_dict(None)
            masters = [one["master"] for one in optimizer.state_dict()["state"].values()]
            found.append(sum(int((one == 16).sum()) for one in masters) == owned)
            sum(param.sum() for param in model.params).backward()
        optimizer.step()
        written = sum(int((param.float() > value - 1).sum()) for param in model.params)
        found += [everywhere(list(model.params)), written == owned]
    return found


def moved_on_one_rank(rank: int, world: int) -> Any:
    """Only rank 0 moves the memory of a parameter with remainders, and all ranks continue."""
    model, optimizer = made(0, torch.bfloat16, master="remainder")
    for _ in range(3):
        train(model, optimizer, 1)
        if rank == 0:
            model.params[0].data = model.params[0].data.clone()
    return everywhere(list(model.params))


def moved_and_saved(rank: int, world: int) -> Any:
    return [moved_in(arenas) for arenas in (False, True)]


def moved_in(arenas: bool) -> Any:
    """Move memory with .data, and save a checkpoint of values that were written since the last step."""
    told = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(told)
    path = Path(told[0]) / "saved"
    model, optimizer = made(0, torch.bfloat16, arenas=arenas)
    train(model, optimizer, 1)
    model.params[2].data = torch.full((500,), 3.0, dtype=torch.bfloat16)
    with torch.no_grad():
        model.params[0].fill_(2.0)
    optimizer.save(path)
    train(model, optimizer, 3)
    again, second = made(1, torch.bfloat16)
    second.load(path)
    train(again, second, 3)
    wanted = followed([torch.full((70, 9), 2.0), torch.full((500,), 3.0)], 3, torch.bfloat16)
    optimizer.close()
    second.close()
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(told[0])
    mine = [[one.float() for one in (tower.params[0], tower.params[2])] for tower in (model, again)]
    return bits(mine[0]) == bits(wanted), bits(mine[1]) == bits(wanted)


def written_after_a_clip(rank: int, world: int) -> Any:
    model, optimizer = made(0, torch.bfloat16)
    sum(param.sum() for param in model.params).backward()
    optimizer.clip_grad_norm(1.0)
    with torch.no_grad():
        model.params[1].fill_(1.0)
    told = refusal(optimizer.step)
    optimizer.zero_grad()
    train(model, optimizer, 1)
    wanted = followed([torch.ones(9)], 1, torch.bfloat16)
    return told, bits([model.params[1].float()]) == bits(wanted)


def moved_after_a_clip(rank: int, world: int) -> Any:
    """Write through .data. The step that raises an exception changes nothing, and the next step uses the written
    values."""
    found = []
    for dtype, options in (*KINDS[:2], (torch.float32, {})):
        model, optimizer = made(0, dtype, **options)
        sum(param.sum() for param in model.params).backward()
        optimizer.clip_grad_norm(1.0)
        held = bits(list(model.params[:1]))
        model.params[1].data = torch.ones(9, dtype=dtype)
        found.append(refusal(optimizer.step))
        same = bits(list(model.params[:1])) == held and bool((model.params[1] == 1).all())
        optimizer.zero_grad()
        train(model, optimizer, 1)
        wanted = followed([torch.ones(9)], 1, dtype)
        found.append(same and bits([model.params[1].float()]) == bits(wanted))
    return found


def written_before_a_clip(rank: int, world: int) -> Any:
    model, optimizer = made(0, torch.bfloat16)
    model.load_state_dict(Tower(1, torch.bfloat16).state_dict())
    sum(param.sum() for param in model.params).backward()
    optimizer.clip_grad_value(1.0)
    optimizer.step()
    wanted = followed(Tower(1, torch.bfloat16).params, 1, torch.bfloat16)
    return bits([one.float() for one in model.params]) == bits(wanted)


def gathered_and_saved_before_a_step(rank: int, world: int) -> Any:
    """Gradients are first only announced, and then clipped."""
    told = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(told)
    model, optimizer = made(0, torch.bfloat16, overlap=True)
    train(model, optimizer, 1)
    sum(param.sum() for param in model.params).backward()
    with torch.no_grad():
        model.params[0].fill_(2.0)
    model.params[1].data = torch.full((9,), 3.0, dtype=torch.bfloat16)
    optimizer.consolidate_state_dict(None)
    masters = [one["master"] for one in optimizer.state_dict()["state"].values()]
    found: list[Any] = [bool((masters[0] == 2).all()), bool((masters[1] == 3).all())]
    optimizer.zero_grad()
    sum(param.sum() for param in model.params).backward()
    optimizer.save(Path(told[0]) / "written")
    again, second = made(1, torch.bfloat16)
    second.load(Path(told[0]) / "written")
    found.append(bits(list(again.params)) == bits(list(model.params)))
    optimizer.step()
    wanted = followed([torch.full((70, 9), 2.0), torch.full((9,), 3.0)], 1, torch.bfloat16)
    found.append(bits([one.float() for one in model.params[:2]]) == bits(wanted))
    optimizer.zero_grad()
    sum(param.sum() for param in model.params).backward()
    optimizer.save(Path(told[0]) / "as stepped")
    optimizer.clip_grad_norm(1.0)
    found.append(refusal(lambda: optimizer.save(Path(told[0]) / "other")))
    if rank == 0:
        with torch.no_grad():
            model.params[0].fill_(4.0)
    found.append(refusal(lambda: optimizer.consolidate_state_dict(None)))
    dist.barrier()
    if rank == 0:
        shutil.rmtree(told[0])
    return found


def written_beside_a_joined_rank(rank: int, world: int) -> Any:
    model, optimizer = made(0, torch.bfloat16, uneven_inputs="world")
    told = ""
    if rank == 0:
        with torch.no_grad():
            model.params[0].fill_(1.0)
        told = refusal(lambda: train(model, optimizer, 1))
    optimizer.join()
    return told


def the_librarys_own(rank: int, world: int) -> Any:
    """Writes of libzero itself do not count as writes of the program."""
    model, optimizer = made(0, torch.bfloat16, arenas=True)
    found = []

    def look() -> None:
        found.append(optimizer._native.writes.found())

    look()
    train(model, optimizer, 1)
    look()
    sum(param.sum() for param in model.params).backward()
    optimizer.clip_grad_norm(0.5)
    optimizer.step()
    look()
    optimizer.zero_grad()
    optimizer.broadcast_params()
    look()
    optimizer.add_param_group({"params": [("late", nn.Parameter(torch.ones(5).bfloat16()))]})
    look()
    return found


CASES = (
    loaded_models,
    loaded_in_any_order,
    written_on_one_rank,
    moved_on_one_rank,
    moved_and_saved,
    written_after_a_clip,
    moved_after_a_clip,
    written_before_a_clip,
    gathered_and_saved_before_a_step,
    written_beside_a_joined_rank,
    the_librarys_own,
)


class Writes(InAllWorlds):
    worlds, cases = (1, 2, 3), CASES

    def test_a_model_that_is_loaded_is_where_the_next_step_begins(self) -> None:
        for found in self.of(loaded_models):
            self.assertEqual(found, [True] * 2 * len(KINDS))

    def test_a_model_and_its_optimizer_are_loaded_in_any_order(self) -> None:
        for found in self.of(loaded_in_any_order):
            self.assertEqual(found, [True] * 4)

    def test_what_one_rank_wrote_counts_where_it_owns_and_keeps_no_rank_waiting(self) -> None:
        for found in self.of(written_on_one_rank):
            self.assertEqual(found, [True] * 5)

    def test_memory_that_moves_on_one_rank_keeps_no_rank_from_going_on(self) -> None:
        self.assertTrue(all(self.of(moved_on_one_rank)))

    def test_moved_memory_counts_and_checkpoints_have_what_was_written(self) -> None:
        for found in self.of(moved_and_saved):
            self.assertEqual(found, [(True, True)] * 2)

    def test_a_write_between_clip_and_step_is_refused(self) -> None:
        for told, counts in self.of(written_after_a_clip):
            self.assertIn("parameter params.1 was written after clip_grad_norm()", told)
            self.assertTrue(counts)

    def test_memory_that_moves_between_clip_and_step_is_refused(self) -> None:
        for found in self.of(moved_after_a_clip):
            for told, counts in zip(found[::2], found[1::2]):
                self.assertIn("parameter params.1 was written after clip_grad_norm()", told)
                self.assertTrue(counts)

    def test_a_write_before_a_clip_is_where_the_step_begins(self) -> None:
        self.assertTrue(all(self.of(written_before_a_clip)))

    def test_state_between_backward_and_step_has_what_was_written(self) -> None:
        for _, rank, found in self.of_ranks(gathered_and_saved_before_a_step):
            self.assertEqual(found[:4], [True] * 4)
            self.assertIn("save after step(), or call zero_grad()", found[4])
            self.assertIn("parameter params.0 was written after" if rank == 0 else "", found[5])

    def test_a_write_beside_a_joined_rank_is_refused(self) -> None:
        for world, rank, told in self.of_ranks(written_beside_a_joined_rank):
            words = "written while another rank is in join()" if world > 1 and rank == 0 else ""
            self.assertIn(words, told)

    def test_what_libzero_writes_does_not_count(self) -> None:
        for found in self.of(the_librarys_own):
            self.assertEqual(found, [[]] * 5)

# SPDX-License-Identifier: Apache-2.0
"""Changes one thing in a file. The import must then give the same result as torch's own load of that file, or be
rejected."""

from __future__ import annotations

import copy
import os
import random
import unittest
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Optional

import torch

import libzero
import libzero.torch

from importing import ImportTest
from layouts import Document, decayed, document, save_distributed, small_model, step, trained

TRIALS = 1000 if os.environ.get("ZERO_TEST_NIGHTLY") else 60
Weights = dict[str, torch.Tensor]


class Case(NamedTuple):
    """The way in which a file was made. With `named`, parameters have names. The form is a file of torch.save or a
    directory of torch.distributed."""

    form: str
    optimizer_class: type[torch.optim.Optimizer]
    rule: str
    options: dict[str, Any]
    has_groups: bool
    named: bool


CASES = [
    Case("torch", torch.optim.AdamW, "adamw", {}, False, False),
    Case("torch", torch.optim.AdamW, "adamw", {"amsgrad": True}, True, False),
    Case("torch", torch.optim.SGD, "sgd", {"momentum": 0.9}, True, False),
    Case("torch", torch.optim.SGD, "sgd", {}, False, False),
    Case("torch", torch.optim.Adam, "adam", {}, True, True),
    Case("torch", torch.optim.NAdam, "nadam", {}, False, True),
    Case("torch", torch.optim.Adagrad, "adagrad", {}, False, False),
    Case("dcp", torch.optim.AdamW, "adamw", {}, True, True),
]


def groups_of(case: Case, model: torch.nn.Module) -> list[dict[str, Any]]:
    return decayed(model) if case.has_groups else [{"params": list(model.parameters())}]


def original(case: Case) -> Document:
    model = small_model()
    optimizer = trained(model, case.optimizer_class, groups_of(case, model), **case.options)
    given = document(model, optimizer)
    if case.named:
        names = {id(param): name for name, param in model.named_parameters()}
        for group, own in zip(given["optimizer"]["param_groups"], optimizer.param_groups):
            group["param_names"] = [names[id(param)] for param in own["params"]]
    if case.form == "dcp":
        by_number: dict[int, str] = {}
        for group in given["optimizer"]["param_groups"]:
            by_number.update(zip(group["params"], group.pop("param_names")))
            group["params"] = [by_number[number] for number in group["params"]]
        state = given["optimizer"]["state"]
        given["optimizer"]["state"] = {by_number[number]: one for number, one in state.items()}
    return given


# ---- Changes.


def containers(value: Any, path: str = "file") -> Iterator[tuple[str, Any]]:
    """Yield all dictionaries and lists, with their paths."""
    if isinstance(value, (dict, list)):
        yield path, value
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from containers(one, f"{path}.{key}")


def put_first(of: dict[Any, Any], items: list[tuple[Any, Any]]) -> None:
    """Reorder the dictionary in place, so that attributes that torch stores on a module's dictionary are kept."""
    of.clear()
    of.update(items)


def gone(at: Any, draw: random.Random) -> str:
    key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
    del at[key]
    return f"{key} is gone"


def renamed(at: Any, draw: random.Random) -> str:
    if isinstance(at, dict):
        key = draw.choice(list(at))
        new = key + 100 if isinstance(key, int) else draw.choice([f"{key}_", f"my.{key}", str(key)[1:]])
        put_first(at, [(new if one == key else one, value) for one, value in at.items()])
    else:
        key = draw.randrange(len(at))
        new = at[key] + 50 if isinstance(at[key], int) else f"{at[key]}_"
        at[key] = new if isinstance(at[key], (int, str)) else at[key]
    return f"{key} is {new}"


def doubled(at: Any, draw: random.Random) -> str:
    if isinstance(at, dict):
        key, value = draw.choice(list(at.items()))
        new = draw.choice(["state_dict", "optim", f"{key}2", str(key), 100])
        new = new if new not in at else f"{new}_"
        at[new] = copy.deepcopy(value)
        return f"{key} is also {new}"
    at.insert(draw.randrange(len(at) + 1), copy.deepcopy(draw.choice(at)))
    return "one is there twice"


def reordered(at: Any, draw: random.Random) -> str:
    items = list(at.items()) if isinstance(at, dict) else list(at)
    first, second = sorted(draw.sample(range(len(items)), 2))
    items[first], items[second] = items[second], items[first]
    if isinstance(at, dict):
        put_first(at, items)
    else:
        at[:] = items
    return f"numbers {first} and {second} have changed places"


def reshaped(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    flat = tensor.flatten()
    return draw.choice([flat[:-1], flat, tensor.unsqueeze(0), torch.cat([flat, flat]), tensor.mT if tensor.dim() > 1 else flat[:1]]).clone()  # fmt: skip


def retyped(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64)
    return tensor.to(draw.choice(dtypes))


def of_tensor(change: Callable[[torch.Tensor, random.Random], torch.Tensor]) -> Any:
    def changed(at: Any, draw: random.Random) -> str:
        keys = [key for key, value in at.items() if isinstance(value, torch.Tensor)]
        key = draw.choice(keys)
        at[key] = change(at[key], draw)
        return f"{key} is {at[key].dtype} {list(at[key].shape)}"

    return changed


def holds_tensors(at: Any) -> bool:
    return isinstance(at, dict) and any(isinstance(one, torch.Tensor) for one in at.values())


CHANGES: list[tuple[Callable[[Any, random.Random], str], Callable[[Any], bool]]] = [
    (gone, lambda at: len(at) > 0),
    (renamed, lambda at: len(at) > 0 and not (isinstance(at, list) and isinstance(at[0], dict))),
    (doubled, lambda at: len(at) > 0),
    (of_tensor(reshaped), holds_tensors),
    (of_tensor(retyped), holds_tensors),
    (reordered, lambda at: len(at) > 1),
]


# ---- What torch makes of the same file.


def next_steps(model: torch.nn.Module, optimizer: Any) -> list[Weights]:
    """Return the weights now and after each of two steps."""
    seen = [copy.deepcopy(dict(model.state_dict()))]
    for number in (11, 12):
        step(model, optimizer, number)
        seen.append(copy.deepcopy(dict(model.state_dict())))
    return seen


def by_torch(case: Case, given: Document) -> Optional[list[Weights]]:
    """Return the weights with torch's load, or None if torch rejects the file."""
    given = copy.deepcopy(given)
    model = small_model()
    named = dict(model.named_parameters())
    try:
        groups = groups_of(case, model)
        for mine, group in zip(groups, given["optimizer"]["param_groups"]):
            names = group["params"] if case.form == "dcp" else group.get("param_names")
            if names is not None:
                mine["params"] = [named[name] for name in names]
        optimizer = case.optimizer_class(groups, lr=0.5, **case.options)
        model.load_state_dict(given["model"])
        optimizer.load_state_dict(given["optimizer"])
        return next_steps(model, optimizer)
    except Exception:  # torch's load may raise any exception
        return None


def alike(one: list[Weights], other: list[Weights]) -> bool:
    return all(
        torch.allclose(first[name], second[name], rtol=1e-5, atol=1e-7)
        for first, second in zip(one, other)
        for name in first
    )


class Mutated(ImportTest):
    def by_libzero(self, case: Case, given: Document, *options: str) -> Optional[list[Weights]]:
        """Return the weights with libzero's import, or None if the import or the load is rejected."""
        path = self.path("file")
        if case.form == "dcp":
            path = self.path("directory")
            save_distributed(path, given)
        else:
            torch.save(given, path)
        arguments = ("--replace", "--from", case.form, *options, path, self.path("saved"))
        status, told = self.run_main("import", *arguments)
        if status:
            # Otherwise, `zero` has printed the reason.
            self.assertRegex(told, r"^(python -m libzero import: .*\n)?$")
            return None
        mine = small_model()
        names = {id(param): name for name, param in mine.named_parameters()}
        groups = groups_of(case, mine)
        for group in groups:
            group["params"] = [(names[id(param)], param) for param in group["params"]]
        with libzero.torch.Optimizer(groups, case.rule, **case.options) as loaded:  # type: ignore[arg-type]
            try:
                loaded.load(self.path("saved"))
            except libzero.CheckpointError:
                return None
            return next_steps(mine, loaded)

    def test_each_is_right_or_refused(self) -> None:
        draw = random.Random(20)
        right = refused = 0
        wrong: list[str] = []
        whole = {number: original(case) for number, case in enumerate(CASES)}
        unchanged = {number: by_torch(case, whole[number]) for number, case in enumerate(CASES)}
        for trial in range(TRIALS):
            number = trial % len(CASES)
            case = CASES[number]
            given = copy.deepcopy(whole[number])
            change, suits = CHANGES[draw.randrange(len(CHANGES))]
            path, at = draw.choice([one for one in containers(given) if suits(one[1])])
            told = f"trial {trial}, {case}: in {path} {change(at, draw)}"
            nameless = case.has_groups and not case.named
            options = ("--order", "dimensions") if nameless else ()
            result = self.by_libzero(case, given, *options)
            if result is None:
                refused += 1
                continue
            right += 1
            wanted = by_torch(case, given) or unchanged[number]
            assert wanted is not None
            if not alike(result, wanted):
                wrong.append(told)
        self.assertEqual(wrong, [])
        # Some files are accepted and some are rejected.
        self.assertGreater(min(right, refused), TRIALS // 20, (right, refused))

    def test_what_is_not_changed_is_right(self) -> None:
        for case in CASES:
            with self.subTest(case.rule):
                given = original(case)
                nameless = case.has_groups and not case.named
                result = self.by_libzero(case, given, *(("--order", "dimensions") if nameless else ()))
                wanted = by_torch(case, given)
                assert result is not None and wanted is not None
                self.assertTrue(alike(result, wanted))


if __name__ == "__main__":
    unittest.main()

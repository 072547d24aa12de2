# SPDX-License-Identifier: Apache-2.0
"""Matches the parameters of an optimizer to the tensors of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ._account import listed, repeated
from ._streams import RefusedError
from ._wrappers import partly, prefix_of

Shapes = Mapping[str, tuple[int, ...]]
REGISTRATION, DIMENSIONS = "registration", "dimensions"
HELP = (
    "--order registration: those of the model in its order, one group after the other; --order dimensions: those "
    "with two and more dimensions in the first group, the others in the second, each in the model's order; --order "
    "FILE: their names, one a line, in the order of the optimizer's parameters"
)


class Group(NamedTuple):
    keys: Sequence[Any]  # the keys of the parameters in the optimizer
    names: Optional[Sequence[Any]]


class Model(NamedTuple):
    """The tensors of a model. `floating` contains the tensors that may be parameters, and `ties`
    contains other names of tensors. `modules` contains the names of the modules in order, if they
    are known. It is None if the tensors have no order."""

    tensors: Mapping[str, Any]
    floating: Shapes
    ties: Mapping[str, str]
    modules: Optional[Sequence[str]]


def order_names(groups: Sequence[Group], model: Model, order: Optional[str]) -> list[list[str]]:
    """Return the names of the parameters in each group. Without groups, all tensors that may be
    parameters form one group. Raises RefusedError if the names cannot be determined, or if they are
    given in two ways."""
    if not groups:
        if order is not None:
            raise RefusedError("--order is for an optimizer's parameters, but it has no optimizer")
        return [list(model.floating)]
    named = [_named(number, group) for number, group in enumerate(groups)]
    if all(one is None for one in named) or not any(group.keys for group in groups):
        return _cut(groups, _without_names(groups, model, order))
    lacking = [
        f"group {number}" for number, one in enumerate(named) if one is None and groups[number].keys
    ]
    if lacking:
        raise RefusedError(
            f"parameters have no names in {listed(lacking)}, but have names in other groups"
        )
    if order is not None:
        raise RefusedError(
            "its optimizer has names of its parameters, and --order is for parameters without names"
        )
    return _checked([one or [] for one in named], model)


def _named(number: int, group: Group) -> Optional[list[str]]:
    if group.names is not None:
        if len(group.names) != len(group.keys):
            raise RefusedError(
                f"group {number} of its optimizer has {len(group.keys)} parameters, and names for "
                f"{len(group.names)}"
            )
        return [str(name) for name in group.names]
    names = [key for key in group.keys if isinstance(key, str)]
    return names if len(names) == len(group.keys) and names else None


def _checked(names: list[list[str]], model: Model) -> list[list[str]]:
    given = [name for mine in names for name in mine]
    wrapper = prefix_of(given) if _lost(given, model) else ""
    names = [[name[len(wrapper) :] for name in mine] for mine in names]
    names = [[model.ties.get(name, name) for name in mine] for mine in names]
    twice = repeated(name for mine in names for name in mine)
    if twice:
        raise RefusedError(f"its optimizer has parameters twice: {listed(map(repr, twice))}")
    lost = _lost([name for mine in names for name in mine], model)
    if lost:
        why = partly(given) or partly(model.tensors)
        raise RefusedError(
            f"its optimizer has parameters that its model lacks: {listed(map(repr, lost))}"
            + (f"; {why}" if why else "")
        )
    return names


def _lost(names: Sequence[str], model: Model) -> list[str]:
    return [name for name in names if name not in model.tensors and name not in model.ties]


def _without_names(groups: Sequence[Group], model: Model, order: Optional[str]) -> list[str]:
    floating = model.floating
    sizes = [len(group.keys) for group in groups]
    if order not in (None, REGISTRATION, DIMENSIONS):
        return _of_file(order, sum(sizes), model)
    if order is None and sum(size > 0 for size in sizes) > 1:
        raise RefusedError(
            f"its optimizer has {len(sizes)} groups of {listed(map(str, sizes))} parameters without names ({HELP})"
        )
    if len(floating) != sum(sizes):
        raise RefusedError(
            f"its model has {len(floating)} floating tensors and its optimizer {sum(sizes)} parameters, without "
            "names: name the model's buffers, as --buffers '*.running_mean,*.running_var'"
        )
    if model.modules is None:
        raise RefusedError(
            "its model's tensors are in no order of registration, and its optimizer has no names: give --order "
            "FILE, with the names of the optimizer's parameters, one a line, in their order"
        )
    _check_order(floating, model.modules, told=order is not None)
    return _by_dimensions(sizes, floating) if order == DIMENSIONS else list(floating)


def _by_dimensions(sizes: Sequence[int], floating: Shapes) -> list[str]:
    halves = [
        [name for name, shape in floating.items() if (len(shape) >= 2) == large]
        for large in (True, False)
    ]
    if list(sizes) != [len(half) for half in halves]:
        raise RefusedError(
            f"its groups have {listed(map(str, sizes))} parameters, its model {len(halves[0])} with two and more "
            f"dimensions and {len(halves[1])} others: --order dimensions does not fit"
        )
    return halves[0] + halves[1]


def _of_file(path: Any, count: int, model: Model) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            names = [line.strip() for line in file if line.strip()]
    except (OSError, ValueError) as error:
        raise RefusedError(f"--order {path}: {error}") from None
    if len(names) != count:
        raise RefusedError(
            f"--order {path} names {len(names)} parameters, its optimizer has {count}"
        )
    return _checked([names], model)[0]


def _check_order(floating: Shapes, modules: Sequence[str], *, told: bool) -> None:
    """Check that tensors are in the order of their registration. The tensors of a module are
    adjacent, and modules are in order. The modules of torch register the weight before the bias. A
    dictionary in any other order was not created by registration alone. If `told` is set, the user
    asserts that it was, and a bias may precede its weight. If a bias and its weight differ in
    shape, the bias may always come first, because the shapes in the state show the order."""
    place = {module: number for number, module in enumerate(modules)}
    latest, seen = 0, set()
    for name in floating:
        module, _, last = name.rpartition(".")
        seen.add(name)
        weight = f"{module}.weight" if module else "weight"
        turned = last == "bias" and weight in floating and weight not in seen
        if turned and not told and floating[weight] == floating[name]:
            raise RefusedError(
                f"its model has {name!r} before {weight!r}, and its optimizer no names: give --order registration if "
                "its module registers them so, else --order FILE, with the names of the optimizer's parameters, "
                "one a line, in their order"
            )
        if place.get(module, latest) < latest:
            raise RefusedError(
                f"its model has {name!r} in another order than modules register their parameters, and its optimizer "
                "no names: give --order FILE, with the names of the optimizer's parameters, one a line, in their order"
            )
        latest = place.get(module, latest)


def _cut(groups: Sequence[Group], names: Sequence[str]) -> list[list[str]]:
    cut, at = [], 0
    for group in groups:
        cut.append(list(names[at : at + len(group.keys)]))
        at += len(group.keys)
    return cut

# SPDX-License-Identifier: Apache-2.0
"""Finds tensors that have two names in a model, for files that do not record ties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from ._account import Patterns, matches
from ._documents import Found


def first_names(model: Mapping[str, Found]) -> tuple[dict[str, Found], dict[str, str]]:
    """Return each tensor under its first name, and the first name for each of its other names.
    Names belong to the same tensor if they have the same place in the file."""
    names: dict[object, str] = {}
    kept: dict[str, Found] = {}
    ties: dict[str, str] = {}
    for name, found in model.items():
        place = (found.place, found.shape, found.dtype) if 0 not in found.shape else name
        if place in names:
            ties[name] = names[place]
        else:
            names[place] = name
            kept[name] = found
    return kept, ties


def second_names(
    model: Mapping[str, Found], params: Sequence[Sequence[str]], buffers: Patterns
) -> list[str]:
    """Return sentences about tensors that are not parameters, but are equal to a parameter bit for
    bit. This is the form in which torch.distributed.checkpoint writes tied tensors. Tensors in
    which all values are equal are not reported."""
    trained = [name for mine in params for name in mine]
    known = set(trained)
    alike: dict[object, list[str]] = {}
    for name in trained:
        alike.setdefault((model[name].dtype, model[name].shape), []).append(name)
    return [
        f"{name!r} holds what {other!r} does: --ignore {name} if they are one tensor, --buffers {name} if two"
        for name, found in model.items()
        if name not in known and found.dtype.is_floating_point and not matches(name, buffers)
        for other in alike.get((found.dtype, found.shape), ())
        if _same(found, model[other])
    ]


def _same(one: Found, other: Found) -> bool:
    varied = False
    first = None
    for mine, its in _pairs(one, other):
        if not torch.equal(mine.view(torch.uint8), its.view(torch.uint8)):
            return False
        first = mine[:1] if first is None else first
        varied = varied or bool((mine != first).any())
    return varied


def _pairs(one: Found, other: Found) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for mine, its in zip(one.parts(), other.parts()):
        yield mine.contiguous().flatten(), its.contiguous().flatten()

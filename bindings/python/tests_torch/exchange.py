# SPDX-License-Identifier: Apache-2.0
"""Moves state from an unsharded optimizer to a sharded optimizer and back."""

from __future__ import annotations

import pickle
import unittest
from collections.abc import Callable
from typing import Any, NamedTuple

from models import class_of, copies, give_gradients, parameters

from support import everywhere, worst


class Exchange(NamedTuple):
    """The result of there_and_back. `untouched` is true if the load did not change the caller's dictionary. `middle`
    and `end` are the differences from a run that was never sharded, after the sharded steps and after the last steps.
    `same` is true if all ranks have the same values. `keys` is true if the sharded state has the keys of the class.
    `rates` are the rates of the sharded optimizer and of the last optimizer, which were created with other rates."""

    name: str
    untouched: bool
    middle: float
    end: float
    same: bool
    keys: bool
    rates: bool


def there_and_back(
    name: str, options: dict[str, Any], make: Callable[..., Any], state_of: Callable[[Any], Any]
) -> Exchange:
    """Take three unsharded steps, two sharded steps, and two unsharded steps. `state_of` returns the whole state on
    each rank."""
    mine = parameters(1)
    others, again = copies(mine), copies(mine)
    plain = class_of(name)(others, **options)
    first = class_of(name)(again, **options)
    for step in range(3):
        give_gradients(step, others, again, without=[5])
        plain.step()
        first.step()
    for param, other in zip(mine, again):
        param.data.copy_(other)
    sharded = make(mine, class_of(name), **{**options, "lr": 77.0})
    saved = first.state_dict()
    kept = pickle.dumps(saved)
    sharded.load_state_dict(saved)
    untouched = pickle.dumps(saved) == kept
    for step in range(3, 5):
        give_gradients(step, mine, others, without=[5])
        sharded.step()
        plain.step()
    middle = worst(mine, others)
    state = state_of(sharded)
    keys = {number: set(entry) for number, entry in state["state"].items()}
    wanted = {n: set(entry) for n, entry in plain.state_dict()["state"].items() if entry}
    last = copies(mine)
    second = class_of(name)(last, **{**options, "lr": 99.0})
    second.load_state_dict(state)
    for step in range(5, 7):
        give_gradients(step, last, others, without=[5])
        second.step()
        plain.step()
    rates = [one.param_groups[0]["lr"] == options["lr"] for one in (sharded, second)]
    end, same = worst(last, others), everywhere(mine)
    sharded.close()
    return Exchange(name, untouched, middle, end, same, keys == wanted, all(rates))


def assert_sound(test: unittest.TestCase, found: Exchange) -> None:
    test.assertTrue(found.untouched, found.name)
    test.assertLess(found.middle, 1, found.name)
    test.assertLess(found.end, 1, found.name)
    test.assertTrue(found.same, found.name)
    test.assertTrue(found.keys, found.name)
    test.assertTrue(found.rates, found.name)

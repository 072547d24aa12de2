# SPDX-License-Identifier: Apache-2.0
"""The state for torch.distributed.checkpoint: it expects all state of an optimizer before the first
step, as the place into which files are read."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import torch

_MODULE = "torch.distributed.checkpoint.state_dict"


def asked_by_checkpoints() -> frozenset[str]:
    """Return the functions of torch's get_state_dict and set_state_dict that are on the call stack.

    torch creates state by a step of zeros if an optimizer has no state; it silently skips this if
    the optimizer counts as initialized. The step of zeros would be a collective one here, and would
    put the state on other ranks.
    """
    names = []
    frame = sys._getframe(2) if _MODULE in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == _MODULE:
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return frozenset(names)


def zeros_stepped(
    optimizer: torch.optim.Optimizer,
    groups: Iterable[Mapping[str, Any]],
    defaults: Mapping[str, Any],
) -> dict[torch.Tensor, dict[str, Any]]:
    """Return, by parameter of `groups`, the state of an optimizer of this class after a step of
    zeros at a learning rate of 0, made with copies. Raises the class's errors."""
    twins: dict[torch.Tensor, torch.Tensor] = {}
    copied = []
    for group in groups:
        for param in group["params"]:
            twin = twins[param] = param.detach().clone().requires_grad_(param.requires_grad)
            twin.grad = torch.zeros_like(twin) if param.requires_grad else None
        still = {"lr": torch.tensor(0.0) if torch.is_tensor(group.get("lr")) else 0.0}
        options = {name: value for name, value in group.items() if name != "param_names"}
        options.update(still if "lr" in group else {}, params=[twins[one] for one in group["params"]])
        copied.append(options)
    trial = type(optimizer)(copied, **defaults)
    trial.step()
    return {param: trial.state[twin] for param, twin in twins.items() if trial.state.get(twin)}


class State(defaultdict[Any, Any]):
    """The attribute `state` of torch's base class: it has the values that programs put there,
    because libzero holds all of an optimizer's own state. It counts as full, so that
    torch.distributed.checkpoint makes no step of zeros. If torch looks for the names of a
    parameter's state, `names_of` returns them."""

    names_of: Optional[Callable[[torch.Tensor], Mapping[str, Any]]] = None  # a copy has none

    def __init__(self, factory: Any = dict, *items: Any) -> None:
        super().__init__(factory, *items)  # as copies are made

    def __bool__(self) -> bool:
        return True

    def __missing__(self, param: Any) -> Any:
        if self.names_of is not None and asked_by_checkpoints():
            return self.names_of(param)
        return super().__missing__(param)

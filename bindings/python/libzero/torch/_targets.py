# SPDX-License-Identifier: Apache-2.0
"""Provides state for torch.distributed.checkpoint, which reads files into the state of an optimizer
and expects all of that state before the first step."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import torch

_MODULE = "torch.distributed.checkpoint.state_dict"


def asked_by_checkpoints() -> frozenset[str]:
    """Return the functions of torch's get_state_dict and set_state_dict that are on the call stack.

    If an optimizer has no state, torch creates it with a step with zero gradients. This step is
    silently omitted if the optimizer counts as initialized. For a sharded optimizer, the step would
    be collective, and would create state on other ranks.
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
    """Return, for each parameter in `groups`, the state that an optimizer of this class has after a
    step with zero gradients and a learning rate of 0. The step is taken with copies. Raises the
    errors of the class."""
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
    """The attribute `state` of torch's base class. It contains only values that programs put there,
    because libzero holds the state of the optimizer. It is never false, so that
    torch.distributed.checkpoint does not take a step with zero gradients. If torch looks up the
    names of a parameter's state, `names_of` returns them."""

    names_of: Optional[Callable[[torch.Tensor], Mapping[str, Any]]] = None  # None for a copy

    def __init__(self, factory: Any = dict, *items: Any) -> None:
        super().__init__(factory, *items)  # copies pass items

    def __bool__(self) -> bool:
        return True

    def __missing__(self, param: Any) -> Any:
        if self.names_of is not None and asked_by_checkpoints():
            return self.names_of(param)
        return super().__missing__(param)

# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed.checkpoint looks for in an optimizer: all of its state before the first
step, as the place for what comes out of files."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import torch

_MODULE = "torch.distributed.checkpoint.state_dict"


def asked_by_checkpoints() -> frozenset[str]:
    """The functions of torch's get_state_dict and set_state_dict that the caller was called from.

    torch makes state by a step of zeros where an optimizer has none, or is silent where it counts as
    initialized. Its step would be a collective one here, and then the state is on other ranks.
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
    """By parameter of `groups`, the state that an optimizer of this class has after a step of zeros
    at a learning rate of 0, which is made with copies. Raises what the class does."""
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
    """`state` as torch's base class has it: with what programs put there, as all of an optimizer's
    own is libzero's. It counts as full, so that torch.distributed.checkpoint makes no step of zeros;
    where that looks for the names of a parameter's state, `names_of` tells them."""

    names_of: Optional[Callable[[torch.Tensor], Mapping[str, Any]]] = None  # a copy has none

    def __init__(self, factory: Any = dict, *items: Any) -> None:
        super().__init__(factory, *items)  # as copies are made

    def __bool__(self) -> bool:
        return True

    def __missing__(self, param: Any) -> Any:
        if self.names_of is not None and asked_by_checkpoints():
            return self.names_of(param)
        return super().__missing__(param)

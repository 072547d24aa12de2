# SPDX-License-Identifier: Apache-2.0
"""Reads the numbers of a torch file, some of which are tensors. Each number is either converted
exactly or named in an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import torch

from ._account import NUMBER
from ._documents import Found
from ._rules import STARTS
from ._state import MOST_STEPS
from ._streams import RefusedError


def plain(value: Any) -> Any:
    """Return an option in which numbers replace tensors with one element. A learning rate or each
    of the betas, for example, may be such a tensor."""
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    one_element = isinstance(value, Found) and torch.Size(value.shape).numel() == 1
    return value.number() if one_element else value


def kind_of(value: Any, is_number: bool) -> Any:
    if isinstance(value, Found):
        if value.dtype == torch.bool or value.dtype.is_complex:
            return str(value.dtype)
        return NUMBER if is_number and torch.Size(value.shape).numel() == 1 else value.shape
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return NUMBER if number else value


def start_of(
    slot: str, scalars: Sequence[str], group: Mapping[str, Any], shape: tuple[int, ...]
) -> Any:
    """Return the initial value of a slot of a rule."""
    if slot in scalars:
        return 1.0 if slot == "mu_product" else 0
    start = float(group[STARTS[slot]]) if slot in STARTS else 0.0

    def parts() -> Iterable[torch.Tensor]:
        yield torch.full(shape, start)

    return Found(torch.float32, shape, None, parts)


def number_of(value: Any, slot: str, name: str) -> float:
    number = value.number() if isinstance(value, Found) else value
    if number != number:
        raise RefusedError(f"state {slot!r} of {name!r} is not a number")
    return number


def step_of(value: Any, name: str) -> int:
    number = number_of(value, "step", name)
    if not (0 <= number < float("inf") and number == int(number)):
        raise RefusedError(f"state 'step' of {name!r} is {number}, which is not a number of steps")
    return _counted(int(number), name)


def exact_step(exact: Any, shown: Optional[int], name: str, value: Any = None) -> int:
    """Return the exact step that an export by libzero records. The step `shown` in torch's state
    may be rounded."""
    if exact is None:
        return shown or 0
    if not isinstance(exact, int) or isinstance(exact, bool) or exact < 0:
        raise RefusedError(f"its 'zero' has {exact!r} as a step of {name!r}")
    dtype = value.dtype if isinstance(value, Found) else torch.float64
    if shown is not None and shown not in (exact, int(torch.tensor(exact).to(dtype).double())):
        raise RefusedError(
            f"state 'step' of {name!r} is {shown}, but its 'zero' says {exact}: which is meant? "
            "(--ignore zero takes torch's)"
        )
    return _counted(exact, name)


def _counted(step: int, name: str) -> int:
    if step > MOST_STEPS:
        raise RefusedError(f"the step of {name!r} is {step}, and libzero counts to {MOST_STEPS}")
    return step


def check_finite(settings: Mapping[str, float], group: int) -> None:
    """Raise RefusedError for settings that are not finite, because a checkpoint stores them as JSON
    numbers."""
    for name, value in settings.items():
        if not math.isfinite(value):
            raise RefusedError(
                f"its optimizer: {name} of group {group} is {value}, and a checkpoint has finite numbers: save "
                "the file with one"
            )


def bytes_of(found: Found, dtype: torch.dtype) -> Iterable[Any]:
    for part in found.parts():
        yield part.to(dtype).contiguous().flatten().view(torch.uint8).numpy()

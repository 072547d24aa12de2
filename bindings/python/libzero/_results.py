# SPDX-License-Identifier: Apache-2.0
"""What an optimizer tells of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _structs


@dataclass(frozen=True)
class Result:
    """What the ranks agreed in the last step; the fields of zero_result."""

    step: int
    skipped: int
    nonfinite: int
    grad_norm: float
    clip_factor: float
    status: int
    loss_scale: float


@dataclass(frozen=True)
class Statistics:
    """Bytes by kind, and seconds and bytes so far, of this rank; the fields of zero_statistics."""

    parameter_elements: int
    owned_elements: int
    state_bytes: int
    staging_bytes: int
    control_bytes: int
    copied_bytes: int
    moved_bytes: int
    steps: int
    skipped: int
    nonfinite_elements: int
    gather_seconds: float
    vote_seconds: float
    apply_seconds: float
    publish_seconds: float
    save_seconds: float
    load_seconds: float
    early_elements: int
    early_updates: int
    host_waits: int
    idle_ranks: int


def fields_of(struct: _structs.Struct, *left_out: str) -> dict[str, Any]:
    names = [field[0] for field in struct._fields_]
    return {name: getattr(struct, name) for name in names if name not in ("struct_size", *left_out)}

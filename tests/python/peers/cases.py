# SPDX-License-Identifier: Apache-2.0
"""Lists all cases in the order of the table."""

from __future__ import annotations

import importlib

FAMILIES = (
    "oss_clip",
    "oss",
    "both_storage",
    "both_state",
    "registration",
    "sharded_ddp",
    "scaler",
    "zero_redundancy",
    "zero_overlap",
)


def load() -> None:
    for family in FAMILIES:
        importlib.import_module(f".cases_{family}", __package__)

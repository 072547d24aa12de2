# SPDX-License-Identifier: Apache-2.0
"""libzero: ZeRO stage 1 for any training engine. `python -m libzero` shows the library that is
installed."""

from __future__ import annotations

from . import _abi, _load
from ._abi import interrupt_waits
from ._custom import CustomOptimizer, Update
from ._errors import (
    ArgumentError,
    CallbackError,
    CheckpointError,
    CommError,
    InterruptedCallError,
    LibraryNotFoundError,
    MismatchError,
    NonfiniteError,
    PeerError,
    ZeroError,
)
from ._group import Group
from ._log import set_log_level
from ._model_buffers import ModelBuffer
from ._params import Param
from ._ranks import OwnedRange
from ._results import Result, Statistics
from ._rule_info import RuleInfo, rules
from ._user import Collectives
from .checkpoints import Checkpoint, list_checkpoints, prune_checkpoints
from .comm import Comm, Failure, nccl_unique_id
from .optimizer import Optimizer
from .plan import OWNER_SPLIT, Allocation, Plan, allocate, partition_plan

__version__ = "0.2.0"

__all__ = [
    "OWNER_SPLIT",
    "Allocation",
    "ArgumentError",
    "CallbackError",
    "Checkpoint",
    "CheckpointError",
    "Collectives",
    "Comm",
    "CommError",
    "CustomOptimizer",
    "Failure",
    "Group",
    "InterruptedCallError",
    "LibraryNotFoundError",
    "MismatchError",
    "ModelBuffer",
    "NonfiniteError",
    "Optimizer",
    "OwnedRange",
    "Param",
    "PeerError",
    "Plan",
    "Result",
    "RuleInfo",
    "Statistics",
    "Update",
    "ZeroError",
    "allocate",
    "build_info",
    "interrupt_waits",
    "library_path",
    "library_version",
    "list_checkpoints",
    "nccl_unique_id",
    "partition_plan",
    "prune_checkpoints",
    "rules",
    "set_log_level",
]


def library_version() -> str:
    """Return the version of the loaded C library, as major.minor.patch.

    >>> libzero.library_version() == libzero.__version__
    True
    """
    return _load.version_text(_abi.lib().zero_version())


def library_path() -> str:
    """Return the file that the C library was loaded from. If it was not found, LibraryNotFoundError
    lists the places that were searched.

    >>> "libzero" in libzero.library_path()
    True
    """
    return _abi.library_path()


def build_info() -> dict[str, str]:
    """Return the comms, devices and instruction sets that the C library supports, and the ones that
    this machine uses.

    >>> "solo" in libzero.build_info()["comms"]
    True
    """
    line: str = _abi.lib().zero_build_info().decode()
    pairs = (part.partition(":") for part in line.split(";") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}

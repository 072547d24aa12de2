# SPDX-License-Identifier: Apache-2.0
"""libzero for torch. Its optimizers replace those of torch and fairscale; only the import
changes."""

from __future__ import annotations

try:
    import torch.distributed.algorithms.join
    from torch.amp import GradScaler as _GradScaler  # noqa: F401
    from torch.autograd.graph import increment_version as _youngest  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"libzero.torch needs torch 2.3 or later, with torch.distributed: {error}"
    ) from error

from .ddp_hooks import hook_with_zero_step, hook_with_zero_step_interleaved
from .grad_scaler import ShardedGradScaler
from .optimizer import Optimizer
from .oss import OSS
from .sharded_data_parallel import ShardedDataParallel
from .zero_redundancy import ZeroRedundancyOptimizer

__all__ = [
    "OSS",
    "Optimizer",
    "ShardedDataParallel",
    "ShardedGradScaler",
    "ZeroRedundancyOptimizer",
    "hook_with_zero_step",
    "hook_with_zero_step_interleaved",
]

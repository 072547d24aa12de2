# SPDX-License-Identifier: Apache-2.0
"""The classes that a case is tried with: torch's and fairscale's, or libzero's of the same
names."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Optional, Protocol
from unittest import mock

import torch
import torch.distributed as dist


class Side(Protocol):
    """Constructors, as the originals have them. A `patched_` one keeps the original from refusing
    what it says it refuses, so that what it would do can be seen; it is the plain one on libzero's
    side."""

    OSS: Any
    ShardedDataParallel: Any
    ShardedGradScaler: Any
    ZeroRedundancyOptimizer: Any

    def patched_hook(self, name: str, *arguments: Any, **options: Any) -> Callable[..., Any]: ...

    def patched_scaler(self, **options: Any) -> Any: ...

    def moved_bytes(self, action: Callable[[], Any]) -> int:
        """Bytes of parameters and gradients that travel while `action` runs."""
        ...


def bytes_over_the_group(action: Callable[[], Any]) -> int:
    """Of the collectives by which the originals share and reduce."""
    total = 0

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            nonlocal total
            total += tensor.numel() * tensor.element_size()
            return call(tensor, *arguments, **options)

        return counted

    with contextlib.ExitStack() as patches:
        for name in ("broadcast", "reduce", "all_reduce"):
            patches.enter_context(mock.patch.object(dist, name, counting(getattr(dist, name))))
        action()
    return total


class Original:
    def __init__(self) -> None:
        scaler = importlib.import_module("fairscale.optim.grad_scaler")
        self._scaler: ModuleType = scaler
        self.OSS = importlib.import_module("fairscale.optim.oss").OSS
        self.ShardedDataParallel = importlib.import_module(
            "fairscale.nn.data_parallel.sharded_ddp"
        ).ShardedDataParallel
        self.ShardedGradScaler = scaler.ShardedGradScaler
        self.ZeroRedundancyOptimizer = importlib.import_module(
            "torch.distributed.optim"
        ).ZeroRedundancyOptimizer
        self._hooks: ModuleType = importlib.import_module(
            "torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook"
        )

    def patched_hook(self, name: str, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """torch refuses gloo here because it may hang. The name of the backend is all it asks, and
        only once."""
        with mock.patch.object(dist, "get_backend", return_value="nccl"):
            hook: Callable[..., Any] = getattr(self._hooks, name)(*arguments, **options)
        return hook

    def patched_scaler(self, **options: Any) -> Any:
        """fairscale's scaler turns itself off without CUDA, and reduces a flag of the CPU in a copy
        on the GPU. It is told that there is CUDA while it is made; `cuda()` copies to the CPU from
        then on, in this process."""
        mock.patch.object(torch.Tensor, "cuda", torch.Tensor.clone).start()
        with mock.patch.object(torch.cuda, "is_available", return_value=True):
            return self._scaler.ShardedGradScaler(**options)

    def moved_bytes(self, action: Callable[[], Any]) -> int:
        return bytes_over_the_group(action)


class Ours:
    """libzero.torch. A class that it lacks is told by `missing`, before any case is run."""

    def __init__(self) -> None:
        self.fault = ""
        try:
            self._module: Optional[ModuleType] = importlib.import_module("libzero.torch")
        except ImportError as error:
            self._module, self.fault = None, str(error)

    def missing(self, needs: tuple[str, ...]) -> list[str]:
        return [name for name in needs if not hasattr(self._module, name)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def patched_hook(self, name: str, *arguments: Any, **options: Any) -> Callable[..., Any]:
        hook: Callable[..., Any] = getattr(self, name)(*arguments, **options)
        return hook

    def patched_scaler(self, **options: Any) -> Any:
        return self.ShardedGradScaler(**options)

    def moved_bytes(self, action: Callable[[], Any]) -> int:
        """What libzero counts, and what goes over the group beside it."""
        kind = importlib.import_module("libzero").Optimizer

        def counted() -> int:
            return sum(
                item.stats().moved_bytes for item in gc.get_objects() if isinstance(item, kind)
            )

        before = counted()
        return bytes_over_the_group(action) + counted() - before

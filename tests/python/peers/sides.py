# SPDX-License-Identifier: Apache-2.0
"""The classes with which a case is tested: those of torch and fairscale, or libzero's classes of
the same names."""

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
    """The constructors of the originals. A `patched_` constructor keeps the original from rejecting
    arguments that it does not support, to show what it would do. On libzero's side, it is the
    ordinary constructor."""

    OSS: Any
    ShardedDataParallel: Any
    ShardedGradScaler: Any
    ZeroRedundancyOptimizer: Any

    def patched_hook(self, name: str, *arguments: Any, **options: Any) -> Callable[..., Any]: ...

    def patched_scaler(self, **options: Any) -> Any: ...

    def moved_bytes(self, action: Callable[[], Any]) -> int:
        """Return the number of bytes of parameters and gradients that are transferred while
        `action` runs."""
        ...


def bytes_over_the_group(action: Callable[[], Any]) -> int:
    """Count the bytes of the collectives with which the originals copy and reduce."""
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
        """torch rejects gloo here because it may hang. It checks only the name of the backend, and
        only once."""
        with mock.patch.object(dist, "get_backend", return_value="nccl"):
            hook: Callable[..., Any] = getattr(self._hooks, name)(*arguments, **options)
        return hook

    def patched_scaler(self, **options: Any) -> Any:
        """Without CUDA, fairscale's scaler disables itself, and it reduces a CPU flag in a copy on
        the GPU. This makes it believe that there is CUDA while it is constructed. After that,
        `cuda()` copies to the CPU in this process."""
        mock.patch.object(torch.Tensor, "cuda", torch.Tensor.clone).start()
        with mock.patch.object(torch.cuda, "is_available", return_value=True):
            return self._scaler.ShardedGradScaler(**options)

    def moved_bytes(self, action: Callable[[], Any]) -> int:
        return bytes_over_the_group(action)


class Ours:
    """libzero.torch. Before any case runs, `missing` reports a class that it lacks."""

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
        """Return the bytes that libzero counts, and the bytes that are sent through the group in
        addition."""
        kind = importlib.import_module("libzero").Optimizer

        def counted() -> int:
            return sum(
                item.stats().moved_bytes for item in gc.get_objects() if isinstance(item, kind)
            )

        before = counted()
        return bytes_over_the_group(action) + counted() - before

# SPDX-License-Identifier: Apache-2.0
"""ShardedGradScaler, with the arguments of fairscale's class and the methods of torch's
GradScaler."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import OptState

from ._group import process_group as group_or_default
from .oss import OSS, oss_within


class ShardedGradScaler(torch.amp.GradScaler):
    """A replacement for fairscale.optim.grad_scaler.ShardedGradScaler. To use it, change the
    import. It scales losses by the same rule as torch, even on the CPU. If any rank finds an
    infinity or NaN in its gradients, all ranks skip the step, and the scale is reduced once.

    `unscale_` is collective over `process_group`. `step` is also collective if `unscale_` was not
    called before it. A rank without gradients must also make these calls. Call scale, unscale_,
    step and update in this order.

    Gradients may be float16. Raises RuntimeError if unscale_ or step is called twice between two
    updates, if unscale_ is called after step, or if step gets a closure. Raises AssertionError if a
    method is called before scale, if update is called before step, if growth_factor is not above 1,
    or if backoff_factor is not below 1.

    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = OSS(model.parameters(), optim=torch.optim.SGD, lr=0.1)
    >>> scaler = ShardedGradScaler()
    >>> scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Optional[dist.ProcessGroup] = None,
    ) -> None:
        super().__init__(
            "cuda" if torch.cuda.is_available() else "cpu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
        self._group = process_group

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale, and determine whether the gradients of all ranks are
        finite. Collective.

        >>> scaler.unscale_(optimizer)
        >>> norm = optimizer.clip_grad_norm(1.0)
        """
        if not self.is_enabled():
            return
        inside = oss_within(optimizer)
        if isinstance(inside, OSS):
            inside._catch_up()
        super().unscale_(optimizer)
        state: dict[str, Any] = self._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = self._agreed(state["found_inf_per_device"])

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients unless they have been unscaled, and run the step of the optimizer
        unless a rank has an overflow. Returns the result of the optimizer's step, or None if the
        step is skipped.

        >>> scaler.step(optimizer)
        >>> scaler.update()
        """
        if self.is_enabled() and "closure" not in kwargs:
            state = self._per_optimizer_states[id(optimizer)]
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
        return super().step(optimizer, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<ShardedGradScaler, scale {self.get_scale():g}>"

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)

    def _agreed(self, flags: dict[torch.device, torch.Tensor]) -> dict[torch.device, torch.Tensor]:
        """Combine the flags of all ranks and devices into one flag, and return it on the device of
        the scale."""
        assert self._scale is not None
        group = group_or_default(self._group)
        mine = any(bool(flag.item()) for flag in flags.values())
        flag = torch.tensor(float(mine), device=_reachable(group, self._scale.device))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=group)
        return {self._scale.device: flag.to(self._scale.device)}


def _reachable(group: dist.ProcessGroup, device: torch.device) -> torch.device:
    """Return `device` if the ranks of this group can exchange tensors on it, or else a device on
    which they can."""
    try:
        group._get_backend(device)
    except RuntimeError:
        return torch.device("cpu" if device.type == "cuda" else "cuda")
    return device

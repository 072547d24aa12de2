# SPDX-License-Identifier: Apache-2.0
"""The types of arguments of libzero.torch.Optimizer, for use in annotations. The other types are in
libzero.typing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Optional, Union

import torch

from .._zero_h import Keywords

Arenas = Union[bool, Literal["shared"]]
Partition = Literal["even", "greedy", "greedy_in_order"]
Reduction = Literal["mean", "sum"]


class Options(Keywords, total=False):
    """The options of libzero.Optimizer, and the options of rules with torch's names. A
    CustomOptimizer declares its own options."""

    lr: Union[float, torch.Tensor]
    betas: Sequence[Union[float, torch.Tensor]]
    eps: float
    weight_decay: float
    amsgrad: bool
    maximize: bool
    momentum: float
    dampening: float
    nesterov: bool
    alpha: float
    centered: bool
    lr_decay: float
    initial_accumulator_value: float
    rho: float
    decoupled_weight_decay: bool
    momentum_decay: float
    etas: Sequence[float]
    step_sizes: Sequence[float]
    always_adapt: bool
    trust_coefficient: float
    alpha_warmup: float
    beta3_warmup: float
    foreach: Optional[bool]
    capturable: bool
    differentiable: bool
    fused: Optional[bool]

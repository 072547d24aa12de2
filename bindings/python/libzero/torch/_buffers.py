# SPDX-License-Identifier: Apache-2.0
"""Tensors of a model that are not trained, as libzero.torch.Optimizer keeps them alike."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.autograd.graph import increment_version

from .. import Optimizer


class Buffers:
    """The model's tensors by name, each with the memory that libzero was told."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, optimizer: Optimizer, buffers: Mapping[str, torch.Tensor]) -> None:
        """TypeError for a type that libzero lacks, and else as libzero.Optimizer."""
        for name, tensor in buffers.items():
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"buffer {name} is a {type(tensor).__name__}, not a tensor")
        places = {name: tensor.detach() for name, tensor in buffers.items()}
        optimizer.register_buffers(places)
        self._known.update((name, (buffers[name], place)) for name, place in places.items())

    def register(self, optimizer: Optimizer) -> None:
        """The same ones with another optimizer."""
        if self._known:
            optimizer.register_buffers({name: place for name, (_, place) in self._known.items()})

    def follow_memory(self) -> None:
        """What a program moved away, as by .data, is brought back to where libzero was told, with
        its values. ValueError: it is no longer the same buffer."""
        for name, (tensor, place) in self._known.items():
            if tensor.shape != place.shape or tensor.dtype != place.dtype:
                raise ValueError(
                    f"buffer {name} was {place.dtype} of shape {tuple(place.shape)} when it was "
                    f"given and is {tensor.dtype} of shape {tuple(tensor.shape)} now; make a new "
                    "optimizer after such a change"
                )
            if tensor.data_ptr() != place.data_ptr():
                place.copy_(tensor)
                tensor.data = place

    def wrote(self) -> None:
        """Tell autograd that they have new values."""
        for tensor, _ in self._known.values():
            increment_version(tensor)

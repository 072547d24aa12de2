# SPDX-License-Identifier: Apache-2.0
"""Tensors of any dtype, bit for bit, from the first rank of a process group to the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist

_CHUNK_BYTES = 1 << 25


def copy_from_first(tensors: Iterable[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Done on return. Tensors have the same shapes and dtypes on every rank. Collective."""
    if dist.get_world_size(group) == 1:
        return
    first = dist.get_rank(group) == 0
    source = dist.get_global_rank(group, 0)
    with torch.no_grad():
        for chunk in _chunks(tensors):
            memory = torch.cat([_bytes(tensor) for tensor in chunk])
            dist.broadcast(memory, src=source, group=group)
            if not first:
                begin = 0
                for tensor in chunk:
                    end = begin + tensor.numel() * tensor.element_size()
                    # A copy is aligned for the dtype.
                    part = memory[begin:end].clone()
                    tensor.copy_(part.view(tensor.dtype).view(tensor.shape))
                    begin = end


def _chunks(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    chunk: list[torch.Tensor] = []
    filled = 0
    for tensor in tensors:
        if tensor.numel() == 0:
            continue
        size = tensor.numel() * tensor.element_size()
        if chunk and (filled + size > _CHUNK_BYTES or tensor.device != chunk[0].device):
            yield chunk
            chunk, filled = [], 0
        chunk.append(tensor.detach())
        filled += size
    if chunk:
        yield chunk


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)

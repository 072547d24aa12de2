# SPDX-License-Identifier: Apache-2.0
"""Represents a torch process group as a comm, and makes checks and copies that involve all of its
ranks.

If the ranks can reach each other, libzero communicates by itself. Otherwise the comm uses the
collectives of the process group.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from .. import Collectives, Comm, ZeroError, nccl_unique_id

_logger = logging.getLogger("libzero")

# The longest time for ranks on one host to find each other. After that, they use the group's
# collectives.
RENDEZVOUS_MS = 30_000
_PROGRESS_MS = 300_000
_CHUNK_BYTES = 1 << 25  # the size of one broadcast
_TOLD = "rank {rank} refused {what} (see its error); nothing has changed"


class _Seat(NamedTuple):
    """The message that a rank sends to the others before a comm is created. `name` is the name that
    the rank proposes; the name that rank 0 proposes is used."""

    host: str
    device: str
    name: str


def process_group(group: Optional[dist.ProcessGroup]) -> dist.ProcessGroup:
    """Return `group`, or the default group if it is None. Raises RuntimeError if torch.distributed
    has no default group."""
    if not dist.is_available():
        raise RuntimeError(
            "this torch was built without torch.distributed, which libzero.torch needs"
        )
    if group is not None:
        if dist.get_rank(group) < 0:
            raise RuntimeError("this rank is not in process_group; only its members may use it")
        return group
    if not dist.is_initialized():
        raise RuntimeError("there is no process group: call torch.distributed.init_process_group")
    world = dist.group.WORLD
    assert world is not None
    return world


def comm_of(group: dist.ProcessGroup, device: torch.device) -> Comm:
    """Return a comm of the ranks in the group, in the order of the group, for tensors on `device`.
    Collective over the group.

    All ranks choose the same kind of comm. It is solo for one rank, local for ranks on one host,
    and NCCL for GPUs on several hosts. In all other cases it uses the collectives of the group. The
    deadline for late ranks is the timeout of the group. Raises ValueError if ranks have tensors on
    different kinds of devices, and RuntimeError with the reason from every rank if GPUs cannot
    reach each other.
    """
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    options = {**_deadlines(group, device), **_device_options(device)}
    if world == 1:
        return Comm.solo(**options)
    seats: list[Any] = _gather(_Seat(_host(), device.type, uuid.uuid4().hex), group, world)
    for other, seat in enumerate(seats):
        if seat.device != seats[0].device:
            raise ValueError(
                f"parameters are on {seats[0].device!r} on rank 0 and on {seat.device!r} on rank "
                f"{other}; all ranks need the same kind of device"
            )
    reasons: list[Any] = ["ranks are on several hosts"]
    if all(seat.host == seats[0].host for seat in seats):
        name = f"torch-{seats[0].name}"
        local = {**options, "rendezvous_ms": RENDEZVOUS_MS}
        comm, reasons = _try(lambda: Comm.local(name, rank, world, **local), group, world)
        if comm is not None:
            return comm
    if device.type == "cuda":
        return _nccl(group, rank, world, options, reasons)
    _logger.info("libzero uses the process group's collectives: %s", _told(reasons))
    collectives = _GroupCollectives(group, world).functions()
    return Comm.user(collectives, rank, world, **_deadlines(group, device))


def _try(
    make: Callable[[], Comm], group: dist.ProcessGroup, world: int
) -> tuple[Optional[Comm], list[Any]]:
    """Try to create the comm on every rank. Return the comm, or None if any rank failed, and the
    reason from each rank, which is "" if that rank did not fail."""
    comm, reason = None, ""
    try:
        comm = make()
    except ZeroError as error:
        reason = str(error)
    reasons = _gather(reason, group, world)
    if comm is not None and any(reasons):
        comm.close()
        comm = None
    return comm, reasons


def _nccl(
    group: dist.ProcessGroup, rank: int, world: int, options: dict[str, Any], before: list[Any]
) -> Comm:
    drawn: Any = b""
    if rank == 0:
        try:
            drawn = nccl_unique_id()
        except ZeroError as error:
            drawn = str(error)
    unique_id = _gather(drawn, group, world)[0]
    reasons: list[Any] = [unique_id]
    if isinstance(unique_id, bytes):
        chosen = {key: value for key, value in options.items() if key != "device"}
        comm, reasons = _try(lambda: Comm.nccl(unique_id, rank, world, **chosen), group, world)
        if comm is not None:
            return comm
    raise RuntimeError(
        f"the GPUs of these ranks cannot be joined: {_told(before)}; with NCCL: {_told(reasons)}"
    )


def _told(reasons: list[Any]) -> str:
    return (
        "; ".join(dict.fromkeys(str(reason) for reason in reasons if reason)) or "no reason given"
    )


def _gather(value: object, group: dist.ProcessGroup, world: int) -> list[Any]:
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, value, group=group)
    return gathered


def _host() -> str:
    """Return a string that is equal on all ranks that can join one local comm. It identifies the
    kernel, the network namespace and the user."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        return uuid.uuid4().hex  # unknown, so the string matches no other host
    return f"{boot} {network} {os.getuid()}"


def _device_options(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"device": "host"}
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return {"device": "cuda", "device_ordinal": index}
    raise ValueError(f"parameters are on {device.type!r}; libzero supports 'cpu' and 'cuda'")


def _deadlines(group: dist.ProcessGroup, device: torch.device) -> dict[str, int]:
    """Return options of libzero with the timeout of the group, or with libzero's default if the
    group does not report a timeout."""
    try:
        timeout = group._get_backend(device).options._timeout
        late_ms = max(1, int(timeout.total_seconds() * 1000))
    except (RuntimeError, AttributeError):
        return {}
    return {"late_ms": late_ms, "timeout_ms": min(late_ms, _PROGRESS_MS)}


class _GroupCollectives:
    """Sends bytes of host memory with the collectives of the group. The bytes pass through the GPU
    if the group supports only GPU memory."""

    def __init__(self, group: dist.ProcessGroup, world: int) -> None:
        self._group = group
        self._world = world
        try:
            group._get_backend(torch.device("cpu"))
            self._device = torch.device("cpu")
        except RuntimeError:
            self._device = torch.device("cuda", torch.cuda.current_device())

    def functions(self) -> Collectives:
        return Collectives(
            exchange=self._all_gather, all_gather=self._all_gather, all_to_all=self._all_to_all
        )

    def _all_gather(self, send: memoryview, recv: memoryview) -> None:
        own, all_ranks = self._sent(send), self._received(recv)
        dist.all_gather(list(all_ranks.chunk(self._world)), own, group=self._group)
        self._deliver(all_ranks, recv)

    def _all_to_all(self, send: memoryview, recv: memoryview) -> None:
        own, from_all = self._sent(send), self._received(recv)
        dist.all_to_all_single(from_all, own, group=self._group)
        self._deliver(from_all, recv)

    def _sent(self, send: memoryview) -> torch.Tensor:
        # Copy, because torch cannot make a tensor from read-only memory, and `send` may be inside
        # `recv`.
        return torch.frombuffer(bytearray(send), dtype=torch.uint8).to(self._device)

    def _received(self, recv: memoryview) -> torch.Tensor:
        if self._device.type == "cpu":
            return torch.frombuffer(recv, dtype=torch.uint8)
        return torch.empty(len(recv), dtype=torch.uint8, device=self._device)

    def _deliver(self, gathered: torch.Tensor, recv: memoryview) -> None:
        if self._device.type != "cpu":
            torch.frombuffer(recv, dtype=torch.uint8).copy_(gathered)


@contextlib.contextmanager
def agreed(comm: Comm, what: str, told: str = _TOLD) -> Iterator[None]:
    """Run a block of local work. If it raises an exception on some rank, the other ranks raise a
    RuntimeError with the text `told`, which names the lowest rank that failed. This keeps the other
    ranks from waiting in the next call. Collective."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ZeroError):  # of a broken comm; the first exception is more useful
            comm.all_reduce(comm.rank, "min")
        raise
    refusing = int(comm.all_reduce(comm.world, "min"))
    if refusing < comm.world:
        raise RuntimeError(told.format(rank=refusing, what=what))


def copy_from_first(tensors: Iterable[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Copy tensors from the first rank. The copy is complete when this function returns. Tensors
    have the same shapes and dtypes on every rank. Collective."""
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
                    # The clone is aligned for the dtype.
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

# SPDX-License-Identifier: Apache-2.0
"""Comm: one rank's handle to a group of ranks."""

from __future__ import annotations

import atexit
import contextlib
import ctypes as c
import math
import numbers
import os
import weakref
from dataclasses import dataclass
from typing import Any, TypeVar, Union, overload

from . import _abi, _user, _values, _zero_h
from ._abi import lib
from ._buffers import ArenaMemory, buffer_of, shape_of
from ._closing import Closing
from ._dtypes import ITEM_BYTES
from ._errors import ZeroError
from ._handles import CommHandle
from ._user import Collectives
from ._values import int32
from .typing import Array, Device, Dtype, MemoryKind, Operation, Shape

A = TypeVar("A", bound=Array)
_REDUCIBLE = ("float32", "float64", "int32", "int64")


@dataclass(frozen=True)
class Failure:
    """The reason why a comm broke. All fields except `params_consistent` are the same on every
    rank.

    code               the zero_status; `name` is its name in zero.h
    rank               the rank whose death, absence or abort broke the comm, or -1 if no rank did
    step               the number of steps that had been completed on the rank that detected the
                       failure
    params_consistent  True if this rank applied the last step completely or not at all; if False,
                       load a checkpoint before you continue
    phase              the call that failed, and the phase of the call
    message            the reason
    """

    code: int
    name: str
    rank: int
    step: int
    params_consistent: bool
    phase: str
    message: str


class Comm(Closing):
    """One rank's handle to a group of ranks. The class methods create it.

    Every rank must call the collective methods in the same order, from one thread at a time.
    abort() and failure() may be called from any thread. A closed comm remains in use until its
    optimizers and arenas are closed. If another rank keeps a collective call from finishing, the
    call raises CommError as soon as this is detected, and at the latest at the deadline.

    Deadlines are in milliseconds, and 0 selects the library's default, which is shown in
    parentheses:

    timeout_ms     the longest wait without progress once all ranks are in a call (300,000)
    late_ms        the longest wait for a live rank to enter the call (1,800,000)
    rendezvous_ms  the longest wait for all ranks to find each other (120,000)

    `device` is "host" or "cuda". It selects the memory that holds the parameters, gradients and
    state of the comm's optimizers. All other data, such as the arguments of broadcast() and
    all_reduce(), is in host memory. `device_ordinal` is the number of the GPU after
    CUDA_VISIBLE_DEVICES has been applied. If no GPU can be used, ZeroError (ZERO_ERR_UNSUPPORTED)
    gives the reason. Raises ArgumentError if the ordinal is too high.

    >>> comm = Comm.solo()
    >>> comm
    <Comm, rank 0 of 1>
    """

    def __init__(self, handle: CommHandle | None = None, device: Device = "host") -> None:
        if not isinstance(handle, CommHandle):
            raise TypeError(
                "Comm(...) names no group: use Comm.from_env(), which joins the ranks that zero-run, "
                "torchrun, mpirun or srun started, or Comm.solo(), a group of one"
            )
        self._handle = handle
        self._device = device
        _comms.add(self)

    @classmethod
    def solo(
        cls,
        *,
        device: Device = "host",
        device_ordinal: int = 0,
        timeout_ms: int = 0,
        late_ms: int = 0,
        rendezvous_ms: int = 0,
    ) -> Comm:
        """Create a group of one rank.

        >>> with Comm.solo() as comm:
        ...     comm.world
        1
        """
        handle = CommHandle()
        options = _options(timeout_ms, late_ms, rendezvous_ms, device, device_ordinal)
        lib().zero_comm_create_solo(c.byref(handle), options)
        return cls(handle, device)

    @classmethod
    def local(
        cls,
        name: str,
        rank: int,
        world: int,
        *,
        device: Device = "host",
        device_ordinal: int = 0,
        timeout_ms: int = 0,
        late_ms: int = 0,
        rendezvous_ms: int = 0,
    ) -> Comm:
        """Join the `world` ranks on this host that pass the same name. Ranks are processes or
        threads. Either all ranks use the host, or all ranks use GPUs that can access each other's
        memory. Several ranks may use one GPU. Collective. If ranks do not arrive, CommError names
        them.

        >>> comm = Comm.local("my-run", rank=0, world=1)
        """
        handle = CommHandle()
        options = _options(timeout_ms, late_ms, rendezvous_ms, device, device_ordinal)
        encoded = _values.text(name, "name")
        lib().zero_comm_create_local(
            c.byref(handle), encoded, int32(rank, "rank"), int32(world, "world"), options
        )
        return cls(handle, device)

    @classmethod
    def from_env(
        cls,
        *,
        device: Device = "host",
        device_ordinal: int | None = None,
        timeout_ms: int = 0,
        late_ms: int = 0,
        rendezvous_ms: int = 0,
        reduce_ctas: int = 0,
        gather_on_kernels: bool = False,
    ) -> Comm:
        """Join the ranks that zero-run, torchrun, mpirun or srun started, or create a group of one
        rank if no launcher started this process.

        With device="host", ranks on several hosts communicate over MPI if the launcher provides it.
        Ranks on GPUs of several hosts communicate over NCCL. Each rank uses the GPU
        `device_ordinal`. None selects the only GPU that this process sees. If the process sees
        several GPUs, None selects the GPU whose number is the rank's number on its host. The
        environment variables that are read are listed in docs/calls.md. The variables that give the
        address at which ranks of several hosts meet are listed in docs/gpu.md. Collective. If a
        variable is wrong or missing, ArgumentError names it.

        >>> comm = Comm.from_env()
        >>> comm.rank, comm.world
        (0, 1)
        """
        handle = CommHandle()
        if device_ordinal is None:
            device_ordinal = 0 if device == "host" else _zero_h.ORDINAL_LOCAL_RANK
        options = _options(
            timeout_ms,
            late_ms,
            rendezvous_ms,
            device,
            device_ordinal,
            reduce_ctas=reduce_ctas,
            gather_on_kernels=gather_on_kernels,
        )
        lib().zero_comm_create_env(c.byref(handle), options)
        return cls(handle, device)

    @classmethod
    def user(
        cls,
        collectives: Collectives,
        rank: int,
        world: int,
        *,
        timeout_ms: int = 0,
        late_ms: int = 0,
        rendezvous_ms: int = 0,
    ) -> Comm:
        """Create a group whose collectives are Python functions. If a function raises an exception,
        the call that ran it raises the same exception, and the comm is then broken, as after a
        failure of any other transport. Local. Ranks do not communicate until the first collective
        call. Raises ArgumentError if a required function is missing.

        >>> def copy(send, recv):
        ...     recv[:] = send
        >>> comm = Comm.user(Collectives(copy, copy, all_to_all=copy), rank=0, world=1)
        """
        handle, options = CommHandle(), _options(timeout_ms, late_ms, rendezvous_ms)
        _user.create(handle, collectives, int32(rank, "rank"), int32(world, "world"), options)
        return cls(handle)

    @classmethod
    def nccl(
        cls,
        unique_id: bytes,
        rank: int,
        world: int,
        *,
        device_ordinal: int = 0,
        timeout_ms: int = 0,
        late_ms: int = 0,
        rendezvous_ms: int = 0,
        reduce_ctas: int = 0,
        gather_on_kernels: bool = False,
    ) -> Comm:
        """Join the `world` ranks that pass the same id from nccl_unique_id(). Ranks may be on any
        number of hosts. Each rank uses its own GPU. `reduce_ctas` limits the number of thread
        blocks per reduction. `gather_on_kernels` makes gathers use kernels instead of the copy
        engines. Both must be the same on all ranks. Collective. If there is no usable GPU or NCCL,
        ZeroError (ZERO_ERR_UNSUPPORTED) gives the reason. If ranks do not arrive, CommError names
        them.

        >>> comm = Comm.nccl(unique_id, rank, world, device_ordinal=local_rank)  # doctest: +SKIP
        """
        if len(unique_id) != _zero_h.NCCL_ID_BYTES:
            raise ValueError(f"unique_id has {len(unique_id)} bytes, not {_zero_h.NCCL_ID_BYTES}")
        handle = CommHandle()
        options = _options(
            timeout_ms,
            late_ms,
            rendezvous_ms,
            "cuda",
            device_ordinal,
            reduce_ctas=reduce_ctas,
            gather_on_kernels=gather_on_kernels,
        )
        lib().zero_comm_create_nccl(
            c.byref(handle), bytes(unique_id), int32(rank, "rank"), int32(world, "world"), options
        )
        return cls(handle, "cuda")

    @classmethod
    def wrap_nccl(
        cls,
        nccl_comm: int,
        *,
        timeout_ms: int = 0,
        late_ms: int = 0,
        rendezvous_ms: int = 0,
        reduce_ctas: int = 0,
        gather_on_kernels: bool = False,
    ) -> Comm:
        """Join the ranks of an engine's ncclComm_t, which is given by its address. The ranks use
        the GPU of that communicator. Two communicators are split off it. The engine keeps its
        communicator, and must not use it during this call. Collective.

        >>> comm = Comm.wrap_nccl(address)  # doctest: +SKIP
        """
        handle = CommHandle()
        options = _options(
            timeout_ms,
            late_ms,
            rendezvous_ms,
            reduce_ctas=reduce_ctas,
            gather_on_kernels=gather_on_kernels,
        )
        lib().zero_comm_wrap_nccl(c.byref(handle), nccl_comm, options)
        return cls(handle, "cuda")

    @classmethod
    def mpi(
        cls,
        mpi_comm: Any = None,
        *,
        timeout_ms: int = 0,
        late_ms: int = 0,
        rendezvous_ms: int = 0,
    ) -> Comm:
        """Join the ranks of an MPI communicator, on any number of hosts. `mpi_comm` is an mpi4py
        communicator, or the Fortran integer of a communicator, which py2f() returns. None selects
        all ranks. The communicator is duplicated, and the original still belongs to the caller.
        Collective. If MPI cannot be used, ZeroError (ZERO_ERR_UNSUPPORTED) names the missing part.
        If the communicator is not valid, ArgumentError gives the reason.

        >>> from mpi4py import MPI  # doctest: +SKIP
        >>> comm = Comm.mpi(MPI.COMM_WORLD)  # doctest: +SKIP
        """
        handle, options = CommHandle(), _options(timeout_ms, late_ms, rendezvous_ms)
        place = None
        if mpi_comm is not None:
            number = mpi_comm.py2f() if hasattr(mpi_comm, "py2f") else mpi_comm
            place = c.byref(c.c_int32(int32(number, "mpi_comm")))
        lib().zero_comm_create_mpi(c.byref(handle), place, c.sizeof(c.c_int32), options)
        return cls(handle)

    def split(self, color: int, key: int = 0) -> Comm | None:
        """Return a comm of the ranks that pass the same color, ordered by key and then by rank. For
        a negative color, return None. The new comm has its own deadlines and failures, and `self`
        may be closed first. Collective.

        >>> half = comm.split(color=comm.rank % 2)
        """
        handle = CommHandle()
        lib().zero_comm_split(
            c.byref(handle), self._handle.open(), int32(color, "color"), int32(key, "key")
        )
        return Comm(handle, self._device) if handle.value else None

    @property
    def device(self) -> Device:
        """The device of the parameters, gradients and state of this comm's optimizers, which is
        "host" or "cuda"."""
        return self._device

    @property
    def rank(self) -> int:
        """The number of this rank, counted from 0."""
        return int(lib().zero_comm_rank(self._handle.open()))

    @property
    def world(self) -> int:
        """The number of ranks."""
        return int(lib().zero_comm_world(self._handle.open()))

    def barrier(self) -> None:
        """Wait until every rank has called this method. Collective.

        >>> comm.barrier()
        """
        lib().zero_comm_barrier(self._handle.open())

    def broadcast(self, data: Array, root: int = 0) -> None:
        """Copy the bytes of `data` from `root` to every rank. `data` is an array of any shape and
        dtype, or a writable buffer. It must have the same size in bytes on every rank. This method
        is intended for small values. Collective.

        >>> seed = np.array([42])
        >>> comm.broadcast(seed, root=0)
        """
        buffer = buffer_of(data, "data")
        lib().zero_comm_broadcast(
            self._handle.open(), buffer.address, buffer.bytes, int32(root, "root")
        )

    @overload
    def all_reduce(self, data: float, operation: Operation = "sum") -> float: ...
    @overload
    def all_reduce(self, data: A, operation: Operation = "sum") -> A: ...
    def all_reduce(self, data: Any, operation: Operation = "sum") -> Any:
        """Combine values over all ranks, in rank order. The operation is "sum", "min" or "max". An
        array is combined in place. It must have the dtype float32, float64, int32 or int64, and the
        same shape on every rank. A number is combined and returned. It must be an int on every rank
        or a float on every rank. Collective. Raises TypeError for any other dtype.

        >>> comm.all_reduce(0.5, "max")
        0.5
        >>> comm.all_reduce(np.array([1.0, 2.0]))
        array([1., 2.])
        """
        chosen = _values.choice(_zero_h.OPERATIONS, operation, "operation")
        if isinstance(data, numbers.Integral):
            return self._all_reduce_number(int(data), chosen)
        if isinstance(data, numbers.Real):
            return self._all_reduce_number(float(data), chosen)
        buffer = buffer_of(data, "data")
        if buffer.dtype not in _REDUCIBLE:
            raise TypeError(f"data is {buffer.dtype}; expected one of {', '.join(_REDUCIBLE)}")
        dtype = _zero_h.DTYPES[buffer.dtype]
        lib().zero_comm_all_reduce(
            self._handle.open(), buffer.address, buffer.elements, dtype, chosen
        )
        return data

    def _all_reduce_number(self, number: float, operation: int) -> float:
        value: Union[c.c_int64, c.c_double]
        if isinstance(number, int):
            value, dtype = c.c_int64(_values.int64(number, "data")), _zero_h.DTYPES["int64"]
        else:
            value, dtype = c.c_double(number), _zero_h.DTYPES["float64"]
        lib().zero_comm_all_reduce(self._handle.open(), c.addressof(value), 1, dtype, operation)
        return value.value

    def abort(self, reason: str = "") -> None:
        """Break the comm on every rank. Collective calls on all ranks then raise CommError with the
        given reason. This method may be called from any thread at any time.

        >>> comm.abort("the disk is full")
        """
        lib().zero_comm_abort(self._handle.open(), _values.text(reason, "reason") or None)

    def failure(self) -> Failure | None:
        """Return the reason why the comm broke, or None while the comm is intact. Local. This
        method may be called from any thread.

        >>> comm.failure()
        >>> comm.abort("the disk is full")
        >>> comm.failure().name
        'ZERO_ERR_ABORTED'
        """
        failure = _abi.create(_zero_h.Failure)
        lib().zero_comm_failure(self._handle.open(), c.byref(failure))
        if failure.status == _zero_h.OK:
            return None
        return Failure(
            failure.status,
            lib().zero_status_name(failure.status).decode(),
            failure.rank,
            failure.step,
            bool(failure.params_consistent),
            _abi.in_python(failure.phase.decode("utf-8", "replace")),
            _abi.in_python(failure.text.decode("utf-8", "replace")),
        )

    def trace_start(self, directory: str | os.PathLike[str]) -> None:
        """Start to record this rank's operations, and the ranks that it waits for, in a separate
        file in `directory`, which is created if necessary. Perfetto and chrome://tracing can show
        the file, and `zero trace` and `zero top` summarize it. Local. Raises ZeroError
        (ZERO_ERR_STATE) if a trace is already running.

        >>> comm.trace_start("trace")
        """
        lib().zero_trace_start(self._handle.open(), _values.path(directory))

    def trace_stop(self) -> None:
        """End the trace. A trace also ends with the comm or with the interpreter. Local. Raises
        ZeroError (ZERO_ERR_SYSTEM) if the file is incomplete.

        >>> comm.trace_start("trace")
        >>> comm.trace_stop()
        """
        lib().zero_trace_stop(self._handle.open())

    def arena(self, shape: Shape, kind: MemoryKind = "shared", dtype: Dtype = "float32") -> Any:
        """Allocate an arena, which is zeroed memory whose contents libzero reduces and updates in
        place. Returns a numpy array, or a memoryview if numpy is not installed. If `shape` is an
        int, it is a number of bytes.

        `kind` is "shared" (one copy for all ranks, for parameters) or "per_rank" (for gradients).
        `dtype` is "float32", "float64", "int32", "int64", "float16" or "bfloat16". Because numpy
        lacks bfloat16, an array of that dtype has the dtype uint16, and
        torch.from_numpy(array).view(torch.bfloat16) is a tensor in the same memory. On a GPU, the
        arena is an object with __cuda_array_interface__, which cupy.asarray(arena) and
        torch.as_tensor(arena, device="cuda") convert without a copy. The memory is freed with its
        last view. Every rank must pass the same shape. Collective. If one rank runs out of memory,
        all ranks raise ZeroError (ZERO_ERR_MEMORY).

        >>> weights = comm.arena((784, 10))
        >>> weights.shape, weights.dtype
        ((784, 10), dtype('float32'))
        """
        chosen = _values.choice(_zero_h.MEMORIES, kind, "kind")
        _values.check_word(dtype, "dtype", _zero_h.DTYPES)
        element = "uint8" if isinstance(shape, int) else dtype
        dimensions = shape_of(shape)
        size = math.prod(dimensions) * ITEM_BYTES[element]
        return self._arena_memory(size, chosen).view(0, dimensions, element)

    def _arena_memory(self, size: int, kind: int) -> ArenaMemory:
        return ArenaMemory(self._handle.open(), size, kind, gpu=self._device != "host")

    def close(self) -> None:
        """Leave the group. Closing a comm again has no effect. Local. Later collective calls of the
        other ranks fail and name this rank.

        >>> comm.close()
        """
        token, self._handle.value = self._handle.value, None
        if token is None:
            return
        try:
            lib().zero_comm_free(CommHandle(token))
        except ZeroError:
            self._handle.value = token
            raise

    def __repr__(self) -> str:
        if not self._handle.value:
            return "<Comm, closed>"
        return f"<Comm, rank {self.rank} of {self.world}>"


_comms: weakref.WeakSet[Comm] = weakref.WeakSet()


@atexit.register
def _end_traces() -> None:
    for comm in list(_comms):
        # The comm is closed, it has no trace, or the log has already reported what the trace lacks.
        with contextlib.suppress(ValueError, ZeroError):
            comm.trace_stop()


def nccl_unique_id() -> bytes:
    """Return an id of 128 bytes. The ranks that pass the same id to Comm.nccl form one group. One
    rank creates the id and sends it to the other ranks. If NCCL was not found, ZeroError
    (ZERO_ERR_UNSUPPORTED) lists the places that were searched.

    >>> unique_id = nccl_unique_id()  # doctest: +SKIP
    """
    drawn = c.create_string_buffer(_zero_h.NCCL_ID_BYTES)
    lib().zero_nccl_unique_id(drawn)
    return drawn.raw


def _options(
    timeout_ms: int,
    late_ms: int,
    rendezvous_ms: int,
    device: Device = "host",
    device_ordinal: int = 0,
    *,
    reduce_ctas: int = 0,
    gather_on_kernels: bool = False,
) -> Any:
    options = _abi.create(_zero_h.CommOptions)
    options.gather_on_kernels = int(gather_on_kernels)
    if reduce_ctas:
        options.reduce_ctas = int32(reduce_ctas, "reduce_ctas")
    options.device = _values.choice(_zero_h.DEVICES, device, "device")
    options.device_ordinal = int32(device_ordinal, "device_ordinal")
    for name, value in (
        ("timeout_ms", timeout_ms),
        ("late_ms", late_ms),
        ("rendezvous_ms", rendezvous_ms),
    ):
        if value:
            setattr(options, name, _values.int64(value, name))
    return c.byref(options)

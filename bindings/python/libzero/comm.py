# SPDX-License-Identifier: Apache-2.0
"""Comm: one rank's handle on a group of ranks."""

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
    """Why a comm broke; the same on every rank, except for `params_consistent`.

    code               the zero_status, and `name` its name in zero.h
    rank               the rank whose death, absence or abort broke the comm; -1 if it was no rank
    step               steps completed by then, on the rank that detected the failure
    params_consistent  True if this rank applied the last step completely or not at all; if False,
                       load a checkpoint before you continue
    phase              the call that failed, and its phase
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
    """One rank's handle on a group of ranks. The class methods create it.

    Every rank calls the collective methods in the same order, one thread at a time; abort() and
    failure() may be called from any thread. A closed comm remains in use by its optimizers and
    arenas until they are closed. If another rank keeps a collective call from finishing, the call
    raises CommError as soon as that is known, and at the latest at the deadline.

    Deadlines are in milliseconds; 0 is the library's default:

    timeout_ms     without progress once all ranks are in a call (300,000)
    late_ms        for a rank that has not yet entered the call (1,800,000)
    rendezvous_ms  for all ranks to find each other (120,000)

    `device` is "host" or "cuda". It is where the parameters, gradients and state of the comm's
    optimizers are; everything else, like the arguments of broadcast() and all_reduce(), is in host
    memory. `device_ordinal` is the GPU's number after CUDA_VISIBLE_DEVICES is applied. If no GPU
    can be used, ZeroError (ZERO_ERR_UNSUPPORTED) gives the reason. ArgumentError: the ordinal is
    too high.

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
        threads. All of them are on the host, or all on GPUs that reach each other's memory; several
        ranks may use one GPU. Collective. CommError names the missing ranks.

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
        if no launcher did.

        With device="host", ranks on several hosts communicate over MPI if the launcher provides it.
        On GPUs, ranks communicate over NCCL, and each uses the GPU `device_ordinal`. None selects
        the only GPU that this process sees. If it sees several, None selects the GPU whose number
        is the rank's number on its host. See zero.h for the environment variables that are read,
        including the ones that give the address at which ranks of several hosts meet. Collective.
        ArgumentError names a variable that is wrong or missing.

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
        """Create a group whose collectives are Python functions. The call that ran such a function
        raises its exception, and the comm is then broken, like after a failure of any other
        transport. Local: ranks first communicate in the first collective call. ArgumentError: a
        function is missing.

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
        """Join the `world` ranks that pass the same id from nccl_unique_id(). They may be on any
        number of hosts. Each rank uses its own GPU. `reduce_ctas` limits the thread blocks that
        reduce, and `gather_on_kernels` keeps gathers off the copy engines; both must be the same on
        all ranks. Collective. ZeroError (ZERO_ERR_UNSUPPORTED) gives the reason if there is no
        usable GPU or NCCL. CommError names the missing ranks.

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
        """Join the ranks of an engine's ncclComm_t, given by its address, on its GPU. Two
        communicators are split off it. The engine keeps it, and must not use it during this call.
        Collective.

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
        communicator, or the Fortran integer of a communicator, which py2f() returns; None stands
        for all ranks. The communicator is duplicated and stays the caller's. Collective. ZeroError
        (ZERO_ERR_UNSUPPORTED) names the missing MPI; ArgumentError gives the fault of the
        communicator.

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
        """Return a comm of the ranks that pass the same color, ordered by key and then by rank;
        None for a negative color. It has its own deadlines and failures, and `self` may be closed
        first. Collective.

        >>> half = comm.split(color=comm.rank % 2)
        """
        handle = CommHandle()
        lib().zero_comm_split(
            c.byref(handle), self._handle.open(), int32(color, "color"), int32(key, "key")
        )
        return Comm(handle, self._device) if handle.value else None

    @property
    def device(self) -> Device:
        """The place of its optimizers' parameters, gradients and state: "host" or "cuda"."""
        return self._device

    @property
    def rank(self) -> int:
        """This rank's number, counted from 0."""
        return int(lib().zero_comm_rank(self._handle.open()))

    @property
    def world(self) -> int:
        """The number of ranks."""
        return int(lib().zero_comm_world(self._handle.open()))

    def barrier(self) -> None:
        """Return once every rank has called this. Collective.

        >>> comm.barrier()
        """
        lib().zero_comm_barrier(self._handle.open())

    def broadcast(self, data: Array, root: int = 0) -> None:
        """Copy the bytes of `data` from `root` to every rank. `data` is an array of any shape and
        dtype, or a writable buffer, of the same size in bytes on every rank. Intended for small
        values. Collective.

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
        """Combine values over all ranks, in rank order, by "sum", "min" or "max". An array of
        float32, float64, int32 or int64, of the same shape on every rank, is combined in place. A
        number is combined and returned; it must be an int on every rank or a float on every rank.
        Collective. TypeError for another dtype.

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
        """Break the comm on every rank: their calls raise CommError with `reason`. May be called
        from any thread at any time.

        >>> comm.abort("the disk is full")
        """
        lib().zero_comm_abort(self._handle.open(), _values.text(reason, "reason") or None)

    def failure(self) -> Failure | None:
        """Return why the comm broke, or None while it is sound. Local; from any thread.

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
        """Trace this rank's work, and the ranks that it waits for, to a separate file in
        `directory`, which is created if necessary. Perfetto and chrome://tracing show it; `zero
        trace` and `zero top` summarize it. Local. ZeroError (ZERO_ERR_STATE) while a trace is
        running.

        >>> comm.trace_start("trace")
        """
        lib().zero_trace_start(self._handle.open(), _values.path(directory))

    def trace_stop(self) -> None:
        """End the trace. The end of the comm, and of the interpreter, does this too. Local.
        ZeroError (ZERO_ERR_SYSTEM) if the file is incomplete.

        >>> comm.trace_start("trace")
        >>> comm.trace_stop()
        """
        lib().zero_trace_stop(self._handle.open())

    def arena(self, shape: Shape, kind: MemoryKind = "shared", dtype: Dtype = "float32") -> Any:
        """Allocate an arena: zeroed memory in which libzero reduces and updates in place. Returns a
        numpy array, or a memoryview if numpy is not installed. If `shape` is an int, it is a number
        of bytes.

        `kind` is "shared" (one copy for all ranks, for parameters) or "per_rank" (for gradients).
        `dtype` is "float32", "float64", "int32", "int64", "float16" or "bfloat16". numpy lacks
        bfloat16, so that array is uint16; torch.from_numpy(array).view(torch.bfloat16) is a tensor
        in the same memory. On a GPU, the arena is an object with __cuda_array_interface__, which
        cupy.asarray(it) and torch.as_tensor(it, device="cuda") show without a copy. The memory is
        freed with its last view. Collective, with the same shape on every rank. If memory is short
        on one rank, all ranks raise ZeroError (ZERO_ERR_MEMORY).

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
        """Leave the group; closing again has no effect. Local. A later collective call of the other
        ranks names this rank.

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
        # It is closed, has no trace, or the log has said what its trace lacks.
        with contextlib.suppress(ValueError, ZeroError):
            comm.trace_stop()


def nccl_unique_id() -> bytes:
    """Return an id of 128 bytes, which joins the ranks that pass it to Comm.nccl into one group.
    One rank creates the id and sends it to the others. ZeroError (ZERO_ERR_UNSUPPORTED) lists the
    places searched for NCCL.

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

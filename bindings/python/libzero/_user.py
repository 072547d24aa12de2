# SPDX-License-Identifier: Apache-2.0
"""Collectives that are written in Python, and called through the vtable of the C library."""

from __future__ import annotations

import ctypes as c
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional

from . import _abi, _zero_h
from ._abi import lib
from ._dtypes import ITEM_BYTES, name_of
from ._errors import guarded
from ._handles import CommHandle

# A function of (send, recv). Both are bytes, and only recv is writable. Neither may be used after
# the function has returned.
Move = Callable[[memoryview, memoryview], object]


@dataclass(frozen=True)
class Collectives:
    """The functions of a user comm. A function reports a failure by raising an exception. Functions
    must return, because libzero cannot interrupt them. Buffers are memoryviews of bytes, and must
    not be used after the function has returned. `send` is read-only. It may be the part of `recv`
    that belongs to this rank.

    exchange        gathers the `send` of every rank into `recv`, in rank order, in host memory
    all_gather      does the same as exchange for parameters
    all_to_all      sends piece number r of `send` to rank r, and receives one piece from each rank
                    in `recv`
    reduce_scatter  is called with (send, recv, dtype), and writes this rank's part of the sum over
                    ranks to `recv`; dtype is "float32", or "float64" for float64 parameters
    split           is called with (color, rank, world), and returns the collectives of that
                    sub-group, or None for a negative color
    free            is called once, after the comm has been freed

    Either all_to_all or reduce_scatter is required. With all_to_all, libzero computes the sums, in
    rank order.
    """

    exchange: Move
    all_gather: Move
    all_to_all: Optional[Move] = None
    reduce_scatter: Optional[Callable[[memoryview, memoryview, str], object]] = None
    split: Optional[Callable[[int, int, int], Optional[Collectives]]] = None
    free: Optional[Callable[[], object]] = None


_OPTIONAL = ("all_to_all", "reduce_scatter", "split", "free")


@dataclass(frozen=True)
class _Seat:
    collectives: Collectives
    world: int


# The ctx that C passes back is a key of this dictionary, so that C never holds the address of a
# Python object.
_seats: dict[int, _Seat] = {}
_numbers = itertools.count(1)


def create(
    handle: CommHandle, collectives: Collectives, rank: int, world: int, options: Any
) -> None:
    functions = _abi.create(_zero_h.CommFunctions)
    functions.exchange = _thunks.exchange
    functions.all_gather = _thunks.all_gather
    for name in _OPTIONAL:
        if getattr(collectives, name) is not None or name == "free":
            setattr(functions, name, getattr(_thunks, name))
    number = _enter(collectives, world)
    try:
        lib().zero_comm_create_user(
            c.byref(handle), c.byref(functions), number, rank, world, options
        )
    except BaseException:
        _seats.pop(number, None)
        raise


def _enter(collectives: Collectives, world: int) -> int:
    number = next(_numbers)
    _seats[number] = _Seat(collectives, world)
    return number


def _bytes_at(address: int | None, size: int) -> memoryview:
    if not address or size == 0:
        return memoryview(bytearray())
    return memoryview((c.c_char * size).from_address(address)).cast("B")


def _lend(
    send: memoryview, recv: memoryview, use: Callable[[memoryview, memoryview], object]
) -> None:
    readable = send.toreadonly()
    try:
        use(readable, recv)
    finally:
        for view in (readable, recv):
            # After this, using the view raises an exception. An array that was made from the view
            # keeps it open.
            try:
                view.release()
            except BufferError:
                pass


def _gather(name: str) -> Any:
    def thunk(ctx: int, send: int, recv: int, size: int, *_stream: object) -> int:
        def run() -> None:
            seat = _seats[ctx]
            own, all_ranks = _bytes_at(send, size), _bytes_at(recv, size * seat.world)
            _lend(own, all_ranks, getattr(seat.collectives, name))

        return guarded(run, _zero_h.ERR_COMM)

    return thunk


def _all_to_all(ctx: int, send: int, recv: int, size: int, _stream: object) -> int:
    def run() -> None:
        seat = _seats[ctx]
        use = seat.collectives.all_to_all
        assert use is not None
        _lend(_bytes_at(send, size * seat.world), _bytes_at(recv, size * seat.world), use)

    return guarded(run, _zero_h.ERR_COMM)


def _reduce_scatter(ctx: int, send: int, recv: int, count: int, dtype: int, _stream: object) -> int:
    def run() -> None:
        seat = _seats[ctx]
        use = seat.collectives.reduce_scatter
        assert use is not None
        name = name_of(dtype)
        size = count * ITEM_BYTES[name]
        _lend(
            _bytes_at(send, size * seat.world),
            _bytes_at(recv, size),
            lambda readable, writable: use(readable, writable, name),
        )

    return guarded(run, _zero_h.ERR_COMM)


def _split(ctx: int, color: int, rank: int, world: int, child: Any) -> int:
    def run() -> None:
        parent = _seats[ctx].collectives
        assert parent.split is not None
        collectives = parent.split(color, rank, world)
        if collectives is None:
            if color >= 0:
                raise TypeError(f"split returned None for color {color}")
            return
        for name in _OPTIONAL[:3]:
            # A child comm uses the function table of its parent.
            if (getattr(collectives, name) is None) != (getattr(parent, name) is None):
                raise TypeError(
                    f"split must return collectives that have {name} if and only if the parent does"
                )
        child[0] = _enter(collectives, world)

    return guarded(run, _zero_h.ERR_COMM)


def _free(ctx: int) -> None:
    seat = _seats.pop(ctx, None)
    if seat is None or seat.collectives.free is None:
        return
    try:
        seat.collectives.free()
    except BaseException:
        # Like __del__, free cannot report a failure.
        sys.excepthook(*sys.exc_info())


# These are created once and never freed, because C may call them as long as any user comm lives.
_thunks = SimpleNamespace(
    exchange=_zero_h.ExchangeFn(_gather("exchange")),
    all_gather=_zero_h.AllGatherFn(_gather("all_gather")),
    all_to_all=_zero_h.AllToAllFn(_all_to_all),
    reduce_scatter=_zero_h.ReduceScatterFn(_reduce_scatter),
    split=_zero_h.SplitFn(_split),
    free=_zero_h.FreeFn(_free),
)

# SPDX-License-Identifier: Apache-2.0
"""Checks of one rank that all have to know of before they go on together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import Comm, ZeroError

_TOLD = "rank {rank} refuses {what}, and its error says why; nothing has changed"


@contextlib.contextmanager
def agreed(comm: Comm, what: str, told: str = _TOLD) -> Iterator[None]:
    """For a block that does nothing but local work. Where it raises on one rank, the others get a
    RuntimeError that names the lowest by the sentence `told`, and none waits for it in what comes
    next. Collective."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ZeroError):  # of a comm that is broken; what it hides is the cause
            comm.all_reduce(comm.rank, "min")
        raise
    refusing = int(comm.all_reduce(comm.world, "min"))
    if refusing < comm.world:
        raise RuntimeError(told.format(rank=refusing, what=what))

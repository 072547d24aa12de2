# SPDX-License-Identifier: Apache-2.0
"""Which rank does what: ranges that each owns, and ranks whose inputs end first."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from . import _abi, _params, _structs, _values
from ._abi import lib
from ._buffers import Buffer
from ._structs import OptimHandle
from .comm import Comm
from .typing import Array

# One entry per parameter in order of registration, or by name. None, or a name that is missing, is
# "no gradient on this rank".
Arrays = Union[Sequence[Optional[Array]], Mapping[str, Optional[Array]]]


class OwnedRange(NamedTuple):
    """Elements that one rank owns: `count` from `first` on, row by row, of the parameter with the
    number `param` in order of registration."""

    param: int
    first: int
    count: int  # type: ignore[assignment]


class Ranks:
    """What Optimizer has of these."""

    _handle: OptimHandle
    _comm: Comm
    _names: list[str]

    def _gradients(self, arrays: Arrays) -> list[Optional[Buffer]]:
        raise NotImplementedError

    def owned_ranges(self, rank: int | None = None) -> list[OwnedRange]:
        """What `rank`, or this one, owns, in order; of what is sealed. Local. ArgumentError for a
        rank that there is not.

        >>> optimizer.seal()
        >>> optimizer.owned_ranges()
        [OwnedRange(param=0, first=0, count=3)]
        """
        chosen = self._comm.rank if rank is None else _values.int32(rank, "rank")
        count = c.c_size_t()
        lib().zero_owned_ranges(self._handle.open(), chosen, None, 0, c.byref(count))
        triples = (c.c_int64 * (3 * count.value))()
        lib().zero_owned_ranges(self._handle.open(), chosen, triples, count.value, c.byref(count))
        return [OwnedRange(*triples[at : at + 3]) for at in range(0, len(triples), 3)]

    def rebalance(
        self, owners: Sequence[int] | Mapping[str, int] | None = None, *, stream: Any = None
    ) -> None:
        """Deal out all parameters anew, by the partition rule: first those that are trained now,
        then the frozen ones. State moves with ownership, bit for bit, and training has the same
        bits as without the call; nothing else ever moves owners.

        `owners` is for partition="manual" (ArgumentError otherwise): a rank for each parameter in
        order of registration, or by name for all of them. Collective, between steps; MismatchError
        where ranks pass different ones. A call that fails leaves all as it was.

        >>> optimizer.rebalance()
        """
        if isinstance(owners, Mapping):
            _params.refuse_unknown(owners, set(self._names))
            owners = [owners[name] for name in self._names]
        numbers = [_values.int32(owner, "owner") for owner in owners or ()]
        array = None if owners is None else (c.c_int32 * len(numbers))(*numbers)
        behind = _values.stream(stream)
        lib().zero_rebalance(self._handle.open(), array, len(numbers), behind)

    def join(self, grads: Arrays | None = None, *, stream: Any = None) -> int:
        """This rank has no more inputs, maybe from the start: make the others' calls on this
        optimizer with them until every rank is here, with zeros for gradients. Then training goes
        on as before, with the buffers of the rank that is returned, the highest of those that came
        last; follow it in what the optimizer does not hold.

            for batch in batches:  # not as many on each rank
                forward_backward(batch)
                optimizer.step()
            optimizer.join()

        `grads`, of the shapes and dtypes of registered gradients: what this rank added up for a
        step that it cannot finish, which is part of the first reduction made from here. Needs
        Optimizer(uneven_inputs="world"), whose means divide by the number of ranks as ever,
        "active", where by that of ranks that still have inputs, or "error", where every rank's next
        call raises ZERO_ERR_STATE as soon as one rank is here. Parameters and gradients are
        libzero's until it returns. It raises what breaks the comm; what fails in a call of the
        others is raised there."""
        options = _abi.create(_structs.JoinOptions)
        memory = None if grads is None else self._gradients(grads)
        if memory is not None:
            options.grads, options.grad_count = _params.pointers(memory), len(memory)
        options.stream = _values.stream(stream)
        last = c.c_int32()
        lib().zero_join(self._handle.open(), c.byref(options), c.byref(last))
        return last.value

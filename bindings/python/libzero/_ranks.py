# SPDX-License-Identifier: Apache-2.0
"""The ranges that each rank owns, and ranks that run out of inputs first."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from . import _abi, _params, _values, _zero_h
from ._abi import lib
from ._buffers import Buffer
from ._handles import OptimHandle
from .comm import Comm
from .typing import Array

# One entry per parameter in order of registration, or by name. None, or a name that is missing, is
# "no gradient on this rank".
Arrays = Union[Sequence[Optional[Array]], Mapping[str, Optional[Array]]]


class OwnedRange(NamedTuple):
    """Elements that one rank owns: `count` elements in row-major order, starting at `first`, of the
    parameter with the number `param` in order of registration."""

    param: int
    first: int
    count: int  # type: ignore[assignment]


class Ranks:
    """The Optimizer's methods for ownership and uneven inputs."""

    _handle: OptimHandle
    _comm: Comm
    _names: list[str]

    def _gradients(self, arrays: Arrays) -> list[Optional[Buffer]]:
        raise NotImplementedError

    def owned_ranges(self, rank: int | None = None) -> list[OwnedRange]:
        """Return the ranges of sealed parameters that `rank`, by default this rank, owns, in order.
        Local. ArgumentError for a rank out of range.

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
        """Assign all parameters to owners again, by the partition rule: first the parameters that
        are trained now, then the frozen ones. State moves with ownership, bit for bit, and training
        produces the same bits as without the call. Owners never change in any other way.

        `owners` is for partition="manual" (ArgumentError otherwise): one rank per parameter in
        order of registration, or a mapping that names all of them. Collective, between steps;
        MismatchError if ranks pass different owners. A call that fails changes nothing.

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
        """Call this when this rank runs out of inputs, which may be at the start. It makes the
        other ranks' calls on this optimizer with them, with zeros for gradients, until every rank
        has joined. It then copies the buffers of one rank to all: the highest rank among the last
        to join. It returns that rank; take from it anything else that the optimizer does not hold.
        Training then continues as before.

            for batch in batches:  # not as many on each rank
                forward_backward(batch)
                optimizer.step()
            optimizer.join()

        `grads` are the gradients that this rank accumulated for a step it cannot finish, in the
        shapes and dtypes of the registered ones. They are part of the first reduction made while
        joined.

        Needs Optimizer(uneven_inputs=...). With "world", means divide by the number of ranks, as
        usual. With "active", they divide by the number of ranks that still have inputs. With
        "error", every rank's next call raises ZERO_ERR_STATE as soon as one rank has joined.
        Parameters and gradients belong to libzero until this returns. It raises the failures that
        break the comm; the rank that made a call raises that call's other errors.
        """
        options = _abi.create(_zero_h.JoinOptions)
        memory = None if grads is None else self._gradients(grads)
        if memory is not None:
            options.grads, options.grad_count = _params.pointers(memory), len(memory)
        options.stream = _values.stream(stream)
        last = c.c_int32()
        lib().zero_join(self._handle.open(), c.byref(options), c.byref(last))
        return last.value

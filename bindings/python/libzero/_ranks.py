# SPDX-License-Identifier: Apache-2.0
"""Reports and changes the ranges that each rank owns, and handles ranks that run out of inputs
first."""

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

# One entry per parameter in registration order, or a mapping by name. None or a missing name means
# that this rank has no gradient.
Arrays = Union[Sequence[Optional[Array]], Mapping[str, Optional[Array]]]


class OwnedRange(NamedTuple):
    """A range of elements that one rank owns. It consists of `count` elements in row-major order,
    starting at index `first`, of the parameter number `param` in registration order."""

    param: int
    first: int
    count: int  # type: ignore[assignment]


class Ranks:
    """The methods of Optimizer for ownership and for uneven inputs."""

    _handle: OptimHandle
    _comm: Comm
    _names: list[str]

    def _gradients(self, arrays: Arrays) -> list[Optional[Buffer]]:
        raise NotImplementedError

    def owned_ranges(self, rank: int | None = None) -> list[OwnedRange]:
        """Return, in order, the ranges of sealed parameters that the given rank (by default this
        rank) owns. Local. Raises ArgumentError if the rank is out of range.

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
        """Assign all parameters to owners again according to the partition. Parameters that are
        trained now are assigned first, and frozen parameters after them. State moves to the new
        owners bit for bit, and the results of training remain bitwise identical. Owners never
        change in any other way.

        `owners` is allowed only with partition="manual" and raises ArgumentError otherwise. It
        gives one rank per parameter, in registration order, or maps the name of every parameter to
        a rank. Collective. Call this between steps. Raises MismatchError if ranks pass different
        owners. A call that fails changes nothing.

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
        """Call this when this rank runs out of inputs, or if it has no inputs from the start. The
        method joins the other ranks' calls on this optimizer, contributing zero gradients, until
        every rank has joined. It then copies the buffers of the rank that joined last to all ranks,
        and returns the number of that rank. If several ranks joined last, the highest rank counts.
        Copy from that rank any other data that the optimizer does not hold. Training then continues
        as before.

            for batch in batches:  # not as many on each rank
                forward_backward(batch)
                optimizer.step()
            optimizer.join()

        `grads` gives the gradients that this rank has accumulated for a step that it cannot finish.
        They have the shapes and dtypes of the registered gradients. The first reduction after this
        call includes them.

        This method needs Optimizer(uneven_inputs=...). With "world", a mean divides the sum by the
        number of ranks, as usual. With "active", a mean divides the sum by the number of ranks that
        still have inputs. With "error", every rank's next call raises ZeroError (ZERO_ERR_STATE) as
        soon as one rank has joined. Parameters and gradients belong to libzero until this method
        returns. It raises the failures that break the comm. All other errors of a joined call are
        raised only on the ranks that made the call.
        """
        options = _abi.create(_zero_h.JoinOptions)
        memory = None if grads is None else self._gradients(grads)
        if memory is not None:
            options.grads, options.grad_count = _params.pointers(memory), len(memory)
        options.stream = _values.stream(stream)
        last = c.c_int32()
        lib().zero_join(self._handle.open(), c.byref(options), c.byref(last))
        return last.value

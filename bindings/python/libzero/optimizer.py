# SPDX-License-Identifier: Apache-2.0
"""Optimizer: one model's sharded optimizer state on one rank."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _abi, _custom, _model_buffers, _params, _structs, _values
from ._abi import lib
from ._buffers import Buffer
from ._checkpoints import Checkpoints
from ._closing import Closing
from ._custom import Rule
from ._errors import ZeroError
from ._gradients import Gradients
from ._group import Group
from ._model_buffers import ModelBuffers
from ._overlap import reduce_flags
from ._params import Params
from ._ranks import Arrays
from ._results import Result, Statistics, fields_of
from ._structs import OptimHandle
from .comm import Comm
from .typing import (
    Array,
    HalfDtype,
    Master,
    Nonfinite,
    Partition,
    Reduction,
    Settings,
    UnevenInputs,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Optimizer(Gradients, Checkpoints, Closing):
    """One model's optimizer state, sharded over the ranks of `comm`.

        optimizer = Optimizer(comm, "adamw", lr=3e-4)
        optimizer.register({"wte": wte, "wpe": wpe}, grads={"wte": dwte, "wpe": dwpe})
        optimizer.broadcast_params()
        for batch in batches:
            forward_backward(batch)
            optimizer.step()

    Memory is float32, float64, bfloat16 or float16 in C order: a numpy array or anything with
    __array_interface__, a torch tensor, what speaks DLPack, an object with the buffer protocol, or
    (address, shape); on a GPU also anything with __cuda_array_interface__, as an array of CuPy or
    Numba. Where it cannot say its dtype, as uint16 or by its address, Param does. A gradient may be of another of these
    dtypes, and read-only unless it is a view of an arena: nothing else is written to. Arrays of JAX
    and of other libraries that promise that none ever changes are taken as gradients alone. Memory
    is kept alive and must not move until close() or a new bind().

    The arguments are those of zero_options (optimizer: ZERO_OPTIMIZER_* in lower case, as
    "rmsprop", or a CustomOptimizer); 0 is the library's default; **settings are those of every
    group, as lr. What a step updates of bfloat16 and float16 parameters are float32 masters, which
    are part of the state. wire_dtype="bfloat16" or "float16" rounds gradients to that before they
    are summed in float32, divided by predivide_factor (a power of two) first, which their sum is
    multiplied with. share_dtype, likewise, is what a step rounds float32 parameters to on every
    rank; they have masters, too. master="remainder" keeps only the 16 bits that a bfloat16
    parameter lacks of its master: less state, and ties are rounded away from zero instead of to
    even; "none" keeps no master, and what rounding cuts off is lost. uneven_inputs: see join();
    overlap_gather: see param_wait(). instances: how often the state is kept, each time divided over
    world / instances neighbouring ranks.

    On a GPU methods queue their work on `stream`, behind what is queued there: a cudaStream_t as an
    int, a stream of torch, CuPy or cuda.core, or None for the default stream. Later work on it
    finds what the method left, and memory is freed in its order. The stream that an array's
    interface names is not looked at. On the host there is no stream.

    Collective methods are called by every rank in the same order; local ones wait for none. A wrong
    argument is an ArgumentError, or a TypeError or ValueError if Python finds it, which is raised
    before anything is sent: the other ranks then wait for this one. A right call at the wrong
    moment is a ZeroError with ZERO_ERR_STATE. What only ranks together can find is a MismatchError
    on those that differ from the rest, a PeerError where another rank failed: nothing has changed.
    CommError: the comm is broken.

    >>> weight, gradient = np.ones(3, np.float32), np.full(3, 2, np.float32)
    >>> comm = Comm.solo()
    >>> optimizer = Optimizer(comm, "sgd", lr=0.5, momentum=0.9)
    >>> group = optimizer.register({"w": weight}, grads={"w": gradient})
    """

    def __init__(
        self,
        comm: Comm,
        optimizer: Rule = "adamw",
        partition: Partition = "even",
        *,
        bucket_bytes: int = 0,
        max_grad_norm: float = 0.0,
        grad_norm_type: float = 0.0,
        nonfinite: Nonfinite = "ignore",
        threads: int = 0,
        master: Master = "float32",
        wire_dtype: HalfDtype | None = None,
        loss_scale: float = 0.0,
        growth_factor: float = 0.0,
        backoff_factor: float = 0.0,
        growth_interval: int = 0,
        uneven_inputs: UnevenInputs = "off",
        share_dtype: HalfDtype | None = None,
        predivide_factor: float = 0.0,
        overlap_gather: bool = False,
        instances: int = 0,
        **settings: Unpack[Settings],
    ) -> None:
        self._handle = OptimHandle()
        options = _params.c_options(
            optimizer=optimizer,
            partition=partition,
            bucket_bytes=bucket_bytes,
            max_grad_norm=max_grad_norm,
            grad_norm_type=grad_norm_type,
            nonfinite=nonfinite,
            threads=threads,
            master=master,
            wire_dtype=wire_dtype,
            loss_scale=loss_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            uneven_inputs=uneven_inputs,
            share_dtype=share_dtype,
            predivide_factor=predivide_factor,
            overlap_gather=overlap_gather,
            instances=instances,
            settings=settings,
        )
        self._rule = _custom.enter(options, optimizer)
        try:
            lib().zero_create(c.byref(self._handle), comm._handle.open(), c.byref(options))
        except BaseException:
            _custom.leave(self._rule)
            raise
        self._comm = comm
        self._known = _custom.defaults_of(optimizer)
        self._names: list[str] = []
        self._shapes: list[tuple[int, ...]] = []
        self._dtypes: list[str] = []
        self._grad_dtypes: list[str] = []
        self._data: list[Optional[Buffer]] = []
        self._grads: list[Optional[Buffer]] = []
        self._announced: dict[int, Optional[Buffer]] = {}  # kept alive until they are taken
        self._ending: list[Optional[Buffer]] = []  # and until the step that took them has ended
        self._overlap_gather = overlap_gather
        self._buffers: list[Buffer] = []
        self.groups: list[Group] = []

    # ---- Build ----

    def register(
        self,
        params: Params,
        *,
        grads: Mapping[str, Array | None] | None = None,
        **settings: Unpack[Settings],
    ) -> Group:
        """Add parameters as one group, `settings` being where it differs from the others. `params`
        is name to array, or Params, (name, data), (name, data, grad); `grads` is name to array, of
        the parameter's shape. The same names, shapes and dtypes on every rank; local, all or none;
        may be called again, also after steps. ArgumentError names a parameter and what is wrong
        with it; TypeError and ValueError say why memory cannot be used.

        >>> bias = np.zeros(2, np.float32)
        >>> optimizer.register({"b": bias}, weight_decay=0, lr=0.1)
        <Group 1>
        """
        given = _params.params_of(params)
        _params.refuse_unknown(grads, {param.name for param in given})
        chosen = grads or {}
        prepared = [
            _params.prepare(
                replace(param, grad=chosen.get(param.name, param.grad)), gpu=self._gpu
            )
            for param in given
        ]
        options = _abi.create(_structs.GroupOptions)
        options.names, options.values, options.setting_count = _values.settings(
            settings, self._known
        )
        number = c.c_int32()
        lib().zero_register_params(
            self._handle.open(),
            c.byref(options),
            _params.c_params(prepared),
            len(prepared),
            c.byref(number),
        )
        self._names += [entry.param.name for entry in prepared]
        self._shapes += [entry.shape for entry in prepared]
        self._dtypes += [entry.dtype for entry in prepared]
        self._grad_dtypes += [entry.grad_dtype for entry in prepared]
        self._data += [entry.data for entry in prepared]
        self._grads += [entry.grad for entry in prepared]
        group = Group(self._handle, number.value, self._known)
        self.groups.append(group)
        return group

    def register_buffers(self, buffers: ModelBuffers) -> None:
        """Add tensors of the model that are not trained, as running statistics and counters: name
        to array, or ModelBuffers, (name, data), (name, data, dtype). They may be of any shape, of
        the dtypes of parameters, int32 and int64, and are kept alive until close(). Steps do not
        touch them: broadcast_buffers() copies them, and checkpoints hold rank 0's. The same names,
        shapes and dtypes on every rank; local, all or none. ArgumentError: a name that a parameter
        or buffer has, memory that overlaps; TypeError: another dtype.

        >>> optimizer.register_buffers({"seen": np.zeros(1, np.int64)})
        """
        given = _model_buffers.buffers_of(buffers)
        memory = [_model_buffers.memory_of(buffer, gpu=self._gpu) for buffer in given]
        array = _model_buffers.c_buffers(given, memory)
        lib().zero_register_buffers(self._handle.open(), array, len(given))
        self._buffers += memory

    def bind(self, data: Arrays | None = None, grads: Arrays | None = None) -> None:
        """Give all parameters, gradients or both new memory, of the shapes and dtypes that they
        have; contents are not copied. A None in `data` leaves that one as it is, a None in `grads`
        says that there is no gradient. Local. ZERO_ERR_STATE while gradients are reduced.

        >>> optimizer.bind(grads={"w": np.zeros(3, np.float32)})
        """
        new_data = None if data is None else self._memory(data, "parameter", self._dtypes, True)
        new_grads = None if grads is None else self._gradients(grads)
        lib().zero_bind_params(
            self._handle.open(),
            None if new_data is None else _params.pointers(new_data),
            None if new_grads is None else _params.pointers(new_grads),
            len(self._names),
        )
        if new_data is not None:
            self._data = [new or old for new, old in zip(new_data, self._data)]
        if new_grads is not None:
            self._grads = new_grads

    def seal(self) -> None:
        """Fix owners, compare the registration over all ranks and allocate the state; implied by
        the first collective call. Collective. MismatchError names the first difference, with both
        sides.

        >>> optimizer.seal()
        """
        lib().zero_seal(self._handle.open())

    @property
    def settings(self) -> Group:
        """The settings of all groups together, and of groups to come; its "loss_scale" is
        loss_scale.

        >>> optimizer.settings["lr"] = 0.1
        >>> optimizer.settings
        <Group of all>
        """
        return Group(self._handle, _abi.ALL_GROUPS, [*self._known, "loss_scale"])

    def __setattr__(self, name: str, value: object) -> None:
        """AttributeError for the name of a setting, which is no attribute.

        >>> optimizer.lr = 0.1
        Traceback (most recent call last):
        AttributeError: optimizer.lr would set nothing: optimizer.settings['lr'] sets it for all groups
        """
        if name in self.__dict__.get("_known", ()):
            raise AttributeError(
                f"optimizer.{name} would set nothing: optimizer.settings[{name!r}] sets it for all groups"
            )
        super().__setattr__(name, value)

    def set_trainable(self, param: Union[str, int], trainable: bool) -> None:
        """Freeze a parameter, by name or number, or train it again, from the next step on. The same
        on every rank, and anew after a load. The gradient of a frozen one is ignored; its state
        stays. Local. IndexError for a number that there is not, ZeroError for a parameter of
        integers.

        >>> optimizer.set_trainable("w", False)
        """
        lib().zero_param_set_trainable(self._handle.open(), self._number(param), 1 if trainable else 0)

    # ---- Train ----

    def broadcast_params(self, root: int | None = 0, *, stream: Any = None) -> None:
        """Copy every parameter from `root` to all ranks; None says that all wrote the same. The
        first step fails where neither was said and ranks differ (MismatchError). Done on return,
        also on a GPU. Collective.

        >>> optimizer.broadcast_params()
        """
        chosen = _abi.ROOT_NONE if root is None else _values.int32(root, "root")
        lib().zero_broadcast_params(self._handle.open(), chosen, _values.stream(stream))

    def broadcast_buffers(self, root: int = 0, *, stream: Any = None) -> None:
        """Copy every buffer, bit for bit, from `root` to all ranks, whenever the engine wants it.
        Collective. ZERO_ERR_STATE when none is registered.

        >>> optimizer.register_buffers({"mean": np.zeros(3, np.float32)})
        >>> optimizer.broadcast_buffers()
        """
        chosen = _values.int32(root, "root")
        lib().zero_broadcast_buffers(self._handle.open(), chosen, _values.stream(stream))

    def step(
        self,
        grads: Arrays | None = None,
        reduction: Reduction = "mean",
        accumulate: bool = False,
        *,
        stream: Any = None,
    ) -> bool:
        """Reduce unless that is done, update the owned share, put the new parameters on every rank.
        `grads` and `reduction` are those of reduce_grads(). `accumulate`: reduce, and add to what
        reduce_grads accumulated. False: gradients were not finite, and all ranks skipped the
        update. On a GPU True says that all is queued: result() waits, and tells. Collective.
        NonfiniteError with nonfinite="error"; ZERO_ERR_STATE where no parameter has a gradient.

        >>> optimizer.step({"w": np.full(3, 4, np.float32)}, reduction="sum")
        True
        """
        options = _abi.create(_structs.StepOptions)
        options.reduce_flags = reduce_flags(reduction, accumulate)
        options.stream = _values.stream(stream)
        memory = None if grads is None else self._gradients(grads)
        if memory is not None:
            options.grads, options.grad_count = _params.pointers(memory), len(memory)
        status: int = lib().zero_step(self._handle.open(), c.byref(options))
        self._keep_until_next_step(memory)
        return status != _abi.SKIPPED

    def result(self) -> Result:
        """What the ranks agreed in the last step. Does not raise that step's error: see status.
        Local.

        >>> optimizer.step()
        True
        >>> optimizer.result().step
        1
        """
        result = _abi.create(_structs.Result)
        try:
            lib().zero_step_result(self._handle.open(), c.byref(result))
        except ZeroError as error:
            if result.status != error.code:
                raise
        return Result(**fields_of(result, "reserved"))

    # ---- Look inside ----

    @property
    def comm(self) -> Comm:
        """The comm that it was made of."""
        return self._comm

    @property
    def names(self) -> tuple[str, ...]:
        """The registered parameters, in order."""
        return tuple(self._names)

    def __repr__(self) -> str:
        state = f"{len(self._names)} parameters" if self._handle.value else "closed"
        return f"<Optimizer, {state}>"

    def stats(self) -> Statistics:
        """Sizes, counts and times of this rank so far. Local.

        >>> optimizer.step()
        True
        >>> optimizer.stats().steps
        1
        """
        statistics = _abi.create(_structs.Statistics)
        lib().zero_stats(self._handle.open(), c.byref(statistics))
        return Statistics(**fields_of(statistics))

    def close(self) -> None:
        """Give state and borrowed memory back; again is fine. Parameters keep their values. Local.

        >>> optimizer.close()
        """
        token, self._handle.value = self._handle.value, None
        if token is None:
            return
        try:
            lib().zero_free(OptimHandle(token))
        except ZeroError:
            self._handle.value = token
            raise
        _custom.leave(self._rule)
        self._data, self._grads, self._buffers = [], [], []
        self._announced, self._ending = {}, []

    @property
    def _gpu(self) -> bool:
        return self._comm.device != "host"

    def _gradients(self, arrays: Arrays) -> list[Optional[Buffer]]:
        return self._memory(arrays, "gradient of", self._grad_dtypes, False)

    def _memory(
        self, arrays: Arrays, what: str, dtypes: Sequence[str], written: bool
    ) -> list[Optional[Buffer]]:
        """One checked buffer per registered parameter."""
        if isinstance(arrays, Mapping):
            _params.refuse_unknown(arrays, set(self._names))
            arrays = [arrays.get(name) for name in self._names]
        if len(arrays) != len(self._names):
            raise ValueError(f"{len(arrays)} arrays given for {len(self._names)} parameters")
        return [
            _params.memory_of(
                array, f"{what} {name!r}", shape, dtype, dtype, gpu=self._gpu, written=written
            )
            for array, name, shape, dtype in zip(arrays, self._names, self._shapes, dtypes)
        ]

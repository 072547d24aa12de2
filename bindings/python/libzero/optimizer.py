# SPDX-License-Identifier: Apache-2.0
"""Optimizer: one model's sharded optimizer state on one rank."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _abi, _custom, _model_buffers, _params, _values, _zero_h
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
from ._handles import OptimHandle
from .comm import Comm
from .typing import (
    Array,
    HalfDtype,
    Master,
    Nonfinite,
    Partition,
    Reduction,
    Settings,
    StateDtype,
    UnevenInputs,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Optimizer(Gradients, Checkpoints, Closing):
    """The optimizer state of one model, sharded over the ranks of `comm`.

        optimizer = Optimizer(comm, "adamw", lr=3e-4)
        optimizer.register({"wte": wte, "wpe": wpe}, grads={"wte": dwte, "wpe": dwpe})
        optimizer.broadcast_params()
        for batch in batches:
            forward_backward(batch)
            optimizer.step()

    Parameters and gradients are arrays with the dtype float32, float64, bfloat16 or float16, in C
    order. An array is given as a numpy array or another object with __array_interface__, a torch
    tensor, a DLPack array, an object with the buffer protocol, or (address, shape). On a GPU, an
    array may also be an object with __cuda_array_interface__, such as a CuPy or Numba array. If an
    array cannot report its dtype, for example uint16 or an address, give the dtype with Param. The
    dtype of a gradient may differ from the parameter's. A gradient may be read-only unless it is a
    view of an arena, because libzero writes only to gradients in arenas. Arrays from JAX and other
    libraries that promise immutability are accepted only as gradients. The optimizer keeps the
    arrays alive. Their memory must not move until close() or a new bind().

    The arguments are the fields of zero_options, and 0 selects the library's default. `optimizer`
    is the name of a ZERO_OPTIMIZER_ constant in lower case, such as "rmsprop", or a
    CustomOptimizer. **settings, such as lr, apply to all groups without their own rule. For bfloat16 and float16
    parameters, a step updates float32 master weights, which are part of the state.

    wire_dtype        the dtype, "bfloat16" or "float16", to which gradients are rounded before they
                      are summed in float32
    predivide_factor  a power of two by which gradients are divided before they are rounded and
                      summed, and by which their sum is multiplied
    share_dtype       the dtype, "bfloat16" or "float16", to which a step rounds float32 parameters
                      on every rank. These parameters then have master weights
    master            the storage of master weights. With "remainder", only the 16 low-order bits,
                      which a bfloat16 parameter does not have, are stored. The state is smaller,
                      and ties are rounded away from zero instead of to even. With "none", no master
                      weights are stored, and each step loses the bits that rounding cuts off
    uneven_inputs     the treatment of ranks that run out of inputs, which join() describes
    overlap_gather    true if step() returns before parameters are updated, as param_wait()
                      describes
    instances         the number of copies of the state, each of which is divided over world /
                      instances consecutive ranks

    On a GPU, methods queue their work on `stream`, after the work that is already queued on it.
    `stream` is a cudaStream_t as an int, a torch, CuPy or cuda.core stream, or None for the default
    stream. Later work on the stream sees the results, and memory is freed in stream order. The
    stream that an array's interface reports is ignored. On the host, there is no stream.

    Every rank must call the collective methods in the same order. Local methods do not wait for
    other ranks. A wrong argument raises ArgumentError, or TypeError or ValueError if Python detects
    it. These errors are raised before anything is sent, so the other ranks wait for this rank. A
    valid call at the wrong time raises ZeroError (ZERO_ERR_STATE). If arguments differ between
    ranks, the ranks that differ from the others raise MismatchError. If another rank failed, the
    call raises PeerError. After MismatchError and PeerError, nothing has changed. If the comm is
    broken, the call raises CommError.

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
        self._rules = [_custom.enter(options, optimizer)]
        try:
            lib().zero_create(c.byref(self._handle), comm._handle.open(), c.byref(options))
        except BaseException:
            _custom.leave(self._rules[0])
            raise
        self._comm = comm
        self._known = self._known_anywhere = _custom.defaults_of(optimizer)
        self._names: list[str] = []
        self._shapes: list[tuple[int, ...]] = []
        self._dtypes: list[str] = []
        self._grad_dtypes: list[str] = []
        self._data: list[Optional[Buffer]] = []
        self._grads: list[Optional[Buffer]] = []
        self._announced: dict[int, Optional[Buffer]] = {}  # alive until a call takes them
        self._ending: list[Optional[Buffer]] = []  # alive until the step that took them ends
        self._overlap_gather = overlap_gather
        self._buffers: list[Buffer] = []
        self.groups: list[Group] = []

    # ---- Build ----

    def register(
        self,
        params: Params,
        *,
        grads: Mapping[str, Array | None] | None = None,
        optimizer: Rule | None = None,
        state_dtype: StateDtype = "full",
        **settings: Unpack[Settings],
    ) -> Group:
        """Add parameters as one group. `settings` override the settings of the optimizer for this
        group. `optimizer` is the name of the group's own rule, or a CustomOptimizer. Such a group
        starts with the defaults of that rule, not with the settings of the optimizer. With the
        `state_dtype` "bfloat16", the state of the group, apart from master weights, has half the
        bytes. A step computes in float32 and rounds such state at random, up with a probability of
        the distance to the number below, so that slow averages do not stop. Results are the same
        with any number of ranks. float64 parameters and a CustomOptimizer have only full state.

        `params` maps names to arrays, or is a list of Param, (name, data) or (name, data, grad).
        `grads` maps names to arrays of the parameter's shape. Every rank must register the same
        names, shapes and dtypes. Local. If the call fails, no parameter is added. This method
        may be called again, even after steps. Raises ArgumentError, which names the parameter and
        the fault. Raises TypeError or ValueError with the reason if the memory cannot be used.

        >>> bias = np.zeros(2, np.float32)
        >>> optimizer.register({"b": bias}, weight_decay=0, lr=0.1)
        <Group 1>
        >>> optimizer.register({"m": np.zeros(4, np.float32)}, optimizer="lion")["lr"]
        0.0001
        >>> optimizer.register({"h": np.zeros(8, np.float32)}, state_dtype="bfloat16")
        <Group 3>
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
        options = _params.c_group(self._known, settings, optimizer, state_dtype)
        known = self._known if optimizer is None else _custom.defaults_of(optimizer)
        number = c.c_int32()
        rule = 0 if optimizer is None else _custom.enter(options, optimizer)
        try:
            lib().zero_register_params(
                self._handle.open(),
                c.byref(options),
                _params.c_params(prepared),
                len(prepared),
                c.byref(number),
            )
        except BaseException:
            _custom.leave(rule)
            raise
        self._rules.append(rule)
        self._known_anywhere = {**self._known_anywhere, **known}
        self._names += [entry.param.name for entry in prepared]
        self._shapes += [entry.shape for entry in prepared]
        self._dtypes += [entry.dtype for entry in prepared]
        self._grad_dtypes += [entry.grad_dtype for entry in prepared]
        self._data += [entry.data for entry in prepared]
        self._grads += [entry.grad for entry in prepared]
        group = Group(self._handle, number.value, known)
        self.groups.append(group)
        return group

    def register_buffers(self, buffers: ModelBuffers) -> None:
        """Add tensors of the model that are not trained, such as running statistics and counters.
        `buffers` maps names to arrays, or is a list of ModelBuffer, (name, data) or (name, data,
        dtype). Buffers may have any shape. The dtype of a buffer may be int32, int64 or any dtype
        of parameters. The optimizer keeps buffers alive until close(). Steps do not change buffers,
        broadcast_buffers() copies them, and checkpoints contain the buffers of rank 0. Every rank
        must register the same names, shapes and dtypes. Local. If the call fails, no buffer is
        added. Raises ArgumentError if a name is already in use or memory overlaps, and TypeError
        for any other dtype.

        >>> optimizer.register_buffers({"seen": np.zeros(1, np.int64)})
        """
        given = _model_buffers.buffers_of(buffers)
        memory = [_model_buffers.memory_of(buffer, gpu=self._gpu) for buffer in given]
        array = _model_buffers.c_buffers(given, memory)
        lib().zero_register_buffers(self._handle.open(), array, len(given))
        self._buffers += memory

    def bind(self, data: Arrays | None = None, grads: Arrays | None = None) -> None:
        """Set new memory for all parameters, all gradients or both. Shapes and dtypes must stay the
        same, and contents are not copied. None in `data` keeps the memory of that parameter, and
        None in `grads` means that there is no gradient. Local. Raises ZeroError (ZERO_ERR_STATE)
        while reduced gradients are pending.

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
        """Fix the owners of all parameters, compare the registrations of all ranks, and allocate
        the state. The first collective call does this implicitly. Collective. If registrations
        differ, MismatchError names the first difference and shows both sides.

        >>> optimizer.seal()
        """
        lib().zero_seal(self._handle.open())

    @property
    def settings(self) -> Group:
        """The settings of all groups whose rules have them, and of groups without their own rule
        that are added later. Its entry "loss_scale" is the attribute `loss_scale`.

        >>> optimizer.settings["lr"] = 0.1
        >>> optimizer.settings
        <Group of all>
        """
        return Group(self._handle, _zero_h.ALL_GROUPS, [*self._known_anywhere, "loss_scale"])

    def __setattr__(self, name: str, value: object) -> None:
        """Raise AttributeError for the name of a setting, because settings are not attributes.

        >>> optimizer.lr = 0.1
        Traceback (most recent call last):
        AttributeError: optimizer.lr would have no effect: optimizer.settings['lr'] sets it for all groups
        """
        if name in self.__dict__.get("_known", ()):
            raise AttributeError(
                f"optimizer.{name} would have no effect: optimizer.settings[{name!r}] sets it for all groups"
            )
        super().__setattr__(name, value)

    def set_trainable(self, param: Union[str, int], trainable: bool) -> None:
        """Freeze a parameter, given by name or number, or train it again, starting with the next
        step. Make the same call on every rank, and repeat it after a load. The gradient of a frozen
        parameter is ignored, and its state is kept. Local. Raises IndexError if the number is out
        of range, and ZeroError for an integer parameter.

        >>> optimizer.set_trainable("w", False)
        """
        lib().zero_param_set_trainable(self._handle.open(), self._number(param), 1 if trainable else 0)

    # ---- Train ----

    def broadcast_params(self, root: int | None = 0, *, stream: Any = None) -> None:
        """Copy every parameter from `root` to all ranks. If `root` is None, nothing is copied, and
        the call declares that all ranks wrote the same values. If neither call is made and
        parameters differ between ranks, the first step raises MismatchError. The copy is complete
        when this method returns, even on a GPU. Collective.

        >>> optimizer.broadcast_params()
        """
        chosen = _zero_h.ROOT_NONE if root is None else _values.int32(root, "root")
        lib().zero_broadcast_params(self._handle.open(), chosen, _values.stream(stream))

    def broadcast_buffers(self, root: int = 0, *, stream: Any = None) -> None:
        """Copy every buffer, bit for bit, from `root` to all ranks. The engine decides when to call
        this method. Collective. Raises ZeroError (ZERO_ERR_STATE) if no buffers are registered.

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
        """Reduce the gradients if they have not been reduced, update the shard that this rank owns,
        and copy the new parameters to every rank. reduce_grads() describes `grads` and `reduction`.
        With `accumulate`, the reduced gradients are added to the sums that reduce_grads
        accumulated.

        Returns False if gradients were not finite and all ranks skipped the update, and True
        otherwise. On a GPU, True means that the work is queued, and result() waits for the outcome
        and reports it. Collective. With nonfinite="error", gradients that are not finite raise
        NonfiniteError. If no parameter has a gradient, this raises ZeroError (ZERO_ERR_STATE).

        >>> optimizer.step({"w": np.full(3, 4, np.float32)}, reduction="sum")
        True
        """
        options = _abi.create(_zero_h.StepOptions)
        options.reduce_flags = reduce_flags(reduction, accumulate)
        options.stream = _values.stream(stream)
        memory = None if grads is None else self._gradients(grads)
        if memory is not None:
            options.grads, options.grad_count = _params.pointers(memory), len(memory)
        status: int = lib().zero_step(self._handle.open(), c.byref(options))
        self._keep_until_next_step(memory)
        return status != _zero_h.SKIPPED

    def result(self) -> Result:
        """Return the outcome of the last step, on which the ranks agreed. If that step failed, its
        error is not raised again, but reported in `status`. Local.

        >>> optimizer.step()
        True
        >>> optimizer.result().step
        1
        """
        result = _abi.create(_zero_h.Result)
        try:
            lib().zero_step_result(self._handle.open(), c.byref(result))
        except ZeroError as error:
            if result.status != error.code:
                raise
        return Result(**fields_of(result, "reserved"))

    # ---- Look inside ----

    @property
    def comm(self) -> Comm:
        """The comm on which the optimizer was created."""
        return self._comm

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the registered parameters, in registration order."""
        return tuple(self._names)

    def __repr__(self) -> str:
        state = f"{len(self._names)} parameters" if self._handle.value else "closed"
        return f"<Optimizer, {state}>"

    def stats(self) -> Statistics:
        """Return the statistics of this rank since the optimizer was created. Local.

        >>> optimizer.step()
        True
        >>> optimizer.stats().steps
        1
        """
        statistics = _abi.create(_zero_h.Statistics)
        lib().zero_stats(self._handle.open(), c.byref(statistics))
        return Statistics(**fields_of(statistics))

    def close(self) -> None:
        """Free the state and release borrowed memory. Closing an optimizer again has no effect.
        Parameters keep their values. Local.

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
        for number in self._rules:
            _custom.leave(number)
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
        """Return one checked buffer per registered parameter."""
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

# SPDX-License-Identifier: Apache-2.0
"""Update rules written in Python, called through the C library's function pointer."""

from __future__ import annotations

import ctypes as c
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from . import _abi, _values, _zero_h
from ._dtypes import ITEM_BYTES, VIEW_FORMATS, name_of
from ._errors import guarded
from ._rule_info import rule_name, rules
from .typing import RuleName


def _check_same(place: str, held: Any, given: Any) -> None:
    """Reject an array other than the one that was lent, because its values would be lost. The
    statement `array -= x` ends with an assignment of the same array."""
    if given is not held:
        raise TypeError(f"{place} is lent by the library: write into it, {place}[:] = ...")


class Slots(dict[str, Any]):
    """The tensors of state, accessed by their names."""

    def __setitem__(self, name: str, value: Any) -> None:
        _check_same(f"slots[{name!r}]", self.get(name), value)


@dataclass(eq=False)
class Update:
    """The arguments of one call of a custom rule. The call updates the elements `first` to first +
    count - 1, in row-major order, of the parameter `name`. `param` is the parameter's number in
    registration order, and `shape` is its shape.

    `values`, `gradient` and each of `slots` are arrays of `count` elements. With whole_tensors,
    they have the parameter's shape. They are numpy arrays, or memoryviews if numpy is not
    installed. Their `dtype` is "float64" for float64 parameters, and "float32" for all others.
    Write into the arrays, for example with `values -= ...` or `values[:] = ...`. Assigning another
    array raises TypeError. The library reads the contents when the call returns. Copy an array if
    you need it after that.

    values    in and out: the values to update, which are the float32 master weights of 16-bit
              parameters
    gradient  in: the averaged, unscaled and clipped gradient, which may be overwritten
    slots     in and out: the tensors of state by name, which are zeros at first

    `step` counts the updates of this parameter, and is 1 for the first update. `lr` includes the
    parameter's lr_scale. `weight_decay` is the parameter's value if it has one, and its group's
    value otherwise. `settings` holds all settings by name.
    """

    param: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    first: int
    count: int
    values: Any
    gradient: Any
    slots: Slots
    step: int
    lr: float
    weight_decay: float
    settings: dict[str, float]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            _check_same(name, self.__dict__[name], value)
        else:
            super().__setattr__(name, value)


@dataclass(frozen=True)
class CustomOptimizer:
    """An update rule that you write, for Optimizer(comm, rule).

        def sgd(update):
            update.slots["momentum"] *= 0.9
            update.slots["momentum"] += update.gradient
            update.values -= update.lr * update.slots["momentum"]

        optimizer = Optimizer(comm, CustomOptimizer(sgd, slots=["momentum"]), lr=0.1)

    `update` is called inside Optimizer.step, on its thread, for each range of elements that this
    rank owns and that has a gradient. It works on copies (see Update). If it raises an exception,
    the step raises the same exception, the other ranks raise PeerError with its text, and nothing
    has changed on any rank. The return value of `update` is ignored. `update` may use the
    optimizer's settings, result(), stats(), owned_ranges() and param_index(). All other calls raise
    ZeroError (ZERO_ERR_BUSY).

    The boundaries of ranges depend on the number of ranks, the partition and bucket_bytes. If a
    rule combines several elements, set `whole_tensors`. The partition "even" then divides the
    parameters of its groups like "greedy".

    `slots` gives the names of at most 8 tensors of state per parameter. They are saved and loaded
    like the state of any other rule. `settings` gives the names and defaults of at most 14 settings
    in addition to lr (1e-3) and weight_decay (0), or new defaults for these two. Checkpoints
    identify the rule by "custom:" and `name`. A name consists of letters, digits and the characters
    "_-.", and defaults to the name of the function. Every rank must declare the same rule.
    """

    update: Callable[[Update], object]
    slots: Sequence[str] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    name: Optional[str] = None
    whole_tensors: bool = False


# The rules that Optimizer and partition_plan accept: a name from rules(), in any case, or a
# CustomOptimizer.
Rule = Union[RuleName, CustomOptimizer]


def defaults_of(rule: Union[str, CustomOptimizer]) -> Mapping[str, float]:
    """Return the defaults of the rule's settings."""
    if isinstance(rule, CustomOptimizer):
        return {"lr": 1e-3, "weight_decay": 0.0, **rule.settings}
    return rules()[rule_name(rule)].settings


# The ctx that C passes back is a key of this dictionary, so that C never holds the address of a
# Python object.
_rules: dict[int, CustomOptimizer] = {}
_numbers = itertools.count(1)


def set_rule(options: Any, rule: Rule) -> None:
    """Fill `optimizer` and `custom` of zero_options. `enter` sets `ctx` later."""
    if not isinstance(rule, CustomOptimizer):
        options.optimizer = rules()[rule_name(rule)].number
        return
    options.optimizer = _zero_h.OPTIMIZER_CUSTOM
    options.custom = c.pointer(_declared(rule))


def set_group_rule(options: Any, rule: Rule) -> None:
    """Do the same for zero_group_options, which has the name of a rule, and not its number."""
    if isinstance(rule, CustomOptimizer):
        options.custom = c.pointer(_declared(rule))
    else:
        options.optimizer = rule_name(rule).encode()


def _declared(rule: CustomOptimizer) -> Any:
    name = rule.name
    if name is None:
        name = getattr(rule.update, "__name__", type(rule.update).__name__)
    custom = _abi.create(_zero_h.CustomOptimizer)
    custom.name = _values.text(name, "name")
    custom.update = _thunk
    if isinstance(rule.slots, str):
        raise TypeError("slots is a str, not a sequence of names")
    slots = [_values.text(slot, "slot") for slot in rule.slots]
    custom.slots, custom.slot_count = (c.c_char_p * len(slots))(*slots), len(slots)
    settings = _values.settings(rule.settings, rule.settings)
    custom.setting_names, custom.setting_values, custom.setting_count = settings
    custom.flags = _zero_h.CUSTOM_WHOLE_TENSORS if rule.whole_tensors else 0
    return custom


def enter(options: Any, rule: Rule) -> int:
    """Register the rule and return its number. C passes this number to find the rule until `leave`
    is called. Return 0 if the rule is not a custom rule."""
    if not isinstance(rule, CustomOptimizer):
        return 0
    number = next(_numbers)
    _rules[number] = rule
    options.custom.contents.ctx = number
    return number


def leave(number: int) -> None:
    _rules.pop(number, None)


# The size in bytes of the guard area on each side of an array. C checks these areas after the call.
_GUARD = 64


class _Lent:
    """Copies of the C arrays in memory of Python, which the rule may keep. `give_back` copies the
    contents back to C."""

    def __init__(self, dtype: str, shape: tuple[int, ...], count: int) -> None:
        self._dtype = dtype
        self._shape = shape
        self._size = count * ITEM_BYTES[dtype]
        self._copies: list[tuple[int, Any]] = []

    def view(self, address: int) -> Any:
        memory = (c.c_char * (self._size + 2 * _GUARD))()
        c.memmove(memory, address - _GUARD, len(memory))
        self._copies.append((address - _GUARD, memory))
        flat = memoryview(memory).cast("B")[_GUARD : _GUARD + self._size]
        view = flat.cast(VIEW_FORMATS[self._dtype], self._shape)  # type: ignore[call-overload]
        try:
            import numpy
        except ImportError:
            return view
        return numpy.asarray(view)

    def give_back(self) -> None:
        for address, memory in self._copies:
            c.memmove(address, memory, len(memory))


def _update_of(given: Any, rule: CustomOptimizer) -> tuple[Update, _Lent]:
    dtype = name_of(given.dtype)
    shape = tuple(given.shape[: given.ndim])
    lent = _Lent(dtype, shape if rule.whole_tensors else (given.count,), given.count)
    settings = {
        given.setting_names[i].decode(): given.setting_values[i] for i in range(given.setting_count)
    }
    update = Update(
        param=given.param,
        name=given.name.decode(),
        shape=shape,
        dtype=dtype,
        first=given.first,
        count=given.count,
        values=lent.view(given.values),
        gradient=lent.view(given.gradient),
        slots=Slots(
            (name, lent.view(given.slots[i])) for i, name in enumerate(rule.slots)
        ),
        step=given.step,
        lr=given.lr,
        weight_decay=given.weight_decay,
        settings=settings,
    )
    return update, lent


def _say(given: Any, error: BaseException) -> None:
    """Write the text of `error` for the other ranks."""
    try:
        said = str(error)
    except Exception:
        said = "its str() failed"
    words = f"{type(error).__name__}: {said}".encode("utf-8", "replace")[: given.message_bytes - 1]
    # Drop an incomplete character at the end.
    words = words.decode("utf-8", "ignore").replace("\0", " ").encode()
    # Reading the field itself would convert the pointer to text.
    place = c.addressof(given) + _zero_h.Update.message.offset
    c.memmove(c.c_void_p.from_address(place), words + b"\0", len(words) + 1)


def _call(ctx: int, pointer: Any) -> int:
    given = pointer.contents

    def run() -> None:
        rule = _rules[ctx]
        try:
            update, lent = _update_of(given, rule)
            rule.update(update)
            lent.give_back()
        except BaseException as error:
            _say(given, error)
            raise

    return guarded(run, _zero_h.ERR_CALLBACK)


# This is created once and never freed, because C may call it as long as any optimizer lives.
_thunk = _zero_h.UpdateFn(_call)

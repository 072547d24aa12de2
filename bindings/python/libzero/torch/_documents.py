# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint holds, as dictionaries of torch: a model's and an optimizer's state_dict."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union, cast

import torch

from .. import rules
from ..typing import RuleName
from ._rules import CLASSES, Choice, Rule, choose, put_settings, settings_of
from ._state import MASTER, scalar_of
from ._streams import CODES, DESCRIPTION, Description, Entry, RefusedError

MODEL, OPTIMIZER = "model", "optimizer"
# What programs call them.
MODEL_KEYS = (MODEL, "model_state_dict", "state_dict")
OPTIMIZER_KEYS = (OPTIMIZER, "optimizer_state_dict", "optim")
CUSTOM = "custom:"
_REST = ("optimizer", "slots", "step", "skipped", "options")
# Options of torch's classes that say how, not what.
_MANNERS = {"foreach", "capturable", "differentiable", "fused", "maximize", "initial_lr"}

Document = dict[str, Any]


def document_of(
    description: Description, tensor: Callable[[str], Any], *, by_name: bool
) -> Document:
    """The dictionaries, with `tensor(name)` for each tensor of the stream. `by_name`: parameters of
    the optimizer go by their names, as in torch.distributed.checkpoint; else by numbers."""
    rule_name = description["optimizer"]
    rule = None if rule_name.startswith(CUSTOM) else _choice(rule_name).rule
    held = [*description["parameters"], *description["buffers"]]
    state: dict[Any, Any] = {}
    groups: list[dict[str, Any]] = []
    number = 0
    for index, settings in enumerate(description["groups"]):
        options = _options_of(rule_name, settings)
        mine = [param for param in description["parameters"] if param["group"] == index]
        names = [param["name"] for param in mine]
        numbers = range(number, number := number + len(mine))
        keys: Sequence[Any] = names if by_name else numbers
        for key, param in zip(keys, mine):
            if set(param["state"]) - {MASTER}:
                state[key] = {
                    **_scalars_of(rule, param),
                    **{slot: tensor(f"{param['name']}.{slot}") for slot in param["state"]},
                }
        named = {} if by_name else {"param_names": names}
        groups.append({**options, "params": list(keys), **named})
    return {
        MODEL: {one["name"]: tensor(one["name"]) for one in held},
        OPTIMIZER: {"state": state, "param_groups": groups},
        DESCRIPTION: _rest_of(description),
    }


def _choice(rule_name: str) -> Choice:
    return choose(cast(RuleName, rule_name), {})


def _rest_of(description: Description) -> str:
    """What torch's dictionaries have no place for, in one text. Of a dictionary
    torch.distributed.checkpoint would save each number by itself."""
    rest: dict[str, Any] = {key: description[key] for key in _REST if key in description}
    rest["steps"] = {param["name"]: param["step"] for param in description["parameters"]}
    return json.dumps(rest)


def _options_of(rule_name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: float(value) for name, value in settings.items()}
    if rule_name.startswith(CUSTOM):
        return numbers
    choice = _choice(rule_name)
    options = {
        name: value for name, value in choice.template.param_groups[0].items() if name != "params"
    }
    put_settings(choice.rule, options, {**choice.rule.defaults, **numbers})
    return options


def _scalars_of(rule: Optional[Rule], param: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    names = ("step",) if rule is None else rule.scalars
    return {name: scalar_of(param.get(name, 1.0), name) for name in names}


# ---- Back.


class Found(NamedTuple):
    """A tensor of a file: what it is, where it lies for whoever knows, and the parts of its
    contiguous bytes, read when they are asked for."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    place: Any
    parts: Callable[[], Iterable[torch.Tensor]]

    def number(self) -> float:
        return float(next(iter(self.parts())).double().flatten()[0])


class Wanted(NamedTuple):
    """What the command line says of a file that says too little."""

    rule: Optional[str]
    buffers: Sequence[str]  # patterns


Tensors = list[tuple[Entry, Iterable[Any]]]


def checkpoint_of(document: Any, wanted: Wanted) -> tuple[Description, Tensors]:
    """The description of a checkpoint, and its tensors. RefusedError: what the dictionaries lack."""
    _check_dictionary(document, "it")
    model = _first(document, MODEL_KEYS)
    if model is None:
        raise RefusedError(f"it has no {' or '.join(MODEL_KEYS)}, but {_listed(document)}")
    if not (isinstance(model, Mapping) and all(isinstance(one, Found) for one in model.values())):
        raise RefusedError("its model is no dictionary of tensors")
    optimizer = _first(document, OPTIMIZER_KEYS) or {"state": {}, "param_groups": []}
    try:
        rest = json.loads(document.get(DESCRIPTION, "{}"))
    except (TypeError, ValueError) as error:
        raise RefusedError(f"its {DESCRIPTION!r} is not libzero's: {error}") from None
    _check_dictionary(rest, f"its {DESCRIPTION!r}")
    _check_dictionary(rest.get("steps", {}), f"its {DESCRIPTION!r}, as steps,")
    return _Import(_without_ties(model), optimizer, rest, wanted).all()


def _check_dictionary(value: Any, what: str) -> None:
    if not isinstance(value, Mapping):
        raise RefusedError(f"{what} holds a {type(value).__name__}, not a dictionary")


def _first(document: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((document[key] for key in keys if key in document), None)


def _listed(names: Iterable[Any]) -> str:
    shown = [str(name) for name in names]
    return ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "") if shown else "nothing"


def _without_ties(model: Mapping[str, Found]) -> dict[str, Found]:
    """Each tensor once, under its first name."""
    places: set[Any] = set()
    kept: dict[str, Found] = {}
    for name, found in model.items():
        place = (found.place, found.shape) if 0 not in found.shape else name
        if place not in places:
            places.add(place)
            kept[str(name)] = found
    return kept


class _Import:
    def __init__(
        self, model: dict[str, Found], optimizer: Any, rest: Mapping[str, Any], wanted: Wanted
    ) -> None:
        self._model, self._rest, self._wanted = model, rest, wanted
        try:
            self._state: Mapping[Any, Mapping[str, Any]] = optimizer["state"]
            self._groups: Sequence[Mapping[str, Any]] = optimizer["param_groups"]
            self._keys = [list(group["params"]) for group in self._groups]
            self._given = [
                str(name) for group in self._groups for name in group.get("param_names", ())
            ]
            for key, state in self._state.items():
                _check_dictionary(state, f"the state of its parameter {key!r}")
        except (AttributeError, KeyError, TypeError):
            raise RefusedError("its optimizer is no state_dict of torch.optim") from None
        self._tensors: Tensors = []

    def all(self) -> tuple[Description, Tensors]:
        rule = self._rule()
        names = self._names()
        parameters = []
        if not self._groups:
            parameters = [self._parameter(name, 0, {}) for name in names]
        for index, keys in enumerate(self._keys):
            for key in keys:
                parameters.append(self._parameter(names.pop(0), index, self._state.get(key, {})))
        taken = {param["name"] for param in parameters}
        buffers = [self._tensor(name) for name in self._model if name not in taken]
        step = max((param["step"] for param in parameters), default=0)
        description = {
            "step": step,
            "skipped": 0,
            "options": {},
            **{key: value for key, value in self._rest.items() if key != "steps"},
            "optimizer": rule,
            "groups": [self._settings(rule, group) for group in self._groups or [{}]],
            "parameters": parameters,
            "buffers": buffers,
        }
        return description, self._tensors

    def _rule(self) -> str:
        chosen = self._wanted.rule or self._rest.get("optimizer")
        if chosen is None:
            chosen = guess(self._groups[0]) if self._groups else "adamw"
        if chosen is None:
            raise RefusedError(
                "it does not say which class of torch.optim its optimizer is: give --rule, as --rule adamw"
            )
        if not chosen.startswith(CUSTOM) and chosen not in rules():
            raise RefusedError(f"there is no rule {chosen!r}, but {', '.join(rules())}")
        return str(chosen)

    def _names(self) -> list[str]:
        """Of all parameters, in the order of the optimizer's."""
        keys = [key for keys in self._keys for key in keys]
        named = self._given or (keys if all(isinstance(key, str) for key in keys) else [])
        if named:
            if len(set(named)) != len(keys):
                raise RefusedError(
                    f"its optimizer has {len(keys)} parameters, and names for {len(set(named))}"
                )
            for name in named:
                if name not in self._model:
                    raise RefusedError(f"its optimizer has a parameter {name!r}, its model has not")
            return named
        floating = [
            name
            for name, found in self._model.items()
            if found.dtype.is_floating_point
            and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._wanted.buffers)
        ]
        if self._groups and len(floating) != len(keys):
            raise RefusedError(
                f"its model has {len(floating)} floating tensors and its optimizer {len(keys)} "
                "parameters, without names: name the model's buffers, as "
                "--buffers '*.running_mean,*.running_var'"
            )
        return floating

    def _settings(self, rule: str, group: Mapping[str, Any]) -> dict[str, Any]:
        if rule.startswith(CUSTOM):
            return {key: value for key, value in group.items() if isinstance(value, float)}
        choice = _choice(rule)
        try:
            return dict(settings_of(choice.rule, {**choice.template.param_groups[0], **group}))
        except TypeError as error:
            raise RefusedError(f"its optimizer: {error}") from None

    def _tensor(self, name: str) -> dict[str, Any]:
        found = self._model[name]
        if found.dtype not in CODES:
            raise RefusedError(
                f"tensor {name!r} has dtype {found.dtype}, which no checkpoint holds"
            )
        self._tensors.append((Entry(name, found.dtype, found.shape), _bytes(found, found.dtype)))
        return {"name": name, "dtype": CODES[found.dtype], "shape": found.shape}

    def _parameter(self, name: str, group: int, state: Mapping[str, Any]) -> dict[str, Any]:
        param = {**self._tensor(name), "group": group}
        dtype = torch.float64 if param["dtype"] == "F64" else torch.float32
        param["step"] = self._rest.get("steps", {}).get(name, 0)
        param["state"] = []
        for slot, value in state.items():
            if slot in ("step", "mu_product"):
                param[slot] = _scalar(value, slot, name)
            elif isinstance(value, Found):
                if value.shape != tuple(param["shape"]):
                    raise RefusedError(
                        f"state {slot!r} of {name!r} has shape {value.shape}, the parameter {param['shape']}"
                    )
                param["state"].append(slot)
                self._tensors.append(
                    (Entry(f"{name}.{slot}", dtype, value.shape), _bytes(value, dtype))
                )
        return param


def _scalar(value: Any, slot: str, name: str) -> Union[int, float]:
    number = value.number() if isinstance(value, Found) and not value.shape else value
    try:
        return int(number) if slot == "step" else float(number)
    except (OverflowError, TypeError, ValueError):
        raise RefusedError(f"state {slot!r} of {name!r} is no number") from None


def _bytes(found: Found, dtype: torch.dtype) -> Iterable[Any]:
    for part in found.parts():
        yield part.to(dtype).contiguous().flatten().view(torch.uint8).numpy()


def guess(group: Mapping[str, Any]) -> Optional[str]:
    """The only rule of torch.optim with such options."""

    def telling(options: Iterable[str]) -> set[str]:
        return set(options) - _MANNERS - {"params", "param_names"}

    alike = [
        name
        for name in CLASSES
        if telling(_choice(name).template.param_groups[0]) == telling(group)
    ]
    if sorted(alike) == ["adam", "adamw"]:
        return "adamw" if group["decoupled_weight_decay"] else "adam"
    return alike[0] if len(alike) == 1 else None

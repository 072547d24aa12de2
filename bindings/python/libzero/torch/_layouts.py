# SPDX-License-Identifier: Apache-2.0
"""Finds a model and its optimizer in the dictionaries that programs save."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch

from ._account import each_once, listed, matches
from ._documents import MODEL, OPTIMIZER, Found
from ._streams import DESCRIPTION, RefusedError
from ._ties import first_names
from ._wrappers import partly, prefix_of

# The first two keys are from torch's examples, "state_dict" is also Lightning's, and "module" is
# DeepSpeed's.
MODEL_KEYS = (MODEL, "model_state_dict", "state_dict", "module")
# The first two keys are from torch's examples, and "optim" is from those of
# torch.distributed.checkpoint. Lightning stores a list under "optimizer_states".
OPTIMIZER_KEYS = (OPTIMIZER, "optimizer_state_dict", "optim", "optimizer_states")
# Tensors and numbers that belong to the program. Checkpoints of libzero never contain them.
_OF_THE_PROGRAM = (
    *("lr_scheduler*", "scheduler*", "opt_param_scheduler", "callbacks", "loops"),
    *("*scaler*", "MixedPrecision", "*rng*", "random*", "*seed*"),
    *("train_state", "dataloader"),  # from torchtitan
)
IGNORE = "--ignore PATTERN,... drops it"


class Source(NamedTuple):
    """The parts of a checkpoint to be written. `ties` contains other names of the model's tensors.
    `modules` contains the modules of the model in their order, if the file has them. It is None if
    the tensors in the file have no order; safetensors, for example, sorts them. `prefix` is the
    prefix of names in the optimizer. `left` contains the keys that belong to the program. `masters`
    contains the fp32 tensors of the 16-bit parameters in each group."""

    model: dict[str, Found]
    ties: dict[str, str]
    modules: Optional[Sequence[str]]
    optimizer: Optional[Mapping[str, Any]]
    prefix: str
    rest: Mapping[str, Any]
    left: list[str]
    masters: Sequence[Sequence[Found]]


def source_of(document: Any, ignore: Sequence[str]) -> Source:
    """Return the parts of the document. Raises RefusedError if a part is missing, occurs twice, or
    is not supported."""
    check_dictionary(document, "it")
    left = list(getattr(document, "beside", ()))
    document, above = _inner(document)
    model_key = _only(document, MODEL_KEYS, ignore)
    if model_key is None:  # torchtitan stores the model's tensors next to its optimizer
        model = {name: one for name, one in document.items() if isinstance(one, Found)}
        taken = set(model)
        if not model:
            raise RefusedError(f"it has no {' or '.join(MODEL_KEYS)}, but {_keys(document)}")
    else:
        model = document[model_key]
        taken = {model_key}
    optimizer_key = _only(document, OPTIMIZER_KEYS, ignore)
    optimizer = None if optimizer_key is None else document[optimizer_key]
    taken |= {optimizer_key, DESCRIPTION}
    left += _left(document, taken, ignore)
    own = DESCRIPTION in document and not matches(DESCRIPTION, ignore)
    rest = _rest(document) if own else {}
    flat = _flat(model, ignore)
    wrapper = "" if own else _wrapper(flat)  # libzero's own files keep their names
    tensors, ties = first_names({name[len(wrapper) :]: found for name, found in flat.items()})
    prefix = f"{above}{optimizer_key}"
    optimizer, masters = _optimizer(optimizer, prefix, optimizer_key is not None, ignore)
    modules = getattr(document if model_key is None else model, "modules", None)
    if modules is not None:
        modules = [f"{name}."[len(wrapper) :].rstrip(".") for name in modules]
    return Source(tensors, ties, modules, optimizer, prefix, rest, left, masters)


def check_dictionary(value: Any, what: str) -> None:
    if not isinstance(value, Mapping):
        raise RefusedError(f"{what} holds {_kind(value)}, not a dictionary")


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, Found) else f"a {type(value).__name__}"


def _keys(names: Mapping[Any, Any]) -> str:
    return listed(map(str, names)) or "nothing"


def _inner(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the dictionary that contains the model. This is either `document` or the only
    dictionary in it, such as "app" in the torch tutorial on torch.distributed.checkpoint."""
    within = [
        key
        for key, one in document.items()
        if key not in MODEL_KEYS and isinstance(one, Mapping) and set(one) & set(MODEL_KEYS)
    ]
    if set(document) & set(MODEL_KEYS) or len(within) != 1 or len(document) != 1:
        return document, ""
    return document[within[0]], f"{within[0]}."


def _only(document: Mapping[str, Any], keys: Sequence[str], ignore: Sequence[str]) -> Optional[str]:
    there = [key for key in keys if key in document and not matches(key, ignore)]
    if len(there) > 1:
        raise RefusedError(f"it has {' and '.join(map(repr, there))}: which is meant? ({IGNORE})")
    return there[0] if there else None


def _left(document: Mapping[Any, Any], taken: set[Any], ignore: Sequence[str]) -> list[str]:
    """Return the keys that are not used. Raises RefusedError for keys that may hold parts of a
    checkpoint."""
    left: list[str] = []
    foreign: list[str] = []
    for key, value in document.items():
        if key in taken:
            continue
        known = matches(str(key), _OF_THE_PROGRAM)
        matters = (_may_be_trained(value) and not known) or _has_optimizer(value)
        (foreign if matters and not matches(str(key), ignore) else left).append(str(key))
    if foreign:
        raise RefusedError(f"it has {listed(map(repr, foreign))}, which nothing here takes ({IGNORE})")
    return left


def _may_be_trained(value: Any) -> bool:
    """Return whether `value` contains tensors that may be parameters. They have more than one
    element, which a loss does not, and their elements are not bytes."""
    found = (one for one in _inside(value) if isinstance(one, Found))
    return any(math.prod(one.shape) > 1 and one.dtype != torch.uint8 for one in found)


def _has_optimizer(value: Any) -> bool:
    return any(isinstance(one, Mapping) and "param_groups" in one for one in _inside(value))


def _inside(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _inside(one)


def _flat(model: Any, ignore: Sequence[str]) -> dict[str, Found]:
    """Return the tensors by name. Nested dictionaries, which older versions of Megatron save, are
    flattened."""
    check_dictionary(model, "its model")
    flat: dict[str, Found] = {}
    foreign: list[str] = []

    def add(value: Any, name: str) -> None:
        if name and matches(name, ignore):
            return
        if isinstance(value, Mapping):
            for key, one in value.items():
                add(one, f"{name}.{key}" if name else str(key))
        elif not isinstance(value, Found):
            foreign.append(f"{name!r} is {type(value).__name__}")
        elif name in flat:
            raise RefusedError(f"its model has {name!r} twice")
        else:
            flat[name] = value

    add(model, "")
    if foreign:
        raise RefusedError(
            f"its model has values that are not tensors: {listed(foreign)} ({IGNORE})"
        )
    return flat


def _wrapper(model: Mapping[str, Found]) -> str:
    """Return the common prefix of all names. Raises RefusedError if only some names have the prefix
    of torch.compile, which does not occur in a model."""
    prefix = prefix_of(model)
    names = [name[len(prefix) :] for name in model]
    if any(name.startswith("_orig_mod.") for name in names):
        raise RefusedError(f"its model: {partly(names)}")
    return prefix


def _rest(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values that an export by libzero adds to torch's dictionaries."""
    try:
        rest: Any = json.loads(document[DESCRIPTION], object_pairs_hook=each_once)
    except (TypeError, ValueError, RefusedError) as error:
        raise RefusedError(f"its {DESCRIPTION!r} is not libzero's: {error}") from None
    check_dictionary(rest, f"its {DESCRIPTION!r}")
    check_dictionary(rest.get("steps", {}), f"its {DESCRIPTION!r}, as steps,")
    return rest  # type: ignore[no-any-return]


# ---- Optimizers.


def _optimizer(
    given: Any, key: str, there: bool, ignore: Sequence[str]
) -> tuple[Optional[Mapping[str, Any]], Sequence[Sequence[Found]]]:
    """Return the optimizer as a state_dict of torch.optim, and the master weights that Megatron
    saves."""
    if isinstance(given, list):  # from Lightning
        if len(given) != 1:
            raise RefusedError(
                f"it has {len(given)} optimizers in {key!r}, and a checkpoint holds one (--ignore {key} takes the "
                "model alone)"
            )
        given = given[0]
    if given is None:
        if there:
            raise RefusedError(
                f"its {key!r} is None, so the optimizer's state is elsewhere (--ignore {key} begins without "
                "it)"
            )
        return None, ()
    if not isinstance(given, Mapping):
        raise RefusedError(f"its {key!r} is not a state_dict of torch.optim, but {_kind(given)}")
    masters: Any = ()
    if isinstance(given.get(OPTIMIZER), Mapping):  # from Megatron
        masters = given.get("fp32_from_fp16_params", ())
        taken = {OPTIMIZER, "fp32_from_fp16_params", "grad_scaler"}
        _left({f"{key}.{name}": one for name, one in given.items() if name not in taken}, set(), ignore)
        given = given[OPTIMIZER]
    if given and not {"state", "param_groups"} & set(given):
        given = _nested(given, key)
    more = [
        f"{key}.{name}"
        for name in given
        if name not in ("state", "param_groups") and not matches(f"{key}.{name}", ignore)
    ]
    if more:
        raise RefusedError(f"it has {listed(map(repr, more))}, which nothing here takes ({IGNORE})")
    return given, masters


def _nested(flat: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the state_dict that keys such as "state.w.exp_avg" and "param_groups.w.lr" describe.
    Such keys are used by torchtitan. Parameters with equal options form a group."""
    state: dict[str, dict[str, Any]] = {}
    options: dict[str, dict[str, Any]] = {}
    for path, value in flat.items():
        kind, _, inner = str(path).partition(".")
        name, _, last = inner.rpartition(".")
        to = {"state": state, "param_groups": options}.get(kind)
        if to is None or not name:
            raise RefusedError(f"its {key!r} is not a state_dict of torch.optim: it has {_keys(flat)}")
        to.setdefault(name, {})[last] = value
    groups: list[dict[str, Any]] = []
    for name, mine in options.items():
        for group in groups:
            if {option: one for option, one in group.items() if option != "params"} == mine:
                group["params"].append(name)
                break
        else:
            groups.append({**mine, "params": [name]})
    return {"state": state, "param_groups": groups}

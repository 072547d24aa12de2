# SPDX-License-Identifier: Apache-2.0
"""Reads directories in which the Hugging Face Trainer or accelerate has saved a model and its
optimizer as separate files."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import math
import os
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, Optional

from . import _places, _torch_files
from ._account import account, each_once, listed, matches
from ._documents import MODEL, OPTIMIZER, Found
from ._layouts import IGNORE, check_dictionary
from ._streams import DAMAGED, DTYPES, RefusedError

_MODELS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_INDEX = ".index.json"
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")
# Files in which programs store data that is not part of a model or an optimizer.
_OF_THE_PROGRAM = (
    *("*.json", "*.txt", "*.md", "*.jinja", "*.py", "*.yaml", ".git*", ".cache", "latest"),
    *("training_args.bin", "tokenizer*", "*.bpe.model", "spiece.model", "special_tokens*"),
    *("scheduler*", "scaler*", "sampler*", "dl_state_dict*", "rng_state*", "random_states_*"),
)
_LONGEST_HEADER = 100 << 20  # the limit of the safetensors package


class Document(dict[str, Any]):
    """A dictionary {"model": ..., "optimizer": ...}. `beside` contains the names of files that
    belong to the program."""

    beside: Sequence[str] = ()


@contextlib.contextmanager
def document(path: str, ignore: Sequence[str]) -> Iterator[Any]:
    """Yield a Document with a Found for each tensor. Raises RefusedError if the directory has files
    that may contain parts of a checkpoint, and that are neither used nor ignored."""
    ignored = [name for name in sorted(os.listdir(path)) if matches(name, ignore)]
    there = set(os.listdir(path)).difference(ignored)
    model = _only("model", [name for file in _MODELS for name in (file, file + _INDEX)], there)
    optimizer = _only("optimizer", _OPTIMIZERS, there)
    if model is None:
        raise RefusedError(f"it has no model: none of {', '.join(_MODELS)}")
    whole = Document()
    with contextlib.ExitStack() as opened:
        whole[MODEL], taken = _model(path, model, opened)
        if optimizer is not None:
            whole[OPTIMIZER] = _pickled(os.path.join(path, optimizer), opened)
        beside = there.difference(taken, (optimizer,))
        whole.beside = [*ignored, *sorted(filter(_is_of_the_program, beside))]
        found = account(dict.fromkeys(sorted(beside.difference(whole.beside))), {})
        if found.left_over:
            raise RefusedError(found.text(ignore=IGNORE))
        yield whole


def _is_of_the_program(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _OF_THE_PROGRAM)


def _only(kind: str, names: Sequence[str], there: Collection[str]) -> Optional[str]:
    found = [name for name in names if name in there]
    if len(found) > 1:
        raise RefusedError(f"it has {listed(found)}: which {kind} is meant? ({IGNORE})")
    return found[0] if found else None


def _model(
    path: str, name: str, opened: contextlib.ExitStack
) -> tuple[Mapping[str, Any], Collection[str]]:
    """Return the tensors of the model, and the files that contain them."""
    read = _safetensors if name.endswith((".safetensors", ".safetensors" + _INDEX)) else _pickled
    if not name.endswith(_INDEX):
        return read(os.path.join(path, name), opened), [name]
    with _places.open_regular(os.path.join(path, name), links=True) as file:
        try:
            places = json.load(file, object_pairs_hook=each_once)["weight_map"]
            names = sorted(set(places.values()))
            if any(os.path.basename(one) != one for one in names):
                raise RefusedError("it has a path in place of a file name")
        except RefusedError as error:
            raise RefusedError(f"{name}: {error}") from None
        except Exception:  # a damaged file may raise any exception
            raise RefusedError(f"its {name} is not an index of a model{DAMAGED}") from None
    model: dict[str, Any] = {}
    for one in names:
        part = read(os.path.join(path, one), opened)
        why = account(
            dict.fromkeys(part), {tensor: None for tensor, place in places.items() if place == one}
        ).text()
        if why:
            raise RefusedError(f"{one}, by {name}: {why}")
        model.update(part)
    return model, [name, *names]


def _pickled(path: str, opened: contextlib.ExitStack) -> Mapping[str, Any]:
    try:
        value = opened.enter_context(_torch_files.document(path))
        check_dictionary(value, "it")
    except RefusedError as error:
        raise RefusedError(f"{os.path.basename(path)}: {error}") from None
    return value  # type: ignore[no-any-return]


def _safetensors(path: str, opened: contextlib.ExitStack) -> Mapping[str, Any]:
    file = opened.enter_context(_places.open_regular(path, links=True))
    name = os.path.basename(path)
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _LONGEST_HEADER:
            raise RefusedError(f"it has a header of {length} bytes{DAMAGED}")
        header = json.loads(file.read(length), object_pairs_hook=each_once)
        metadata = header.pop("__metadata__", None)
        if metadata is not None and not all(isinstance(text, str) for text in metadata.values()):
            raise RefusedError(f"its '__metadata__' has values that are not text{DAMAGED}")
        _check_places(header, os.fstat(file.fileno()).st_size - 8 - length)
        return {tensor: _found(file, 8 + length, tensor, entry) for tensor, entry in header.items()}
    except RefusedError as error:
        raise RefusedError(f"{name}: {error}") from None
    except Exception:  # a damaged file may raise any exception
        raise RefusedError(f"{name} is not a safetensors file{DAMAGED}") from None


def _check_places(header: Mapping[str, Any], size: int) -> None:
    """Check that the tensors follow each other in all `size` bytes, as the format requires."""
    at = 0
    for (begin, end), name in sorted((tuple(entry["data_offsets"]), name) for name, entry in header.items()):
        if begin != at or end < begin:
            raise RefusedError(f"the data of {name!r} begins at byte {begin}, not {at}{DAMAGED}")
        at = end
    if at != size:
        raise RefusedError(f"its tensors have {at} bytes, and it has {size}{DAMAGED}")


def _found(file: IO[bytes], start: int, name: str, entry: Mapping[str, Any]) -> Found:
    (begin, end), shape = entry["data_offsets"], tuple(entry["shape"])
    if entry["dtype"] not in DTYPES:
        raise RefusedError(f"tensor {name!r} is {entry['dtype']}, which a checkpoint cannot hold")
    dtype = DTYPES[entry["dtype"]]
    count = math.prod(shape)
    numbers = all(type(one) is int and one >= 0 for one in (begin, end, *shape))
    if not numbers or end - begin != count * dtype.itemsize:
        raise RefusedError(f"tensor {name!r} of shape {list(shape)} is at bytes {begin} to {end}{DAMAGED}")
    place = (file.name, start + begin) if count else name
    return Found(dtype, shape, place, lambda: _torch_files.read(file, start + begin, dtype, count))

# SPDX-License-Identifier: Apache-2.0
"""Directories in which trainers put a model and its optimizer as files beside each other: Hugging Face's
Trainer, and accelerate."""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any

import torch

from . import _places, _torch_files
from ._account import account, each_once, listed
from ._documents import MODEL, OPTIMIZER, Found
from ._streams import DTYPES, RefusedError

_MODELS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_INDEX = ".index.json"
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")
_LONGEST_HEADER = 100 << 20  # of safetensors' own


@contextlib.contextmanager
def document(path: str) -> Iterator[Any]:
    """{"model": ..., "optimizer": ...}, with a Found for each tensor."""
    there = set(os.listdir(path))
    models = [
        name for file in _MODELS for name in (file, file + _INDEX) if name in there
    ]
    optimizers = [name for name in _OPTIMIZERS if name in there]
    several = sorted(
        name
        for name in there
        if re.fullmatch(r"(optimizer|model|pytorch_model)_\d+\.(pt|bin|safetensors)", name)
    )
    if several:
        raise RefusedError(f"it has {listed(several)} besides: a checkpoint holds one model and one optimizer")
    for kind, names, known in (("model", models, _MODELS), ("optimizer", optimizers, _OPTIMIZERS)):
        if len(names) > 1:
            raise RefusedError(f"it has {listed(names)}: remove the {kind} that is not meant")
        if not names and kind == "model":
            raise RefusedError(f"it has no {kind}: none of {', '.join(known)}")
    with contextlib.ExitStack() as opened:
        whole = {MODEL: _model(path, models[0], opened)}
        if optimizers:
            whole[OPTIMIZER] = _pickled(os.path.join(path, optimizers[0]), opened)
        yield whole


def _model(path: str, name: str, opened: contextlib.ExitStack) -> Mapping[str, Any]:
    read = _safetensors if name.endswith((".safetensors", ".safetensors" + _INDEX)) else _pickled
    if not name.endswith(_INDEX):
        return read(os.path.join(path, name), opened)
    with _places.open_regular(os.path.join(path, name), links=True) as file:
        try:
            places = json.load(file, object_pairs_hook=each_once)["weight_map"]
            names = sorted(set(places.values()))
            if any(os.path.basename(one) != one for one in names):
                raise ValueError("a file of its is no name of a file")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RefusedError(f"its {name} is no index of a model: {error}") from None
    model: dict[str, Any] = {}
    for one in names:
        part = read(os.path.join(path, one), opened)
        why = account(
            dict.fromkeys(part), {tensor: None for tensor, place in places.items() if place == one}
        ).text()
        if why:
            raise RefusedError(f"{one}, by {name}: {why}")
        model.update(part)
    return model


def _pickled(path: str, opened: contextlib.ExitStack) -> Mapping[str, Any]:
    value = opened.enter_context(_torch_files.document(path))
    if not isinstance(value, Mapping):
        raise RefusedError(f"{os.path.basename(path)} holds a {type(value).__name__}, not a dictionary")
    return value


def _safetensors(path: str, opened: contextlib.ExitStack) -> Mapping[str, Any]:
    file = opened.enter_context(_places.open_regular(path, links=True))
    name = os.path.basename(path)
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _LONGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        header = json.loads(file.read(length), object_pairs_hook=each_once)
        header.pop("__metadata__", None)
        return {
            tensor: _found(file, 8 + length, os.fstat(file.fileno()).st_size, tensor, entry)
            for tensor, entry in header.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise RefusedError(f"{name} is no safetensors file: {error}") from None


def _found(file: IO[bytes], start: int, size: int, name: str, entry: Mapping[str, Any]) -> Found:
    (begin, end), shape = entry["data_offsets"], tuple(entry["shape"])
    if entry["dtype"] not in DTYPES:
        raise RefusedError(f"tensor {name!r} is {entry['dtype']}, which no checkpoint holds")
    dtype = DTYPES[entry["dtype"]]
    count = torch.Size(shape).numel()
    if not (0 <= begin <= end <= size - start and end - begin == count * dtype.itemsize):
        raise ValueError(f"the bytes of {name!r}")
    place = (file.name, start + begin) if count else name
    return Found(dtype, shape, place, lambda: _torch_files.read(file, start + begin, dtype, count))

# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files of torch.save tensor by tensor. Everything except the bytes of tensors is
read and written by torch."""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar, Optional, Union, cast

import torch

from . import _places, _streams
from ._documents import Found, document_of
from ._streams import CheckpointReader, RefusedError


def export(reader: CheckpointReader, target: str, replace: bool) -> None:
    """Write the checkpoint as one file that contains {"model": ..., "optimizer": ..., "zero":
    ...}."""
    if not hasattr(torch.serialization, "skip_data"):
        raise RefusedError(f"this torch is {torch.__version__}; an export to torch needs 2.13")
    # Room that nothing touches: the file gets none of its bytes.
    room = {entry.name: torch.empty(entry.shape, dtype=entry.dtype) for entry in reader.entries}
    document = document_of(reader.description, room.__getitem__, by_name=False)
    with _places.new_file(target, replace) as path:
        # Into a file of Python's, as torch's own does not say why a write failed.
        with torch.serialization.skip_data(), open(path, "wb") as new:
            torch.save(document, new)
        places = dict(zip(map(id, _tensors_of(document)), _tensors_of(load(path))))
        held = set(map(id, room.values()))
        with open(path, "r+b") as file:
            for tensor in _tensors_of(document):
                if id(tensor) not in held:
                    _write(file, places[id(tensor)], [tensor.numpy().tobytes()])
            for entry in reader.entries:
                if id(room[entry.name]) in places:
                    _write(file, places[id(room[entry.name])], reader.parts(entry))
            reader.skip_to(None)  # perhaps masters of what has no other state
            file.flush()
            os.fsync(file.fileno())


def _tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors_of(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors_of(one)


def _write(file: IO[bytes], place: torch.Tensor, parts: Any) -> None:
    file.seek(offset_of(place))
    for part in parts:
        file.write(part)


# ---- Back.


class _Reader(torch._C.PyTorchFileReader):
    """A reader of torch for a file, which is a zip archive. `places` collects where the records of
    tensors begin."""

    places: ClassVar[list[tuple[int, str]]] = []

    def has_record(self, name: str) -> bool:
        # Of a file with this record, torch calculates where tensors begin as its own writer places
        # them. Other programs that wrote the archive again have placed them elsewhere.
        return name != ".format_version" and bool(cast(Any, super()).has_record(name))

    def get_record_offset(self, name: str) -> int:
        offset = int(cast(Any, super()).get_record_offset(name))
        self.places.append((offset, name))
        return offset

    def get_record(self, name: str) -> bytes:
        data = super().get_record(name)
        if name == "byteorder" and data.decode(errors="replace") != sys.byteorder:
            # torch would swap the bytes of tensors that it does not read here, and crash.
            raise RefusedError(
                f"its record 'byteorder' says {data.decode(errors='replace')!r}, and this machine is "
                f"{sys.byteorder}-endian: save what torch.load reads of it here with torch.save"
            )
        return data


@contextlib.contextmanager
def _own_reader() -> Iterator[None]:
    """Make torch.load read archives with _Reader, for which torch.load has no argument."""
    core: Any = torch._C
    replaced = core.PyTorchFileReader
    core.PyTorchFileReader = _Reader
    try:
        yield
    finally:
        core.PyTorchFileReader = replaced


def _check_stored(path: str) -> None:
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
    packed = [one.filename for one in records if one.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise RefusedError(
            f"its records are compressed, such as {packed[0]!r}: save what torch.load reads of it with torch.save"
        )


def _check_extents(loaded: Any, file: Union[str, IO[bytes]]) -> None:
    """Check what torch checks only when it reads tensors: each lies in its storage, and the record
    of that has its length."""
    sizes: dict[int, int] = {}
    if _Reader.places and isinstance(file, str):  # torch has closed a part of a .distcp file
        with zipfile.ZipFile(file) as archive:
            records = {one.filename.partition("/")[2]: one.file_size for one in archive.infolist()}
        sizes = {offset: records.get(name, -1) for offset, name in _Reader.places}
    for tensor in _tensors_of(loaded):
        if tensor.layout != torch.strided:
            continue
        storage = tensor.untyped_storage()
        begin = getattr(storage, "_checkpoint_offset", None)
        if begin in sizes and sizes[begin] != storage.nbytes():
            raise RefusedError(
                f"a record has {sizes[begin]} bytes, and its tensors need {storage.nbytes()}: the file is damaged"
            )
        last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
        used = (int(tensor.storage_offset()) + last + 1) * tensor.dtype.itemsize
        if tensor.numel() > 0 and used > storage.nbytes():
            raise RefusedError(
                f"a tensor of shape {tuple(tensor.shape)} ends at byte {used} of a storage with "
                f"{storage.nbytes()} bytes: the file is damaged"
            )


def load(file: Union[str, IO[bytes]]) -> Any:
    """Return the contents of a file without the bytes of tensors. Each tensor keeps its place in
    the file. Only types that torch loads from untrusted files are allowed. For any other type,
    RefusedError names it."""
    try:
        if isinstance(file, str):  # a part of a .distcp file keeps its length, so nobody compresses it
            _check_stored(file)
        # Megatron's arguments: a bag of names.
        with torch.serialization.safe_globals([argparse.Namespace]), _own_reader():
            _Reader.places.clear()
            loaded = torch.load(file, weights_only=True, map_location="meta")
        _check_extents(loaded, file)
        return loaded
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)|<(?:class|enum) '([\w.]+)'>|<.*(?:function|method) ([\w.]+)", str(error))
        if named is None:  # torch's own words say how to read it with trust
            raise RefusedError(
                "it is not a torch.save file, or torch runs code to read it"
            ) from None
        raise RefusedError(
            f"it has {next(filter(None, named.groups()))}, which is not one of the classes that can be read without "
            "running code: save it without that, or as plain numbers, strings, lists and dictionaries"
        ) from None
    except (RuntimeError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        # What the old format's reader meets in other files are characters and places.
        why = f" ({str(error).splitlines()[0]})" if isinstance(error, RuntimeError) and str(error) else ""
        raise RefusedError(
            f"it is not a torch.save file, or is incomplete{why}: give a file that torch.save wrote"
        ) from None


def offset_of(tensor: torch.Tensor) -> int:
    """Return the byte offset of a loaded tensor in its file."""
    start: Optional[int] = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    if start is None:
        raise RefusedError(
            "it has the format of torch before 1.6, or this torch is older than 2.13"
        )
    return start + int(tensor.storage_offset()) * tensor.dtype.itemsize


def found(file: IO[bytes], begin: int, tensor: torch.Tensor) -> Found:
    """Return a Found for a loaded tensor whose data begins at the byte offset `begin` of the
    file."""
    start = begin + offset_of(tensor)

    def parts() -> Iterator[torch.Tensor]:
        # A tensor with torch's negative bit has its elements stored with the other sign.
        return (-part if tensor.is_neg() else part for part in stored())

    def stored() -> Iterator[torch.Tensor]:
        steps = tensor.stride()
        if tensor.is_contiguous():
            yield from read(file, start, tensor.dtype, tensor.numel())
        elif tensor.numel() > 0:  # all that it lies in, as others may lie between its elements
            count = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, steps))
            if count < tensor.numel():
                raise RefusedError(
                    f"a tensor of shape {tuple(tensor.shape)} has its elements stored once for "
                    "several of them: save it as tensor.contiguous()"
                )
            held = torch.empty(count, dtype=tensor.dtype)
            at = 0
            for part in read(file, start, tensor.dtype, count):
                held[at : at + len(part)] = part
                at += len(part)
            for offsets, sizes in _streams.boxes(tensor.shape, tensor.dtype.itemsize):
                first = sum(offset * step for offset, step in zip(offsets, steps))
                yield held.as_strided(sizes, steps, first)

    place = (file.name, start, tensor.stride(), tensor.is_neg())
    return Found(tensor.dtype, tuple(tensor.shape), place, parts)


def read(file: IO[bytes], start: int, dtype: torch.dtype, count: int) -> Iterator[torch.Tensor]:
    most = _streams.PART_BYTES // dtype.itemsize
    for first in range(0, count, most):
        file.seek(start + first * dtype.itemsize)
        wanted = min(most, count - first) * dtype.itemsize
        data = bytearray(file.read(wanted))
        if len(data) < wanted:
            raise RefusedError("it ends before its tensors do")
        yield torch.frombuffer(data, dtype=dtype)


class Ordered(dict[Any, Any]):
    """A dictionary of the tensors of a module. `modules` contains the names of its modules in
    registration order."""

    modules: Sequence[str] = ()


def with_places(file: IO[bytes], value: Any) -> Any:
    """Return the contents of a file, with a Found for each tensor."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise RefusedError("it has tensors that are not dense")
        return found(file, 0, value)
    if isinstance(value, Mapping):
        mapped = Ordered((key, with_places(file, one)) for key, one in value.items())
        mapped.modules = list(getattr(value, "_metadata", ()))
        return mapped
    if isinstance(value, (list, tuple)):
        return [with_places(file, one) for one in value]
    return value


@contextlib.contextmanager
def document(path: str) -> Iterator[Any]:
    """Yield the contents of a file, with a Found for each tensor."""
    with _places.open_regular(path, links=True) as file:
        yield with_places(file, load(path))

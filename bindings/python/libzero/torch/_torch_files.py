# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files of torch.save tensor by tensor. Everything except the bytes of tensors is
read and written by torch."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast

import torch

from . import _places, _streams
from ._documents import Found, document_of
from ._streams import DAMAGED, CheckpointReader, RefusedError


def export(reader: CheckpointReader, target: str, replace: bool) -> None:
    """Write the checkpoint as one file that contains {"model": ..., "optimizer": ..., "zero":
    ...}."""
    if not hasattr(torch.serialization, "skip_data"):
        raise RefusedError(f"this torch is {torch.__version__}; an export to torch needs 2.13")
    # The memory of these tensors is never touched, because their bytes are not written to the file.
    room = {entry.name: torch.empty(entry.shape, dtype=entry.dtype) for entry in reader.entries}
    document = document_of(reader.description, room.__getitem__, by_name=False)
    with _places.new_file(target, replace) as path:
        # A Python file reports why a write failed, which torch's own writer does not.
        with torch.serialization.skip_data(), open(path, "wb") as new:
            torch.save(document, new)
        held = set(map(id, room.values()))
        with open(path, "r+b") as file:
            places = dict(zip(map(id, _tensors_of(document)), _tensors_of(load(file))))
            for tensor in _tensors_of(document):
                if id(tensor) not in held:
                    _write(file, places[id(tensor)], [tensor.numpy().tobytes()])
            for entry in reader.entries:
                if id(room[entry.name]) in places:
                    _write(file, places[id(room[entry.name])], reader.parts(entry))
            reader.skip_to(None)  # for example, master weights of parameters without other state
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

# Flags of zip archives.
_ENCRYPTED = 1
_DIRECTORY = 0x10


class _Reader(torch._C.PyTorchFileReader):
    """A reader of torch for a file, which is a zip archive. It reads no tensors: storages have no
    memory, but `record`, which is where the storage begins in the file, and its length."""

    def get_record(self, name: str) -> bytes:
        data = super().get_record(name)
        if name == "byteorder" and data.decode(errors="replace") != sys.byteorder:
            # torch would byte-swap tensors that it has not read here, and crash.
            raise RefusedError(
                f"its record 'byteorder' says {data.decode(errors='replace')!r}, and this machine is "
                f"{sys.byteorder}-endian: save what torch.load reads of it here with torch.save"
            )
        return data

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> torch.Tensor:
        size = self.get_record_size(name)
        if size != numel:
            raise RefusedError(f"its record {name!r} has {size} bytes, and its tensors need {numel}{DAMAGED}")
        storage = cast(Any, torch.UntypedStorage)(size, device="meta")
        storage.record = cast(Any, self).get_record_offset(name), size
        return torch.empty(0, dtype=torch.uint8, device="meta").set_(storage)


@contextlib.contextmanager
def _own_reader() -> Iterator[None]:
    """Make torch.load read archives with _Reader, and check strides, for which torch.load has no
    arguments."""
    core: Any = torch._C
    utils: Any = torch._utils
    reader, rebuild = core.PyTorchFileReader, utils._rebuild_tensor

    @functools.wraps(rebuild)  # torch remembers functions by their names
    def rebuild_checked(storage: Any, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Any:
        # In a storage without memory, torch takes -1 for the stride of a contiguous tensor.
        if min(strides, default=0) < 0:
            raise RefusedError(f"a tensor of shape {tuple(shape)} has the strides {tuple(strides)}{DAMAGED}")
        return rebuild(storage, offset, shape, strides)

    core.PyTorchFileReader, utils._rebuild_tensor = _Reader, rebuild_checked
    try:
        yield
    finally:
        core.PyTorchFileReader, utils._rebuild_tensor = reader, rebuild


def _check_stored(file: IO[bytes]) -> None:
    """Check that the archive is complete, and that its records are the bytes that were saved."""
    if file.read(4) != b"PK\3\4":
        raise RefusedError(
            "it is not a torch.save file, or has the format of torch before 1.6: give a file that torch.save wrote"
        )
    with zipfile.ZipFile(file) as archive:
        for record in archive.infolist():
            if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & _ENCRYPTED:
                raise RefusedError(
                    f"its records are compressed or encrypted, such as {record.filename!r}: save what torch.load reads "
                    "of it with torch.save"
                )
            if record.external_attr & _DIRECTORY and not record.is_dir():  # torch.load leaves its tensors zero
                raise RefusedError(f"its record {record.filename!r} is a directory{DAMAGED}")
            archive.open(record).close()  # checks the local header
    file.seek(0)


def _on_host(storage: Any, device: Any) -> Any:
    if not isinstance(device, str):
        raise RefusedError(f"a tensor is on the device {device!r}, which is not a name{DAMAGED}")
    return storage


def _check_extents(loaded: Any) -> None:
    """Check that each tensor lies in its record. torch does not check storages without memory."""
    for tensor in _tensors_of(loaded):
        if tensor.layout == torch.strided and tensor.numel() > 0:
            storage: Any = tensor.untyped_storage()
            _, size = getattr(storage, "record", (0, storage.nbytes()))
            steps = [(length - 1) * step for length, step in zip(tensor.shape, tensor.stride())]
            end = (tensor.storage_offset() + sum(steps) + 1) * tensor.dtype.itemsize
            if tensor.storage_offset() < 0 or end > size:
                raise RefusedError(
                    f"a tensor of shape {tuple(tensor.shape)} ends at byte {end} of a record with {size} bytes{DAMAGED}"
                )


def load(file: IO[bytes]) -> Any:
    """Return the contents of a file without the bytes of tensors. Each tensor keeps its place in
    the file. Only types that torch loads from untrusted files are allowed. For any other type,
    RefusedError names it."""
    if not hasattr(torch._C.PyTorchFileReader, "get_record_size"):
        raise RefusedError(f"this torch is {torch.__version__}; an import of its files needs 2.13")
    try:
        _check_stored(file)
        # Megatron saves its arguments as a Namespace.
        with torch.serialization.safe_globals([argparse.Namespace]), _own_reader():
            loaded = torch.load(file, weights_only=True, map_location=_on_host)
        _check_extents(loaded)
        return loaded
    except (RefusedError, OSError):
        raise
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)|<(?:class|enum) '([\w.]+)'>|<.*(?:function|method) ([\w.]+)", str(error))
        if named is None:  # torch's message says how to load the file with trust
            raise RefusedError(
                "it is not a torch.save file, or torch runs code to read it"
            ) from None
        raise RefusedError(
            f"it has {next(filter(None, named.groups()))}, which is not one of the classes that can be read without "
            "running code: save it without that, or as plain numbers, strings, lists and dictionaries"
        ) from None
    except NotImplementedError:  # storages without memory have none of these tensors
        raise RefusedError("it has tensors that are not dense, such as quantized ones") from None
    except Exception as error:  # torch's unpickler raises any exception for a damaged file
        why = f" ({str(error).splitlines()[0]})" if isinstance(error, RuntimeError) and str(error) else ""
        raise RefusedError(
            f"it is not a torch.save file, or is damaged{why}: give a file that torch.save wrote"
        ) from None


def offset_of(tensor: torch.Tensor) -> int:
    """Return the byte offset of a loaded tensor in its file."""
    start, _ = getattr(tensor.untyped_storage(), "record", (None, 0))
    if start is None:
        raise RefusedError("it has a tensor without data, as on the device 'meta': save what is trained")
    return int(start) + int(tensor.storage_offset()) * tensor.dtype.itemsize


def found(file: IO[bytes], begin: int, tensor: torch.Tensor) -> Found:
    """Return a Found for a loaded tensor whose data begins at the byte offset `begin` of the
    file."""
    start = begin + offset_of(tensor)

    def parts() -> Iterator[torch.Tensor]:
        # The stored elements of a tensor with torch's negative bit have the opposite sign.
        return (-part if tensor.is_neg() else part for part in stored())

    def stored() -> Iterator[torch.Tensor]:
        steps = tensor.stride()
        if tensor.is_contiguous():
            yield from read(file, start, tensor.dtype, tensor.numel())
        elif tensor.numel() > 0:  # read the whole range, because other tensors may be interleaved
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
        yield with_places(file, load(file))

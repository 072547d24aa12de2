# SPDX-License-Identifier: Apache-2.0
"""Reads and writes directories of torch.distributed.checkpoint. Directories are written by torch,
from tensors that arrive in parts. They are read without unpickling data that could run code."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import pickle
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, Optional, cast

import torch
from torch.distributed.checkpoint import metadata as meta
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import (
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.state_dict_saver import save

from . import _places, _streams, _torch_files
from ._directories import Document
from ._documents import Found, document_of
from ._streams import DAMAGED, CheckpointReader, Entry, RefusedError

# ---- There.


class _Coming:
    """A tensor of the stream. It has the form in which torch's planner accepts an object that is
    not a torch.Tensor."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    def __create_write_items__(self, fqn: str, _: Any) -> list[WriteItem]:
        entry = self.entry
        properties = meta.TensorProperties(dtype=entry.dtype)
        return [
            WriteItem(
                index=meta.MetadataIndex(fqn, offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=meta.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)),
                    properties=properties,
                    size=torch.Size(entry.shape),
                ),
            )
            for offsets, sizes in _streams.boxes(entry.shape, entry.dtype.itemsize)
        ]


class _Planner(DefaultSavePlanner):
    """A planner that makes torch write items in the order of the stream, with at most one item in
    memory."""

    def __init__(self, reader: CheckpointReader) -> None:
        super().__init__()
        self._reader = reader
        self._entry: Optional[Entry] = None  # the latest item
        self._memory = torch.empty(0, dtype=torch.uint8)  # the memory of the latest item

    def create_local_plan(self) -> SavePlan:
        plan: SavePlan = super().create_local_plan()
        order = {entry.name: number for number, entry in enumerate(self._reader.entries)}

        def place(item: WriteItem) -> int:
            held = self.state_dict[item.index.fqn]
            return order[held.entry.name] if isinstance(held, _Coming) else -1

        plan.items.sort(key=place)
        return plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        held = self.state_dict[write_item.index.fqn]
        if not isinstance(held, _Coming):
            return super().resolve_data(write_item)
        if held.entry is not self._entry:
            self._entry = held.entry
            self._reader.skip_to(held.entry)
        assert write_item.tensor_data is not None
        sizes, dtype = write_item.tensor_data.chunk.sizes, held.entry.dtype
        if self._memory.nbytes != sizes.numel() * dtype.itemsize:
            # torch's writer keeps every tensor that it has written.
            self._memory.untyped_storage().resize_(0)
            self._memory = torch.empty(sizes.numel() * dtype.itemsize, dtype=torch.uint8)
        # A ctypes view is used because torch cannot resize a tensor whose memory a numpy array
        # shares.
        memory = (ctypes.c_ubyte * self._memory.nbytes).from_address(self._memory.data_ptr())
        self._reader.fill(memoryview(memory).cast("B"))
        return self._memory.view(dtype).view(sizes)


def export(reader: CheckpointReader, target: str, replace: bool) -> None:
    """Write the checkpoint as a directory of torch.distributed.checkpoint. It has the keys that a
    state_dict of a model and an optimizer has, for example "model.w" and
    "optimizer.state.w.exp_avg"."""
    entries = {entry.name: entry for entry in reader.entries}
    document = document_of(reader.description, lambda name: _Coming(entries[name]), by_name=True)
    with _places.new_directory(target, replace, r"\.metadata|__\d+_\d+\.distcp") as path:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that there is only one process
            try:
                save(
                    document,
                    storage_writer=FileSystemWriter(path),
                    planner=_Planner(reader),
                    no_dist=True,
                )
            except CheckpointException as error:
                raise next(iter(error.failures.values()))[0] from None  # the only rank's failure
        reader.skip_to(None)


# ---- Back.

_ALLOWED = {
    ("torch.distributed.checkpoint.metadata", name)
    for name in (
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    )
} | {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib._local", "PosixPath"),
    ("collections", "OrderedDict"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise RefusedError(
            f"it has {module}.{name}, which is not one of the classes that can be read without "
            "running code"
        )


def _read_metadata(path: str) -> meta.Metadata:
    try:
        with _places.open_regular(os.path.join(path, ".metadata"), links=False) as file:
            read = _Unpickler(file).load()
    except OSError as error:
        raise RefusedError(f"not a torch.distributed.checkpoint directory: {error}") from None
    except RefusedError:
        raise
    except Exception:  # pickle raises any exception for a damaged file
        raise RefusedError(f"its .metadata cannot be read{DAMAGED}") from None
    if not isinstance(read, meta.Metadata):
        raise RefusedError(f"its .metadata is of the wrong type{DAMAGED}")
    return read


class _Part(io.RawIOBase):
    """A part of a file, as a file. It has its own position."""

    def __init__(self, file: IO[bytes], begin: int, size: int) -> None:
        self._file, self._begin, self._size, self._at = file, begin, size, 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readable(self) -> bool:
        return True

    def readinto(self, memory: Any) -> int:
        self._file.seek(self._begin + self._at)
        data = self._file.read(max(0, min(len(memory), self._size - self._at)))
        memory[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Box(NamedTuple):
    offsets: torch.Size
    sizes: torch.Size


class _Place(NamedTuple):
    file: str
    begin: int
    size: int
    changes: Any  # transforms that writer extensions have applied


class _Pieces:
    """The contents of the files."""

    def __init__(self, path: str, read: meta.Metadata, opened: contextlib.ExitStack) -> None:
        self._path, self._opened = path, opened
        self._files: dict[str, IO[bytes]] = {}
        self.places = {
            index: _Place(str(info.relative_path), int(info.offset), int(info.length), info.transform_descriptors)
            for index, info in (read.storage_data or {}).items()
        }

    def _place(self, index: meta.MetadataIndex) -> _Place:
        place = self.places.get(index)
        if place is None:
            raise RefusedError(f"no file holds {index.fqn!r}{DAMAGED}")
        if place.changes:
            raise RefusedError(f"{index.fqn!r} was changed by extensions of its writer")
        if place.begin < 0:
            raise RefusedError(f"{index.fqn!r} begins at byte {place.begin}{DAMAGED}")
        return place

    def load(self, index: meta.MetadataIndex) -> tuple[IO[bytes], int, Any]:
        """Return the file of a piece, the byte offset of the piece, and its contents in the form
        that _torch_files.load returns."""
        place = self._place(index)
        name = place.file
        if name not in self._files:
            if os.path.basename(name) != name:
                raise RefusedError(f"its .metadata names a file {name!r} outside the directory")
            self._files[name] = self._opened.enter_context(
                _places.open_regular(os.path.join(self._path, name), links=False)
            )
        file = self._files[name]
        part = cast(IO[bytes], _Part(file, place.begin, place.size))
        try:
            return file, place.begin, _torch_files.load(part)
        except RefusedError as error:
            raise RefusedError(f"{name}, for {index.fqn!r}: {error}") from None

    def tensor(self, fqn: str, of: meta.TensorStorageMetadata) -> Found:
        dtype, shape = of.properties.dtype, torch.Size(of.size)
        chunks = [_Box(torch.Size(one.offsets), torch.Size(one.sizes)) for one in of.chunks]
        if not isinstance(dtype, torch.dtype) or any(len(box) != len(shape) for one in chunks for box in one):
            raise RefusedError(f"its .metadata has another type or shape for {fqn!r} than for parts of it{DAMAGED}")
        for chunk in chunks:
            self._place(meta.MetadataIndex(fqn, chunk.offsets))
        return Found(dtype, tuple(shape), fqn, lambda: self._parts(fqn, dtype, shape, chunks))

    def _parts(
        self, fqn: str, dtype: torch.dtype, shape: torch.Size, chunks: Sequence[_Box]
    ) -> Iterator[torch.Tensor]:
        found = []
        for chunk in chunks:
            file, begin, tensor = self.load(meta.MetadataIndex(fqn, chunk.offsets))
            if not isinstance(tensor, torch.Tensor) or (tensor.shape, tensor.dtype) != (chunk.sizes, dtype):
                raise RefusedError(f"a part of {fqn!r} does not match .metadata{DAMAGED}")
            found.append((chunk, file, begin, tensor))
        for offsets, sizes in _streams.boxes(shape, dtype.itemsize):
            whole = torch.empty(sizes, dtype=dtype)
            times = torch.zeros(sizes, dtype=torch.uint8)
            for one in found:
                _copy_common(whole, times, offsets, *one)
            if not times.eq(1).all():
                raise RefusedError(f"parts of {fqn!r} are missing or repeated{DAMAGED}")
            yield whole


def _copy_common(
    whole: torch.Tensor,
    times: torch.Tensor,
    offsets: Sequence[int],
    chunk: _Box,
    file: IO[bytes],
    begin: int,
    tensor: torch.Tensor,
) -> None:
    """Copy the intersection of a box and a chunk, and count it in `times`. The chunk consists of
    the bytes of `tensor`, starting at byte `begin`. The box is contiguous in the whole tensor, so
    the intersection is contiguous in the chunk's order of elements."""
    first = [max(a, b) for a, b in zip(offsets, chunk.offsets)]
    last = [
        min(a + n, b + m) for a, n, b, m in zip(offsets, whole.shape, chunk.offsets, chunk.sizes)
    ]
    sizes = [end - begin for begin, end in zip(first, last)]
    if any(size <= 0 for size in sizes):
        return
    at = 0
    for edge, place, size in zip(first, chunk.offsets, chunk.sizes):
        at = at * size + (edge - place)
    count = torch.Size(sizes).numel()
    inside = tuple(slice(a - b, a - b + n) for a, b, n in zip(first, offsets, sizes))
    if tensor.is_contiguous() and not tensor.is_neg():
        start = begin + _torch_files.offset_of(tensor) + at * whole.dtype.itemsize
        values = torch.cat(list(_torch_files.read(file, start, whole.dtype, count)))
    else:  # for example, a channels-last tensor, or one with torch's negative bit
        parts = [part.flatten() for part in _torch_files.found(file, begin, tensor).parts()]
        values = torch.cat(parts)[at : at + count]
    whole[inside] = values.view(sizes)
    times[inside] += 1


@contextlib.contextmanager
def document(path: str) -> Iterator[Any]:
    """Yield the saved dictionaries, with a Found for each tensor."""
    read = _read_metadata(path)
    if not isinstance(read.planner_data, Mapping):
        raise RefusedError("its .metadata does not say how its keys were nested")
    with contextlib.ExitStack() as opened:
        try:
            whole = _document(path, read, opened)
        except (RefusedError, OSError):
            raise
        except Exception:
            raise RefusedError(f"its .metadata has other parts than torch writes{DAMAGED}") from None
        yield whole


def _document(path: str, read: meta.Metadata, opened: contextlib.ExitStack) -> Document:
    pieces = _Pieces(path, read, opened)
    flat: dict[str, Any] = {}
    for fqn, of in read.state_dict_metadata.items():
        if fqn != ".".join(map(str, read.planner_data[fqn])):
            raise RefusedError(f"its .metadata has {read.planner_data[fqn]} as {fqn!r}{DAMAGED}")
        if isinstance(of, meta.TensorStorageMetadata):
            flat[fqn] = pieces.tensor(fqn, of)
        elif isinstance(of, meta.BytesStorageMetadata):
            flat[fqn] = pieces.load(meta.MetadataIndex(fqn))[2]
        else:
            raise RefusedError(f"its .metadata has {fqn!r} as a {type(of).__name__}{DAMAGED}")
    whole = Document(unflatten_state_dict(flat, dict(read.planner_data)))
    _mend(whole)
    known = {".metadata", *(place.file for place in pieces.places.values())}
    whole.beside = sorted(set(os.listdir(path)) - known)
    return whole


def _mend(value: Any) -> None:
    """Restore details of an optimizer that torch.distributed.checkpoint drops. These are the empty
    dictionary of an optimizer without state, and keys that are numbers."""
    if not isinstance(value, dict):
        return
    for one in value.values():
        _mend(one)
    if "param_groups" in value:
        groups = value["param_groups"]
        params = [key for group in groups for key in group.get("params", ())] if _are_dicts(groups) else []
        numbers = {str(key): key for key in params if isinstance(key, int)}
        state = value.setdefault("state", {})
        if numbers and isinstance(state, dict):
            value["state"] = {numbers.get(key, key): one for key, one in state.items()}


def _are_dicts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)

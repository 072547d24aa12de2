# SPDX-License-Identifier: Apache-2.0
"""Reads and writes checkpoints as streams of tensors. `zero merge --with-state` writes such a
stream, and `zero import` reads one. Other modules therefore do not depend on the checkpoint
format."""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, Optional, cast

import torch

from .. import _program

DTYPES = {
    "F64": torch.float64,
    "I64": torch.int64,
    "F32": torch.float32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
DESCRIPTION = "zero"
DAMAGED = ": it is damaged, so give another copy"  # the end of an error message
# The largest part of a tensor that is in memory at one time.
PART_BYTES = 8 << 20

# The output of `zero inspect --json` for a checkpoint, without the path.
Description = dict[str, Any]


class RefusedError(Exception):
    """An export or import is not possible, for the reason in the text."""


class ToldError(Exception):
    """The program `zero` failed, and has printed the reason."""


class Entry(NamedTuple):
    """A tensor in a stream."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


Box = tuple[tuple[int, ...], tuple[int, ...]]  # offsets and sizes


def boxes(shape: Sequence[int], itemsize: int) -> Iterator[Box]:
    """Yield boxes that cover a tensor, in order. Each box is contiguous and has at most
    PART_BYTES."""
    depth, inner = len(shape), itemsize
    while depth > 0 and inner * shape[depth - 1] <= PART_BYTES:
        depth -= 1
        inner *= shape[depth]
    if depth == 0 or 0 in shape:
        yield (0,) * len(shape), tuple(shape)
        return
    rows, rest = max(1, PART_BYTES // inner), tuple(shape[depth:])
    outer = tuple(shape[: depth - 1])
    for at in itertools.product(*map(range, outer)):
        for first in range(0, shape[depth - 1], rows):
            count = min(rows, shape[depth - 1] - first)
            yield (*at, first, *(0 for _ in rest)), (*(1 for _ in outer), count, *rest)


class CheckpointReader:
    """Reads the tensors of a checkpoint one after another, and verifies each byte."""

    def __init__(self, checkpoint: str) -> None:
        command = [_program.find(), "merge", "--with-state", "--", checkpoint, "-"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._stream = cast(IO[bytes], self._process.stdout)
        (length,) = struct.unpack("<Q", self.take(8))
        header = json.loads(self.take(length))
        self.description: Description = json.loads(header.pop("__metadata__")[DESCRIPTION])
        entries = sorted(header.items(), key=lambda item: cast(list[int], item[1]["data_offsets"]))
        self.entries = [
            Entry(name, DTYPES[entry["dtype"]], tuple(entry["shape"])) for name, entry in entries
        ]
        self._coming = iter(self.entries)

    def take(self, count: int) -> bytearray:
        """Return the next bytes."""
        taken = bytearray(count)
        self.fill(memoryview(taken))
        return taken

    def fill(self, memory: memoryview) -> None:
        """Read the next bytes into `memory`."""
        while len(memory) > 0:
            count = self._stream.readinto(memory)  # type: ignore[attr-defined]
            if not count:
                self._process.wait()
                raise ToldError
            memory = memory[count:]

    def skip_to(self, entry: Optional[Entry]) -> None:
        """Skip the bytes before a tensor, or all bytes that are left."""
        for other in self._coming:
            if other is entry:
                return
            for _ in self._parts(other.bytes):
                pass

    def parts(self, entry: Entry) -> Iterator[bytearray]:
        """Yield the bytes of a tensor, which begin after the bytes that have been read."""
        self.skip_to(entry)
        yield from self._parts(entry.bytes)

    def _parts(self, left: int) -> Iterator[bytearray]:
        while left:
            yield self.take(min(left, PART_BYTES))
            left -= min(left, PART_BYTES)

    def close(self) -> None:
        self._stream.close()
        self._process.wait()


def write_checkpoint(
    target: str,
    options: Sequence[str],
    description: Description,
    tensors: Sequence[tuple[Entry, Iterable[Any]]],
) -> None:
    """Write a checkpoint by running `zero import` with these options. Its input is the description
    and the parts of each tensor. Tensors of the model come first, followed by tensors of state."""
    model = {tensor["name"] for kind in ("parameters", "buffers") for tensor in description[kind]}
    ordered = sorted(
        tensors,
        key=lambda one: (one[0].name not in model, -one[0].dtype.itemsize, one[0].name.encode()),
    )
    header: dict[str, Any] = {"__metadata__": {DESCRIPTION: json.dumps(description)}}
    end = 0
    for entry, _ in ordered:
        if entry.name in header:
            raise RefusedError(
                f"{entry.name!r} is both a tensor of the model and a state of another: save the model with other names"
            )
        header[entry.name] = {
            "dtype": CODES[entry.dtype],
            "shape": entry.shape,
            "data_offsets": [end, end + entry.bytes],
        }
        end += entry.bytes
    head = json.dumps(header).encode()
    command = [_program.find(), "import", "--from", "hf", *options, "--", "-", target]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    stream = cast(IO[bytes], process.stdin)
    try:
        stream.write(struct.pack("<Q", len(head)) + head)
        for _, parts in ordered:
            for part in parts:
                stream.write(part)
    except BrokenPipeError:
        pass  # the program has printed the reason
    except BaseException:
        process.terminate()  # the program removes incomplete files
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            stream.close()
        status = process.wait()
    if status:
        raise ToldError

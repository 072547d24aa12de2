# SPDX-License-Identifier: Apache-2.0
"""Implements `python -m libzero export` and `import` for torch's formats."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any

from . import _dcp, _directories, _torch_files
from ._account import Patterns
from ._imports import Wanted, checkpoint_of
from ._streams import CheckpointReader, RefusedError, ToldError, write_checkpoint

_FORMATS = {"torch": _torch_files, "dcp": _dcp}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m libzero", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    there = commands.add_parser("export", allow_abbrev=False)
    there.add_argument("--to", dest="format", choices=_FORMATS, required=True)
    there.add_argument("source", metavar="CHECKPOINT")
    there.add_argument("target", metavar="PATH")
    back = commands.add_parser("import", allow_abbrev=False)
    back.add_argument("--from", dest="format", choices=_FORMATS, required=True)
    back.add_argument("source", metavar="PATH")
    back.add_argument("target", metavar="CHECKPOINT")
    back.add_argument("--rule")
    back.add_argument("--order")
    for patterns in ("--buffers", "--ignore"):
        back.add_argument(patterns, default="")
    back.add_argument("--fill", action="store_true")
    for command in (there, back):
        command.add_argument("--replace", action="store_true")
        command.add_argument("--json", action="store_true")
    return parser


def _export(asked: argparse.Namespace) -> None:
    reader = CheckpointReader(asked.source)
    try:
        _FORMATS[asked.format].export(reader, asked.target, asked.replace)
    finally:
        reader.close()
    tensors = len(reader.entries)
    if asked.json:
        print(json.dumps({"checkpoint": asked.source, "path": asked.target, "tensors": tensors}))
    else:
        print(f"{asked.target}: {tensors} tensors")


def _import(asked: argparse.Namespace) -> None:
    ignore, buffers = (_patterns(name, getattr(asked, name)) for name in ("ignore", "buffers"))
    wanted = Wanted(asked.rule, buffers, asked.order, ignore, asked.fill)
    if re.search(r"-\d{5}-of-(?!00001)\d{5}\.\w+$", asked.source):
        raise RefusedError("it is one of several files of a model: give their directory")
    of_files = asked.format == "torch" and os.path.isdir(asked.source)
    if of_files:
        reader = _directories.document(asked.source, ignore)
    else:
        reader = _FORMATS[asked.format].document(asked.source)
    with reader as document:
        imported = checkpoint_of(document, wanted)
        options = [f"--{name}" for name in ("replace", "json") if getattr(asked, name)]
        write_checkpoint(asked.target, options, imported.description, imported.tensors)
    for told in imported.left:
        print(f"python -m libzero import: {asked.source!r}: {told}", file=sys.stderr)


def _patterns(option: str, words: str) -> Patterns:
    return Patterns(f"--{option}", [word for word in words.split(",") if word])


def _end(number: int, _: Any) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str]) -> int:
    asked = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)  # exits only after incomplete files have been removed
    try:
        (_export if asked.command == "export" else _import)(asked)
    except ToldError:
        return 1
    except Exception as error:
        # A RuntimeError comes from torch.
        told = isinstance(error, (RefusedError, OSError, RuntimeError))
        if asked.command == "export" and not told:
            raise
        # Reading a damaged file may raise any exception.
        why = error if told else f"it is not what it says, or damaged ({type(error).__name__}): give another copy"
        where = asked.source if asked.command == "import" else asked.target
        print(f"python -m libzero {asked.command}: {where!r}: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 0

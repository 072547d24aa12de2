#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains third-party engines with their own optimizer and with libzero, and compares the results.

usage: run.py [--source ENGINE=FOLDER]... [--steps N] [ENGINE...]

Programs of this folder use an engine that is installed. They are compiled twice, with and without
-DWITH_LIBZERO. The other engines are fetched by version into a scratch folder, or copied from --source,
and changed there by the edits in engine_NAME.py. Each engine then trains alone with its own optimizer, and
with libzero on 1 and on 3 ranks (2 if the batch has 4 rows). The output has the number of lines that libzero
took, the difference of the trained numbers, and the time of an update. An engine that cannot be built here
is "not run", with the reason. The exit status is 1 if numbers differ by more than TOLERANCE.

LIBZERO_LIB_DIR is the folder of libzero.so, ZERO_RUN is the launcher, and TORCH_PYTHON is a Python that has torch.
"""

from __future__ import annotations

import argparse
import array
import difflib
import importlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARIES = os.environ.get("LIBZERO_LIB_DIR", str(ROOT / "build/src"))
ZERO_RUN = os.environ.get("ZERO_RUN", "zero-run")
TORCH_PYTHON = os.environ.get("TORCH_PYTHON", sys.executable)
# The limit for parameters after a few dozen steps, or for losses. A different order of sums changes them by less.
TOLERANCE = 1e-4


class NotHere(Exception):
    """The reason why an engine cannot be run on this machine."""


@dataclass(frozen=True)
class Built:
    """The two programs, as commands, and the numbers of lines that libzero added and removed."""

    own: list[str]
    with_libzero: list[str]
    added: int
    removed: int
    numbers: Callable[[Path, str], Sequence[float]]
    """Returns the numbers, from the folder of a run and its output."""
    ranks: int = 3
    prepare: Callable[[Path], None] = lambda folder: None
    """Writes the input files of a run."""


def run(*command: object, **options) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise NotHere(f"{program} is not installed")
    return found


def linked() -> list[str]:
    return ["-I", str(ROOT / "include"), "-L", LIBRARIES, "-lzero", f"-Wl,-rpath,{LIBRARIES}"]


# ---- Programs of this folder -------------------------------------------------------------


def parameters(folder: Path, _: str) -> Sequence[float]:
    values = array.array("f")
    values.frombytes((folder / "parameters").read_bytes())
    return values


def twice(scratch: Path, source: str, steps: int, compiler: Sequence[str], libraries: Sequence[str]) -> Built:
    text = (HERE / source).read_text(encoding="utf-8")
    parts = re.findall(r"#ifdef WITH_LIBZERO\n(.*?)(?:#else\n(.*?))?#endif", text, re.DOTALL)
    programs = []
    for name, words in (("own", []), ("with_libzero", ["-DWITH_LIBZERO"])):
        run(*compiler, *words, HERE / source, "-o", scratch / name, *libraries, *linked())
        programs.append([str(scratch / name), str(steps), "parameters"])
    added, removed = (sum(part[side].count("\n") for part in parts) for side in (0, 1))
    return Built(*programs, added, removed, parameters)


def one_block(scratch: Path, steps: int) -> Built:
    """The memory layout of llm.c: all parameters in one block, all gradients in another."""
    compiler = [needs(os.environ.get("CC", "cc")), "-O2", "-Wall", "-Wextra", "-Werror"]
    return twice(scratch, "one_block.c", steps, compiler, ["-lm"])


def dlib(scratch: Path, steps: int) -> Built:
    compiler = needs(os.environ.get("CXX", "c++"))
    if not Path("/usr/include/dlib/dnn.h").exists():
        raise NotHere("dlib is not installed")
    return twice(scratch, "dlib.cpp", steps, [compiler, "-std=c++20", "-O1"], ["-ldlib", "-lpthread"])


def torch_compiler() -> tuple[list[str], list[str]]:
    """The commands that compile and link programs with the libtorch of TORCH_PYTHON. They do not optimize, because
    the code that takes the time is in torch and in libzero."""
    compiler = needs(os.environ.get("CXX", "c++"))
    asked = subprocess.run([TORCH_PYTHON, "-c", "import torch; print(torch.__path__[0])"],
                           capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise NotHere("no torch is installed for Python")
    torch = asked.stdout.strip()
    return ([compiler, "-std=c++20", "-O0", "-isystem", f"{torch}/include",
             "-isystem", f"{torch}/include/torch/csrc/api/include"],
            [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-ltorch", "-ltorch_cpu", "-lc10"])


def libtorch(scratch: Path, steps: int) -> Built:
    return twice(scratch, "libtorch.cpp", steps, *torch_compiler())


def candle(scratch: Path, steps: int) -> Built:
    cargo, crate = needs("cargo"), scratch / "candle"
    shutil.copytree(HERE / "candle", crate)
    manifest = crate / "Cargo.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("../../..", str(ROOT)), encoding="utf-8")
    environment = os.environ | {"LIBZERO_LIB_DIR": LIBRARIES, "CARGO_NET_RETRY": "0"}
    programs = []
    for name, words in (("own", []), ("with_libzero", ["--features", "with_libzero"])):
        try:
            run(cargo, "build", "--release", "--quiet", "--target-dir", scratch / name, *words, cwd=crate, env=environment)
        except RuntimeError as error:
            if "candle-core" not in str(error) or "error[" in str(error):
                raise
            raise NotHere("no registry of crates is in reach, or it has no candle") from None
        programs.append([str(scratch / name / "release/candle-with-libzero"), str(steps), "parameters"])
    added, removed = ((HERE / "candle/src" / file).read_text(encoding="utf-8").count("\n")
                      for file in ("with_libzero.rs", "own.rs"))
    return Built(*programs, added, removed, parameters)


# ---- Engines that are fetched and edited -------------------------------------------------


def fetched(project: str, commit: str, into: Path) -> None:
    """Unpacks a commit of a project on GitHub."""
    address = f"https://github.com/{project}/archive/{commit}.tar.gz"
    archive = into.with_suffix(".tar.gz")
    try:
        with urllib.request.urlopen(address, timeout=60) as answer, archive.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except OSError as error:
        raise NotHere(f"{address} cannot be had: {error}") from None
    into.mkdir()
    run("tar", "-xzf", archive, "-C", into, "--strip-components=1")


def edited(folder: Path, edits: Sequence[tuple[str, str, str]]) -> tuple[int, int]:
    """Replaces the one match of a pattern in each file. \\1 and so on are its groups."""
    added = removed = 0
    for name in dict.fromkeys(edit[0] for edit in edits):
        file = folder / name
        before = after = file.read_text(encoding="utf-8")
        for pattern, text in (edit[1:] for edit in edits if edit[0] == name):
            after, places = re.subn(pattern, text, after, flags=re.MULTILINE | re.DOTALL)
            if places != 1:
                raise RuntimeError(f"{name} has {places} places that match {pattern!r}")
        file.write_text(after, encoding="utf-8")
        for line in difflib.ndiff(before.splitlines(), after.splitlines()):
            added += line.startswith("+ ")
            removed += line.startswith("- ")
    return added, removed


CLOCKS = {
    ".c": r"""{
struct timespec before, after;
clock_gettime(CLOCK_MONOTONIC, &before);
\g<0>
clock_gettime(CLOCK_MONOTONIC, &after);
printf("step: %.1f us\\n", (after.tv_sec - before.tv_sec) * 1e6 + (after.tv_nsec - before.tv_nsec) / 1e3);
}""",
    ".f90": r"""block
integer(8) :: before, after, per_second
call system_clock(before, per_second)
\g<0>
call system_clock(after)
print '(a, f0.1, a)', 'step: ', (after - before) * 1d6 / per_second, ' us'
end block""",
}


def clock(name: str, update: str) -> list[tuple[str, str, str]]:
    """Returns edits that print the time of the one call that updates."""
    include = [(name, r"\A", "#include <time.h>\n")] if name.endswith(".c") else []
    return [*include, (name, update, CLOCKS[Path(name).suffix])]


def foreign(name: str, source: str | None, scratch: Path, steps: int) -> Built:
    engine = importlib.import_module(f"engine_{name.replace('.', '_').replace('-', '_')}")
    for program in engine.PROGRAMS:
        needs(program)
    own, changed = scratch / "own", scratch / "with_libzero"
    if source is None:
        fetched(engine.PROJECT, engine.COMMIT, own)
    else:
        shutil.copytree(source, own)
    shutil.copytree(own, changed)
    # Both train the same small model for the same number of steps, and print the time of an update.
    for folder in (own, changed):
        edited(folder, [*engine.settings(steps), *clock(*engine.UPDATE)])
    added, removed = edited(changed, engine.EDITS)
    return Built(engine.build(run, own, []), engine.build(run, changed, linked()), added, removed,
                 engine.numbers, engine.RANKS, engine.prepare)


# ---- Comparison --------------------------------------------------------------------------


def trained(scratch: Path, built: Built, command: Sequence[str]) -> tuple[Sequence[float], float]:
    """Returns the numbers, and the median time of an update in microseconds."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        built.prepare(Path(folder))
        said = run(*command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
        said = re.sub(r"^(\[0\] |\[\d+\] .*\n)", "", said, flags=re.MULTILINE)  # the output of rank 0
        took = [float(time) for time in re.findall(r"step: ([\d.]+) us", said)]
        return built.numbers(Path(folder), said), statistics.median(took)


def compare(built: Built, scratch: Path) -> tuple[float, str]:
    """Returns the largest difference, and a line about it."""
    own, own_us = trained(scratch, built, built.own)
    worst, times = 0.0, [f"{own_us:.0f} us by itself"]
    for ranks in (1, built.ranks):
        values, took = trained(scratch, built, [ZERO_RUN, "-n", str(ranks), *built.with_libzero])
        if len(values) != len(own) or not own:
            raise RuntimeError(f"{len(own)} numbers of its own, {len(values)} on {ranks} ranks")
        worst = max(worst, *(abs(a - b) for a, b in zip(own, values)))
        times.append(f"{took:.0f} us on {ranks} ranks" if ranks > 1 else f"{took:.0f} us with libzero")
    return worst, (f"+{built.added} -{built.removed} lines, {len(own)} numbers differ by at most {worst:.1e}; "
                   f"an update takes {', '.join(times)}")


PROGRAMS = {"one_block": one_block, "dlib": dlib, "libtorch": libtorch, "candle": candle}
FOREIGN = sorted(path.stem.removeprefix("engine_") for path in HERE.glob("engine_*.py"))
FETCHED = ["candle", *FOREIGN]
ENGINES = [*PROGRAMS, *FOREIGN]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(ENGINES), default=ENGINES, choices=[*ENGINES, ENGINES])
    parser.add_argument("--source", action="append", default=[], metavar="ENGINE=FOLDER")
    parser.add_argument("--steps", type=int, default=50)
    told = parser.parse_args()
    sources = dict(source.partition("=")[::2] for source in told.source)
    failed = False
    for name in told.engines:
        with tempfile.TemporaryDirectory(prefix=f"zero-{name}-") as folder:
            scratch = Path(folder)
            try:
                built = (PROGRAMS[name](scratch, told.steps) if name in PROGRAMS
                         else foreign(name, sources.get(name), scratch, told.steps))
                worst, line = compare(built, scratch)
            except NotHere as reason:
                print(f"{name}: not run: {reason}", flush=True)
                continue
            except (RuntimeError, OSError) as error:
                print(f"{name}: failed: {error}", flush=True)
                failed = True
                continue
            print(f"{name}: {line}", flush=True)
            failed |= not worst <= TOLERANCE
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

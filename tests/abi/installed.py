# SPDX-License-Identifier: Apache-2.0
"""Installs the library, and runs programs that use it, for scripts with these arguments:

TEST MESON SOURCE_FOLDER BUILD_FOLDER CUDA_FOLDER_OR_EMPTY CC...
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

chosen, meson, source, build, cuda, *compiler = sys.argv[1:]
SOURCE, BUILD = Path(source), Path(build)
MINIMAL = SOURCE / "examples/c/minimal.c"
SAID = re.compile(r"rank 0 of 1: weights\[0\] is (1\.00, the mean 1\.00\nchecksum=[0-9A-F]{16}|0\.0\d+)\n")  # C, Rust
# Consumers do not see variables of the tests' environment that lead to a library.
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("LIBZERO", "LD_LIBRARY", "PYTHONPATH"))}
CLEAN["PYTHONDONTWRITEBYTECODE"] = "1"
# The location of the toolkit differs between machines, so static linking must give it.
LINKS_CUDA = {"LIBRARY_PATH": os.pathsep.join(str(Path(cuda) / name) for name in ("lib64", "lib"))} if cuda else {}


def run(*command: object, env: dict = CLEAN, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=3600,
                          check=False, env=env, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def trains(*command: object, **options) -> None:
    with tempfile.TemporaryDirectory(prefix="zero-checkpoint-") as folder:
        said = run(*command, Path(folder) / "checkpoint", **options)
    if not SAID.fullmatch(said):
        sys.exit(f"{command[0]} says:\n{said}")


def needs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        print(f"{', '.join(missing)}: not here")
        sys.exit(77)


def install(stage: Path, *options: str) -> None:
    run(meson, "install", "-C", BUILD, "--destdir", stage, "--no-rebuild", "--quiet", *options)


def found(stage: Path, name: str) -> Path:
    return next(stage.rglob(name))


def without_shared(stage: Path) -> None:
    for library in stage.rglob("libzero.so*"):
        library.unlink()


def run_chosen(tests: dict) -> None:
    with tempfile.TemporaryDirectory(prefix="zero-install-") as directory:
        tests[f"of_{chosen}"](Path(directory))

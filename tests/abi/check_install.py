# SPDX-License-Identifier: Apache-2.0
"""What `meson install` puts down serves a C program through pkg-config alone, shared and static.

usage: check_install.py MESON BUILD_DIRECTORY PROGRAM.c CC...
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

meson, build, source, *compiler = sys.argv[1:]


def run(*command: object, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120,
                          **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(stage: pathlib.Path) -> None:
    run(meson, "install", "-C", build, "--destdir", stage, "--no-rebuild", "--quiet")
    package = next(stage.rglob("zero.pc"))
    # Not by a system root: that would also move CUDA's runtime, which is not below it.
    prefix = re.search(r"^prefix=(.*)$", package.read_text(encoding="utf-8"), re.M)[1]
    environment = os.environ | {"PKG_CONFIG_LIBDIR": str(package.parent),
                                "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1",
                                "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}

    def flags(*options: str) -> list[str]:
        return run("pkg-config", f"--define-variable=prefix={stage}{prefix}", *options, "zero",
                   env=environment).split()

    shared, static = stage / "shared", stage / "static"
    run(*compiler, source, "-o", shared, *flags("--cflags", "--libs"))
    run(*compiler, "-static", source, "-o", static, *flags("--static", "--cflags", "--libs"))
    libraries = next(stage.rglob("libzero.so.0")).parent
    environment["LD_LIBRARY_PATH"] = str(libraries)
    print(run(shared, stage / "checkpoint-1", env=environment), end="")
    shutil.rmtree(libraries)  # the static program needs nothing of it
    print(run(static, stage / "checkpoint-2"), end="")


if shutil.which("pkg-config") is None:
    print("pkg-config is not here")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="zero-install-") as directory:
    main(pathlib.Path(directory))

# SPDX-License-Identifier: Apache-2.0
"""What `meson install` puts down serves a C program through pkg-config alone, shared and static, and a Python
program through the package alone; the build directory serves a C program through pkg-config, too.

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
    libraries = next(stage.rglob("libzero.so.0.2")).parent
    static = serves_a_program(stage, package.parent, libraries, f"--define-variable=prefix={stage}{prefix}")
    shutil.rmtree(libraries)  # the static program needs nothing of it
    print(run(static, stage / "checkpoint-static"), end="")


def serves_a_program(stage: pathlib.Path, packages: pathlib.Path, libraries: pathlib.Path,
                     *variables: str) -> pathlib.Path:
    """Compiles it by what pkg-config finds in `packages` and runs it; returns the static one."""
    environment = os.environ | {"PKG_CONFIG_LIBDIR": str(packages),
                                "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1",
                                "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}

    def flags(*options: str) -> list[str]:
        return run("pkg-config", *variables, *options, "zero", env=environment).split()

    shared, static = stage / "shared", stage / "static"
    run(*compiler, source, "-o", shared, *flags("--cflags", "--libs"))
    run(*compiler, "-static", source, "-o", static, *flags("--static", "--cflags", "--libs"))
    environment["LD_LIBRARY_PATH"] = str(libraries)
    print(run(shared, stage / "checkpoint-shared", env=environment), end="")
    return static


def check_uninstalled(stage: pathlib.Path) -> None:
    stage.mkdir()
    static = serves_a_program(stage, pathlib.Path(build) / "meson-uninstalled", pathlib.Path(build) / "src")
    print(run(static, stage / "checkpoint-static"), end="")


def check_python(stage: pathlib.Path) -> None:
    """By the tags of pyproject.toml, so that this is what a wheel has."""
    run(meson, "install", "-C", build, "--destdir", stage, "--no-rebuild", "--quiet", "--tags=python-runtime,tools")
    files = {path.name: path for path in stage.rglob("*") if path.is_file()}
    if "_abi.py" not in files:
        print("the Python package is not built here")
        return
    package = files["_abi.py"].parent
    unwanted = [name for name, path in files.items() if path.parent != package and name != "zero-run"
                and package not in path.parents]
    if unwanted or not {"py.typed", "libzero.so", "zero-run"} <= files.keys():
        sys.exit(f"a wheel would have {sorted(files)}, of which nobody needs {unwanted}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LIBZERO", "LD_"))}
    environment |= {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    said = run(sys.executable, "-m", "libzero", env=environment, cwd=stage)
    if str(package / "libzero.so") not in said:
        sys.exit(f"another library was found:\n{said}")
    program = "import libzero; comm = libzero.Comm.from_env(); comm.barrier(); print(comm.world)"
    said = run(files["zero-run"], "-n", 2, sys.executable, "-c", program, env=environment, cwd=stage)
    if sorted(said.split()) != ["2", "2", "[0]", "[1]"]:
        sys.exit(f"two ranks said:\n{said}")
    print("the Python package has its library")


if shutil.which("pkg-config") is None:
    print("pkg-config is not here")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="zero-install-") as directory:
    main(pathlib.Path(directory) / "all")
    check_python(pathlib.Path(directory) / "python")
    check_uninstalled(pathlib.Path(directory) / "uninstalled")

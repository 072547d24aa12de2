# SPDX-License-Identifier: Apache-2.0
"""Checks that "Add an optimizer" in CONTRIBUTING lists everything that the library needs for a new rule. A copy of
the sources gets a rule in this way, and the objects that know the list of rules are compiled again. The unchanged
Python package must then train with it, save and load. After scripts/mirrors.py has run, the Python tests of rules and
words must pass with it.

usage: check_new_rule.py SOURCE_FOLDER BUILD_FOLDER LIBRARY
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE, BUILD, LIBRARY = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
RULE = SOURCE / "tests/abi/new_rule/sign_of_momentum.h"

TRAIN = """
import ctypes, tempfile
import libzero

comm = libzero.Comm.solo()

def make(values):
    data, grad = (ctypes.c_float * 4)(*values), (ctypes.c_float * 4)()
    optimizer = libzero.Optimizer(comm, "sign_of_momentum", lr=0.5, momentum=0.5)
    optimizer.register({"w": data}, grads={"w": grad})
    return optimizer, data, grad

def step(optimizer, grad, values):
    grad[:] = values
    optimizer.step()

optimizer, data, grad = make([1, 2, 3, 4])
step(optimizer, grad, [1, -1, 0, 4])  # the momentum is half of that
assert list(data) == [0.5, 2.5, 3, 3.5], list(data)
folder = tempfile.mkdtemp() + "/checkpoint"
optimizer.save(folder)
second, other, other_grad = make([0, 0, 0, 0])
second.load(folder)
assert list(other) == list(data), list(other)
for each, of, its_grad in ((optimizer, data, grad), (second, other, other_grad)):
    step(each, its_grad, [-0.25, 2, 0, -2])  # (0.5 - 0.25) / 2, (-0.5 + 2) / 2, 0, (2 - 2) / 2
    assert list(of) == [0, 2, 3, 3.5], list(of)
print("sign_of_momentum trains, saves and loads")
"""


def edit(path: Path, pattern: str, replacement: str) -> None:
    """Replace the single match of the pattern."""
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.S)
    assert count == 1, f"{path}: {count} places for {pattern}"
    path.write_text(text)


def add_rule(root: Path) -> None:
    """Change the files that CONTRIBUTING lists for the library alone."""
    shutil.copytree(SOURCE / "src", root / "src")
    shutil.copytree(SOURCE / "include", root / "include")
    shutil.copy(RULE, root / "src/rules/sign_of_momentum.h")
    edit(root / "src/rules/list.h", r'("rules/sgd\.h"\n)', r'\1#include "rules/sign_of_momentum.h"\n')
    edit(root / "src/rules/list.h", r"(AllRules = RuleList<[^>]*)>", r"\1, rules::SignOfMomentum>")
    last = max(int(n) for n in re.findall(r"ZERO_OPTIMIZER_\w+ = (\d+),", (root / "include/zero.h").read_text())
               if int(n) < 100)
    edit(root / "include/zero.h", rf"(ZERO_OPTIMIZER_\w+ = {last},)", rf"\1\n    ZERO_OPTIMIZER_SIGN_OF_MOMENTUM = {last + 1},")


def objects_to_make() -> list[tuple[str, list[str]]]:
    """Return the sources of the library that know the list of rules, with their compile commands."""
    said = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    knows, current = set(), ""
    for line in said.splitlines():
        if line.endswith(")") and "#deps" in line:
            current = line.split(":")[0]
        elif line.strip().endswith("src/rules/list.h"):
            knows.add(current)
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    made = [(one["file"], shlex.split(one["command"])) for one in commands
            if one["output"] in knows and one["output"].startswith(("src/libapart.a.p/", "src/libcore.a.p/"))]
    assert made, "no object of the library knows the list of rules"
    return made


def compile_object(root: Path, file: str, command: list[str], output: Path) -> str:
    source = root / (BUILD / file).resolve().relative_to(SOURCE.resolve())
    if not source.exists():  # Meson generates it from several sources
        source = output.with_suffix(".cpp")
        source.write_text(re.sub(r"<.*/src/(.*)>", rf'"{root}/src/\1"', (BUILD / file).read_text()))
    # The precompiled header of the build has other options, so it is not used.
    flags = [word for word in command if word.startswith(("-D", "-std=", "-f")) and "FORTIFY" not in word]
    compiler = command[: next(i for i, word in enumerate(command) if word.startswith("-"))]
    subprocess.run([*compiler, *flags, "-O0", f"-I{root / 'src'}", f"-I{root / 'include'}", "-include",
                    root / "src/base/precompiled.h", "-c", source, "-o", output], check=True)
    return str(output)


def link(objects: list[str], output: Path) -> None:
    """Link the library as the build does, with these objects before the build's objects of the same names."""
    said = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", LIBRARY.resolve().relative_to(BUILD.resolve())],
                          capture_output=True, text=True, check=True).stdout
    command = shlex.split(said.strip().splitlines()[-1])
    command[command.index("-o") + 1] = str(output)
    place = command.index("-Wl,--whole-archive")
    command[place:place] = ["-Wl,--allow-multiple-definition", *objects]
    subprocess.run(command, cwd=BUILD, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        add_rule(root)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda job: compile_object(root, *job[1], root / f"{job[0]}.o"),
                                    enumerate(objects_to_make())))
        library = root / LIBRARY.name
        link(objects, library)
        environment = dict(os.environ, LIBZERO_PATH=str(library), PYTHONPATH=str(SOURCE / "bindings/python"))
        subprocess.run([sys.executable, "-c", TRAIN], env=environment, check=True)
        python = root / "bindings/python"
        shutil.copytree(SOURCE / "bindings/python", python)
        shutil.copytree(SOURCE / "scripts", root / "scripts")
        (root / "bindings/rust/libzero-sys/src").mkdir(parents=True)
        subprocess.run([sys.executable, root / "scripts/mirrors.py"], check=True)
        subprocess.run([sys.executable, "-m", "unittest", "test_typing", "test_words", "test_custom", "test_state"],
                       cwd=python / "tests", env=dict(environment, PYTHONPATH=str(python)), check=True)


main()

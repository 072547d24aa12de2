# SPDX-License-Identifier: Apache-2.0
"""Checks that the output of scripts/fortran_module.py compiles without a warning, and that its structs have the same
memory layout as in C. A program with a variable called zero is in fragments/fortran.f90.

usage: check_fortran.py SOURCE_FOLDER LAYOUT_PROGRAM
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT, LAYOUT = Path(sys.argv[1]), sys.argv[2]
FLAGS = ["-std=f2018", "-Wall", "-Wextra", "-Werror"]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))

import fortran_module  # noqa: E402


def run(*command: object, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120,
                          check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def printer(layout: dict) -> str:
    """Return a Fortran program that prints the size and the field offsets of each struct."""
    lines = ["program printer", "  use libzero", "  implicit none"]
    lines += [f"  type({name}), target :: s{number}" for number, name in enumerate(layout)]
    for number, (name, struct) in enumerate(layout.items()):
        lines.append(f"  print '(a,*(1x,i0))', '{name}', c_sizeof(s{number}) &")
        for field in struct["fields"]:
            lines.append(f"    , at(c_loc(s{number}%{field})) - at(c_loc(s{number})) &")
        lines[-1] = lines[-1].removesuffix(" &")
    return "\n".join([*lines, "contains", "  integer(c_intptr_t) function at(address)",
                      "    type(c_ptr), intent(in) :: address", "    at = transfer(address, at)",
                      "  end function", "end program", ""])


if shutil.which("gfortran") is None:
    print("gfortran is not here")
    sys.exit(77)
layout = json.loads(run(LAYOUT))
with tempfile.TemporaryDirectory(prefix="zero-fortran-") as folder:
    module, source, program = (Path(folder) / name for name in ("libzero.f90", "printer.f90", "printer"))
    module.write_text(fortran_module.module(), encoding="utf-8")
    source.write_text(printer(layout), encoding="utf-8")
    run("gfortran", *FLAGS, "-c", module, cwd=folder)
    # The program calls no function of the library, so it is not linked to it.
    run("gfortran", "-std=f2018", "-w", source, "-o", program, cwd=folder)
    printed = run(program)
found = {line.split()[0]: [int(word) for word in line.split()[1:]] for line in printed.splitlines()}
faults = []
for name, struct in layout.items():
    wanted = [struct["size"], *(field["offset"] for field in struct["fields"].values())]
    if found.get(name) != wanted:
        faults.append(f"{name}: C has size and offsets {wanted}, Fortran {found.get(name)}")
print(f"{len(found)} structs")
sys.exit("\n".join(faults) or 0)

# SPDX-License-Identifier: Apache-2.0
"""Compiles the sources that use what old headers lack, with the definitions in base/os.h instead. By night, compiles
all sources.

usage: check_old_headers.py SOURCE_FOLDER CXX...
"""
import os
import re
import subprocess
import sys
from pathlib import Path

root, compiler = Path(sys.argv[1]), sys.argv[2:]
OLD = root / "tests/abi/old_headers.h"
names = re.compile("|".join(rf"\b{name}\b" for name in re.findall(r"#undef (\w+)", OLD.read_text())))
nightly = "ZERO_TEST_NIGHTLY" in os.environ
sources = sorted(
    file
    for file in (root / "src").rglob("*.cpp")
    if "kernels" not in file.parts and (nightly or names.search(file.read_text()))
)
faults = [
    f"{file}: defines {found[1]}, which is base/os.h's to define"
    for file in (root / "src").rglob("*.[ch]*")
    if file.name != "os.h" and (found := re.search(rf"#define ({names.pattern})", file.read_text()))
]
for source in sources:
    command = [*compiler, "-std=c++20", "-fsyntax-only", "-include", str(OLD)]
    command += [f"-I{root / folder}" for folder in ("src", "include")]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        faults.append(f"{source}:\n{done.stderr}")
print(f"{len(sources)} sources, {len(faults)} faults", *faults, sep="\n")
sys.exit(bool(faults) or not sources)

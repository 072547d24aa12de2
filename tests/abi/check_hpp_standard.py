# SPDX-License-Identifier: Apache-2.0
"""Checks that compiling zero.hpp with too old a standard gives one error, which names the required
standard.

usage: check_hpp_standard.py INCLUDE_FOLDER CXX...
"""
import subprocess
import sys

include, *compiler = sys.argv[1:]
for standard, errors in (("c++11", 1), ("c++14", 1), ("c++17", 0), ("c++20", 0)):
    command = [*compiler, f"-std={standard}", "-I", include, "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(command, input='#include "zero.hpp"\n', capture_output=True, text=True, check=False)
    found = [line for line in done.stderr.splitlines() if "error:" in line]
    if len(found) != errors or not all("zero.hpp needs C++17" in line for line in found):
        sys.exit(f"{' '.join(command)}:\n{done.stderr}")

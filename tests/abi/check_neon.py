# SPDX-License-Identifier: Apache-2.0
"""Checks that the compiler vectorized the loops of update rules, which are plain C++. Each must have NEON
multiplications. Additions prove nothing, because the sum over ranks is written with vectors. The multiplications of
LAMB's first loop, which computes norms, prove nothing either.

usage: check_neon.py OBJDUMP OBJECT_OF_NEON_CPP
"""
import re
import subprocess
import sys

code = subprocess.run([sys.argv[1], "-dC", sys.argv[2]], check=True, capture_output=True, text=True).stdout
loops = re.findall(r"^\w+ <.*neon::(Loops<.*::loop|step_lamb)<.*>:\n((?:.+\n)+)", code, re.M)
scalar = {f"no vectors: {name.split(', std')[0]}" for name, body in loops
          if not re.search(r"\bfmul\s+v\d+\.(4s|2d)", body)}
print(f"{len(loops)} loops")
if len(loops) < 50:
    sys.exit("too few loops: was the object read?")
sys.exit("\n".join(sorted(scalar)) or 0)

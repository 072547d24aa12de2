# SPDX-License-Identifier: Apache-2.0
"""The loops of update rules are plain C++, and the compiler made vectors of each: it has NEON's products. Its sums prove
nothing, because the sum over ranks is written in vectors; nor do the products of LAMB's first loop, which measures.

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

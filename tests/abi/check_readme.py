# SPDX-License-Identifier: Apache-2.0
"""The loop that the README shows is, line for line, in the example that the tests compile and run.

usage: check_readme.py README.md minimal.c
"""
import re
import sys

readme, example = (open(path, encoding="utf-8").read() for path in sys.argv[1:3])
blocks = re.findall(r"^```c\n(.*?)^```", readme, flags=re.M | re.S)
if not blocks:
    sys.exit("the README shows no C")
lines = {re.sub(r"\s+", " ", line).strip() for line in example.splitlines()}
shown = [re.sub(r"\s+", " ", line).strip() for line in blocks[0].splitlines() if line.strip()]
missing = [line for line in shown if line not in lines]
print(f"{len(shown)} lines")
sys.exit("\n".join("not in minimal.c: " + line for line in missing) or 0)

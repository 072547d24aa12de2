# SPDX-License-Identifier: Apache-2.0
"""Checks that the library exports exactly the functions that zero.h declares.

usage: check_symbols.py zero.h libzero.so NM
"""
import re
import subprocess
import sys

header, library, nm = sys.argv[1:4]
text = re.sub(r"/\*.*?\*/", "", open(header, encoding="utf-8").read(), flags=re.S)
declared = set(re.findall(r"^ZERO_API\s[^;(]*?(zero_\w+)\s*\(", text, flags=re.M))
table = subprocess.run([nm, "--dynamic", "--defined-only", "--format=posix", library],
                       check=True, capture_output=True, text=True).stdout
exported = {line.split()[0].split("@")[0] for line in table.splitlines() if line.strip()}

for name in sorted(declared - exported):
    print(f"declared in zero.h but not exported: {name}")
for name in sorted(exported - declared):
    print(f"exported but not declared in zero.h: {name}")
if len(declared) < 40 or declared != exported:
    sys.exit(f"{len(declared)} declared, {len(exported)} exported")
print(f"{len(exported)} functions")

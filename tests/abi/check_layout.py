# SPDX-License-Identifier: Apache-2.0
"""layout.c speaks of every struct of zero.h, field by field, and no struct has a hole that a compiler fills.

usage: check_layout.py zero.h LAYOUT_PROGRAM
"""
import json
import re
import subprocess
import sys

header, program = sys.argv[1:3]
text = re.sub(r"/\*.*?\*/", "", open(header, encoding="utf-8").read(), flags=re.S)
declared = {}
for name, body in re.findall(r"^typedef struct (zero_\w+) \{(.*?)^\}", text, flags=re.M | re.S):
    body = re.sub(r"\(\*(\w+)\)\s*\([^;]*\)", r"\1", body)
    declared[name] = re.findall(r"(\w+)\s*(?:\[\w+\])?\s*;", body)
# Only the library writes this one, so an old caller's padding is never read as a field.
WRITTEN_ONLY = {"zero_failure"}
printed = json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)

faults = []
if {name: list(entry["fields"]) for name, entry in printed.items()} != declared:
    for name in sorted(declared.keys() | printed.keys()):
        fields = list(printed.get(name, {"fields": {}})["fields"])
        if fields != declared.get(name, []):
            faults.append(f"{name}: zero.h has {declared.get(name)}, layout.c prints {fields}")
for name, entry in printed.items():
    if next(iter(entry["fields"])) != "struct_size":
        faults.append(f"{name} does not begin with struct_size")
    end = 0
    for field, place in entry["fields"].items():
        if place["offset"] != end:
            faults.append(f"{name}: {place['offset'] - end} unnamed bytes before {field}")
        end = place["offset"] + place["size"]
    if entry["size"] != end and name not in WRITTEN_ONLY:
        faults.append(f"{name}: {entry['size'] - end} unnamed bytes at its end, where a new field "
                      "would move in unseen")
print(f"{len(printed)} structs")
if len(printed) < 10:
    faults.append("too few structs: was the header read?")
sys.exit("\n".join(faults) or 0)

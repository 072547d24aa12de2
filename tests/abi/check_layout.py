# SPDX-License-Identifier: Apache-2.0
"""Checks that no struct of zero.h has padding that a compiler inserts, and that each struct begins with the fields
that a caller of version 0.2 knows. layout_0_2.json is the output of LAYOUT_PROGRAM for that version, and does not
change after the release of 0.2.0.

usage: check_layout.py LAYOUT_PROGRAM layout_0_2.json
"""
import json
import subprocess
import sys

printed = json.loads(subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout)
with open(sys.argv[2], encoding="utf-8") as file:
    frozen = json.load(file)
# Only the library writes this struct, so the padding of an old caller is never read as a field.
WRITTEN_ONLY = {"zero_failure"}

faults = []
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
for name, entry in frozen.items():
    now = printed.get(name, {"size": 0, "align": 0, "fields": {}})
    if now["size"] < entry["size"] or now["align"] != entry["align"]:
        faults.append(f"{name} has shrunk or is aligned otherwise")
    for field, place in entry["fields"].items():
        if now["fields"].get(field) != place:
            faults.append(f"{name}.{field} was {place}, is {now['fields'].get(field)}")
print(f"{len(printed)} structs")
if len(printed) < len(frozen) or len(frozen) < 10:
    faults.append("too few structs: was the header read?")
sys.exit("\n".join(faults) or 0)

# SPDX-License-Identifier: Apache-2.0
"""Prints the rows of layout.c: every struct of zero.h, field by field.

usage: layout_rows.py zero.h
"""
import re
import sys

text = re.sub(r"/\*.*?\*/", "", open(sys.argv[1], encoding="utf-8").read(), flags=re.S)
structs = re.findall(r"^typedef struct (zero_\w+) \{(.*?)^\}", text, flags=re.M | re.S)
if len(structs) != len(re.findall(r"\bstruct \w*\s*\{", text)):
    sys.exit("zero.h has structs that layout_rows.py does not understand")
for name, body in structs:
    declarations = re.sub(r"\(\*(\w+)\)\s*\([^;]*\)", r"\1", body)
    fields = re.findall(r"(\w+)\s*(?:\[\w+\])?\s*;", declarations)
    if len(fields) != body.count(";") or "," in declarations:
        sys.exit(f"{name} has fields that layout_rows.py does not understand")
    print(f"STRUCT({name})")
    for field in fields:
        print(f"FIELD({name}, {field})")
    print("END()")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that zero_last_error() begins with the name of the call that failed, and that every status has the name of
its constant.

usage: check_texts.py ZERO_H LIBRARY

Each call gets only zeros and null pointers, which all except a few calls reject before they do anything.
"""
import ctypes
import re
import sys

# These calls succeed with zeros and null pointers.
ALLOWED = {"zero_arena_free", "zero_comm_free", "zero_free", "zero_set_interrupt_callback",
           "zero_set_log_callback"}

header = open(sys.argv[1], encoding="utf-8").read()
library = ctypes.CDLL(sys.argv[2])
library.zero_last_error.restype = ctypes.c_char_p
calls = re.findall(r"^ZERO_API (?:zero_status|int32_t) (zero_\w+)\(", header, re.M)

faults = []
for call in calls:
    function = getattr(library, call)
    function.restype = ctypes.c_int32
    status = function(*[ctypes.c_void_p(0)] * 8)
    text = library.zero_last_error().decode()
    if status == 0 and call not in ALLOWED:
        faults.append(f"{call} takes nothing but nulls")
    if status != 0 and not text.startswith(f"{call}: "):
        faults.append(f"{call} fails with '{text}'")

statuses = re.findall(r"^ +(ZERO_(?:OK|SKIPPED|ERR_\w+)) = (-?\d+)", header, re.M)
library.zero_status_name.restype = ctypes.c_char_p
names = {int(number): name for name, number in statuses}
for number in range(-200, 201):
    name, wanted = library.zero_status_name(number).decode(), names.get(number, "unknown status")
    if name != wanted:
        faults.append(f"status {number} is called {name}, and not {wanted}")

print(f"{len(calls)} calls, {len(faults)} faults")
if len(calls) < 50 or len(statuses) < 24:
    faults.append("too few calls or statuses: was the header read?")
sys.exit("\n".join(faults) or 0)

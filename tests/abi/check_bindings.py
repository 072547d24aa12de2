# SPDX-License-Identifier: Apache-2.0
"""Checks that the Python structs, which scripts/mirrors.py generates, have the same memory layout as in C, and that
Python knows the library's rules. The modules for Fortran and for Julia, which may be incomplete, must match zero.h:
functions with their types, structs with their fields, and constants with their values.

usage: check_bindings.py zero.h LAYOUT_PROGRAM BINDINGS_FOLDER EXAMPLES_FOLDER
"""

from __future__ import annotations

import ctypes as c
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HEADER, PROGRAM, BINDINGS, EXAMPLES = *sys.argv[1:3], *map(Path, sys.argv[3:5])
sys.dont_write_bytecode = True
sys.path[:0] = [str(BINDINGS / "python"), str(Path(__file__).resolve().parents[2] / "scripts")]

import zero_header  # noqa: E402
import libzero  # noqa: E402
from libzero import _zero_h  # noqa: E402
from zero_header import fields_of, words_of  # noqa: E402

faults: list[str] = []


def expect(what: str, header: object, binding: object) -> None:
    if isinstance(header, dict) and isinstance(binding, dict):
        expect(f"{what}, in order", list(header), list(binding))
        for name in header.keys() & binding.keys():
            expect(f"{what}, {name}", header[name], binding[name])
    elif header != binding:
        faults.append(f"{what}: zero.h has {header}, the binding has {binding}")


header = zero_header.read(HEADER)
functions, bodies, constants, typedefs = header.functions, header.structs, header.constants, header.typedefs


# ---- Python ----


def check_python(layout: dict[str, Any]) -> None:
    found = {
        struct.c_name: {
            "size": c.sizeof(struct),
            "align": c.alignment(struct),
            "fields": {
                name: {"offset": getattr(struct, name).offset, "size": getattr(struct, name).size}
                for name, _ in struct._fields_
            },
        }
        for struct in _zero_h.STRUCTS
    }
    expect("Python structs", layout, found)
    rules = {name: info.number for name, info in libzero.rules().items()}
    expect("Python rules", rules, _zero_h.OPTIMIZERS)


# ---- Fortran and Julia ----

# A pointer in C may be any of these types, because the languages distinguish more kinds.
POINTERS = {
    "Fortran": r"type\(c_ptr\), value|(type|integer|real|character)\(.*\), intent\(\w+\)(, optional)?",
    "Julia": r"(Ptr|Ref)\{.+\}|Cstring|Handle",
}
POINTER_FIELDS = {"Fortran": r"type\(c_ptr\)", "Julia": r"Ptr\{.+\}"}
FUNCTIONS = {"Fortran": "type(c_funptr)", "Julia": "Ptr{Cvoid}"}
NUMBERS = {
    "Fortran": {
        "char": "character(kind=c_char)",
        "int32_t": "integer(c_int32_t)",
        "zero_status": "integer(c_int32_t)",
        "uint32_t": "integer(c_int32_t)",  # Fortran has no unsigned numbers
        "int64_t": "integer(c_int64_t)",
        "size_t": "integer(c_size_t)",
        "double": "real(c_double)",
    },
    "Julia": {
        "int32_t": "Int32",
        "zero_status": "Int32",
        "uint32_t": "UInt32",
        "int64_t": "Int64",
        "size_t": "Csize_t",
        "double": "Float64",
    },
}

Named = dict[str, str]


def fortran() -> tuple[dict[str, tuple[Named, str]], dict[str, Named], dict[str, str]]:
    """Return functions as ({argument: type}, result), structs as {field: type}, and constants."""
    program = EXAMPLES.parent / "scripts/fortran_module.py"
    source = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout
    found = {}
    for name, names, body in re.findall(
        r"function (zero_\w+)\(([^()]*)\) bind\(C\)\n(.*?)end function", source, re.S
    ):
        types = {}
        for kind, declared in re.findall(r"^ *(\S.*?) :: (.*)$", body, re.M):
            types |= {word.removesuffix("(*)"): kind for word in declared.split(", ")}
        result = types.pop(name)
        order = [word for word in names.split(", ") if word]
        expect(f"Fortran declares the arguments of {name}", sorted(order), sorted(types))
        found[name] = ({word: types[word] for word in order}, result)
    types = re.findall(r"type, bind\(C\) :: (zero_\w+)\n(.*?)end type", source, re.S)
    fields = {
        name: {
            field: f"{kind}, {size} of them" if size else kind
            for kind, field, size in re.findall(r"(\S+) :: (\w+)(?:\((\d+)\))?", body)
        }
        for name, body in types
    }
    lines = re.findall(r"parameter :: (.*)$", source, re.M)
    values = dict(re.findall(r"(ZERO_\w+) = (-?\d+)", "\n".join(lines)))
    return found, fields, values


def julia() -> tuple[dict[str, tuple[Named, str]], dict[str, Named], dict[str, str]]:
    source = (EXAMPLES / "julia/zero.jl").read_text(encoding="utf-8")
    found = {}
    for outer, name, arguments, result in re.findall(
        r"^(\w+)\(.*\) =\s+@ccall libzero\.(\w+)\((.*)\)::(\S+)$", source, re.M
    ):
        expect("Julia's name of a function", name, outer)
        pairs = [argument.split("::") for argument in arguments.split(", ") if argument]
        found[name] = ({word: kind for word, kind in pairs}, result)
    expect("Julia's number of calls", source.count("@ccall libzero."), len(found))
    types = re.findall(r"^struct (zero_\w+)\n(.*?)^end", source, re.M | re.S)
    fields = {name: dict(re.findall(r"(\w+)::(\S+)", body)) for name, body in types}
    values = {}
    for names, numbers in re.findall(r"^const (ZERO_[\w, ]+) = (.*)$", source, re.M):
        expect(f"Julia's values of {names}", names.count(","), numbers.count(","))
        values |= dict(zip(names.split(", "), numbers.split(", ")))
    return found, fields, values


def check_example(language: str) -> None:
    found, fields, values = {"Fortran": fortran, "Julia": julia}[language]()
    if len(found) < 30 or len(fields) < 8 or len(values) < 30:
        faults.append(f"{language}: too little was found: was it read?")

    def expect_type(what: str, kind: str, binding: str, by_value: str, pointers: str) -> None:
        if kind.startswith("fn(") or kind in typedefs:
            expect(what, FUNCTIONS[language] + by_value, binding)
        elif "[" in kind:
            base, size = kind.removesuffix("]").split("[")
            expect(what, f"{NUMBERS[language][base]}, {size} of them", binding)
        elif "*" in kind:
            if not re.fullmatch(pointers, binding):
                faults.append(f"{what}: zero.h has {kind}, the binding has {binding}")
        else:
            expect(what, NUMBERS[language][kind.split()[0]] + by_value, binding)

    by_value = ", value" if language == "Fortran" else ""
    results = {"Fortran": r"type\(c_ptr\)", "Julia": "Cstring"}[language]
    for name, (arguments, result) in found.items():
        if name not in functions:
            faults.append(f"{language}: {name} is not in zero.h")
            continue
        result_kind, declared = functions[name]
        wanted = [words_of(kind) for kind in declared.split(",")] if declared != "void" else []
        expect(f"{language} arguments of {name}", [word for _, word in wanted], list(arguments))
        for (kind, word), binding in zip(wanted, arguments.values()):
            expect_type(f"{language} {word} of {name}", kind, binding, by_value, POINTERS[language])
        expect_type(f"{language} result of {name}", words_of(result_kind)[0], result, "", results)
    for name, found_fields in fields.items():
        wanted_fields = fields_of(bodies.get(name, ""))
        wanted = list(wanted_fields)
        if language == "Julia":  # like an older program, which struct_size allows
            wanted = wanted[: len(found_fields)]
        expect(f"{language} fields of {name}", wanted, list(found_fields))
        for field in wanted_fields.keys() & found_fields.keys():
            what, kinds = f"{language} type of {name}.{field}", POINTER_FIELDS[language]
            expect_type(what, wanted_fields[field], found_fields[field], "", kinds)
    for name, value in values.items():
        expect(f"{language} {name}", constants.get(name), int(value))
    if language == "Fortran":
        expect("Fortran functions", sorted(functions), sorted(found))
        expect("Fortran structs", sorted(bodies), sorted(fields))
        expect("Fortran constants", sorted(constants), sorted(values))


def main() -> None:
    printed = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    layout = json.loads(printed)
    if len(functions) < 40 or len(bodies) < 10 or len(constants) < 50:
        faults.append("too little was found in zero.h: was it read?")
    check_python(layout)
    check_example("Fortran")
    check_example("Julia")
    print(f"{len(functions)} functions, {len(bodies)} structs, {len(constants)} constants")
    sys.exit("\n".join(faults) or 0)


main()

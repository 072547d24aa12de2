# SPDX-License-Identifier: Apache-2.0
"""Python's and Rust's declarations say what zero.h says: functions with their types, structs with
their fields, constants with their values. So does the module for Fortran, and what that for Julia has,
which need not be all.

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
from libzero import _abi, _structs  # noqa: E402
from zero_header import fields_of, words_of  # noqa: E402

SCALARS: dict[str, tuple[Any, str]] = {
    "int32_t": (c.c_int32, "i32"),
    "int64_t": (c.c_int64, "i64"),
    "uint32_t": (c.c_uint32, "u32"),
    "size_t": (c.c_size_t, "usize"),
    "double": (c.c_double, "f64"),
    "char": (c.c_char, "c_char"),
    "void": (None, "c_void"),
    "zero_status": (c.c_int32, "zero_status"),
}
HANDLES = {"zero_comm": _structs.CommHandle, "zero_optim": _structs.OptimHandle}
STRUCTS = {struct.c_name: struct for struct in _structs.STRUCTS}
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


def ctypes_of(kind: str) -> Any:
    """The ctypes type for a C type."""
    kind = typedefs.get(kind, kind)
    if kind.startswith("fn("):
        arguments, result = kind[3:].split(") ")
        return (ctypes_of(result), *map(ctypes_of, arguments.split(", ")))
    array = re.fullmatch(r"(\w+)\[(\d+)\]", kind)
    if array:
        return ctypes_of(array[1]) * int(array[2])
    kind = re.sub(r" const\b", "", kind)
    base, stars = kind.partition(" ")[0], kind.count("*")
    if base == "char" and stars:
        pointee, stars = c.c_char_p, stars - 1
    elif base == "void" and stars:
        pointee, stars = c.c_void_p, stars - 1
    elif base in HANDLES:
        pointee, stars = HANDLES[base], stars - 1
    elif base in STRUCTS:
        pointee = STRUCTS[base]
    else:
        pointee = SCALARS[base][0]
    for _ in range(stars):
        pointee = c.POINTER(pointee)
    return pointee


def plain(kind: Any) -> Any:
    """A ctypes function type as the tuple that ctypes_of makes."""
    if hasattr(kind, "_argtypes_"):
        return (kind._restype_, *kind._argtypes_)
    return kind


def check_python(layout: dict[str, Any]) -> None:
    expect("Python functions", sorted(functions), sorted(_abi.SIGNATURES))
    for name in functions.keys() & _abi.SIGNATURES.keys():
        result, arguments = functions[name]
        restype, argtypes = _abi.SIGNATURES[name]
        if result == "zero_status":
            expect(f"Python result of {name}", _abi.Status, restype)
        declared = c.c_int32 if restype is _abi.Status else restype
        expect(f"Python result of {name}", ctypes_of(words_of(result)[0]), declared)
        kinds = [] if arguments == "void" else arguments.split(",")
        wanted = [ctypes_of(words_of(kind)[0]) for kind in kinds]
        expect(f"Python arguments of {name}", wanted, [plain(kind) for kind in argtypes])
    expect("Python structs", sorted(layout), sorted(STRUCTS))
    for name in layout.keys() & STRUCTS.keys():
        struct, wanted_fields = STRUCTS[name], fields_of(bodies[name])
        expect(f"Python size of {name}", layout[name]["size"], c.sizeof(struct))
        expect(f"Python alignment of {name}", layout[name]["align"], c.alignment(struct))
        found = {field[0]: plain(field[1]) for field in struct._fields_}
        expect(f"Python fields of {name}", list(wanted_fields), list(found))
        for field in wanted_fields.keys() & found.keys():
            place = layout[name]["fields"][field]
            expect(f"Python type of {name}.{field}", ctypes_of(wanted_fields[field]), found[field])
            descriptor = getattr(struct, field)
            expect(f"Python offset of {name}.{field}", place["offset"], descriptor.offset)
            expect(f"Python size of {name}.{field}", place["size"], descriptor.size)


def check_python_constants() -> None:
    tables = {
        "ZERO_": _abi.DTYPES | _abi.OPERATIONS,
        "ZERO_DEVICE_": _abi.DEVICES,
        "ZERO_MEMORY_": _abi.MEMORIES,
        "ZERO_OPTIMIZER_": {name: info.number for name, info in libzero.rules().items()},
        "ZERO_PARTITION_": _abi.PARTITIONS,
        "ZERO_NONFINITE_": _abi.NONFINITES,
        "ZERO_MASTER_": _abi.MASTERS,
        "ZERO_UNEVEN_": _abi.UNEVENS,
        "ZERO_REDUCE_": _abi.REDUCTIONS,
    }
    for prefix, table in tables.items():
        for name, value in table.items():
            expect(f"Python {name}", constants.get(prefix + name.upper()), value)
        if prefix != "ZERO_":
            alone = {f"ZERO_{name}" for name in vars(_abi)}  # constants of their own, see below
            there = [name for name in constants if name.startswith(prefix) and name not in alone]
            expect(f"Python's number of {prefix}*", len(there), len(table))
    dtypes = [name for name in constants if re.fullmatch(r"ZERO_B?(FLOAT|INT)\d+", name)]
    expect("Python's number of dtypes", len(dtypes), len(_abi.DTYPES))
    for name, value in vars(_abi).items():
        if isinstance(value, int) and name.isupper():
            expect(f"Python {name}", constants.get(f"ZERO_{name}"), value)


# ---- Rust ----


def rust_of(kind: str) -> str:
    kind = typedefs.get(kind, kind)
    if kind.startswith("fn("):
        arguments, result = kind[3:].split(") ")
        types = ", ".join(map(rust_of, arguments.split(", ")))
        arrow = "" if result == "void" else f" -> {rust_of(result)}"
        return f'Option<unsafe extern "C" fn({types}){arrow}>'
    array = re.fullmatch(r"(\w+)\[(\d+)\]", kind)
    if array:
        return f"[{rust_of(array[1])}; {array[2]}]"
    words = kind.split()
    name = SCALARS[words[0]][1] if words[0] in SCALARS else words[0]
    rest = words[1:]
    constant = False
    for word in rest:
        if word == "const":
            constant = True
        else:
            name, constant = f"*{'const' if constant else 'mut'} {name}", False
    return name


NAME = r"\b\w+: "


def check_rust() -> None:
    folder = BINDINGS / "rust/libzero-sys/src"
    source = "".join(
        (folder / f"{name}.rs").read_text(encoding="utf-8")
        for name in ("constants", "structs", "functions")
    )
    source = re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", source))
    source = re.sub(r",? ([)>])", r"\1", re.sub(r"([(<]) ", r"\1", source))
    # Arguments of function types have names, for readers.
    source = re.sub(r"(?<=fn)\(([^()]*)\)", lambda match: f"({re.sub(NAME, '', match[1])})", source)
    declared = re.findall(r"pub (?:safe )?fn (zero_\w+)\((.*?)\)(?: -> ([^;]+))?;", source)
    found = {
        name: (re.findall(r"\w+: ([^,]+)", arguments), result or "()")
        for name, arguments, result in declared
    }
    expect("Rust functions", sorted(functions), sorted(found))
    for name in functions.keys() & found.keys():
        result, arguments = functions[name]
        kinds = [] if arguments == "void" else arguments.split(",")
        wanted = [rust_of(words_of(kind)[0]) for kind in kinds]
        if callback := re.match(r"(zero_\w+_fn)\b", arguments):
            wanted[0] = callback[1]
        expect(f"Rust arguments of {name}", wanted, found[name][0])
        expect(f"Rust result of {name}", rust_of(words_of(result)[0]), found[name][1])
    rust_structs = dict(re.findall(r"pub struct (zero_\w+) \{ (.*?),? \}", source))
    for handle in HANDLES:
        rust_structs.pop(handle, None)
    expect("Rust structs", sorted(bodies), sorted(rust_structs))
    for name in bodies.keys() & rust_structs.keys():
        entries = re.split(r",? ?pub (?=\w+:)", rust_structs[name])
        fields = dict(entry.split(": ", 1) for entry in entries if entry)
        wanted_fields = {field: rust_of(kind) for field, kind in fields_of(bodies[name]).items()}
        expect(f"Rust fields of {name}", wanted_fields, fields)
    values = {
        name: int(value)
        for name, value in re.findall(r"pub const (ZERO_\w+): \w+ = (-?[\d_]+);", source)
    }
    expect("Rust constants", dict(sorted(constants.items())), dict(sorted(values.items())))


# ---- Fortran and Julia ----

# A pointer is any of these: the languages know more about it than C does.
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
        "uint32_t": "integer(c_int32_t)",  # Fortran has no numbers without a sign
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
    """Functions as ({argument: type}, result), structs as {field: type}, and constants."""
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
        if language == "Julia":  # as an older program's: struct_size says how many of them there are
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
    check_python_constants()
    if (BINDINGS / "rust").is_dir():
        check_rust()
    check_example("Fortran")
    check_example("Julia")
    print(f"{len(functions)} functions, {len(bodies)} structs, {len(constants)} constants")
    sys.exit("\n".join(faults) or 0)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the declarations of include/zero.h for the Python and Rust bindings: constants, structs and functions.

usage: scripts/mirrors.py [--check]

With --check, it writes nothing. It prints the differences from the existing files, and fails if there are any.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

sys.dont_write_bytecode = True
import zero_header  # noqa: E402
from zero_header import fields_of, function_type, words_of  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
MADE = "Made from include/zero.h by scripts/mirrors.py; do not edit."
HANDLES = ("zero_comm", "zero_optim")
WIDTH = 100

Header = zero_header.Header


def arguments_of(text: str) -> list[tuple[str, str]]:
    """Return the (type, name) of each argument of a function."""
    return [words_of(word) for word in text.split(",")] if text != "void" else []


def wrapped(begin: str, parts: list[str], end: str, indent: str = "") -> list[str]:
    """Return one line if it is short enough, and otherwise one line for each part."""
    line = f"{indent}{begin}{', '.join(parts)}{end}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{indent}{begin}", *(f"{indent}    {part}," for part in parts), f"{indent}{end}"]


# ---- Python ----

CTYPES = {
    "int32_t": "c.c_int32",
    "zero_status": "c.c_int32",
    "uint32_t": "c.c_uint32",
    "int64_t": "c.c_int64",
    "size_t": "c.c_size_t",
    "double": "c.c_double",
    "char": "c.c_char",
    "void": "None",
}
# The enums for which Python has words, by the prefix of their constants, or by the first constant if there is no
# prefix. Each has the type of the words and the name of their table. An enum that begins with 0 and is not listed has
# both, named after its prefix.
WORDS = {
    "FLOAT32": ("Dtype", "DTYPES"),
    "SUM": ("Operation", "OPERATIONS"),
    "MEMORY": ("MemoryKind", "MEMORIES"),
    "OPTIMIZER": ("RuleName", "OPTIMIZERS"),
    "STATE_DTYPE": ("StateDtype", "STATE_DTYPES"),
    "UNEVEN": ("UnevenInputs", "UNEVENS"),
    "REDUCE": ("Reduction", "REDUCTIONS"),
}
# Fields of zero_options that are not options in Python, or not in every class that has options.
NO_OPTIONS = {"struct_size", "optimizer", "names", "values", "setting_count", "custom"}
NO_KEYWORDS = {"partition", "overlap_gather"}
NUMBERS = {"int32_t": "int", "int64_t": "int", "double": "float"}

PYTHON_TOP = f'''\
# {MADE}
# SPDX-License-Identifier: Apache-2.0
"""zero.h for ctypes: its constants, the words for some of them, its structs and functions."""

from __future__ import annotations

import ctypes as c
from typing import Any, Literal, Optional, TypedDict

from ._handles import CommHandle, OptimHandle, Status, Struct

# ---- Constants ----

'''


def class_of(name: str) -> str:
    return "".join(word.capitalize() for word in name.removeprefix("zero_").split("_"))


def callback_of(name: str) -> str:
    return f"{class_of(name.removesuffix('_fn'))}Fn"


def ctypes_of(header: Header, kind: str) -> str:
    """Return the ctypes expression for a C type."""
    if kind in header.typedefs:
        return callback_of(kind)
    array = re.fullmatch(r"(\w+)\[(\d+)\]", kind)
    if array:
        return f"{CTYPES[array[1]]} * {array[2]}"
    base, stars = kind.partition(" ")[0], kind.count("*")
    if base in HANDLES:
        pointee, stars = f"{class_of(base)}Handle", stars - 1
    elif base in header.structs:
        pointee = class_of(base)
    elif base in ("char", "void") and stars:
        pointee, stars = f"{CTYPES['char']}_p" if base == "char" else "c.c_void_p", stars - 1
    else:
        pointee = CTYPES[base]
    return "c.POINTER(" * stars + pointee + ")" * stars


def function_pointer(header: Header, name: str, kind: str) -> list[str]:
    """Return the type of a function that the caller provides. fields_of describes `kind`."""
    arguments, result = kind.removeprefix("fn(").split(") ")
    kinds = [ctypes_of(header, one) for one in (result, *arguments.split(", "))]
    return wrapped(f"{callback_of(name)} = c.CFUNCTYPE(", kinds, ")")


def families_of(header: Header) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the words of each enum that has words, by its name in WORDS, without constants beyond its count."""
    for family in header.families:
        names = [name.removeprefix("ZERO_") for name in family]
        prefix, common, _ = os.path.commonprefix(names).rpartition("_")
        key, first = prefix or names[0], header.constants[family[0]]
        if key in WORDS or (prefix and first == 0 and len(names) > 1):
            words = [name.removeprefix(prefix + common).lower() for name in names]
            yield key, {word: place for place, (word, name) in enumerate(zip(words, family), first)
                        if header.constants[name] == place}


def table(begin: str, values: dict[str, object]) -> list[str]:
    return wrapped(f"{begin} = {{", [f'"{name}": {value}' for name, value in values.items()], "}")


def python_words(header: Header) -> list[str]:
    lines, types, tables = [], {}, {}
    for prefix, words in families_of(header):
        types[prefix], tables[prefix] = WORDS.get(prefix, (prefix.capitalize(), f"{prefix}S"))
        lines += wrapped(f"{types[prefix]} = Literal[", [f'"{word}"' for word in words], "]")
        lines += table(f"{tables[prefix]}: dict[str, int]", words)
    fields = fields_of(header.structs["zero_options"])
    options = {name: kind for name, kind in fields.items() if name not in NO_OPTIONS}
    prefixes = {name: name.partition("_")[0].upper() for name in options}
    choices = {name: tables[prefix] for name, prefix in prefixes.items() if prefix in tables}
    lines += ['HalfDtype = Literal["bfloat16", "float16"]', "", "# Options whose values are words."]
    lines += [*table("CHOICES: dict[str, dict[str, int]]", choices), "", ""]
    lines += ["class Keywords(TypedDict, total=False):", '    """Options of zero_options that every optimizer accepts."""', ""]
    for name, kind in options.items():
        if name not in NO_KEYWORDS:
            other = "Optional[HalfDtype]" if name.endswith("_dtype") else NUMBERS[kind]
            lines.append(f"    {name}: {types.get(prefixes[name], other)}")
    return lines


def python_struct(header: Header, name: str, body: str) -> list[str]:
    callbacks, rows = [], []
    for field, kind in fields_of(body).items():
        if kind.startswith("fn("):
            callbacks += function_pointer(header, field, kind)
            rows.append(f'        ("{field}", {callback_of(field)}),')
        else:
            rows.append(f'        ("{field}", {ctypes_of(header, kind)}),')
    head = [f"class {class_of(name)}(Struct):", f'    c_name = "{name}"', "    _fields_ = ["]
    return [*callbacks, "", "", *head, *rows, "    ]", "", ""]


def python_function(header: Header, name: str) -> list[str]:
    result, text = header.functions[name]
    returned = "Status" if result == "zero_status" else ctypes_of(header, words_of(result)[0])
    kinds = [ctypes_of(header, kind) for kind, _ in arguments_of(text)]
    return wrapped(f'"{name}": ({returned}, [', kinds, "]),", "    ")


def python(header: Header) -> str:
    lines = [f"{name.removeprefix('ZERO_')} = {value}" for name, value in header.constants.items()]
    lines += ["", "# ---- Words ----", "", *python_words(header), "", "", "# ---- Structs ----", ""]
    for name, kind in header.typedefs.items():
        lines += function_pointer(header, name, kind)
    for name, body in header.structs.items():
        lines += python_struct(header, name, body)
    lines += ["STRUCTS: tuple[type[Struct], ...] = (", *(f"    {class_of(name)}," for name in header.structs), ")"]
    lines += ["", "# ---- Functions ----", "", "SIGNATURES: dict[str, tuple[Any, list[Any]]] = {"]
    for name in header.functions:
        lines += python_function(header, name)
    return PYTHON_TOP + re.sub(r"\n{4,}", "\n\n\n", "\n".join([*lines, "}", ""]))


# ---- Rust ----

RUST = {
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "size_t": "usize",
    "double": "f64",
    "char": "c_char",
    "void": "c_void",
}
# Structs that the crate libzero exports unchanged, so that it needs the comments of their fields.
SHOWN = ("zero_statistics",)

RUST_TOP = f"""\
// {MADE}
// SPDX-License-Identifier: Apache-2.0
//! Constants, structs and functions. zero.h explains each one.

use core::ffi::{{c_char, c_void}};
use core::marker::{{PhantomData, PhantomPinned}};

pub type zero_status = i32;

"""

HANDLE = """
/// A token of the library, never dereferenced.
#[repr(C)]
pub struct {} {{
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}}"""

RUST_BOTTOM = """
/// `$what! { zero_options { struct_size, ... } ... }`, with all structs.
#[doc(hidden)]
#[macro_export]
macro_rules! with_all_structs {
    ($what:ident) => {
        $what! {"""


def rust_of(kind: str) -> str:
    array = re.fullmatch(r"(\w+)\[(\d+)\]", kind)
    if array:
        return f"[{RUST[array[1]]}; {array[2]}]"
    base, *rest = kind.split()
    name, constant = RUST.get(base, base), False
    for word in rest:
        if word == "const":
            constant = True
        else:
            name, constant = f"*{'const' if constant else 'mut'} {name}", False
    return name


def rust_callback(begin: str, declaration: str, end: str, indent: str = "") -> list[str]:
    """Return `begin`, the type of a function pointer, and `end`, with the line breaks of rustfmt."""
    result, _, arguments = function_type(declaration)
    named = [f"{name}: {rust_of(kind)}" for kind, name in arguments]
    arrow = "" if result == "void" else f" -> {rust_of(result)}"
    whole = f'Option<unsafe extern "C" fn({", ".join(named)}){arrow}>{end}'
    if len(f"{indent}{begin} {whole}") <= WIDTH:
        return [f"{indent}{begin} {whole}"]
    if len(f"{indent}    {whole}") <= WIDTH:
        return [f"{indent}{begin}", f"{indent}    {whole}"]
    lines = ["Option<", '    unsafe extern "C" fn(', *(f"        {one}," for one in named), f"    ){arrow},", f">{end}"]
    return [f"{indent}{begin} {lines[0]}", *(f"{indent}{line}" for line in lines[1:])]


def rust_constant(name: str, family: list[str], header: Header) -> str:
    kind = "zero_status" if "ZERO_OK" in family else "u32" if name.startswith("ZERO_VERSION_") else "i32"
    return f"pub const {name}: {kind} = {header.constants[name]};"


def rust_comment(header: Header, of: str, indent: str = "") -> list[str]:
    """Return the comment of a struct or field of SHOWN in the header, as a sentence."""
    if of.partition(".")[0] not in SHOWN:
        return []
    text, begin = header.comments[of].rstrip("."), f"{indent}/// "
    return textwrap.wrap(f"{text[0].upper()}{text[1:]}.", WIDTH, initial_indent=begin, subsequent_indent=begin,
                         break_long_words=False, break_on_hyphens=False)


def rust_struct(header: Header, name: str, body: str) -> list[str]:
    lines = ["", *rust_comment(header, name), "#[repr(C)]", "#[derive(Clone, Copy, Debug)]", f"pub struct {name} {{"]
    for declaration in filter(str.strip, body.split(";")):
        for field, kind in fields_of(declaration).items():
            if field != "struct_size":
                lines += rust_comment(header, f"{name}.{field}", "    ")
            if kind.startswith("fn("):
                lines += rust_callback(f"pub {field}:", declaration, ",", "    ")
            else:
                lines.append(f"    pub {field}: {rust_of(kind)},")
    return [*lines, "}"]


def rust_function(name: str, result: str, arguments: list[tuple[str, str]], safe: str) -> list[str]:
    named = [f"{word}: {rust_of(kind)}" for kind, word in arguments]
    return wrapped(f"pub {safe}fn {name}(", named, f") -> {rust_of(words_of(result)[0])};", "    ")


def rust_functions(header: Header) -> list[str]:
    """Return the functions. Those that accept any values come first, as the macro requires."""
    safe, others = [], []
    for name, (result, text) in header.functions.items():
        arguments = arguments_of(text)
        if result == "zero_status" or any("*" in kind for kind, _ in arguments):
            others += rust_function(name, result, arguments, "")
        else:
            safe += rust_function(name, result, arguments, "safe ")
    return ["", "functions! {", *safe, *others, "}"]


def rust(header: Header) -> str:
    lines = [rust_constant(name, family, header) for family in header.families for name in family]
    lines += [*map(HANDLE.format, HANDLES), ""]
    for name, declaration in header.callbacks.items():
        lines += rust_callback(f"pub type {name} =", declaration, ";")
    for name, body in header.structs.items():
        lines += rust_struct(header, name, body)
    lines += [*rust_functions(header), RUST_BOTTOM]
    lines += [f"            {name} {{ {', '.join(fields_of(body))} }}" for name, body in header.structs.items()]
    return RUST_TOP + "\n".join([*lines, "        }", "    };", "}", ""])


MIRRORS = {"bindings/python/libzero/_zero_h.py": python, "bindings/rust/libzero-sys/src/zero_h.rs": rust}


def main() -> None:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    header, differences = zero_header.read(ROOT / "include/zero.h"), []
    for name, make in MIRRORS.items():
        path, made = ROOT / name, make(header)
        if not sys.argv[1:]:
            path.write_text(made, encoding="utf-8")
            continue
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = there.splitlines(), made.splitlines()
        differences += difflib.unified_diff(*lines, name, "what zero.h says", n=1, lineterm="")
    if differences:
        sys.exit("\n".join([*differences, "these files are not what zero.h says; scripts/mirrors.py writes them anew"]))


if __name__ == "__main__":
    main()

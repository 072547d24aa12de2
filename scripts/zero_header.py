# SPDX-License-Identifier: Apache-2.0
"""Parses the declarations of include/zero.h, for scripts that generate or check bindings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path


@dataclasses.dataclass
class Header:
    # (result, text of the arguments), by name.
    functions: dict[str, tuple[str, str]]
    # The text between the braces, by name.
    structs: dict[str, str]
    constants: dict[str, int]
    # The names of the constants in each enum, or of a single #define.
    families: list[list[str]]
    # Function pointers, in the form of fields_of, and as they are declared.
    typedefs: dict[str, str]
    callbacks: dict[str, str]
    # The comments of structs, by name, and of fields, by "struct.field".
    comments: dict[str, str]


def words_of(declaration: str) -> tuple[str, str]:
    """Return ("char const * const *", "names") for "const char *const *names". Each const follows the type that it
    qualifies. Without a name, the name is ""."""
    declaration = re.sub(r"\[(\w+)\]", "", declaration).replace("*", " * ")
    words = declaration.split()
    name = ""
    if len(words) > 1 and words[-1] not in ("*", "const") and words[-2:] != ["const", words[-1]]:
        name = words.pop()
    if words[0] == "const":
        words[0:2] = [words[1], "const"]
    return " ".join(words), name


def function_type(declaration: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return (result, name, arguments in the form of words_of) of a function pointer."""
    match = re.fullmatch(r"\s*(\w+) \(\*(\w+)\)\((.*)\)\s*", declaration)
    assert match, declaration
    result, name, arguments = match.groups()
    return result, name, [words_of(argument) for argument in arguments.split(",")]


def function_kind(declaration: str) -> tuple[str, str]:
    """Return (name, type) of a function pointer. The type has the form "fn(int32_t, void *) zero_status"."""
    result, name, arguments = function_type(declaration)
    return name, f"fn({', '.join(kind for kind, _ in arguments)}) {result}"


def fields_of(body: str) -> dict[str, str]:
    fields = {}
    for declaration in filter(str.strip, body.split(";")):
        if "(*" in declaration:
            name, fields[name] = function_kind(declaration)
        else:
            kind, name = words_of(declaration)
            size = re.search(r"\[(\d+)\]", declaration)
            fields[name] = f"{kind}[{size[1]}]" if size else kind
    return fields


def comments_of(text: str) -> dict[str, str]:
    """Return the comments directly above structs, and above fields or after them on the same line."""
    comment = r"/\*((?:(?!\*/).)*)\*/"
    struct = rf"(?:^{comment}\n)?^typedef struct (zero_\w+) \{{\n(.*?)^\}} zero_"
    found: dict[str, str | None] = {}
    for above, name, body in re.findall(struct, text, flags=re.S | re.M):
        found[name] = above
        for before, declaration, behind in re.findall(
            rf"(?:{comment}\s*)?([^;/]+);[ ]*(?:{comment})?", body, flags=re.S
        ):
            for field in fields_of(" ".join(declaration.split())):
                found[f"{name}.{field}"] = before or behind
    plain = {key: re.sub(r"\n *\* ?", "\n", text or "") for key, text in found.items()}
    return {key: " ".join(text.split()) for key, text in plain.items() if text.strip()}


def read(path: str | Path) -> Header:
    written = Path(path).read_text(encoding="utf-8")
    whole = re.sub(r"/\*.*?\*/", "", written, flags=re.S)
    text = re.sub(r"\s+", " ", whole)
    prototype = r"ZERO_API ([\w ]+?\**)\s*(zero_\w+)\(([^()]*)\);"
    functions = {
        name: (result.strip(), arguments)
        for result, name, arguments in re.findall(prototype, text)
    }
    structs = dict(re.findall(r"typedef struct (zero_\w+) \{(.*?)\} zero_\w+;", text))
    constants: dict[str, int] = {}
    families = []
    for body, name, value in re.findall(
        r"\benum \{([^}]*)\}|^#define (ZERO_\w+) \(?(-?\d+)\)?$", whole, re.M
    ):
        values = re.findall(r"\b(ZERO_[A-Z0-9_]+) = (-?\d+)\b", body) if body else [(name, value)]
        constants |= {name: int(value) for name, value in values}
        families.append([name for name, _ in values])
    declared = re.findall(r"typedef (\w+ \(\*zero_\w+\)\([^()]*\));", text)
    typedefs = dict(map(function_kind, declared))
    callbacks = dict(zip(typedefs, declared))
    comments = comments_of(written)
    return Header(functions, structs, constants, families, typedefs, callbacks, comments)

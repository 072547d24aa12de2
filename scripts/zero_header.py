# SPDX-License-Identifier: Apache-2.0
"""What include/zero.h declares, for the scripts that make or check bindings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path


@dataclasses.dataclass
class Header:
    # By name: (result, text of the arguments).
    functions: dict[str, tuple[str, str]]
    # Text between the braces.
    structs: dict[str, str]
    constants: dict[str, int]
    # Names of constants that stand in one enum, or alone by a #define.
    families: list[list[str]]
    # Pointers to functions, as fields_of has them, and as they are declared.
    typedefs: dict[str, str]
    callbacks: dict[str, str]
    # Comments of a struct by its name, and of its fields by "struct.field".
    comments: dict[str, str]


def words_of(declaration: str) -> tuple[str, str]:
    """("char const * const *", "names") of "const char *const *names": each const stands behind what
    it is about. Without a name, "" is the name."""
    declaration = re.sub(r"\[(\w+)\]", "", declaration).replace("*", " * ")
    words = declaration.split()
    name = ""
    if len(words) > 1 and words[-1] not in ("*", "const") and words[-2:] != ["const", words[-1]]:
        name = words.pop()
    if words[0] == "const":
        words[0:2] = [words[1], "const"]
    return " ".join(words), name


def function_type(declaration: str) -> tuple[str, str, list[tuple[str, str]]]:
    """(result, name, arguments as words_of has them) of a pointer to function."""
    match = re.fullmatch(r"\s*(\w+) \(\*(\w+)\)\((.*)\)\s*", declaration)
    assert match, declaration
    result, name, arguments = match.groups()
    return result, name, [words_of(argument) for argument in arguments.split(",")]


def function_kind(declaration: str) -> tuple[str, str]:
    """(name, type) of a pointer to function, its type as "fn(int32_t, void *) zero_status"."""
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
    """What stands right above a struct; above a field, or behind it in its line."""
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

# SPDX-License-Identifier: Apache-2.0
"""Generates the page of include/zero.h for the site. It has a heading for each call and type, the declaration as
code, and the comment as prose."""

from __future__ import annotations

import os.path
import re

SECTION = re.compile(r"^/\* -{4} (.+?) -+ \*/$", re.MULTILINE)
COMMENT = re.compile(r"^/\* ?(.*?) \*/$\n?", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"^ZERO_API [^(]*?\b(zero_\w+)\(", re.MULTILINE)
TYPE = re.compile(r"^typedef (?:struct )?(?:\w+ )?\(?\*?(zero_\w+)(?:;| \{|\)\()", re.MULTILINE)
MACRO = re.compile(r"^#define (ZERO_\w+)", re.MULTILINE)
ENUMERATOR = re.compile(r"\b(ZERO_\w+) = -?\d")
# An identifier, a document, or a character that Markdown might take for markup.
WORD = re.compile(r"`[^`]+`|(\*{0,2}\b\w*_\w*\*?(?:\[\w+\]|=\w+|\(\))?|\bNULL\b)|\bdocs/([\w-]+\.md)|[\\*_<>\[\]#]")


def prose(comment: str) -> str:
    """Return the text of a comment as Markdown."""

    def marked(match: re.Match) -> str:
        if match[1]:
            return f"`{match[1]}`"
        if match[2]:
            return f"[docs/{match[2]}](../{match[2]})"
        return match[0] if match[0].startswith("`") else f"&#{ord(match[0])};"

    paragraphs = re.sub(r"^ \* ?", "", comment, flags=re.MULTILINE).split("\n\n")
    return "\n\n".join(
        f"```c\n{re.sub('^    ', '', text, flags=re.MULTILINE)}\n```" if text.startswith("    ") else WORD.sub(marked, text)
        for text in paragraphs
    )


def names_of(code: str) -> list[str]:
    """Return the names in a heading: the calls of a declaration, or else its types, macros or constants."""
    constants = ENUMERATOR.findall(code)
    family = os.path.commonprefix(constants).rpartition("_")[0]
    if len(constants) > 1 and family != "ZERO":
        constants = [f"{family}_*"]
    return CALL.findall(code) or TYPE.findall(code) or MACRO.findall(code) or constants


def page_of_header(text: str) -> tuple[str, dict[str, str]]:
    """Return the page as Markdown, and the anchor of each name that zero.h declares."""
    opening, *sections = SECTION.split(text)
    page = ["# zero.h", prose(COMMENT.search(opening, opening.index("#define ZERO_H"))[1])]
    anchors: dict[str, str] = {}
    for title, body in zip(sections[::2], sections[1::2]):
        page.append(f"## {title}")
        before = ""  # a comment without a declaration belongs to the next one
        for block in re.split(r"\n\n+", body.split("\n#ifdef __cplusplus")[0].strip()):
            comments = before + "\n\n".join(prose(comment) for comment in COMMENT.findall(block))
            code = COMMENT.sub("", block).strip()
            before = "" if code else comments + "\n\n"
            if not code:
                continue
            names = names_of(code)
            ids = [name.removesuffix("_*") for name in names]
            for name in MACRO.findall(code) + ENUMERATOR.findall(code):
                anchors[name] = ids[0]
            anchors |= dict(zip(names, ids))
            if "ZERO_API" in code:
                code = re.sub(r"^ZERO_API |^ {9}(?= {9})", "", code, flags=re.MULTILINE)
            heading = ", ".join(f"`{name}`" for name in names)
            more = "".join(f'<a id="{name}"></a>' for name in ids[1:])
            page += [f"### {heading} {{#{ids[0]}}}", more, f"```c\n{code}\n```", comments]
    return "\n\n".join(filter(None, page)) + "\n", anchors

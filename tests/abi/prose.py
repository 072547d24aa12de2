# SPDX-License-Identifier: Apache-2.0
"""Reads the prose of files for users (pages, header comments, man pages, docstrings) as sentences with line numbers.

Fences, indented code and link targets are dropped. Code spans and names become the word CODE, and statuses and
exceptions become the word STATUS. A sentence keeps the original text of both.
"""
import ast
import dataclasses
import pathlib
import re
import textwrap
from collections.abc import Callable

PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "bindings/*/README.md",
         "examples/**/README.md"]
HEADERS = ["include/*.h", "include/*.hpp"]
MANUALS = ["packaging/man/*.[1-9]"]
DOCSTRINGS = ["bindings/python/libzero/**/*.py"]
RUST = ["bindings/rust/*/src/**/*.rs", "bindings/rust/*/build.rs"]

STATUS = re.compile(r"^(ZERO_(ERR_)?[A-Z_]*ERR\w*|ZERO_OK|ZERO_SKIPPED|ZERO_ERR_\w+|\w+(Error|Exception))$")
NAMES = re.compile(r"\b(?:[A-Za-z]\w*_\w+|_\w+|\w+::\w+|[a-z]+[A-Z]\w+)(?:\(\))?|\b\w+\(\)|\*?\w+\.\w+\(\)"
                   r"|(?<!\w)\*\w+\b")
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|resp|approx|Fig|No|St|al)\.$")


@dataclasses.dataclass
class Sentence:
    file: str
    line: int
    kind: str  # text, item, cell, heading or field (a comment next to code)
    words: str
    codes: list[str]

    def count(self) -> int:
        """Return the number of words. A list of names of code counts as one word."""
        words = re.sub(r"\b(?:CODE|STATUS)\b(?:,? (?:and |or )?(?:CODE|STATUS)\b)+", "CODE", self.words)
        return len(re.findall(r"[A-Za-z0-9][\w'’.,/-]*", words))


@dataclasses.dataclass
class Block:
    """The lines of one paragraph, item, cell or heading, each with its number."""
    kind: str
    lines: list[tuple[int, str]]


def code_of(code: str, codes: list[str]) -> str:
    codes.append(code)
    return "STATUS" if STATUS.match(code.strip("`\"' ")) else "CODE"


def plain(text: str, codes: list[str]) -> str:
    """Return the words of a paragraph, without link targets and emphasis marks, and with CODE for names of code."""
    def span(match: re.Match[str]) -> str:
        return code_of(match[2], codes)
    text = re.sub(r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)", " ", text)
    pattern = re.compile(r"(``?)(.+?)\1(?!`)|" + NAMES.pattern)
    text = re.sub(r"\[([^\]]+)\](\([^)\s]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"<?https?://[^\s>)]+>?|</?[a-z][^>]*>", " ", text)
    text = pattern.sub(lambda found: span(found) if found[2] else code_of(found[0], codes), text)
    text = re.sub(r"\*\*|(?<![\w*])\*(?=\w)|(?<=[\w.,;:!?])\*(?!\w)|(?<!\w)_(?=\w)|(?<=\w)_(?!\w)", "", text)
    return re.sub(r"&\w+;", " ", text)


def sentences_of(file: str, block: Block) -> list[Sentence]:
    codes: list[str] = []
    joined = plain("\n".join(line.strip() for _, line in block.lines), codes)
    numbers = [number for number, _ in block.lines]
    found: list[Sentence] = []
    position = taken = 0
    for piece in re.split(r"(?<=[.!?:])(?:[\"')\]]*)\s+(?=[\"'(]*(?:[A-Z0-9]|CODE))", joined):
        if found and (ABBREVIATIONS.search(found[-1].words) or piece[:1].isdigit() and not found[-1].words.endswith(".")
                      or found[-1].words.endswith(":")):
            found[-1].words += " " + " ".join(piece.split())
        else:
            line = numbers[min(joined.count("\n", 0, joined.find(piece, position)), len(numbers) - 1)]
            found.append(Sentence(file, line, block.kind, " ".join(piece.split()), []))
        position = max(joined.find(piece, position), position)
    for sentence in found:
        used = len(re.findall(r"\b(CODE|STATUS)\b", sentence.words))
        sentence.codes = codes[taken:taken + used]
        taken += used
    return [sentence for sentence in found if re.search(r"[a-z]{2}", re.sub("CODE|STATUS", "", sentence.words))]


def row_blocks(number: int, line: str) -> list[Block]:
    if re.fullmatch(r"[|:\s-]+", line):
        return []
    return [Block("cell", [(number, cell)]) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def blocks_of(lines: list[tuple[int, str]]) -> list[Block]:
    """Return the blocks of Markdown. Comments and docstrings have a similar form."""
    blocks: list[Block] = []
    fence, opened, in_item = "", False, False
    for number, line in lines:
        bare = line.strip()
        mark = re.match(r"(```+|~~~+|\$\$)", bare)
        if fence or mark:
            fence = ("" if bare.startswith(fence) else fence) if fence else mark[1] if mark else ""
            fence = "" if mark and bare.count("$$") == 2 else fence
            opened = False
            continue
        if not bare or re.fullmatch(r"[-=*_ ]{3,}", bare):
            opened = False
            continue
        item = re.match(r"([-*+]|\d+[.)]|@\w+(\[\w+\])?|\\\w+|[\w, ]*\w(?=  +\S))\s+", bare)
        if not opened and line.startswith("    ") and not item and not in_item:
            continue
        in_item = bool(item) or in_item and line.startswith(" ")
        if bare.startswith("|"):
            blocks += row_blocks(number, bare)
            opened = False
        elif bare.startswith("#"):
            blocks.append(Block("heading", [(number, bare.lstrip("# "))]))
            opened = False
        elif item or not opened:
            blocks.append(Block("item" if item else "text", [(number, bare[item.end():] if item else bare)]))
            opened = True
        else:
            blocks[-1].lines.append((number, re.sub(r"^> ?", "", bare)))
    return blocks


def comment_blocks(text: str) -> list[Block]:
    """Return the comments of C and C++. Comments on separate lines are paragraphs, and comments after code are
    fields."""
    blocks: list[Block] = []
    for found in re.finditer(r"/\*(.*?)\*/|((?:^[ \t]*//[^\n]*\n)+)|//([^\n]*)", text, re.S | re.M):
        number = text.count("\n", 0, found.start()) + 1
        alone = not text[text.rfind("\n", 0, found.start()) + 1:found.start()].strip()
        body = found[1] if found[1] is not None else found[2] if found[2] is not None else found[3]
        if "SPDX" in body or "clang-format" in body or re.match(r"\s*-{4}", body):
            continue
        lines = [re.sub(r"^\s*(\*|//[/!<]?) ?", "", line) if i or found[2] else line.lstrip("*!< ")
                 for i, line in enumerate(body.split("\n"))]
        numbered = list(enumerate(lines, number))
        if alone:
            blocks += blocks_of(numbered)
        else:
            blocks.append(Block("field", [(at, line.strip()) for at, line in numbered]))
    return blocks


def manual_blocks(text: str) -> list[Block]:
    blocks: list[Block] = []
    opened = code = False
    for number, line in enumerate(text.splitlines(), 1):
        macro = re.match(r"[.'](\w+|\\\")\s*(.*)", line)
        name, rest = (macro[1], macro[2]) if macro else ("", line)
        if name in ("nf", "EX", "fi", "EE"):
            code, opened = name in ("nf", "EX"), False
        if code or name in ("TH", "SH", "SS", "TP", "PP", "P", "IP", "LP", "br", "\\\"", "nf", "EX", "fi", "EE", "TS"):
            opened = False
            continue
        if name in ("B", "I"):
            rest = f"`{rest}`"
        elif name in ("BR", "RB", "IR", "RI", "BI"):
            parts = [part.strip('"') for part in re.findall(r'"[^"]*"|\S+', rest)]
            rest = "".join(f"`{part}`" if re.search(r"\w\w", part) and "(" not in part else part for part in parts)
        rest = re.sub(r"\\f[A-Z]|\\&", "", rest).replace("\\-", "-").replace("\\(aq", "'").replace("``", "")
        if not opened:
            blocks.append(Block("text", []))
            opened = True
        blocks[-1].lines.append((number, rest))
    return blocks


def docstring_blocks(text: str) -> list[Block]:
    blocks = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            head, _, rest = first.value.value.partition("\n")
            lines = (head + "\n" + textwrap.dedent(rest)).split("\n")
            lines = ["" if re.match(r"\s*(>>>|\.\.\.) ", line) else line for line in lines]
            blocks += blocks_of(list(enumerate(lines, first.lineno)))
    return blocks


def rust_blocks(text: str) -> list[Block]:
    blocks, run = [], []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = re.match(r"\s*//[/!] ?(.*)", line)
        if found:
            run.append((number, found[1]))
        elif run:
            blocks += blocks_of(run)
            run = []
    return blocks


READERS: list[tuple[list[str], Callable[[str], list[Block]]]] = [
    (PAGES, lambda text: blocks_of(list(enumerate(text.splitlines(), 1)))),
    (HEADERS, comment_blocks),
    (MANUALS, manual_blocks),
    (DOCSTRINGS, docstring_blocks),
    (RUST, rust_blocks),
]


def read(root: pathlib.Path) -> dict[str, list[Sentence]]:
    """Return the sentences of each file that users read, by its path from `root`."""
    found: dict[str, list[Sentence]] = {}
    for patterns, blocks_of_text in READERS:
        for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
            name = str(path.relative_to(root))
            blocks = blocks_of_text(path.read_text(encoding="utf-8"))
            found[name] = [sentence for block in blocks for sentence in sentences_of(name, block)]
    return found

# SPDX-License-Identifier: Apache-2.0
"""Extends mkdocs for the site of docs/: a front page that begins like README.md, reference pages from zero.h and the
Python package, pages for files of the repository to which documents link, syntax colours, and a search without a
server."""

from __future__ import annotations

import importlib
import posixpath
import re
import sys
import textwrap
from pathlib import Path

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import BashLexer, TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from site_zero_h import page_of_header

import zero_header

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?\)")
# By page: its title, the package, and the names that the package exports, with the most common names first.
PYTHON = {
    "python": (
        "Python",
        "libzero",
        """Comm allocate Allocation Param Optimizer Group Result Statistics ModelBuffer
        list_checkpoints prune_checkpoints Checkpoint rules RuleInfo CustomOptimizer Update
        partition_plan Plan OwnedRange Collectives nccl_unique_id Failure set_log_level interrupt_waits
        build_info library_version library_path
        ZeroError ArgumentError MismatchError PeerError CommError CheckpointError NonfiniteError
        CallbackError InterruptedCallError LibraryNotFoundError""",
    ),
    "torch": (
        "PyTorch",
        "libzero.torch",
        """Optimizer ZeroRedundancyOptimizer OSS ShardedDataParallel ShardedGradScaler
        hook_with_zero_step hook_with_zero_step_interleaved""",
    ),
}
CODE_STYLES = {"light": "default", "dark": "github-dark"}
HEADER = zero_header.read(ROOT / "include/zero.h")
ZERO_H, ANCHORS = page_of_header((ROOT / "include/zero.h").read_text(encoding="utf-8"))
# Where names do not become links: in links, headings and blocks of code.
UNLINKED = re.compile(r"(<(a|h\d|pre)\b.*?</\2>)", re.DOTALL)
TEXT = "<!-- text -->"
NAME = re.compile(r"<code>((?:zero|ZERO)_\w+(?:_\*)?)(\(\))?</code>")
WORDS = "\n    options:\n      show_if_no_docstring: true\n      filters: ['!^_', '!^(T|Buffer)$']\n      members: "
# A name that a module defines, or that it imports for its callers.
OFFERED = re.compile(r"^(?:class )?([A-Z]\w+)(?: = |\(|:)|^    (\w+) as \2,$", re.MULTILINE)


class Fences(griffe.Extension):
    """Shows the examples of docstrings as code, and the members of a class before those of its bases."""

    EXAMPLE = re.compile(r"^>>> .*\n?(?:^(?!\s*$).*\n?)*|(?<=\n\n)(?:^(?: {4}.*)?(?:\n|\Z))+", re.MULTILINE)
    SPECIAL_NAME = re.compile(r"(?<![`\w])__\w+?__(?!\w)")

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        def fenced(match: re.Match) -> str:
            language = "pycon" if match[0].startswith(">>>") else "python"
            return f"```{language}\n{textwrap.dedent(match[0]).strip()}\n```\n\n" if match[0].strip() else match[0]

        if obj.docstring is not None:
            text = self.SPECIAL_NAME.sub(r"`\g<0>`", obj.docstring.value)
            obj.docstring.value = self.EXAMPLE.sub(fenced, text)

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        for found in pkg.members.values():
            if found.is_alias:
                continue
            if found.is_module:
                self.on_package(pkg=found)
            elif found.is_class:
                found.members |= found.inherited_members


def page_of(path: Path) -> str:
    """Return a page for a folder, or for a file that is not Markdown. on_post_page adds the text of the file."""
    name = path.relative_to(ROOT)
    if path.is_dir():
        entries = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
        return f"# {name}\n\n" + "\n".join(f"- `{entry}`" for entry in entries)
    return f"# {name}\n\n{TEXT}\n"


def coloured(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = BashLexer() if text.startswith("#!") else TextLexer()
    return highlight(text, lexer, HtmlFormatter(cssclass="codehilite", wrapcode=True))


def shown(path: Path) -> Path:
    """Return what a page shows for a link to a file or folder."""
    return path / "README.md" if (path / "README.md").exists() else path


def site_name(path: Path) -> str:
    """Return the place of a repository file on the site."""
    path = shown(path)
    if path == ROOT / "README.md":
        return "README.md"
    if path.is_relative_to(ROOT / "docs"):
        return str(path.relative_to(ROOT / "docs"))
    if path == ROOT / "include/zero.h":
        return "reference/zero_h.md"
    name = str(path.relative_to(ROOT))
    return f"source/{name}" if path.suffix == ".md" else f"source/{name}.md"


def linked(folder: Path, text: str) -> list[Path]:
    targets = [(folder / match[2]).resolve() for match in LINK.finditer(text) if "://" not in match[2]]
    return [target for target in targets if target.is_relative_to(ROOT) and target.exists()]


def options(entry: str) -> str:
    """Return the options for a reference entry that only libzero constructs."""
    if entry != "Comm" and not entry.endswith("Error"):
        return ""
    return f"\n    options:\n      merge_init_into_class: false\n      show_bases: {str(entry != 'Comm').lower()}"


def on_files(files: Files, config) -> Files:
    def add(name: str, content: str) -> None:
        files.append(File.generated(config, name, content=content))

    add("reference/zero_h.md", ZERO_H)
    for name, (title, module, offered) in PYTHON.items():
        entries = "".join(f"\n\n::: {module}.{entry}{options(entry)}" for entry in offered.split())
        typing = ROOT / "bindings/python" / module.replace(".", "/") / "typing.py"
        words = ["".join(found) for found in OFFERED.findall(typing.read_text(encoding="utf-8"))]
        add(f"reference/{name}.md", f"# {title}{entries}\n\n::: {module}.typing{WORDS}{words}\n")
    for mode, style in CODE_STYLES.items():
        rules = HtmlFormatter(style=style, nobackground=True).get_style_defs(".codehilite")
        add(f"css/code-{mode}.css", rules)
    waiting = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    seen: set[Path] = set()
    while waiting:
        path = shown(waiting.pop())
        if path in seen:
            continue
        seen.add(path)
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            waiting += linked(path.parent, text)
        else:
            text = page_of(path)
        if (name := site_name(path)).startswith("source/"):
            add(name, text)
    return files


def moved(text: str, folder: Path, page: str) -> str:
    """Turn links between files of the repository into links between pages."""

    def link(match: re.Match) -> str:
        target = (folder / match[2]).resolve()
        if "://" in match[2] or not target.is_relative_to(ROOT) or not target.exists():
            return match[0]
        relative = posixpath.relpath(site_name(target), posixpath.dirname(page) or ".")
        return f"{match[1]}{relative}{match[3] or ''})"

    return LINK.sub(link, text)


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Use README.md as front page, with the guides of docs/README.md after its first screen."""
    name = page.file.src_uri
    if name == "README.md":
        first, mark, rest = (ROOT / name).read_text(encoding="utf-8").partition("\n## ")
        guides = moved(markdown[markdown.index("\n| ") :], ROOT / "docs", name)
        return f"{moved(first, ROOT, name)}\n## Guides\n{guides}\n{moved(mark + rest, ROOT, name)}"
    where = ROOT / name.removeprefix("source/") if name.startswith("source/") else ROOT / "docs" / name
    return moved(markdown, where.parent, name)


def on_page_content(html: str, page, config, files) -> str:
    """Turn names of zero.h into links to its page."""
    header = posixpath.relpath("reference/zero_h.html", posixpath.dirname(page.url) or ".")

    def link(match: re.Match) -> str:
        anchor = ANCHORS.get(match[1])
        return f'<a href="{header}#{anchor}">{match[0]}</a>' if anchor else match[0]

    parts = UNLINKED.split(html)  # text, the unlinked part, its tag, text, ...
    parts[::3] = [NAME.sub(link, part) for part in parts[::3]]
    del parts[2::3]
    return "".join(parts)


def on_post_page(output: str, page, config) -> str:
    """Add the texts of files last, so that the search has only their names."""
    name = page.file.src_uri
    if not name.startswith("source/") or TEXT not in output:
        return output
    before, _, after = output.partition(TEXT)
    return before + coloured(ROOT / name.removeprefix("source/").removesuffix(".md")) + after


def on_post_build(config) -> None:
    """Check that each public name is in the reference. The names of libzero.torch are known only if torch is
    installed. Also write the search index as a script, for pages that are opened as files."""
    sys.path += [str(ROOT / "bindings/python"), str(ROOT / "bindings/python/tests")]
    from public import public

    site = Path(config.site_dir)

    def demand(page: str, names: list[str]) -> None:
        anchors = set(re.findall(r'id="([\w.]+)"', (site / f"reference/{page}.html").read_text()))
        if missing := [name for name in names if name not in anchors]:
            raise PluginError(f"reference/{page}.html lacks {', '.join(missing)}")

    demand("zero_h", [*HEADER.functions, *HEADER.structs, *HEADER.typedefs])
    for page, (_, module, _) in PYTHON.items():
        try:
            package = importlib.import_module(module)
        except ImportError:
            continue
        names = ["typing.Partition", *(name for name, _ in public(package) if not name.endswith("attr__"))]
        demand(page, [f"{module}.{name}" for name in names])
    index = (site / "search/search_index.json").read_text(encoding="utf-8")
    (site / "search/search_index.js").write_text(f"data = {index};\nonScriptsLoaded();\n", encoding="utf-8")

# SPDX-License-Identifier: Apache-2.0
"""What mkdocs does not do by itself for the site of docs/: reference pages from zero.h and the Python package, and
pages for the files of the repository that documents link to."""

from __future__ import annotations

import importlib
import posixpath
import re
import sys
from pathlib import Path

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?\)")
LANGUAGES = {".h": "c", ".hpp": "cpp", ".py": "python", ".rs": "rust", ".f90": "fortran", ".jl": "julia", ".sh": "sh"}
PYTHON = {
    "python": ("Python", "libzero"),
    "torch": ("PyTorch", "libzero.torch"),
}
WORDS = "\n    options:\n      show_if_no_docstring: true\n      filters: ['!^_', '!^(T|Buffer)$']\n"


class Fences(griffe.Extension):
    """Shows the examples of docstrings as code."""

    EXAMPLE = re.compile(r"^>>> .*\n?(?:^(?!\s*$).*\n?)*", re.MULTILINE)

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            text = self.EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", obj.docstring.value)
            obj.docstring.value = text


def zero_h() -> str:
    """The header by its sections, which it marks by a line of dashes."""
    text = (ROOT / "include/zero.h").read_text(encoding="utf-8")
    first, *rest = re.split(r"^/\* -{4} (.+?) -+ \*/$", text, flags=re.MULTILINE)
    page = ["# zero.h", "[What each call promises](../calls.md) has more.", "```c", first.strip(), "```"]
    for title, code in zip(rest[::2], rest[1::2]):
        page += [f"## {title}", "```c", code.strip(), "```"]
    return "\n\n".join(page[:2]) + "\n\n" + "\n".join(page[2:])


def page_of(path: Path) -> str:
    """A page of a file that is no Markdown, or of a folder."""
    name = path.relative_to(ROOT)
    if path.is_dir():
        entries = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
        return f"# {name}\n\n" + "\n".join(f"- `{entry}`" for entry in entries)
    fence = "`" * 4
    text = path.read_text(encoding="utf-8")
    return f"# {name}\n\n{fence}{LANGUAGES.get(path.suffix, path.suffix[1:])}\n{text}{fence}\n"


def site_name(path: Path) -> str:
    """Where the site has a file of the repository."""
    if path.is_relative_to(ROOT / "docs"):
        return str(path.relative_to(ROOT / "docs"))
    if path == ROOT / "include/zero.h":
        return "reference/zero_h.md"
    if path.is_dir() and (path / "README.md").exists():
        path /= "README.md"
    name = str(path.relative_to(ROOT))
    return f"source/{name}" if path.suffix == ".md" else f"source/{name}.md"


def linked(folder: Path, text: str) -> list[Path]:
    targets = [(folder / match[2]).resolve() for match in LINK.finditer(text) if "://" not in match[2]]
    return [target for target in targets if target.is_relative_to(ROOT) and target.exists()]


def on_files(files: Files, config) -> Files:
    def add(name: str, content: str) -> None:
        files.append(File.generated(config, name, content=content))

    add("reference/zero_h.md", zero_h())
    for name, (title, module) in PYTHON.items():
        add(f"reference/{name}.md", f"# {title}\n\n::: {module}\n\n::: {module}.typing{WORDS}")
    waiting = [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        name = site_name(path)
        if name in seen:
            continue
        seen.add(name)
        if path.is_dir() and (path / "README.md").exists():
            path /= "README.md"
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            waiting += linked(path.parent, text)
        else:
            text = page_of(path)
        if name.startswith("source/"):
            add(name, text)
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Links between files of the repository become links between pages."""
    name = page.file.src_uri
    where = ROOT / name.removeprefix("source/") if name.startswith("source/") else ROOT / "docs" / name

    def moved(match: re.Match) -> str:
        target = (where.parent / match[2]).resolve()
        if "://" in match[2] or not target.is_relative_to(ROOT) or not target.exists():
            return match[0]
        relative = posixpath.relpath(site_name(target), posixpath.dirname(name) or ".")
        return f"{match[1]}{relative}{match[3] or ''})"

    return LINK.sub(moved, markdown)


def on_post_build(config) -> None:
    """Each public name is in the reference; those of libzero.torch are known where torch is."""
    sys.path += [str(ROOT / "bindings/python"), str(ROOT / "bindings/python/tests")]
    from public import public

    for page, (_, module) in PYTHON.items():
        try:
            package = importlib.import_module(module)
        except ImportError:
            continue
        anchors = set(re.findall(r'id="([\w.]+)"', (Path(config.site_dir) / f"reference/{page}.html").read_text()))
        names = ["typing.Partition", *(name for name, _ in public(package) if not name.endswith("attr__"))]
        if missing := [name for name in names if f"{module}.{name}" not in anchors]:
            raise PluginError(f"reference/{page}.html lacks {', '.join(missing)}")

# SPDX-License-Identifier: Apache-2.0
"""Compiles every code fragment of the documents, of the comments in zero.h and of the Python docstrings, and runs it
if possible.

A fragment is the text between fences, with its language. ```text is the output of a program and not code. Fragments
are named after their document and heading: docs/integrate.md has "integrate/the-loop-1.c". A file in
tests/abi/fragments includes a fragment by that name and declares what it uses. That file is compiled with warnings as
errors, and is run. Alternatively, all lines of a fragment are in a complete program that other tests compile and run.
A fragment that no file includes is a failure, so a fragment can be left out only by an entry in this file.

usage: check_docs.py SOURCE_FOLDER LIBRARY CC CXX [CONTEXTS]      (CONTEXTS: a pattern such as "torch_*.py"; default: all)
"""

from __future__ import annotations

import ast
import concurrent.futures
import fnmatch
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT, LIBRARY = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
CC, CXX = map(shlex.split, sys.argv[3:5])
ONLY = sys.argv[5] if len(sys.argv) > 5 else "*"
CONTEXTS = ROOT / "tests/abi/fragments"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
    *sorted((ROOT / "bindings").glob("*/README.md")),
]
SUFFIXES = {
    "c": "c", "cpp": "cpp", "fortran": "f90", "julia": "jl", "python": "py", "rust": "rs", "sh": "sh",
}
# Fragments whose lines are in a complete program.
PROGRAMS = {
    "frameworks/jax-1.py": ROOT / "examples/frameworks/jax_mlp.py",
    "frameworks/tensorflow-and-keras-1.py": ROOT / "examples/frameworks/keras_mlp.py",
    "frameworks/lightning-1.py": ROOT / "examples/frameworks/lightning_mlp.py",
    "frameworks/accelerate-1.py": ROOT / "examples/frameworks/accelerate_mlp.py",
    "frameworks/hugging-face-s-trainer-1.py": ROOT / "examples/frameworks/trainer_mlp.py",
    "readme/c-1.c": ROOT / "examples/c/minimal.c",
    "integrate/libtorch-from-any-language-1.cpp": ROOT / "examples/engines/libtorch.cpp",
    "rust/train-1.rs": ROOT / "bindings/rust/libzero/tests/readme.rs",
}
INCLUDED = re.compile(r'''^ *#?include ["'](\S+/\S+)["']''', re.M)
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused"]

Fragments = dict[str, str]
faults: list[str] = []
skipped: list[str] = []
used: set[str] = set()


def name_of(document: Path) -> str:
    folder = document.name == "README.md" and document.parent != ROOT
    return (document.parent.name if folder else document.stem).lower()


def slug(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower().lstrip("#0123456789. ")).strip("-")


def fragments_of(document: Path) -> Fragments:
    """Return the fragments of a document, each with a line that gives compilers its position."""
    found: Fragments = {}
    heading, language, began, previous = "top", "", 0, ""
    counts: dict[tuple[str, str], int] = {}
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            if began:
                began = 0
                continue
            language, began = line[3:], number
            if language == "text":
                continue
            if language not in SUFFIXES:
                faults.append(f"{document}:{number}: a fragment of no language that is known here: {line}")
                continue
            key = (heading, language)
            counts[key] = counts.get(key, 0) + 1
            name = f"{name_of(document)}/{heading}-{counts[key]}.{SUFFIXES[language]}"
            found[name] = f'#line {number + 1} "{document}"\n' if language in ("c", "cpp") else ""
        elif began:
            if language in SUFFIXES:
                found[name] += line + "\n"
        elif line.startswith("#"):
            heading = slug(line)
        elif line.startswith("    ") and not previous.strip():
            faults.append(f"{document}:{number}: code without a fence is not found: {line.strip()}")
        previous = line
    return found


def header_fragments() -> Fragments:
    """Return the code in the comments of zero.h, which is indented by five spaces after an empty line."""
    header = ROOT / "include/zero.h"
    text = header.read_text(encoding="utf-8")
    found: Fragments = {}
    for match in re.finditer(r"^ \*\n((?: \*     .*\n)+)", text, re.M):
        line = text.count("\n", 0, match.start(1)) + 1
        code = re.sub(r"^ \*     ", "", match[1], flags=re.M)
        found[f"zero.h/{len(found) + 1}.c"] = f'#line {line} "{header}"\n{code}'
    return found


def docstring_fragments() -> Fragments:
    """Return the code in the docstrings of the Python package. Rust fragments are doctests."""
    package = ROOT / "bindings/python"
    found: Fragments = {}
    for path in sorted(package.glob("libzero/**/*.py")):
        folder = ".".join(path.parent.relative_to(package).parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                continue
            of = getattr(node, "name", path.stem)
            text = ast.get_docstring(node) or ""
            for number, match in enumerate(re.finditer(r"\n\n((?: {4}.*\n|\n(?= {4}))+)", text + "\n"), 1):
                found[f"{folder}/{of}-{number}.py"] = textwrap.dedent(match[1])
    return found


def run(command: list[str | Path], **options) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300,
                          check=False, **options)
    if done.returncode != 0:
        faults.append(f"{shlex.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def environment() -> dict[str, str]:
    """Return the environment without the variables of the launcher that started the tests."""
    launchers = re.compile(r"(RANK|WORLD_SIZE|ZERO_|OMPI_|PMI_|SLURM_)")
    kept = {key: value for key, value in os.environ.items() if not launchers.match(key)}
    return kept | {"LD_LIBRARY_PATH": str(LIBRARY.parent), "LIBZERO_PATH": str(LIBRARY),
                   "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT / "bindings/python")}


def compiled(command: list[str | Path], context: Path, folder: Path) -> None:
    """Compile a context that includes fragments, and run it if it or one of the fragments is a program."""
    work = folder / context.name
    work.mkdir()
    program = work / "program"
    texts = [context.read_text(encoding="utf-8")]
    for name in INCLUDED.findall(texts[0]):
        fragment = folder / "fragments" / name
        texts += [fragment.read_text(encoding="utf-8")] if fragment.exists() else []
    if not re.search(r"^(int main|program )", "\n".join(texts), re.M):
        run([*command, "-I", folder / "fragments", "-c", context, "-o", program], cwd=work)
        return
    before = len(faults)
    libraries = ["-L", LIBRARY.parent, "-lzero", "-lm"]
    run([*command, "-I", folder / "fragments", context, "-o", program, *libraries], cwd=work)
    if len(faults) == before:
        run([program], cwd=work, env=environment())


def check_c(context: Path, folder: Path) -> None:
    compiled([*CC, "-std=c11", "-D_GNU_SOURCE", "-Og", *WARNINGS, "-I", ROOT / "include"], context, folder)


def check_cpp(context: Path, folder: Path) -> None:
    compiled([*CXX, "-std=c++20", "-Og", *WARNINGS, "-I", ROOT / "include", "-I", CONTEXTS], context, folder)


def check_fortran(context: Path, folder: Path) -> None:
    if shutil.which("gfortran") is None:
        skipped.append(f"{context.name}: gfortran is not here")
        return
    module = folder / "libzero.f90"
    with module.open("w", encoding="utf-8") as file:
        subprocess.run([sys.executable, ROOT / "scripts/fortran_module.py"], stdout=file, check=True)
    compiled(["gfortran", "-std=f2018", *WARNINGS, module], context, folder)


def expanded(context: Path, fragments: Fragments) -> str:
    """Include fragments for a language that cannot include files within a block."""
    def text_of(match: re.Match[str]) -> str:
        lines = fragments.get(match[2], "").splitlines()
        return "\n".join(match[1] + line if line else "" for line in lines)
    return re.sub(r'^( *)#include "(.*)"$', text_of, context.read_text(encoding="utf-8"), flags=re.M)


def check_python(context: Path, folder: Path, fragments: Fragments) -> None:
    work = folder / context.stem
    work.mkdir()
    program = work / "program.py"
    text = expanded(context, fragments)
    program.write_text(text, encoding="utf-8")
    compile(text, str(context), "exec")
    for package in ("numpy", "torch"):
        needed = re.search(rf"^ *(import|from) .*\b{package}\b", text, re.M)
        if needed and importlib.util.find_spec(package) is None:
            skipped.append(f"{context.name} does not run: {package} is not here")
            return
    run([sys.executable, "-W", "error::DeprecationWarning:__main__", program], cwd=work, env=environment())


def check_julia(context: Path, folder: Path, fragments: Fragments) -> None:
    """Compare names, because without the packages that the fragments use, Julia can check only the syntax."""
    text = expanded(context, fragments)
    module = (ROOT / "examples/julia/zero.jl").read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"\bZero\.(\w+)", text))):
        if not re.search(rf"^(const |struct )?{name}\b", module, re.M):
            faults.append(f"{context.name}: zero.jl has no {name}")
    program = folder / context.name
    program.write_text(text, encoding="utf-8")
    if shutil.which("julia") is None:
        skipped.append(f"{context.name}: julia is not here")
        return
    parse = 'ex = Meta.parse("begin\\n" * read(ARGS[1], String) * "\\nend"); exit(ex.head === :block ? 0 : 1)'
    run(["julia", "--startup-file=no", "-e", parse, program])


def check_shell(name: str, text: str) -> None:
    """Check that everything a command names exists. Commands are not run, because they build, install and test
    everything."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        faults.append(f"{name}: {done.stderr}")
    # Paths are relative to the root, to the folder of the document, or to the folder of a `cd`.
    folders = [ROOT, ROOT / "examples" / name.partition("/")[0]]
    folders += [ROOT / word for word in re.findall(r"^cd (\S+)$", text, re.M)]
    ours = r"(?<![\w/.$-])(?:\.\./)*(?:scripts|examples|bindings|tests|bench|LICENSE)[\w/.-]*|\b\w+\.(?:f90|jl)\b"
    made = re.findall(r"> (\S+)$", text, re.M)
    for word in re.findall(ours, text):
        if word in made or "run/" in word:
            continue
        if not any((folder / word).exists() for folder in folders):
            faults.append(f"{name}: there is no {word}")


def check_program(name: str, text: str) -> None:
    """Check that the lines of a fragment are in the program in the same order. The program may have more lines."""
    def lines(of: str) -> list[str]:
        plain = (re.sub(r"\s+", " ", re.sub(r"\s+//.*", "", line)).strip() for line in of.splitlines())
        return [line for line in plain if line and not line.startswith("#line")]
    rest = iter(lines(PROGRAMS[name].read_text(encoding="utf-8")))
    for line in lines(text):
        if line not in rest:  # the search continues after the previous match
            faults.append(f"{name}: not in {PROGRAMS[name]}, or not there: {line}")
            return


def main(folder: Path) -> None:
    fragments: Fragments = header_fragments() | docstring_fragments()
    for document in DOCUMENTS:
        fragments |= fragments_of(document)
    for name, text in fragments.items():
        path = folder / "fragments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    checks = []
    for context in sorted(CONTEXTS.iterdir()):
        if context.is_dir() or context.name.startswith("."):
            continue
        names = INCLUDED.findall(context.read_text(encoding="utf-8"))
        for name in names:
            if name not in fragments and not (CONTEXTS / name).exists():
                faults.append(f"{context.name}: there is no fragment {name}")
        used.update(names)
        check = {".c": check_c, ".cpp": check_cpp, ".f90": check_fortran, ".py": check_python, ".jl": check_julia}
        kind = check[context.suffix]
        if fnmatch.fnmatch(context.name, ONLY):
            checks.append((kind, context, folder, *([fragments] if kind in (check_python, check_julia) else [])))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in [pool.submit(*arguments) for arguments in checks]:
            future.result()
    for name, text in fragments.items():
        if name in PROGRAMS:
            check_program(name, text)
        elif name.endswith(".sh"):
            check_shell(name, text)
        elif name not in used:
            faults.append(f"{name} is in no file of {CONTEXTS}: nobody compiles it")
    for name in PROGRAMS.keys() - fragments.keys():
        faults.append(f"there is no fragment {name}")
    if len(fragments) < 50:
        faults.append("too few fragments: were the documents read?")
    print(f"{len(fragments)} fragments")
    print("\n".join(f"skipped: {what}" for what in skipped))


with tempfile.TemporaryDirectory(prefix="zero-docs-") as directory:
    main(Path(directory))
sys.exit("\n".join(faults) or 0)

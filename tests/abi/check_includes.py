# SPDX-License-Identifier: Apache-2.0
"""Checks the levels of the source tree, and which files may include or know others. There must be no cycles, which
also holds for the bindings. Names that a file defines for itself must not occur in other files.

usage: check_includes.py SOURCE_ROOT
"""
import ast
import graphlib
import pathlib
import re
import sys

# A folder includes its own files and files of lower levels. The folders plan and rules are independent of each other.
LEVEL = {"base": 0, "plan": 1, "rules": 1, "kernels": 2, "device": 3, "comm": 4, "optim": 5, "step": 6,
         "state": 7, "api": 8}
# External headers that only some files may include.
ONLY = {
    r"nlohmann/": r"state/json\.cpp",
    r"xxhash\.h": r"base/hash\.cpp",
    r"immintrin\.h|.*intrin\.h": r"kernels/.*|base/float_environment\.cpp",
    r"cuda.*": r"device/cuda.*",
    r"nccl\.h": r"comm/nccl.*",
    r"mpi\.h": r"mpi/.*",
    r"sys/(?!types\.h|stat\.h|socket\.h|un\.h|mman\.h|file\.h|syscall\.h).*": r"base/os\.(h|cpp)",
    r"thread|future|mutex|atomic": r"(?!plan/|kernels/).*",
    r"iostream|fstream|filesystem|regex|csignal|signal\.h":
        r"base/worker_thread\.cpp|comm/local/life\.cpp|base/file_size_signal\.cpp",
}
# Headers that each instruction set includes once.
MANY_TIMES = {"kernels/loops.h", "kernels/narrow_types.h", "kernels/reductions.h", "kernels/updates.h"}
PRECOMPILED = "base/precompiled.h"  # no file includes it
# The optimizer's own options are a zero_options, which has no pointers to the caller's memory once it is read.
KEPT = {("optim/options.h", "zero_options"), ("optim/options.cpp", "zero_options")}


def without_comments(text: str) -> str:
    """Return code without comments and with empty string literals."""
    token = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    return re.sub(token, lambda m: '""' if m[0][0] == '"' else " ", text, flags=re.S)


def public_structs(header: str) -> set[str]:
    """Return the structs and handles of zero.h. zero_status and zero_log_fn are not included, because all folders may
    use them."""
    return set(re.findall(r"^typedef struct (zero_\w+)", header, flags=re.M))


def faults_of(path: str, text: str, structs: set[str]) -> list[str]:
    faults = []
    folder = path.split("/")[0]
    for quote, included in re.findall(r'^\s*#\s*include\s+(["<])([^">]+)', text, flags=re.M):
        other = included.split("/")[0]
        if quote == '"' and included != "zero.h":
            if other not in LEVEL:
                faults.append(f"includes {included}, which is not written from src/")
            elif other != folder and LEVEL[other] >= LEVEL[folder]:
                faults.append(f"includes {included}: {other} is not below {folder}")
        for pattern, allowed in ONLY.items():
            if re.fullmatch(pattern + (".*" if pattern.endswith("/") else ""), included):
                if not re.fullmatch(allowed, path):
                    faults.append(f"includes {included}, which only {allowed} may")
    if folder != "api":
        for name in sorted(set(re.findall(r"\bzero_\w+\b", without_comments(text))) & structs):
            if (path, name) in KEPT:
                continue
            faults.append(f"uses {name}: structs and handles of zero.h belong to src/api")
    if path.endswith(".h") and path not in MANY_TIMES | {PRECOMPILED} and "#pragma once" not in text:
        faults.append("has no #pragma once")
    if not text.startswith(("// SPDX-License-Identifier: Apache-2.0\n",
                            "/* SPDX-License-Identifier: Apache-2.0 */\n")):
        faults.append("does not begin with its license")
    return faults


Graph = dict[str, set[str]]


def includes(source: pathlib.Path) -> Graph:
    return {file.relative_to(source).as_posix():
            set(re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read_text(encoding="utf-8"), flags=re.M))
            for file in source.rglob("*") if file.suffix in {".h", ".cpp"}}


def imports(package: pathlib.Path) -> Graph:
    """Return the imports of a package's modules, including imports inside functions and for types."""
    files = {file.relative_to(package).with_suffix("").as_posix(): file for file in package.rglob("*.py")}
    graph: Graph = {name: set() for name in files}
    for name, file in files.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                there = pathlib.PurePosixPath("/", name).parents[node.level - 1] / (node.module or "").replace(".", "/")
                for one in node.names:  # a module, or a name in a module or package
                    places = [str(there / one.name)[1:], str(there)[1:], str(there / "__init__")[1:]]
                    graph[name].add(next(place for place in places if place in files))
    return graph


def uses(crate: pathlib.Path) -> Graph:
    """Return the uses between a crate's modules, each of which is a file. All modules may use lib.rs."""
    graph: Graph = {}
    for file in (crate / "src").glob("*.rs"):
        code = re.sub(r"//.*", "", file.read_text(encoding="utf-8"))
        graph[file.stem] = set(re.findall(r"\bcrate::(\w+)", code))
        for several in re.findall(r"\bcrate::\{(.*?)\};", code, flags=re.S):
            graph[file.stem] |= set(re.findall(r"\b(\w+)\b", several))
    return {name: others & graph.keys() - {name} for name, others in graph.items()}


def circles(root: pathlib.Path) -> list[str]:
    """Return a sentence for each tree of files that has a cycle, and for each tree whose files were not found."""
    graphs = {"src": includes(root / "src"), "bindings/python": imports(root / "bindings/python/libzero")}
    for crate in ("libzero", "libzero-sys"):
        graphs[f"bindings/rust/{crate}"] = uses(root / "bindings/rust" / crate)
    faults = []
    for place, graph in graphs.items():
        if not any(graph.values()):
            faults.append(f"{place}: only {len(graph)} files were found")
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            faults.append(f"{place} has a circle of files: {' uses '.join(reversed(error.args[1]))}")
    return faults


def own_names(text: str) -> set[str]:
    """Return the functions, types and variables that a file defines in an unnamed namespace."""
    names = set()
    outer = re.findall(r"^namespace ([\w:]+) \{$", text.split("\nnamespace {\n")[0], flags=re.M)
    for body in re.findall(r"^namespace \{$(.*?)^\}  // namespace$", text, flags=re.M | re.S):
        body = without_comments(body)
        names |= set(re.findall(r"^(?:struct|class|enum(?: class)?) (\w+)", body, flags=re.M))
        names |= set(re.findall(r"^using (\w+) =", body, flags=re.M))
        names |= set(re.findall(r"^(?!using|struct|class|enum)\w[^\n;={(]*?(?<!:)\b(\w+)(?:\[\w*\])*(?=\(| =|;|\{)", body, flags=re.M))
    return {"::".join([*outer, name]) for name in names}


def shared_names(files: dict[str, str]) -> list[str]:
    """Return names that several files define. --unity=on compiles several files as one, and would silently select an
    overload from another file."""
    owners: dict[str, list[str]] = {}
    for path, text in files.items():
        for name in own_names(text):
            owners.setdefault(name, []).append(path)
    assert len(owners) > 500, f"only {len(owners)} names were found"
    return [f"{' and '.join(paths)} each have a {name} of their own" for name, paths in sorted(owners.items())
            if len(paths) > 1]


def main(root: pathlib.Path) -> int:
    structs = public_structs((root / "include/zero.h").read_text(encoding="utf-8"))
    source = root / "src"
    files = sorted(f for f in source.rglob("*") if f.suffix in {".h", ".cpp"})
    faults = 0
    for file in files:
        path = file.relative_to(source).as_posix()
        for fault in faults_of(path, file.read_text(encoding="utf-8"), structs):
            print(f"src/{path} {fault}")
            faults += 1
    listed = (source / "meson.build").read_text(encoding="utf-8")
    for file in files:
        name = file.relative_to(source).as_posix()
        if file.suffix == ".cpp" and f"'{name}'" not in listed:
            print(f"src/{name} is not in src/meson.build")
            faults += 1
    together = {name: (source / name).read_text(encoding="utf-8")
                for name in re.findall(r"'([\w/]+\.cpp)'", listed.split("apart = ")[0])}
    for fault in circles(root) + shared_names(together):
        print(fault)
        faults += 1
    print(f"{len(files)} files, {len(structs)} structs and handles, {faults} faults")
    return faults != 0 or len(files) < 20 or len(structs) < 10


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))

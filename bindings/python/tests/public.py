# SPDX-License-Identifier: Apache-2.0
"""Lists the public names of a package, and checks their docstrings."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import re
import shutil
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

# The with statement, print and `del` need no explanation.
_UNSAID = {"__init__", "__repr__", "__str__", "__enter__", "__exit__", "__getstate__", "__del__"}


def public(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions of a package, and the methods and properties that its classes define
    themselves."""
    for name in package.__all__:
        offered = getattr(package, name)
        if not callable(offered):
            continue
        yield name, offered
        for member, found in _members(offered) if inspect.isclass(offered) else ():
            yield f"{name}.{member}", found


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for name, _ in inspect.getmembers(cls):
        found = inspect.getattr_static(cls, name)
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if not inspect.isfunction(function) or not function.__module__.startswith("libzero"):
            continue
        special = name.startswith("__")
        if special and (name in _UNSAID or dataclasses.is_dataclass(cls)):
            continue
        if special or not name.startswith("_"):
            yield name, found if isinstance(found, property) else function


def faults(package: ModuleType) -> Iterator[str]:
    """Yield a sentence for each object without its own docstring, each method without an example, each field without
    a description, and each class whose instances print as an address."""
    for name, offered in public(package):
        text = offered.__doc__ or ""
        if not text or text.startswith(f"{name}("):
            yield f"{name} has no docstring"
        if inspect.isclass(offered):
            for field in getattr(offered, "__dataclass_fields__", ()):
                if not re.search(rf"\b{field}\b", text):
                    yield f"{name} does not say what {field} is"
            if offered.__repr__ is object.__repr__:
                yield f"{name} has no repr"
        elif not isinstance(offered, property) and not _examples(text):
            yield f"{name} has no example"


def _examples(text: str) -> bool:
    """Return whether the text has doctests, or code that tests/abi/check_docs.py runs."""
    return ">>> " in text or bool(re.search(r"\n\n    +\w", inspect.cleandoc(text)))


def run_examples(package: ModuleType, given: Mapping[str, Any]) -> list[str]:
    """Run every doctest after the doctest of its class, and return the failures. The folder "run", to which examples
    write, is removed."""
    said: list[str] = []
    runner, parser = doctest.DocTestRunner(verbose=False), doctest.DocTestParser()
    for name, offered in public(package):
        names = dict(given)
        owner, _, member = name.partition(".")
        texts = [getattr(package, owner).__doc__, offered.__doc__] if member else [offered.__doc__]
        for text in texts:
            examples = parser.get_doctest(text or "", names, name, None, 0)
            runner.run(examples, out=said.append, clear_globs=False)
            names = examples.globs
        shutil.rmtree("run", ignore_errors=True)
    return said

# SPDX-License-Identifier: Apache-2.0
"""Tests the parts of the site that do not need mkdocs. If torch is installed, scripts/test builds
the whole site."""

import collections
import html
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import site_zero_h  # noqa: E402
import zero_header  # noqa: E402


def words(text):
    return collections.Counter(re.findall(r"\w+", text))


class Site(unittest.TestCase):
    def test_a_python_without_mkdocs_is_told_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python"
            python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
            python.chmod(0o755)
            site = subprocess.run([ROOT / "scripts/site"], env=os.environ | {"PYTHON": str(python)}, capture_output=True,
                                  text=True)
        self.assertEqual(site.returncode, 1)
        self.assertEqual(site.stderr, "scripts/site: No module named 'mkdocs': "
                         f"run {python} -m pip install -r docs/requirements.txt\n")

    def test_each_name_of_zero_h_has_an_anchor(self):
        header = zero_header.read(ROOT / "include/zero.h")
        page, anchors = site_zero_h.page_of_header((ROOT / "include/zero.h").read_text())
        ids = set(re.findall(r'\{#(\w+)\}|<a id="(\w+)">', page))
        ids = {heading or further for heading, further in ids}
        for name in [*header.functions, *header.structs, *header.typedefs]:
            self.assertEqual(anchors.get(name), name)
        self.assertEqual(set(header.constants) - set(anchors), set())
        self.assertEqual(set(anchors.values()) - ids, set())

    def test_no_word_of_zero_h_is_lost_on_its_page(self):
        text = (ROOT / "include/zero.h").read_text()
        opening, *sections = site_zero_h.SECTION.split(text)
        declared = "".join(sections).partition("\n#ifdef __cplusplus")[0]
        contract = re.search(r"/\* libzero: .*?\*/", opening, re.S)[0]
        page = html.unescape(site_zero_h.page_of_header(text)[0])
        self.assertEqual(words(contract + re.sub(r"^ZERO_API ", "", declared, flags=re.M)) - words(page), words(""))


if __name__ == "__main__":
    unittest.main()

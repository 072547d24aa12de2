# SPDX-License-Identifier: Apache-2.0
"""Checks that the recipes in packaging match the build: its version, its options, and the files that it installs.

usage: check_recipes.py RECIPE MESON SOURCE_FOLDER BUILD_FOLDER CUDA_FOLDER_OR_EMPTY CC...
"""
import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

from installed import (BUILD, CLEAN, LINKS_CUDA, MINIMAL, SOURCE, compiler, cuda, found, install, meson, needs, run,
                       run_chosen, trains, without_shared)

PUBLISHER = {"name": "Ada Example", "email": "ada@example.org", "homepage": "https://example.org/", "issues": "https://example.org/i",
             "repository": "https://example.org/libzero.git", "releases": "https://example.org/r", "conda_maintainers": "ada bob"}
PUBLISHED = {
    "pyproject.toml": 'authors = [{ name = "Ada Example", email = "ada@example.org" }]\n\n[project.urls]\n'
                      'Homepage = "https://example.org/"\nRepository = "https://example.org/libzero.git"\nIssues = "https://example.org/i"\n#',
    "bindings/rust/libzero-sys/Cargo.toml": 'authors = ["Ada Example <ada@example.org>"]\nhomepage = "https://example.org/"\n'
                                            'repository = "https://example.org/libzero.git"\n#',
    "packaging/debian/control": "Maintainer: Ada Example <ada@example.org>\nHomepage: https://example.org/\n"
                                "Vcs-Git: https://example.org/libzero.git\nVcs-Browser: https://example.org/libzero\n#",
    "packaging/debian/changelog": " -- Ada Example <ada@example.org>  ",
    "packaging/debian/watch": "version=4\nhttps://example.org/r ",
    "packaging/conda/recipe.yaml": "extra:\n  recipe-maintainers:\n    - ada\n    - bob\n",
    "packaging/vcpkg/vcpkg.json": '"homepage": "https://example.org/",\n  "license"',
}


def publisher_is_told(stage: Path) -> None:
    """Check that all metadata contain exactly what packaging/publisher.toml says."""
    run(SOURCE / "scripts/publisher", "--check")
    shutil.copytree(SOURCE / "packaging", stage / "packaging")
    for name in ("scripts/publisher", "pyproject.toml", "bindings/rust/libzero/Cargo.toml", "bindings/rust/libzero-sys/Cargo.toml"):
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / name, stage / name)
    before = {path: path.read_bytes() for path in stage.rglob("*") if path.is_file()}
    fields = stage / "packaging/publisher.toml"
    fields.write_text("".join(f'{key} = "{value}"\n' for key, value in ({key: "" for key in ("documentation", "changelog")}
                                                                       | PUBLISHER).items()), encoding="utf-8")
    run(stage / "scripts/publisher")
    for name, text in PUBLISHED.items():
        if text not in (written := (stage / name).read_text(encoding="utf-8")):
            sys.exit(f"scripts/publisher wrote in {name}:\n{written}")
    fields.write_bytes(before[fields])
    run(stage / "scripts/publisher")
    if before != {path: path.read_bytes() for path in stage.rglob("*") if path.is_file()}:
        sys.exit("something of a publisher stays in the metadata when publisher.toml is empty again")


def symbols_are_listed() -> None:
    """Check that Debian's list has each function of zero.h, with the version that added it."""
    header = re.sub(r"/\*.*?\*/", "", (SOURCE / "include/zero.h").read_text(encoding="utf-8"), flags=re.S)
    declared = set(re.findall(r"^ZERO_API\s[^;(]*?(zero_\w+)\s*\(", header, flags=re.M))
    listed, = SOURCE.glob("packaging/debian/*.symbols")
    known = set(re.findall(r"^ (zero_\w+)@Base \d+\.\d+\.\d+$", listed.read_text(encoding="utf-8"), flags=re.M))
    if known != declared:
        sys.exit(f"{listed} lacks {sorted(declared - known)} and has {sorted(known - declared)}: each line is ` NAME@Base VERSION`")


def python_metadata_agrees() -> None:
    """Check that the metadata that `meson install` installs and the conda recipe match pyproject.toml."""
    project = (SOURCE / "pyproject.toml").read_text(encoding="utf-8")
    metadata = (SOURCE / "bindings/python/METADATA.in").read_text(encoding="utf-8")
    known = {"Name": "name", "Summary": "description", "License-Expression": "license", "Requires-Python": "requires-python"}
    for field, key in known.items():
        value = re.search(f"^{field}: (.*)$", metadata, flags=re.M)[1]
        if f'\n{key} = "{value}"' not in project:
            sys.exit(f"METADATA.in has {field} {value}, and pyproject.toml has another {key}")
    extras = re.findall(r'(\w+) = \["([^"]*)"\]', re.search("^optional-dependencies = (.*)$", project, flags=re.M)[1])
    if extras != [(extra, name) for name, extra in re.findall('^Requires-Dist: (.*); extra == "(.*)"$', metadata, flags=re.M)]:
        sys.exit(f"METADATA.in has other extras than pyproject.toml, which has {extras}")
    oldest = re.search('^requires-python = ">=(.*)"', project, flags=re.M)[1]
    if f'python_min: "{oldest}"' not in (SOURCE / "packaging/conda/recipe.yaml").read_text(encoding="utf-8"):
        sys.exit(f"conda's recipe has another python_min than {oldest}")


def of_recipes(stage: Path) -> None:
    """Check that the recipes have this version, and know the options of this build."""
    publisher_is_told(stage)
    symbols_are_listed()
    python_metadata_agrees()
    version = json.loads(run(meson, "introspect", "--projectinfo", BUILD))["version"]
    options = {option["name"] for option in json.loads(run(meson, "introspect", "--buildoptions", BUILD))}
    manual = f'" "libzero {version}" "'
    for name, said in (("debian/changelog", f"libzero ({version}-"), ("debian/rules", ""), ("vcpkg/portfile.cmake", ""),
                       ("vcpkg/vcpkg.json", f'"version": "{version}"'), ("conda/recipe.yaml", f'version: "{version}"'),
                       *((f"man/{page.name}", manual) for page in SOURCE.glob("packaging/man/*.[13]"))):
        recipe = (SOURCE / "packaging" / name).read_text(encoding="utf-8")
        unknown = set(re.findall(r"-D(\w+)=", recipe)) - options
        if said not in recipe or unknown:
            sys.exit(f"packaging/{name} does not say '{said}', or has unknown options {unknown}")


def of_debian(stage: Path) -> None:
    """Check that each installed file is in one package, or is excluded by name."""
    install(stage)
    if not list(stage.glob("usr/local/lib/*/libzero.a")):
        print("libraries lie elsewhere than on Debian")
        sys.exit(77)
    parcels = Counter()
    for listed in SOURCE.glob("packaging/debian/*install*"):
        for line in listed.read_text(encoding="utf-8").splitlines():
            pattern = line.split()[0]  # a folder of the package may follow
            matched = list((stage / "usr/local").glob(pattern.removeprefix("usr/")))
            if not matched:
                sys.exit(f"{listed.name} has {pattern}, and nothing is there")
            for path in matched:
                parcels.update(path.rglob("*") if path.is_dir() else [path])
    files = [path for path in stage.rglob("*") if not path.is_dir()]
    wrong = [(str(path.relative_to(stage)), parcels[path]) for path in files if parcels[path] != 1]
    if wrong:
        sys.exit(f"files, and how many packages have each: {wrong}")


VCPKG = """
set(PORT libzero)
function(vcpkg_configure_meson _ source _)
  execute_process(COMMAND ${MESON} setup ${STAGE}/build ${source} --libdir=lib ${ARGN} --wrap-mode nodownload
                  -Doptimization=plain COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(vcpkg_install_meson)
  file(COPY ${STAGE}/build/packaging/ DESTINATION ${CURRENT_PACKAGES_DIR}/lib/cmake/zero FILES_MATCHING PATTERN *.cmake)
endfunction()
function(vcpkg_fixup_pkgconfig)
endfunction()
function(vcpkg_cmake_config_fixup _ name _ path)
  file(MAKE_DIRECTORY ${CURRENT_PACKAGES_DIR}/share)
  file(RENAME ${CURRENT_PACKAGES_DIR}/${path} ${CURRENT_PACKAGES_DIR}/share/${name})
endfunction()
function(vcpkg_replace_string file old new)
  file(READ ${file} text)
  string(REPLACE ${old} ${new} text "${text}")
  file(WRITE ${file} "${text}")
endfunction()
function(vcpkg_install_copyright _)
  foreach(file ${ARGN})
    file(READ ${file} text)
    file(APPEND ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright "${text}")
  endforeach()
endfunction()
include(${PORTFILE})
"""


def of_vcpkg(stage: Path) -> None:
    """Run the port with stand-ins for vcpkg's functions on an installed library. A program that follows `usage` must
    then build."""
    needs("cmake")
    install(stage)
    (package := stage / "package").mkdir()
    for file, folder in (("zero.h", "include"), ("libzero.a", "lib")):
        found(stage, file).parent.rename(package / folder)
    (stage / "port.cmake").write_text(VCPKG, encoding="utf-8")
    run("cmake", f"-DMESON={meson}", f"-DSTAGE={stage}", f"-DCURRENT_PACKAGES_DIR={package}",
        f"-DPORTFILE={SOURCE}/packaging/vcpkg/portfile.cmake", "-P", stage / "port.cmake")
    notices = (package / "share/libzero/copyright").read_text(encoding="utf-8")
    if lacking := [owner for owner in ("Apache License", "Niels Lohmann", "Yann Collet") if owner not in notices]:
        sys.exit(f"the port's copyright lacks {lacking}")
    usage = (package / "share/libzero/usage").read_text(encoding="utf-8").partition(":\n")[2]
    project = f"cmake_minimum_required(VERSION 3.15)\nproject(consumer C)\nadd_executable(main {MINIMAL})\n{usage}"
    (stage / "CMakeLists.txt").write_text(project, encoding="utf-8")
    env = CLEAN | LINKS_CUDA | {"CC": " ".join(compiler)}
    lacks = "-lcudart_static -lrt -ldl -lpthread" if cuda else ""  # the port does not mention CUDA
    for kind in ("shared", "static"):
        run("cmake", "-S", stage, "-B", stage / kind, f"-DCMAKE_PREFIX_PATH={package}",
            f"-DCMAKE_C_STANDARD_LIBRARIES={lacks}", env=env)
        run("cmake", "--build", stage / kind, env=env)
        trains(stage / kind / "main")
        without_shared(package)


run_chosen(globals())

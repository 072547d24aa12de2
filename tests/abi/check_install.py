# SPDX-License-Identifier: Apache-2.0
"""Builds programs outside the source tree that find the result of `meson install` with the tools of their languages,
and runs a training with each.

usage: check_install.py CONSUMER MESON SOURCE_FOLDER BUILD_FOLDER CUDA_FOLDER_OR_EMPTY CC...
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from installed import (BUILD, CLEAN, LINKS_CUDA, MINIMAL, SOURCE, compiler, found, install, meson, needs, run, run_chosen,
                       trains, without_shared)


def pkg_config(env: dict, *options: str) -> list[str]:
    return run("pkg-config", *options, "zero", env=env).split()


def of_pkg_config(stage: Path) -> None:
    """Use another system root, as cross builds and packagers do."""
    needs("pkg-config")
    install(stage)
    package = found(stage, "zero.pc")
    if re.search(r"cuda[-/\d]", package.read_text(encoding="utf-8").lower()):
        sys.exit(f"{package} names a place of CUDA's:\n{package.read_text(encoding='utf-8')}")
    env = CLEAN | LINKS_CUDA | {"PKG_CONFIG_LIBDIR": str(package.parent), "PKG_CONFIG_SYSROOT_DIR": str(stage),
                                "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1", "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}
    for name, word in (("shared", []), ("static", ["-static"])):
        flags = pkg_config(env, *(f"-{flag}" for flag in word), "--cflags", "--libs")
        run(*compiler, *word, MINIMAL, "-o", stage / name, *flags, env=env)
    trains(stage / "shared", env=env | {"LD_LIBRARY_PATH": str(found(stage, "libzero.so.0.2").parent)})
    without_shared(stage)
    trains(stage / "static")


def of_build_folder(stage: Path) -> None:
    needs("pkg-config")
    env = CLEAN | {"PKG_CONFIG_PATH": str(BUILD / "meson-uninstalled"), "LD_LIBRARY_PATH": str(BUILD / "src")}
    for name, word in (("shared", []), ("static", ["-static"])):
        flags = pkg_config(env, *(f"-{flag}" for flag in word), "--cflags", "--libs")
        run(*compiler, *word, MINIMAL, "-o", stage / name, *flags, env=env)
        trains(stage / name, env=env)


CMAKE = """
cmake_minimum_required(VERSION 3.15)
project(consumer C)
find_package(zero 0.2 REQUIRED CONFIG)
foreach(kind zero zero_static)
  add_executable(with_${kind} MINIMAL)
  target_link_libraries(with_${kind} zero::${kind})
endforeach()
find_package(zero 0.1 QUIET CONFIG)
if(zero_FOUND)
  message(FATAL_ERROR "a library of another ABI was found")
endif()
"""


def of_cmake(stage: Path) -> None:
    needs("cmake")
    install(stage)
    moved = stage / "moved"
    found(stage, "zero.h").parents[1].rename(moved)
    (stage / "CMakeLists.txt").write_text(CMAKE.replace("MINIMAL", str(MINIMAL)), encoding="utf-8")
    env = CLEAN | LINKS_CUDA | {"CC": " ".join(compiler)}
    run("cmake", "-S", stage, "-B", stage / "build", f"-DCMAKE_PREFIX_PATH={moved}", env=env)
    run("cmake", "--build", stage / "build", env=env)
    trains(stage / "build/with_zero")
    without_shared(stage)
    trains(stage / "build/with_zero_static")


MESON = """
project('consumer', 'c')
executable('consumer', 'minimal.c', dependencies: dependency('zero', fallback: 'libzero'))
"""


def of_meson(stage: Path) -> None:
    """Use the library as a subproject. Everything is compiled only at night."""
    (stage / "meson.build").write_text(MESON, encoding="utf-8")
    shutil.copy(MINIMAL, stage)
    (stage / "subprojects").mkdir()
    (stage / "subprojects/libzero").symlink_to(SOURCE)
    parts = [f"-Dlibzero:{part}=disabled" for part in ("tests", "examples", "tools", "bench", "cuda")]
    env = CLEAN | {"PKG_CONFIG_LIBDIR": run("pkg-config", "--variable=pc_path", "pkg-config").strip()}
    run(meson, "setup", stage / "build", stage, *parts, "-Doptimization=0", "-Dlibzero:default_library=shared", env=env)
    if "ZERO_TEST_NIGHTLY" not in os.environ:
        print("it is set up, not built")
        return
    run("ninja", "-C", stage / "build", "consumer", env=env)
    trains(stage / "build/consumer")


def of_fortran(stage: Path) -> None:
    needs("gfortran", "pkg-config")
    install(stage)
    env = CLEAN | {"PKG_CONFIG_LIBDIR": str(found(stage, "zero.pc").parent), "PKG_CONFIG_SYSROOT_DIR": str(stage),
                   "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}
    # Some versions of pkg-config put the system root before variables, and others only before flags.
    module = Path(f"{stage}{pkg_config(env, '--variable=declarations')[0].removeprefix(str(stage))}") / "libzero.f90"
    run("gfortran", "-std=f2018", "-fwrapv", "-J", stage, module, SOURCE / "examples/fortran/char_lm.f90",
        "-o", stage / "char_lm", *pkg_config(env, "--libs"))
    run(stage / "char_lm", "--text", SOURCE / "LICENSE", "--steps", 3,
        env=CLEAN | {"LD_LIBRARY_PATH": str(found(stage, "libzero.so.0.2").parent)})


CARGO = """
[package]
name = "consumer"
version = "0.1.0"
edition = "2021"

[dependencies]
libzero = { SOURCE, features = ["FEATURE"] }

[workspace]
"""
OFFLINE = """
[source.crates-io]
replace-with = "vendor"
[source.vendor]
directory = "vendor"
"""
RUST = """
use libzero::{Comm, Deadlines, Optim, Options, Shape};

fn main() -> Result<(), libzero::Error> {
    let comm = Comm::from_env(Deadlines::default())?;
    let mut optim = Optim::new(&comm, &Options::default().set("lr", 0.01))?;
    optim.add(&[Shape::new("weights", &[4096])], &[])?;
    let (_, mut grads) = optim.lend()?;
    grads[0].fill(-1.0);
    optim.step()?;
    let (weights, _) = optim.lend()?;
    println!("rank {} of {}: weights[0] is {:.4}", comm.rank(), comm.world(), weights[0][0]);
    Ok(())
}
"""


def cargo_project(stage: Path, source: str, feature: str) -> None:
    (stage / "src").mkdir(exist_ok=True)
    (stage / "src/main.rs").write_text(RUST, encoding="utf-8")
    crate = CARGO.replace("SOURCE", source).replace("FEATURE", feature)
    (stage / "Cargo.toml").write_text(crate, encoding="utf-8")


def cargo_builds(stage: Path, env: dict) -> None:
    run("cargo", "build", "--offline", "--quiet", "--target-dir", stage / "target", cwd=stage, env=env)


def cargo_env(stage: Path) -> dict:
    return CLEAN | LINKS_CUDA | {"PKG_CONFIG_LIBDIR": str(found(stage, "zero.pc").parent),
                                 "PKG_CONFIG_SYSROOT_DIR": str(stage), "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1",
                                 "LD_LIBRARY_PATH": str(found(stage, "libzero.so.0.2").parent)}


def of_cargo(stage: Path) -> None:
    needs("cargo", "pkg-config")
    install(stage)
    env = cargo_env(stage)
    for feature in ("link", "static"):
        cargo_project(stage, f'path = "{SOURCE}/bindings/rust/libzero"', feature)
        cargo_builds(stage, env)
        if feature == "static":
            without_shared(stage)
        trains(stage / "target/debug/consumer", env=env)


def needs_clone() -> None:
    needs("git")
    if subprocess.run(["git", "rev-parse", "--verify", "HEAD"], cwd=SOURCE, capture_output=True).returncode:
        print("this is no clone")
        sys.exit(77)


# Meson uses only the headers in the archive.
CARRIED = ("--wrap-mode=nodownload", "--force-fallback-for=cli11,libxxhash,nlohmann_json")


def vendor_crates(stage: Path) -> None:
    """Let cargo find only the crates that scripts/crates packs."""
    needs_clone()
    run(SOURCE / "scripts/crates", stage / "packaged")
    for crate in stage.glob("packaged/package/*.crate"):
        shutil.unpack_archive(crate, stage / "vendor", "gztar")
    for folder in (stage / "vendor").iterdir():
        if not {"LICENSE", "README.md"} <= set(os.listdir(folder)):
            sys.exit(f"{folder.name} lacks its licence or README")
        (folder / ".cargo-checksum.json").write_text('{"files": {}}', encoding="utf-8")
    (stage / ".cargo").mkdir()
    (stage / ".cargo/config.toml").write_text(OFFLINE, encoding="utf-8")


def of_cargo_packages(stage: Path) -> None:
    needs("cargo", "pkg-config")
    vendor_crates(stage)
    install(stage)
    cargo_project(stage, 'version = "0.2"', "static")
    cargo_builds(stage, cargo_env(stage))
    without_shared(stage)
    trains(stage / "target/debug/consumer")


def says_what_it_needs(stage: Path) -> None:
    """Check that a build in which Meson fails reports what it needs."""
    (stage / "bin").mkdir()
    (stage / "bin/meson").symlink_to(shutil.which("false"))
    env = CLEAN | {"PATH": os.pathsep.join((str(stage / "bin"), os.environ["PATH"]))}
    done = subprocess.run(["cargo", "build", "--offline", "--quiet", "--target-dir", stage / "target"], cwd=stage,
                          capture_output=True, text=True, timeout=3600, check=False, env=env)
    if done.returncode == 0 or "`vendored` needs Meson 1.0, ninja, pkg-config and a C++20 compiler" not in done.stderr:
        sys.exit(f"without Meson it says:\n{done.stderr}")


def of_cargo_vendored(stage: Path) -> None:
    """Build the library from the crate alone. It is compiled only at night."""
    needs("cargo", "pkg-config")
    vendor_crates(stage)
    cargo_project(stage, 'version = "0.2"', "vendored")
    says_what_it_needs(stage)
    library, = stage.glob("vendor/libzero-sys-*/library")
    if "ZERO_TEST_NIGHTLY" not in os.environ:
        run(meson, "setup", stage / "build", library, "--default-library=static", *CARRIED)
        print("the library is set up, not built")
        return
    cargo_builds(stage, CLEAN)
    trains(stage / "target/debug/consumer")


def of_python(stage: Path) -> None:
    """Install with the tags of pyproject.toml, so that the result has the files of a wheel."""
    install(stage, "--tags=python-runtime,tools")
    files = {path.name: path for path in stage.rglob("*") if path.is_file()}
    package = files["_abi.py"].parent
    tools = {"zero", "zero-run", "zero-mpi-shim", "zero.1", "zero-mpi-shim.1", "zero-run.1", "_zero", "zero.fish"}
    unwanted = [name for name, path in files.items() if path.parent != package and name not in tools
                and package not in path.parents]
    if unwanted or not tools | {"py.typed", "libzero.so"} <= files.keys():
        sys.exit(f"a wheel would have {sorted(files)}, of which nobody needs {unwanted}")
    two_ranks_meet(sys.executable, package, files["zero-run"], CLEAN | {"PYTHONPATH": str(package.parent)})
    if shutil.which("mpicc"):
        run(files["zero-mpi-shim"], "mpicc", stage / "shim")


def two_ranks_meet(python: Path, package: Path, zero_run: Path, env: dict = CLEAN) -> None:
    said = run(python, "-m", "libzero", env=env, cwd=package.parent)
    if str(package / "libzero.so") not in said:
        sys.exit(f"another library was found:\n{said}")
    program = "import libzero; comm = libzero.Comm.from_env(); comm.barrier(); print(comm.world)"
    said = run(zero_run, "-n", 2, python, "-c", program, env=env, cwd=package.parent)
    if sorted(said.split()) != ["2", "2", "[0]", "[1]"]:
        sys.exit(f"two ranks said:\n{said}")


def refuses_other_headers(root: Path) -> None:
    """Check that a script in the archive accepts only pinned headers."""
    pins = root / "subprojects/headers.sha256"
    kept = pins.read_text(encoding="utf-8")
    pins.write_text(re.sub(".{64}(?=.*xxhash.h)", "0" * 64, kept), encoding="utf-8")
    (root / "bin").mkdir()
    (root / "bin/meson").symlink_to(shutil.which("true"))
    env = CLEAN | {"PATH": os.pathsep.join((str(root / "bin"), os.environ["PATH"]))}
    done = subprocess.run([root / "scripts/bundle-headers", root / "bundled"], capture_output=True, text=True, check=False, env=env)
    pins.write_text(kept, encoding="utf-8")
    if done.returncode != 1 or "xxhash.h is not of that version, and xxHash-0.8.1 is needed" not in done.stderr:
        sys.exit(f"of another xxhash.h bundle-headers says:\n{done.stderr}")


def of_sdist(stage: Path) -> None:
    """Set up the source distribution of the last commit. By night, pip also creates and builds it."""
    needs_clone()
    run(meson, "dist", "-C", BUILD, "--no-tests", "--allow-dirty", "--formats", "gztar")
    shutil.unpack_archive(next((BUILD / "meson-dist").glob("*.tar.gz")), stage)
    root, = stage.glob("libzero-*")
    unwanted = [path for path in root.rglob("*") if path.name in (".ci", "bench", "libzero-sys")
                or path.match("test*.py") or path.match("*_test.*")]
    if unwanted:
        sys.exit(f"it has {unwanted}")
    run("sha256sum", "--check", "--quiet", "headers.sha256", cwd=root / "subprojects")
    refuses_other_headers(root)
    run(meson, "setup", stage / "build", root, "-Dpython=enabled", "-Dtools=enabled", "-Dcuda=disabled", *CARRIED)
    if "ZERO_TEST_NIGHTLY" not in os.environ:
        print("it is set up, not built")
        return
    run(sys.executable, "-m", "venv", stage / "venv")
    pip, python = stage / "venv/bin/pip", stage / "venv/bin/python"
    run(pip, "install", "meson-python", "meson", "ninja")
    make = f"import build_backend; build_backend.build_sdist({str(stage)!r})"
    run(python, "-c", make, cwd=SOURCE / "bindings/python")
    alone = ("unshare", "-rn") if not subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode else ()
    path = {"PATH": os.pathsep.join((str(pip.parent), os.environ["PATH"])), "PKG_CONFIG_LIBDIR": "/nonexistent"}
    run(*alone, pip, "install", "--no-build-isolation", *(f"-Csetup-args={option}" for option in CARRIED),
        *stage.glob("*.tar.gz"), env=CLEAN | path)
    if any(b"\0.symtab\0" in found(stage / "venv", name).read_bytes() for name in ("libzero.so", "zero", "zero-run")):
        sys.exit("pip installs files that are not stripped")
    two_ranks_meet(python, found(stage / "venv", "_abi.py").parent, stage / "venv/bin/zero-run")


run_chosen(globals())

# SPDX-License-Identifier: Apache-2.0
"""What `meson install` puts down serves programs that find it in the ways of their languages: each is built
elsewhere, and trains.

usage: check_install.py CONSUMER MESON SOURCE_FOLDER BUILD_FOLDER CUDA_FOLDER_OR_EMPTY CC...
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

consumer, meson, source, build, cuda, *compiler = sys.argv[1:]
SOURCE, BUILD = Path(source), Path(build)
MINIMAL = SOURCE / "examples/c/minimal.c"
SAID = re.compile(r"rank 0 of 1: weights\[0\] is (1\.00, the mean 1\.00\nchecksum=[0-9A-F]{16}|0\.0\d+)\n")  # of C, of Rust
# Of the tests' own surroundings a consumer sees nothing that leads to a library.
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("LIBZERO", "LD_LIBRARY", "PYTHONPATH"))}
CLEAN["PYTHONDONTWRITEBYTECODE"] = "1"
# As the toolkit lies in another place on each machine, who links statically says where.
LINKS_CUDA = {"LIBRARY_PATH": os.pathsep.join(str(Path(cuda) / name) for name in ("lib64", "lib"))} if cuda else {}


def run(*command: object, env: dict = CLEAN, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=3600,
                          check=False, env=env, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def trains(*command: object, **options) -> None:
    with tempfile.TemporaryDirectory(prefix="zero-checkpoint-") as folder:
        said = run(*command, Path(folder) / "checkpoint", **options)
    if not SAID.fullmatch(said):
        sys.exit(f"{command[0]} says:\n{said}")


def needs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        print(f"{', '.join(missing)}: not here")
        sys.exit(77)


def install(stage: Path, *options: str) -> None:
    run(meson, "install", "-C", BUILD, "--destdir", stage, "--no-rebuild", "--quiet", *options)


def found(stage: Path, name: str) -> Path:
    return next(stage.rglob(name))


def without_shared(stage: Path) -> None:
    for library in stage.rglob("libzero.so*"):
        library.unlink()


def pkg_config(env: dict, *options: str) -> list[str]:
    return run("pkg-config", *options, "zero", env=env).split()


def of_pkg_config(stage: Path) -> None:
    """From another system root, as cross builds and packagers have it."""
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
    """The library is a subproject; all of it is compiled only by night."""
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
    # Some pkg-configs put the system root before variables, others only before flags.
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


# Meson takes the headers that an archive carries, and no other ones.
CARRIED = ("--wrap-mode=nodownload", "--force-fallback-for=cli11,libxxhash,nlohmann_json")


def vendor_crates(stage: Path) -> None:
    """What scripts/crates packs is all that cargo finds."""
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
    """Where Meson fails a build ends with a sentence."""
    (stage / "bin").mkdir()
    (stage / "bin/meson").symlink_to(shutil.which("false"))
    env = CLEAN | {"PATH": os.pathsep.join((str(stage / "bin"), os.environ["PATH"]))}
    done = subprocess.run(["cargo", "build", "--offline", "--quiet", "--target-dir", stage / "target"], cwd=stage,
                          capture_output=True, text=True, timeout=3600, check=False, env=env)
    if done.returncode == 0 or "`vendored` needs Meson 1.0, ninja, pkg-config and a C++20 compiler" not in done.stderr:
        sys.exit(f"without Meson it says:\n{done.stderr}")


def of_cargo_vendored(stage: Path) -> None:
    """The library is built of the crate alone; compiled only by night."""
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
    """By the tags of pyproject.toml, so that this is what a wheel has."""
    install(stage, "--tags=python-runtime,tools")
    files = {path.name: path for path in stage.rglob("*") if path.is_file()}
    package = files["_abi.py"].parent
    tools = {"zero", "zero-run", "zero-mpi-shim", "zero.1", "zero-run.1", "_zero", "zero.fish"}
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
    """An archive carries no header but those that are pinned, by a script that is in it."""
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
    """The source distribution of the last commit is set up, and by night made and built by pip."""
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
    """What packaging/publisher.toml says stands in all metadata, and what it does not say in none."""
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
    """Debian's list has each function of zero.h, with the version that it came in."""
    header = re.sub(r"/\*.*?\*/", "", (SOURCE / "include/zero.h").read_text(encoding="utf-8"), flags=re.S)
    declared = set(re.findall(r"^ZERO_API\s[^;(]*?(zero_\w+)\s*\(", header, flags=re.M))
    listed, = SOURCE.glob("packaging/debian/*.symbols")
    known = set(re.findall(r"^ (zero_\w+)@Base \d+\.\d+\.\d+$", listed.read_text(encoding="utf-8"), flags=re.M))
    if known != declared:
        sys.exit(f"{listed} lacks {sorted(declared - known)} and has {sorted(known - declared)}: each line is ` NAME@Base VERSION`")


def of_recipes(stage: Path) -> None:
    """They are of this version, and know the options of this build."""
    publisher_is_told(stage)
    symbols_are_listed()
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
    """Each file that is installed is in one package, or is left out by name."""
    install(stage)
    if not list(stage.glob("usr/local/lib/*/libzero.a")):
        print("libraries lie elsewhere than on Debian")
        sys.exit(77)
    parcels = Counter()
    for listed in SOURCE.glob("packaging/debian/*install*"):
        for pattern in listed.read_text(encoding="utf-8").split():
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
  execute_process(COMMAND ${MESON} setup ${STAGE}/build ${source} --libdir=lib ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
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
function(vcpkg_install_copyright _ file)
  file(COPY ${file} DESTINATION ${CURRENT_PACKAGES_DIR}/share/${PORT})
endfunction()
include(${PORTFILE})
"""


def of_vcpkg(stage: Path) -> None:
    """By stand-ins for vcpkg's functions its port makes of installed libraries what serves who does as usage says."""
    needs("cmake")
    install(stage)
    (package := stage / "package").mkdir()
    for file, folder in (("zero.h", "include"), ("libzero.a", "lib")):
        found(stage, file).parent.rename(package / folder)
    (stage / "port.cmake").write_text(VCPKG, encoding="utf-8")
    run("cmake", f"-DMESON={meson}", f"-DSTAGE={stage}", f"-DCURRENT_PACKAGES_DIR={package}",
        f"-DPORTFILE={SOURCE}/packaging/vcpkg/portfile.cmake", "-P", stage / "port.cmake")
    usage = (package / "share/libzero/usage").read_text(encoding="utf-8").partition(":\n")[2]
    project = f"cmake_minimum_required(VERSION 3.15)\nproject(consumer C)\nadd_executable(main {MINIMAL})\n{usage}"
    (stage / "CMakeLists.txt").write_text(project, encoding="utf-8")
    env = CLEAN | LINKS_CUDA | {"CC": " ".join(compiler)}
    lacks = "-lcudart_static -lrt -ldl -lpthread" if cuda else ""  # for the port says nothing of CUDA
    for kind in ("shared", "static"):
        run("cmake", "-S", stage, "-B", stage / kind, f"-DCMAKE_PREFIX_PATH={package}",
            f"-DCMAKE_C_STANDARD_LIBRARIES={lacks}", env=env)
        run("cmake", "--build", stage / kind, env=env)
        trains(stage / kind / "main")
        without_shared(package)


with tempfile.TemporaryDirectory(prefix="zero-install-") as directory:
    globals()[f"of_{consumer}"](Path(directory))

// SPDX-License-Identifier: Apache-2.0
//! With the feature `link` or `static`, prints the linker flags for libzero, from LIBZERO_LIB_DIR
//! or pkg-config. With `vendored`, builds libzero first. Without these features, nothing is linked.
use std::env;
use std::path::Path;
use std::process::{Command, exit};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBZERO_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let has = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if has("VENDORED") {
        println!("cargo:rerun-if-changed=library");
        link_static(Some(build()));
    } else if has("STATIC") {
        link_static(env::var("LIBZERO_LIB_DIR").ok());
    } else if has("LINK") {
        link_shared();
    }
}

/// Builds libzero.a from the sources in this crate with Meson, and returns the folder of the
/// archive.
fn build() -> String {
    let of = |name: &str| env::var(name).unwrap_or_default();
    if of("HOST") != of("TARGET") {
        fail(&format!(
            "`vendored` builds for {}, not for {}: build libzero for that target, and use `static`",
            of("HOST"),
            of("TARGET")
        ));
    }
    // Build a copy, because Meson stores downloads next to the sources.
    let (source, build) = (of("OUT_DIR") + "/library", of("OUT_DIR") + "/build");
    run("cp", &["-rL", "--preserve=timestamps", "library", &of("OUT_DIR")]);
    run("pkg-config", &["--version"]);
    run("meson", &["setup", "--unity=on", "--default-library=static", &build, &source]);
    run("meson", &["compile", "-C", &build, "-j", &of("NUM_JOBS")]);
    build + "/src"
}

fn run(program: &str, arguments: &[&str]) {
    let said = match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => return,
        Ok(output) => {
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        }
        Err(error) => error.to_string(),
    };
    fail(&format!(
        "`{program} {}` failed. `vendored` needs Meson 1.0, ninja, pkg-config and a C++20 compiler \
         (GCC 11 or Clang 14); `link` and `static` use a libzero that is already built.\n{said}",
        arguments.join(" ")
    ));
}

fn fail(reason: &str) -> ! {
    eprintln!("libzero-sys: {reason}");
    exit(1);
}

fn link_shared() {
    if let Ok(folder) = env::var("LIBZERO_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-lib=dylib=zero");
        // Build scripts of dependent crates get this as DEP_ZERO_LIB_DIR.
        println!("cargo:lib_dir={folder}");
        return;
    }
    match pkg_config(&["--libs"], None) {
        Ok(flags) => print_flags(&flags, "dylib"),
        // `cargo check` and documentation need no library. If it is needed, the linker reports that
        // it is missing.
        Err(reason) => {
            warn(&reason);
            println!("cargo:rustc-link-lib=dylib=zero");
        }
    }
}

/// Links libzero.a with the flags in its .pc file, which is in the folder of the archive or in the
/// build folder.
fn link_static(folder: Option<String>) {
    let places = folder.as_ref().map(|folder| {
        let build = Path::new(folder).parent().unwrap_or(Path::new("/"));
        format!("{folder}/pkgconfig:{}/meson-uninstalled", build.display())
    });
    match pkg_config(&["--static", "--libs"], places) {
        Ok(flags) => print_flags(&flags, "static"),
        Err(reason) => {
            warn(&reason);
            println!("cargo:rustc-link-lib=static=zero");
        }
    }
    if let Some(folder) = folder {
        println!("cargo:rustc-link-search=native={folder}");
    }
}

fn warn(reason: &str) {
    println!("cargo:warning=libzero was not found: {reason}");
}

fn pkg_config(options: &[&str], path: Option<String>) -> Result<String, String> {
    let mut command = Command::new("pkg-config");
    if let Some(path) = path {
        command.env("PKG_CONFIG_PATH", path);
    }
    let output = command
        .args(options)
        .arg("zero")
        .output()
        .map_err(|error| format!("pkg-config does not run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("pkg-config says: {}", text.lines().next().unwrap_or("nothing")))
}

/// Prints flags. `kind` selects how libzero is linked. A path to an archive links that archive, for
/// example the CUDA runtime.
fn print_flags(flags: &str, kind: &str) {
    for flag in flags.split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
            if kind == "dylib" {
                println!("cargo:lib_dir={folder}");
            }
        } else if flag == "-lzero" {
            println!("cargo:rustc-link-lib={kind}=zero");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        } else if let Some((folder, name)) =
            flag.strip_suffix(".a").and_then(|path| path.rsplit_once("/lib"))
        {
            println!("cargo:rustc-link-search=native={folder}");
            println!("cargo:rustc-link-lib=static={name}");
        }
    }
}

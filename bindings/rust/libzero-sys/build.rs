// SPDX-License-Identifier: Apache-2.0
//! Prints how to link libzero: from LIBZERO_LIB_DIR, else as pkg-config says.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBZERO_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Ok(folder) = env::var("LIBZERO_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-lib=dylib=zero");
        // For build scripts of dependants, as DEP_ZERO_LIB_DIR.
        println!("cargo:lib_dir={folder}");
        return;
    }
    match pkg_config() {
        Ok(flags) => print_flags(&flags),
        // `cargo check` and documentation need no library: the linker will say that it is missing.
        Err(reason) => {
            println!(
                "cargo:warning=libzero was not found: LIBZERO_LIB_DIR is not set, and {reason}"
            );
            println!("cargo:rustc-link-lib=dylib=zero");
        }
    }
}

fn pkg_config() -> Result<String, String> {
    let output = Command::new("pkg-config")
        .args(["--libs", "zero"])
        .output()
        .map_err(|error| format!("pkg-config does not run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("pkg-config says: {}", text.lines().next().unwrap_or("nothing")))
}

fn print_flags(flags: &str) {
    for flag in flags.split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
            println!("cargo:lib_dir={folder}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Tests how libzero.so is found at run time. LIBZERO_PATH is read only once, so each case is a
//! separate process.
#![cfg(not(any(feature = "link", feature = "static")))]

use std::process::{Command, Output};
use std::{env, fs, path};

use libzero::{Comm, Deadlines, NcclId, Options, partition_plan};

/// Runs only this test, in a process in which LIBZERO_PATH is `library`.
fn alone(test: &str, library: &path::Path) -> Output {
    Command::new(env::current_exe().expect("a test has a path"))
        .args(["--exact", test, "--nocapture"])
        .env("LIBZERO_PATH", library)
        .env("LIBZERO_LOAD_TEST", "yes")
        .output()
        .expect("it starts")
}

fn is_alone() -> bool {
    env::var_os("LIBZERO_LOAD_TEST").is_some()
}

fn folder(name: &str) -> path::PathBuf {
    let folder = path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder for tests");
    folder
}

#[test]
fn what_needs_the_library_says_where_it_was_looked_for() {
    if is_alone() {
        let errors = [
            libzero::load().unwrap_err(),
            Comm::solo(Deadlines::default()).unwrap_err(),
            Comm::from_env(Deadlines::default()).unwrap_err(),
            NcclId::draw().unwrap_err(),
            partition_plan(&[], 1, &Options::default()).unwrap_err(),
            libzero::set_logger(None, libzero::Level::Info).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.name(), "ZERO_ERR_UNSUPPORTED");
            assert!(error.message().contains("set LIBZERO_PATH"), "{error}");
            println!("{error}");
        }
        return;
    }
    let here = folder("no-library");
    let broken = here.join("libzero.so");
    fs::write(&broken, "not a library").expect("a file");
    for given in [&here, &broken, &here.join("missing")] {
        let done = alone("what_needs_the_library_says_where_it_was_looked_for", given);
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{said}");
        assert!(said.contains(&format!("{}: ", given.display())), "{said}");
    }
}

#[test]
fn another_library_is_refused() {
    if is_alone() {
        println!("{}", libzero::load().unwrap_err());
        return;
    }
    let done = alone("another_library_is_refused", path::Path::new("libc.so.6"));
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("has no zero_version: it is another library with that name"), "{said}");
}

#[test]
fn another_version_and_a_library_without_a_function_are_refused() {
    if is_alone() {
        println!("{}", libzero::load().unwrap_err());
        return;
    }
    let here = folder("other-version");
    for (number, words) in [
        ("300", "is version 0.3, but this crate needs 0.2"),
        ("299", "libzero.so has no zero_build_info: it is older than this crate"),
    ] {
        let (source, library) = (here.join("library.c"), here.join(format!("{number}.so")));
        fs::write(&source, format!("unsigned zero_version(void) {{ return {number}; }}"))
            .expect("a file");
        let compiler = env::var("CC").unwrap_or("cc".into());
        let mut built = Command::new(compiler);
        built.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
        assert!(built.status().expect("a C compiler runs").success());
        let done = alone("another_version_and_a_library_without_a_function_are_refused", &library);
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_folder_will_do_for_libzero_path() {
    if is_alone() {
        libzero::load().unwrap();
        println!("it is version {}", libzero::version());
        return;
    }
    let Some(given) = env::var_os("LIBZERO_PATH") else {
        return a_library_is_found(); // found by the system loader
    };
    let library = fs::canonicalize(given).expect("LIBZERO_PATH is there");
    let folder = if library.is_dir() { &*library } else { library.parent().expect("a folder") };
    let done = alone("a_folder_will_do_for_libzero_path", folder);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("it is version 200"), "{said}");
}

fn a_library_is_found() {
    libzero::load().unwrap();
}

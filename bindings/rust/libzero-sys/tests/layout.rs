// SPDX-License-Identifier: Apache-2.0
//! Tests that every struct has the same layout as in C. layout.c prints the layouts as JSON, and
//! the macro below prints the layouts of the Rust declarations in the same form. ZERO_LAYOUT is the
//! path of a built layout program.
use std::env;
use std::fs;
use std::mem::{align_of, offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use libzero_sys::*;

fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layout {
    ($($name:ident { $($field:ident),* })*) => {{
        let structs: Vec<String> = vec![$({
            let fields: Vec<String> = vec![$(format!(
                r#""{}":{{"offset":{},"size":{}}}"#,
                stringify!($field),
                offset_of!($name, $field),
                size_of_field(|it: &$name| &it.$field),
            )),*];
            format!(
                r#""{}":{{"size":{},"align":{},"fields":{{{}}}}}"#,
                stringify!($name),
                size_of::<$name>(),
                align_of::<$name>(),
                fields.join(","),
            )
        }),*];
        format!("{{{}}}", structs.join(","))
    }};
}

fn rust_layout() -> String {
    libzero_sys::with_all_structs!(layout)
}

fn layout_program() -> PathBuf {
    if let Some(program) = env::var_os("ZERO_LAYOUT") {
        return program.into();
    }
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let made = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = made.join("layout");
    let rows = Command::new("python3")
        .arg(checkout.join("tests/abi/layout_rows.py"))
        .arg(checkout.join("include/zero.h"))
        .output();
    fs::write(made.join("layout_rows.h"), rows.expect("Python runs").stdout)
        .expect("rows are written");
    let built = Command::new(env::var("CC").unwrap_or("cc".into()))
        .arg("-I")
        .arg(checkout.join("include"))
        .arg("-I")
        .arg(made)
        .arg(checkout.join("tests/abi/layout.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(built.expect("a C compiler runs").success());
    program
}

#[test]
fn structs_lie_in_memory_as_in_c() {
    let output = Command::new(layout_program()).output().expect("layout runs");
    let printed = String::from_utf8(output.stdout).expect("layout prints text");
    let c_layout: String = printed.split_whitespace().collect();
    assert!(c_layout.len() > 1000, "too little was printed: {c_layout}");
    assert_eq!(rust_layout(), c_layout);
}

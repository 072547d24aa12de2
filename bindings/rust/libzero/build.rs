// SPDX-License-Identifier: Apache-2.0
//! Tests and examples find the library that libzero-sys was linked with, without LD_LIBRARY_PATH.
use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = env::var("DEP_ZERO_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}

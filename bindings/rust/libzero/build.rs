// SPDX-License-Identifier: Apache-2.0
//! Lets tests and examples find the library to which libzero-sys was linked, without
//! LD_LIBRARY_PATH.
use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = env::var("DEP_ZERO_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! zero.h in Rust, declaration by declaration. What each one means stands in the header; the crate
//! `libzero` is the safe layer. `scripts/mirrors.py` makes the declarations from the header.
//!
//! By default nothing is linked: libzero.so is found when the first function is called, see [`load`], so
//! that everything compiles where there is no library. The feature `link` links libzero.so and `static`
//! libzero.a, from LIBZERO_LIB_DIR, else as pkg-config says. `vendored` links a libzero.a that Meson builds
//! of the sources in this crate.
#![no_std]
#![allow(non_camel_case_types, missing_docs)]

#[macro_use]
mod load;
mod zero_h;

pub use load::{LoadError, load};
pub use zero_h::*;

// SPDX-License-Identifier: Apache-2.0
//! zero.h in Rust, declaration by declaration. The header explains each one; the crate `libzero` is the
//! safe layer. `scripts/mirrors.py` makes the declarations from the header.
//!
//! By default nothing is linked, so everything compiles without the library. The first call loads
//! libzero.so, see [`load`]. The feature `link` links libzero.so and `static` links libzero.a, from
//! LIBZERO_LIB_DIR or pkg-config. `vendored` links a libzero.a that Meson builds from the sources in this
//! crate.
#![no_std]
#![allow(non_camel_case_types, missing_docs)]

#[macro_use]
mod load;
mod zero_h;

pub use load::{LoadError, load};
pub use zero_h::*;

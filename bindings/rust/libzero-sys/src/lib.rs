// SPDX-License-Identifier: Apache-2.0
//! The declarations of zero.h in Rust. The header documents each of them. The crate `libzero` is
//! the safe layer. The declarations are generated from the header by `scripts/mirrors.py`.
//!
//! By default, nothing is linked, so programs compile without the library. The first call loads
//! libzero.so, as [`load`] describes. The feature `link` links libzero.so, and `static` links
//! libzero.a. Both use LIBZERO_LIB_DIR or pkg-config to find the library. The feature `vendored`
//! links a libzero.a that Meson builds from the sources in this crate.
#![no_std]
#![allow(non_camel_case_types, missing_docs)]

#[macro_use]
mod load;
mod zero_h;

pub use load::{LoadError, load};
pub use zero_h::*;

// SPDX-License-Identifier: Apache-2.0
//! Element types, as values and as Rust types.
use std::fmt;

use libzero_sys as sys;

use crate::half::{Bf16, F16};

/// The element type of a parameter or gradient. Only parameters that remain frozen may be integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// [`f32`].
    #[default]
    F32,
    /// [`f64`]. Gradients of this type are summed in f64, and parameters are updated in f64.
    F64,
    /// [`Bf16`].
    Bf16,
    /// [`F16`].
    F16,
    /// [`i32`].
    I32,
    /// [`i64`].
    I64,
}

impl Dtype {
    /// Returns the size of one element.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::F64 | Dtype::I64 => 8,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }

    pub(crate) fn to_c(self) -> i32 {
        match self {
            Dtype::F32 => sys::ZERO_FLOAT32,
            Dtype::F64 => sys::ZERO_FLOAT64,
            Dtype::Bf16 => sys::ZERO_BFLOAT16,
            Dtype::F16 => sys::ZERO_FLOAT16,
            Dtype::I32 => sys::ZERO_INT32,
            Dtype::I64 => sys::ZERO_INT64,
        }
    }
}

/// Writes the name that texts of the library use.
impl fmt::Display for Dtype {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
            Dtype::Bf16 => "bfloat16",
            Dtype::F16 => "float16",
            Dtype::I32 => "int32",
            Dtype::I64 => "int64",
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Element types for which every bit pattern is a valid value.
pub trait Plain: sealed::Sealed + Copy + Default {}

/// Element types that [`Comm::all_reduce`](crate::Comm::all_reduce) combines.
pub trait Number: Plain {
    /// The constant of the type, for example `libzero_sys::ZERO_FLOAT32`.
    const DTYPE: i32;
}

/// Element types of parameters and gradients.
pub trait Element: Plain {
    /// The type as a value.
    const TYPE: Dtype;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Plain for $type {}
    )*};
}
plain!(u8, i32, i64, f32, f64, Bf16, F16);

macro_rules! number {
    ($($type:ty = $dtype:ident),*) => {$(
        impl Number for $type {
            const DTYPE: i32 = sys::$dtype;
        }
    )*};
}
number!(f32 = ZERO_FLOAT32, f64 = ZERO_FLOAT64, i32 = ZERO_INT32, i64 = ZERO_INT64);

macro_rules! element {
    ($($type:ty = $dtype:ident),*) => {$(
        impl Element for $type {
            const TYPE: Dtype = Dtype::$dtype;
        }
    )*};
}
element!(f32 = F32, f64 = F64, Bf16 = Bf16, F16 = F16, i32 = I32, i64 = I64);

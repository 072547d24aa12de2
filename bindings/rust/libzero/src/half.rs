// SPDX-License-Identifier: Apache-2.0
//! 16-bit floating-point numbers. Conversion to f32 is exact. Conversion from f32 rounds to
//! nearest, ties to even. Two numbers are equal if their bits are equal. Therefore, a NaN equals
//! itself, and -0 is not equal to 0.
use std::fmt;

const SIGN: u16 = 0x8000;

/// A bfloat16 number, which is the upper half of an [`f32`], with the same range and 8 bits of
/// precision.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bf16(u16);

/// A binary16 number of IEEE 754. It has 11 bits of precision, a maximum of 65504, and a spacing of
/// 2^-24 around zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F16(u16);

impl Bf16 {
    /// Rounds to the nearest number, ties to even.
    pub const fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        let upper = (bits >> 16) as u16;
        if value.is_nan() {
            // The bits that make it a NaN may be in the lower half.
            return Bf16(upper | 0x0040);
        }
        let (rest, odd) = (bits & 0xFFFF, upper & 1 == 1);
        let up = rest > 0x8000 || (rest == 0x8000 && odd);
        // A carry increases the exponent, and infinity follows the largest number.
        Bf16(upper + up as u16)
    }

    /// Returns the same number.
    pub const fn to_f32(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
}

impl F16 {
    /// Rounds to the nearest number, ties to even. Values of 65520 and above become infinity.
    pub fn from_f32(value: f32) -> F16 {
        let sign = (value.to_bits() >> 16) as u16 & SIGN;
        let magnitude = value.abs();
        let bits = if magnitude.is_nan() {
            0x7E00
        } else if magnitude >= 65520.0 {
            0x7C00
        } else if magnitude < f32::from_bits((127 - 14) << 23) {
            // The result is subnormal, which is a multiple of 2^-24. The smallest normal number is
            // 1024 of these.
            (magnitude * f32::from_bits((127 + 24) << 23)).round_ties_even() as u16
        } else {
            // The result keeps 10 of 23 fraction bits, and its exponent has a bias of 15 instead of
            // 127.
            let wide = magnitude.to_bits() - ((127 - 15) << 23);
            let (upper, rest) = ((wide >> 13) as u16, wide & 0x1FFF);
            upper + u16::from(rest > 0x1000 || (rest == 0x1000 && upper & 1 == 1))
        };
        F16(bits | sign)
    }

    /// Returns the same number.
    pub fn to_f32(self) -> f32 {
        let (exponent, fraction) = (u32::from(self.0 >> 10 & 0x1F), u32::from(self.0 & 0x3FF));
        let magnitude = match exponent {
            0 => fraction as f32 * f32::from_bits((127 - 24) << 23),
            0x1F => f32::from_bits(0xFF << 23 | fraction << 13),
            _ => f32::from_bits((exponent + 127 - 15) << 23 | fraction << 13),
        };
        if self.0 & SIGN == 0 { magnitude } else { -magnitude }
    }
}

macro_rules! bits_and_text {
    ($($type:ident),*) => {$(
        impl $type {
            /// Returns the number with these bits.
            pub const fn from_bits(bits: u16) -> $type {
                $type(bits)
            }

            /// Returns the bits.
            pub const fn to_bits(self) -> u16 {
                self.0
            }
        }

        impl From<$type> for f32 {
            fn from(value: $type) -> f32 {
                value.to_f32()
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(to, "{:?}{}", self.to_f32(), stringify!($type))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(to)
            }
        }
    )*};
}
bits_and_text!(Bf16, F16);

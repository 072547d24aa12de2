// SPDX-License-Identifier: Apache-2.0
//! The methods of Optim that find parameters, owners and statistics.
use std::ptr;

use libzero_sys as sys;

use crate::Statistics;
use crate::error::{Result, c_text, check};
use crate::optim::Optim;
use crate::options::init;

/// A range of `count` elements of the parameter `param`, starting at index `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedRange {
    /// The number of the parameter in registration order.
    pub param: i64,
    /// The index of the first element.
    pub first: i64,
    /// The number of elements.
    pub count: i64,
}

impl Optim {
    /// Returns the number of a parameter in registration order.
    /// [Local](crate#collective-and-local-calls).
    pub fn param_index(&self, name: &str) -> Result<usize> {
        let (name, mut index) = (c_text(name, "parameter")?, 0);
        // SAFETY: The library checks the token, and the name and the index are valid during the
        // call.
        check(unsafe { sys::zero_param_index(self.token(), name.as_ptr(), &mut index) })?;
        Ok(index as usize)
    }

    /// Returns the ranges of sealed parameters that the given rank owns.
    /// [Local](crate#collective-and-local-calls).
    pub fn owned_ranges(&self, rank: i32) -> Result<Vec<OwnedRange>> {
        let mut count = 0;
        // SAFETY: The library checks the token. With a capacity of 0, it writes only `count`.
        check(unsafe {
            sys::zero_owned_ranges(self.token(), rank, ptr::null_mut(), 0, &mut count)
        })?;
        let mut triples = vec![[0i64; 3]; count];
        let (room, memory) = (triples.len(), triples.as_mut_ptr().cast());
        // SAFETY: There is room for this number of triples.
        check(unsafe { sys::zero_owned_ranges(self.token(), rank, memory, room, &mut count) })?;
        let range = |[param, first, count]: [i64; 3]| OwnedRange { param, first, count };
        Ok(triples.into_iter().map(range).collect())
    }

    /// Returns the statistics of this rank, with memory by kind, and totals of time and bytes.
    /// [Local](crate#collective-and-local-calls).
    pub fn stats(&self) -> Result<Statistics> {
        let mut statistics: Statistics = init();
        // SAFETY: The library checks the token, and `statistics` is valid during the call.
        check(unsafe { sys::zero_stats(self.token(), &mut statistics) })?;
        Ok(statistics)
    }
}

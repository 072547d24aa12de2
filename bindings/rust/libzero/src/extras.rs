// SPDX-License-Identifier: Apache-2.0
//! The methods of Optim that store a rank's own bytes in checkpoints, such as a random state, the
//! position in the data, or a configuration.
use std::ffi::CStr;
use std::ptr;

use libzero_sys as sys;

use crate::error::{Result, c_text, check};
use crate::optim::Optim;

impl Optim {
    /// Stores `bytes` for this rank under `name` in every later save. They replace the bytes that
    /// were stored under this name before, and None removes the bytes.
    ///
    /// A rank may have at most 256 names of 1 to 255 bytes each, and at most 16 MiB in total. All
    /// ranks together may have at most 1 GiB. A value that one rank sets is available to all ranks
    /// after a load. [Local](crate#collective-and-local-calls).
    pub fn state_extra_set(&mut self, name: &str, bytes: Option<&[u8]>) -> Result<()> {
        let name = c_text(name, "name")?;
        let (from, count) = bytes.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr(), bytes.len()));
        // SAFETY: The library checks the token, and the name and the bytes are valid during the
        // call.
        check(unsafe { sys::zero_state_extra_set(self.token(), name.as_ptr(), from.cast(), count) })
            .map(drop)
    }

    /// Returns the bytes that the given rank had stored in the loaded checkpoint.
    ///
    /// A load also replaces this rank's values with the values that the rank with the same number
    /// saved. After the load, set the values that should differ.
    /// [Local](crate#collective-and-local-calls).
    pub fn state_extra_get(&self, rank: i32, name: &str) -> Result<Vec<u8>> {
        let (name, mut bytes, mut count) = (c_text(name, "name")?, Vec::new(), 0);
        for _ in 0..2 {
            bytes.resize(count, 0);
            // SAFETY: The library checks the token, the name is valid during the call, and `bytes`
            // has room for `count`.
            check(unsafe {
                let room = bytes.as_mut_ptr().cast();
                let token = self.token();
                sys::zero_state_extra_get(token, rank, name.as_ptr(), room, bytes.len(), &mut count)
            })?;
        }
        Ok(bytes)
    }

    /// Returns the rank and the name of each loaded value, in sorted order.
    /// [Local](crate#collective-and-local-calls).
    pub fn state_extra_list(&self) -> Result<Vec<(i32, String)>> {
        let (mut ranks, mut names, mut count) = (Vec::new(), Vec::new(), 0);
        for _ in 0..2 {
            ranks.resize(count, 0);
            names.resize(count, ptr::null());
            // SAFETY: The library checks the token, and there is room for this number of ranks and
            // names.
            check(unsafe {
                let (ranks, rooms) = (ranks.as_mut_ptr(), names.as_mut_ptr());
                sys::zero_state_extra_list(self.token(), ranks, rooms, names.len(), &mut count)
            })?;
        }
        // SAFETY: Names end with a NUL and live until the next load, which needs `&mut self`.
        let text = |name: *const _| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        Ok(ranks.into_iter().zip(names.into_iter().map(text)).collect())
    }
}

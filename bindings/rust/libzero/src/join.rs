// SPDX-License-Identifier: Apache-2.0
//! Ranks whose inputs end before those of the others.
use std::ffi::c_void;

use libzero_sys as sys;

use crate::error::{Error, Result, check};
use crate::optim::{Optim, addresses};
use crate::options::init;
use crate::slices::GRADS;

impl Optim {
    /// This rank has no more inputs, maybe from the start: make the others' collective calls on this
    /// optimizer with them until every rank is here, with zeros for gradients. Then all ranks have the
    /// buffers of the rank that is returned, the highest of those that came last, which they should
    /// follow in what the optimizer does not hold. Training goes on as before. It needs
    /// [`Options::uneven_inputs`](crate::Options::uneven_inputs). Collective with any call on this
    /// optimizer.
    pub fn join(&mut self) -> Result<i32> {
        // SAFETY: no addresses are given.
        unsafe { self.join_with(None) }
    }

    /// The same with the gradients that [`lend`](Optim::lend) gave: what this rank added up for a step
    /// that it cannot finish is part of the first reduction made from here. An error where a parameter
    /// lies in memory of the caller.
    pub fn join_with_grads(&mut self) -> Result<i32> {
        let grads: Vec<*mut c_void> = self.slots.iter().map(|slot| GRADS(slot).memory).collect();
        if let Some(at) = grads.iter().position(|grad| grad.is_null()) {
            let text = format!("parameter {at} is in memory of the caller: use join_raw");
            return Err(Error::argument(text));
        }
        // SAFETY: the addresses are of gradients in our arenas, ours for the call by `&mut self`.
        unsafe { self.join_with(Some(&grads)) }
    }

    /// The same with other gradients, in order of registration; null is "none".
    ///
    /// # Safety
    ///
    /// As [`reduce_raw_grads`](Optim::reduce_raw_grads).
    pub unsafe fn join_raw(&mut self, grads: &[*mut c_void]) -> Result<i32> {
        // SAFETY: the caller's promise.
        unsafe { self.join_with(Some(grads)) }
    }

    unsafe fn join_with(&mut self, grads: Option<&[*mut c_void]>) -> Result<i32> {
        let options = sys::zero_join_options {
            grads: addresses(grads),
            grad_count: grads.map_or(0, <[_]>::len),
            stream: self.stream.as_ptr(),
            ..init()
        };
        let mut last = -1;
        // SAFETY: the token is checked, and `last` lives for the call; parameters are ours for it, by
        // `&mut self` on every rank. The rest is the caller's promise.
        check(unsafe { sys::zero_join(self.token(), &options, &mut last) })?;
        Ok(last)
    }
}

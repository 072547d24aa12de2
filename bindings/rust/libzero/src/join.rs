// SPDX-License-Identifier: Apache-2.0
//! Ranks that run out of inputs before other ranks.
use std::ffi::c_void;

use libzero_sys as sys;

use crate::error::{Error, Result, check};
use crate::optim::{Optim, addresses};
use crate::options::init;
use crate::slices::GRADS;

impl Optim {
    /// Call this when a rank runs out of inputs, or if it has no inputs from the start. The method
    /// joins the other ranks' collective calls on this optimizer, contributing zero gradients,
    /// until every rank has joined.
    ///
    /// The method returns the rank that joined last. If several ranks joined last, it returns the
    /// highest of these ranks. All ranks then have the buffers of that rank, and should also copy
    /// from it any data that the optimizer does not hold. Training then continues as before. This
    /// method needs [`Options::uneven_inputs`](crate::Options::uneven_inputs).
    /// [Collective](crate#collective-and-local-calls) with any call on this optimizer.
    pub fn join(&mut self) -> Result<i32> {
        // SAFETY: The call passes no addresses.
        unsafe { self.join_with(None) }
    }

    /// Does the same as [`join`](Optim::join), with the gradients that [`lend`](Optim::lend) has
    /// lent. Use this method if this rank has accumulated gradients for a step that it cannot
    /// finish. The first reduction inside this call includes these gradients. Fails if a parameter
    /// is in the caller's memory.
    pub fn join_with_grads(&mut self) -> Result<i32> {
        let grads: Vec<*mut c_void> = self.slots.iter().map(|slot| GRADS(slot).memory).collect();
        if let Some(at) = grads.iter().position(|grad| grad.is_null()) {
            let text = format!("parameter {at} is in the caller's memory: use join_raw");
            return Err(Error::argument(text));
        }
        // SAFETY: The gradients are in the optimizer's arenas, and `&mut self` keeps them exclusive
        // during the call.
        unsafe { self.join_with(Some(&grads)) }
    }

    /// Does the same as [`join`](Optim::join) with other gradients, in registration order. Null
    /// means that there is no gradient.
    ///
    /// # Safety
    ///
    /// The conditions of [`reduce_raw_grads`](Optim::reduce_raw_grads) must hold.
    pub unsafe fn join_raw(&mut self, grads: &[*mut c_void]) -> Result<i32> {
        // SAFETY: The caller guarantees the conditions.
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
        // SAFETY: The library checks the token, and `last` is valid during the call. `&mut self` on
        // every rank keeps the parameters exclusive during the call. The caller guarantees the
        // rest.
        check(unsafe { sys::zero_join(self.token(), &options, &mut last) })?;
        Ok(last)
    }
}

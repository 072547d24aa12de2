// SPDX-License-Identifier: Apache-2.0
//! The methods of Optim that change settings, frozen parameters and owners.
use std::ffi::c_void;
use std::ptr;

use libzero_sys as sys;

use crate::dtype::Dtype;
use crate::error::{Result, c_text, check};
use crate::optim::{Group, Optim};

impl Optim {
    /// Sets one setting of a group. Every rank must set the same value before the next step.
    /// [Local](crate#collective-and-local-calls).
    pub fn set(&mut self, group: Group, name: &str, value: f64) -> Result<()> {
        let name = c_text(name, "setting")?;
        // SAFETY: The library checks the token, and the name is valid during the call.
        check(unsafe { sys::zero_group_set(self.token(), group.0, name.as_ptr(), value) }).map(drop)
    }

    /// Reads one setting of a group. [Local](crate#collective-and-local-calls).
    pub fn get(&self, group: Group, name: &str) -> Result<f64> {
        let (name, mut value) = (c_text(name, "setting")?, 0.0);
        // SAFETY: The library checks the token, and the name and the value are valid during the
        // call.
        check(unsafe { sys::zero_group_get(self.token(), group.0, name.as_ptr(), &mut value) })?;
        Ok(value)
    }

    /// Makes each later step read one setting of a group from GPU memory. `data` is the address of
    /// one number of the type `dtype`, which is [`Dtype::F32`] or [`Dtype::F64`]. Null restores the
    /// value that was set. Fails on the host. [Local](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// `data` must be null, or the address of a number that steps of this optimizer may read until
    /// another address is given or the optimizer is dropped.
    pub unsafe fn set_from(
        &mut self,
        group: Group,
        name: &str,
        data: *const c_void,
        dtype: Dtype,
    ) -> Result<()> {
        let name = c_text(name, "setting")?;
        let (token, name, dtype) = (self.token(), name.as_ptr(), dtype.to_c());
        // SAFETY: The library checks the token, and the name is valid during the call. The caller
        // guarantees the rest.
        check(unsafe { sys::zero_group_set_from(token, group.0, name, data, dtype) }).map(drop)
    }

    /// Sets the loss scale. Later reductions divide gradients by the loss scale. Every rank must
    /// set the same value. [Local](crate#collective-and-local-calls).
    pub fn set_loss_scale(&mut self, scale: f64) -> Result<()> {
        let (all, name) = (sys::ZERO_ALL_GROUPS, c"loss_scale");
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_group_set(self.token(), all, name.as_ptr(), scale) }).map(drop)
    }

    /// Makes steps read the loss scale from GPU memory, like [`set_from`](Optim::set_from). Fails
    /// if the loss scale is dynamic. [Local](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// The conditions of [`set_from`](Optim::set_from) must hold.
    pub unsafe fn set_loss_scale_from(&mut self, data: *const c_void, dtype: Dtype) -> Result<()> {
        let (all, name) = (sys::ZERO_ALL_GROUPS, c"loss_scale");
        // SAFETY: The library checks the token. The caller guarantees the rest.
        check(unsafe {
            sys::zero_group_set_from(self.token(), all, name.as_ptr(), data, dtype.to_c())
        })
        .map(drop)
    }

    /// Freezes the parameter with this number, or trains it again, starting with the next step. The
    /// gradient of a frozen parameter is ignored, and its state is kept. Every rank must make the
    /// same call, and repeat it after a load. [Local](crate#collective-and-local-calls).
    pub fn set_trainable(&mut self, param: usize, trainable: bool) -> Result<()> {
        let param = i64::try_from(param).unwrap_or(i64::MAX);
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_param_set_trainable(self.token(), param, trainable.into()) })
            .map(drop)
    }

    /// Assigns all parameters to owners again according to the partition. Trained parameters are
    /// assigned first, and frozen parameters after them.
    ///
    /// With [`Partition::Manual`](crate::Partition::Manual), `owners` has one rank for each
    /// parameter, in registration order. State moves to the new owners, and the results of training
    /// remain bitwise identical. No other call changes owners. If the call fails, nothing has
    /// changed. [Collective](crate#collective-and-local-calls).
    pub fn rebalance(&mut self, owners: Option<&[i32]>) -> Result<()> {
        let (first, count) = owners.map_or((ptr::null(), 0), |all| (all.as_ptr(), all.len()));
        // SAFETY: The library checks the token, and there are `count` owners.
        check(unsafe { sys::zero_rebalance(self.token(), first, count, self.stream.as_ptr()) })
            .map(drop)
    }
}

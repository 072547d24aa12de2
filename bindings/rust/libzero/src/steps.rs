// SPDX-License-Identifier: Apache-2.0
//! The methods of Optim for the training loop.
use std::ffi::c_void;
use std::ptr;

use libzero_sys as sys;

use crate::error::{Error, Result, check};
use crate::optim::{Optim, addresses};
use crate::options::{Reduce, Reduction, init};
use crate::slices::{GRADS, MutSlices, Slices, WEIGHTS};
use crate::stream::Stream;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Every rank has the new parameters.
    Updated,
    /// Gradients were not finite, and all ranks skipped the update.
    Skipped,
}

/// The result of the last step, on which all ranks agreed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// The number of steps without skipped steps, which is saved with the state.
    pub step: i64,
    /// The number of skipped steps.
    pub skipped: i64,
    /// The number of elements of the last step's reduced gradients that were not finite.
    pub nonfinite: i64,
    /// The norm before clipping, or None if the last step computed no norm.
    pub grad_norm: Option<f64>,
    /// The factor by which clipping multiplied the gradients in the last step, or 1 if they were
    /// not clipped.
    pub clip_factor: f64,
    /// The status of the last step.
    pub status: i32,
    /// The factor by which to multiply the next loss.
    pub loss_scale: f64,
}

impl Optim {
    /// Lets `write` set the parameters on rank `root`, and then copies them to all ranks. Fails
    /// between `save_begin` and `save_wait`, because threads read parameters then.
    /// [Collective](crate#collective-and-local-calls).
    pub fn initialize(&mut self, root: i32, write: impl FnOnce(MutSlices<'_>)) -> Result<()> {
        if self.save_ended().is_ok() {
            let message = "Optim::initialize: a save has begun: call Optim::save_wait to finish it";
            return Err(Error::new(sys::ZERO_ERR_BUSY, message.into()));
        }
        self.meet_in_initialize(root)?;
        // SAFETY: The library checks the token.
        if unsafe { sys::zero_comm_rank(self.seat.token()) } == root {
            write(MutSlices::new(&self.slots, WEIGHTS));
        }
        self.broadcast_params(Some(root))
    }

    /// Waits until every rank is in this call, for this optimizer and this root. If a rank makes
    /// another call, this fails on every rank. When this returns, no rank has a slice of the
    /// parameters, and no rank gets a slice before the broadcast that follows. One rank writes the
    /// parameters between the two calls.
    ///
    /// A barrier is not enough, because a rank that holds slices may call Comm::barrier at the same
    /// time. Therefore, this begins with a call that no other function of this crate makes, which
    /// is a minimum of zero numbers. (Comm::all_reduce turns such a minimum into a sum.) When that
    /// call returns, every rank is in the `initialize` of some optimizer.
    fn meet_in_initialize(&mut self, root: i32) -> Result<()> {
        let comm = self.seat.token();
        // SAFETY: The library checks the token, and does not access the null address.
        check(unsafe {
            sys::zero_comm_all_reduce(comm, ptr::null_mut(), 0, sys::ZERO_INT32, sys::ZERO_MIN)
        })?;
        // Check that all ranks have the same root.
        // SAFETY: See above.
        check(unsafe { sys::zero_comm_broadcast(comm, ptr::null_mut(), 0, root) })?;
        // Check that all ranks use the same optimizer, whose parameters may be written now.
        self.broadcast_params(None)
    }

    /// Copies every parameter from `root` to all ranks. If `root` is None, nothing is copied, and
    /// the call declares that all ranks wrote the same values. If neither call is made and
    /// parameters differ between ranks, the first step fails.
    /// [Collective](crate#collective-and-local-calls).
    pub fn broadcast_params(&mut self, root: Option<i32>) -> Result<()> {
        let root = root.unwrap_or(sys::ZERO_ROOT_NONE);
        // SAFETY: The library checks the token. `&mut self` on every rank keeps the parameters
        // exclusive during the call.
        check(unsafe { sys::zero_broadcast_params(self.token(), root, self.stream.as_ptr()) })
            .map(drop)
    }

    /// Lends parameters for reading and gradients for writing until the next call that takes
    /// `&mut self`. Both are indexed in registration order.
    ///
    /// Gradients are zeros before the first step. A step does not clear them, and leaves their
    /// contents unspecified, so overwrite or clear every gradient before each step. Fails once the
    /// comm is broken, because another rank may still be using the memory.
    /// [Local](crate#collective-and-local-calls).
    pub fn lend(&mut self) -> Result<(Slices<'_>, MutSlices<'_>)> {
        self.param_wait(None)?;
        self.refuse_broken()?;
        Ok((Slices::new(&self.slots), MutSlices::new(&self.slots, GRADS)))
    }

    /// Lends parameters for reading, like [`lend`](Optim::lend).
    /// [Local](crate#collective-and-local-calls).
    pub fn params(&self) -> Result<Slices<'_>> {
        self.param_wait(None)?;
        self.refuse_broken()?;
        Ok(Slices::new(&self.slots))
    }

    /// Reduces the registered gradients to their mean if they have not been reduced, updates this
    /// rank's shard, and copies the new parameters to every rank. The contents of gradients from
    /// [`lend`](Optim::lend) are unspecified afterwards, so overwrite or clear every gradient
    /// before the next step. [Collective](crate#collective-and-local-calls).
    pub fn step(&mut self) -> Result<Step> {
        self.step_with(Reduction::Mean)
    }

    /// Does the same as [`step`](Optim::step) with another reduction of the registered gradients.
    pub fn step_with(&mut self, how: impl Into<Reduce>) -> Result<Step> {
        self.run_step(&sys::zero_step_options { reduce_flags: how.into().flags(), ..init() })
    }

    /// Does the same as [`step`](Optim::step) with other gradients, in registration order. Null
    /// means that this rank has no gradient.
    ///
    /// # Safety
    ///
    /// The conditions of [`reduce_raw_grads`](Optim::reduce_raw_grads) hold.
    pub unsafe fn step_raw(
        &mut self,
        grads: &[*mut c_void],
        how: impl Into<Reduce>,
    ) -> Result<Step> {
        self.run_step(&sys::zero_step_options {
            grads: grads.as_ptr(),
            grad_count: grads.len(),
            reduce_flags: how.into().flags(),
            ..init()
        })
    }

    fn run_step(&mut self, options: &sys::zero_step_options) -> Result<Step> {
        let options = sys::zero_step_options { stream: self.stream.as_ptr(), ..*options };
        // SAFETY: `&mut self` on every rank, or the guarantee of the callers of the unsafe methods,
        // keeps the parameters and gradients exclusive during the call.
        let status = check(unsafe { sys::zero_step(self.token(), &options) })?;
        Ok(if status == sys::ZERO_SKIPPED { Step::Skipped } else { Step::Updated })
    }

    /// Returns the result of the last step, on which all ranks agreed.
    /// [Local](crate#collective-and-local-calls).
    pub fn result(&self) -> Result<StepResult> {
        let mut raw: sys::zero_result = init();
        // SAFETY: The library checks the token, and `raw` is valid during the call.
        let status = unsafe { sys::zero_step_result(self.token(), &mut raw) };
        // The call returns the status of the last step. If the call itself fails, `raw` is
        // unchanged.
        if status != raw.status {
            check(status)?;
        }
        Ok(StepResult {
            step: raw.step,
            skipped: raw.skipped,
            nonfinite: raw.nonfinite,
            grad_norm: (raw.grad_norm != -1.0).then_some(raw.grad_norm),
            clip_factor: raw.clip_factor,
            status: raw.status,
            loss_scale: raw.loss_scale,
        })
    }

    /// Sums the registered gradients over the ranks, and leaves the sums on the owners.
    /// [Collective](crate#collective-and-local-calls).
    pub fn reduce_grads(&mut self, how: impl Into<Reduce>) -> Result<()> {
        // SAFETY: The call passes no addresses.
        unsafe { self.reduce(None, how.into()) }
    }

    /// Does the same as [`reduce_grads`](Optim::reduce_grads) with other gradients, in registration
    /// order. Null means that this rank has no gradient.
    ///
    /// # Safety
    ///
    /// Each address must be null, or valid for reads of its parameter's gradient (of its
    /// `grad_dtype`). No code may write these gradients during the call.
    pub unsafe fn reduce_raw_grads(
        &mut self,
        grads: &[*mut c_void],
        how: impl Into<Reduce>,
    ) -> Result<()> {
        // SAFETY: The caller guarantees the conditions.
        unsafe { self.reduce(Some(grads), how.into()) }
    }

    unsafe fn reduce(&mut self, grads: Option<&[*mut c_void]>, how: Reduce) -> Result<()> {
        let (addresses, count) = (addresses(grads), grads.map_or(0, <[_]>::len));
        // SAFETY: C compares `count` with the number of parameters. The caller guarantees the rest.
        check(unsafe {
            sys::zero_reduce_grads(
                self.token(),
                addresses,
                count,
                how.flags(),
                self.stream.as_ptr(),
            )
        })
        .map(drop)
    }

    /// Scales the gradients so that their norm is at most `max_norm`, and returns the norm before
    /// scaling. [Collective](crate#collective-and-local-calls).
    pub fn clip_grad_norm(&mut self, max_norm: f64, norm_type: f64) -> Result<f64> {
        self.clip(None, max_norm, norm_type)
    }

    /// Does the same as [`clip_grad_norm`](Optim::clip_grad_norm) with only the parameters that
    /// have these numbers. Each number must be given once, and the numbers must be the same on
    /// every rank. [Collective](crate#collective-and-local-calls).
    pub fn clip_grad_norm_of(
        &mut self,
        params: &[i64],
        max_norm: f64,
        norm_type: f64,
    ) -> Result<f64> {
        self.clip(Some(params), max_norm, norm_type)
    }

    fn clip(&mut self, params: Option<&[i64]>, max_norm: f64, norm_type: f64) -> Result<f64> {
        let mut norm = 0.0;
        // SAFETY: The library checks the token, and `params` and `norm` are valid during the call.
        check(unsafe {
            sys::zero_clip_grad_norm(
                self.token(),
                params.map_or(core::ptr::null(), <[i64]>::as_ptr),
                params.map_or(0, <[i64]>::len),
                max_norm,
                norm_type,
                &mut norm,
                self.stream.as_ptr(),
            )
        })?;
        Ok(norm)
    }

    /// Clamps every element of the gradients to [-max_value, max_value].
    /// [Collective](crate#collective-and-local-calls).
    pub fn clip_grad_value(&mut self, max_value: f64) -> Result<()> {
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_clip_grad_value(self.token(), max_value, self.stream.as_ptr()) })
            .map(drop)
    }

    /// Discards the reduced gradients without writing to any gradient.
    /// [Local](crate#collective-and-local-calls).
    pub fn drop_grads(&mut self) -> Result<()> {
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_drop_grads(self.token()) }).map(drop)
    }

    /// Announces during the backward pass that this rank's gradient for a parameter is final. Null
    /// means that this rank has no gradient. The next call that reduces gradients uses the
    /// announced gradient, which may be summed earlier on a local comm.
    /// [Local](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// The address must be null, or valid for reads of the parameter's gradient (of its
    /// `grad_dtype`). No code may write the gradient until the call that reduces gradients, or
    /// [`drop_grads`](Optim::drop_grads), has returned.
    pub unsafe fn grad_ready(&self, param: i64, grad: *mut c_void) -> Result<()> {
        // SAFETY: The caller guarantees the conditions.
        unsafe { self.grad_ready_on(param, grad, self.stream) }
    }

    /// Does the same as [`grad_ready`](Optim::grad_ready) for a gradient that work on another
    /// stream computes.
    ///
    /// # Safety
    ///
    /// The conditions of [`grad_ready`](Optim::grad_ready) must hold.
    pub unsafe fn grad_ready_on(
        &self,
        param: i64,
        grad: *mut c_void,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: The library checks the token. The caller guarantees the rest.
        check(unsafe { sys::zero_grad_ready(self.token(), param, grad, stream.as_ptr()) }).map(drop)
    }

    /// Begins a step before the backward pass, and fixes the settings of the step. On a local comm,
    /// a parameter is updated as soon as every rank has announced its gradient.
    /// [`step`](Optim::step) completes the step. Fails if an update needs all gradients first, for
    /// example for a norm, a skipped step or a trust ratio.
    /// [Collective](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// From the time when [`grad_ready`](Optim::grad_ready) is called for a parameter until the
    /// step has returned, no code may read or write the parameter, even through slices that were
    /// lent earlier.
    pub unsafe fn step_begin(&mut self, how: Reduction) -> Result<()> {
        let options = sys::zero_step_options {
            reduce_flags: Reduce::from(how).flags(),
            stream: self.stream.as_ptr(),
            ..init()
        };
        // SAFETY: The library checks the token. The caller guarantees the rest.
        check(unsafe { sys::zero_step_begin(self.token(), &options) }).map(drop)
    }

    /// Waits until the parameter with this number, which is in the caller's memory, may be read.
    /// None waits for all parameters.
    ///
    /// With [`Options::overlap_gather`](crate::Options::overlap_gather), a step returns before
    /// parameters have been updated. Until this call returns for a parameter, no code may read or
    /// write the parameter, or write its gradient. [`lend`](Optim::lend) and all other calls wait
    /// for the whole step. On a GPU, work that is queued later waits, and the host does not. Fails
    /// if the comm has broken in the meantime. [Local](crate#collective-and-local-calls).
    pub fn param_wait(&self, param: Option<usize>) -> Result<()> {
        self.param_wait_on(param, self.stream)
    }

    /// Does the same as [`param_wait`](Optim::param_wait) for work that is queued on another
    /// stream.
    pub fn param_wait_on(&self, param: Option<usize>, stream: Stream) -> Result<()> {
        let param = param.map_or(i64::from(sys::ZERO_ALL_PARAMS), |number| {
            i64::try_from(number).unwrap_or(i64::MAX)
        });
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_param_wait(self.token(), param, stream.as_ptr()) }).map(drop)
    }
}

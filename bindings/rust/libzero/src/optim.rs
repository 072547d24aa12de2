// SPDX-License-Identifier: Apache-2.0
//! Optim: one model's sharded optimizer state on one rank. What it allocates itself it lends as slices
//! between calls, so that no rank can touch memory that another one is updating.
use std::ffi::c_void;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use libzero_sys as sys;

use crate::Statistics;
use crate::arena::Arena;
use crate::checkpoints::c_path;
use crate::comm::{Comm, failure_of};
use crate::custom::{CustomRule, Declared};
use crate::dtype::Dtype;
use crate::error::{Error, Result, c_text, check};
use crate::options::{CSettings, Options, Reduce, Reduction, init};
use crate::seat::Seat;
use crate::slices::{GRADS, MutSlices, Slices, Slot, WEIGHTS};
use crate::stream::Stream;

/// A parameter group, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub(crate) i32);

impl Group {
    /// All of them, for [`Optim::set`].
    pub const ALL: Group = Group(sys::ZERO_ALL_GROUPS);
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// New parameters are on every rank.
    Updated,
    /// Gradients were not finite, and all ranks skipped the update.
    Skipped,
}

/// What the ranks agreed in the last step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Steps done, skipped ones not counted; saved with the state.
    pub step: i64,
    /// Steps skipped.
    pub skipped: i64,
    /// Elements of the last step's reduced gradients that were not finite.
    pub nonfinite: i64,
    /// Norm before clipping of the last step that took one.
    pub grad_norm: Option<f64>,
    /// What the last step's clipping multiplied gradients with; 1 where it changed nothing.
    pub clip_factor: f64,
    /// The status of the last step.
    pub status: i32,
    /// What the next loss is to be multiplied with.
    pub loss_scale: f64,
}

/// `count` elements from `first` on, of the parameter with that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedRange {
    /// In order of registration.
    pub param: i64,
    /// Its first element.
    pub first: i64,
    /// How many.
    pub count: i64,
}

/// One model's sharded optimizer state on one rank. It may move to another thread, but not be shared.
///
/// Calls that take `&mut self` and are named collective are made by every rank in the same order. Slices
/// that [`lend`](Optim::lend) gave end before the next such call: while the library writes parameters, on
/// whatever rank, no slice of them exists on any.
#[derive(Debug)]
pub struct Optim {
    // Dropped in this order; the library takes any, but for a rule, which it calls until then.
    token: Token,
    _rule: Option<Declared>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) buffers: Vec<Slot>,
    pub(crate) arenas: Vec<Arena<u8>>,
    pub(crate) options: Options,
    pub(crate) stream: Stream,
    pub(crate) seat: Arc<Seat>,
}

// SAFETY: the slots point into the arenas, which belong to no thread.
unsafe impl Send for Optim {}

#[derive(Debug)]
struct Token(NonNull<sys::zero_optim>);

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: this is the only owner. A failure, as after a fork, has no one to hear it.
        unsafe { sys::zero_free(self.0.as_ptr()) };
    }
}

impl Optim {
    /// An empty optimizer. Every rank makes its optimizers in the same order.
    pub fn new(comm: &Comm, options: &Options) -> Result<Optim> {
        Optim::create(comm, options, None)
    }

    /// The same, with an update rule of your own in place of `options.optimizer`.
    pub fn with_rule(comm: &Comm, options: &Options, rule: CustomRule) -> Result<Optim> {
        Optim::create(comm, options, Some(Declared::new(rule)?))
    }

    fn create(comm: &Comm, options: &Options, rule: Option<Declared>) -> Result<Optim> {
        let settings = CSettings::new(&options.settings)?;
        let (mut out, seat) = (ptr::null_mut(), Arc::clone(comm.seat()));
        let custom = rule.as_ref().map(Declared::to_c);
        let mut c_options = options.to_c(&settings);
        if let Some(custom) = &custom {
            c_options.optimizer = sys::ZERO_OPTIMIZER_CUSTOM;
            c_options.custom = custom;
        }
        // SAFETY: `out`, the options and what they point to live for the call, and the rule until the
        // token is dropped.
        check(unsafe { sys::zero_create(&mut out, seat.token(), &c_options) })?;
        Ok(Optim {
            token: Token(NonNull::new(out).expect("the library returns a token with ZERO_OK")),
            _rule: rule,
            slots: Vec::new(),
            buffers: Vec::new(),
            arenas: Vec::new(),
            options: options.clone(),
            stream: Stream::DEFAULT,
            seat,
        })
    }

    /// Parameters to read and gradients to write, by their number in order of registration, until the
    /// next call. An error once the comm is broken: another rank may then be still at work in there.
    pub fn lend(&mut self) -> Result<(Slices<'_>, MutSlices<'_>)> {
        self.param_wait(None)?;
        self.refuse_broken()?;
        Ok((Slices::new(&self.slots), MutSlices::new(&self.slots, GRADS)))
    }

    /// Parameters to read, as of [`lend`](Optim::lend).
    pub fn params(&self) -> Result<Slices<'_>> {
        self.param_wait(None)?;
        self.refuse_broken()?;
        Ok(Slices::new(&self.slots))
    }

    /// Let `write` set the parameters on rank `root`, and give them to all. Collective. An error
    /// between `save_begin` and `save_wait`, while threads read parameters.
    pub fn initialize(&mut self, root: i32, write: impl FnOnce(MutSlices<'_>)) -> Result<()> {
        if self.save_ended().is_ok() {
            let message = "Optim::initialize: a save has begun: Optim::save_wait ends it";
            return Err(Error::new(sys::ZERO_ERR_BUSY, message.into()));
        }
        self.meet_in_initialize(root)?;
        // SAFETY: the token is checked.
        if unsafe { sys::zero_comm_rank(self.seat.token()) } == root {
            write(MutSlices::new(&self.slots, WEIGHTS));
        }
        self.broadcast_params(Some(root))
    }

    /// Return once every rank is in here, for this optimizer and this root, and an error on every rank
    /// otherwise. Then no rank has a slice of the parameters, nor gets one before the broadcast that
    /// follows, and one rank writes them.
    ///
    /// A barrier would not do: it meets any rank's Comm::barrier, made with slices in hand. So first
    /// comes a call that nothing else in this crate makes: a minimum of no numbers, which
    /// Comm::all_reduce turns into a sum. After it, all ranks are in some optimizer's `initialize`.
    fn meet_in_initialize(&mut self, root: i32) -> Result<()> {
        let comm = self.seat.token();
        // SAFETY: the token is checked, and there is nothing at the null address.
        check(unsafe {
            sys::zero_comm_all_reduce(comm, ptr::null_mut(), 0, sys::ZERO_INT32, sys::ZERO_MIN)
        })?;
        // The same root.
        // SAFETY: as above.
        check(unsafe { sys::zero_comm_broadcast(comm, ptr::null_mut(), 0, root) })?;
        // The same optimizer, which may be written now.
        self.broadcast_params(None)
    }

    pub(crate) fn refuse_broken(&self) -> Result<()> {
        failure_of(&self.seat)?.map_or(Ok(()), |failure| Err(failure.error))
    }

    pub(crate) fn token(&self) -> *mut sys::zero_optim {
        self.token.0.as_ptr()
    }

    /// Fix owners, compare the registration over all ranks and allocate the state; implied by the first
    /// collective call. Collective.
    pub fn seal(&mut self) -> Result<()> {
        // SAFETY: the token is checked.
        check(unsafe { sys::zero_seal(self.token()) }).map(drop)
    }

    /// Set one setting of a group, the same on every rank before the next step. Local.
    pub fn set(&mut self, group: Group, name: &str, value: f64) -> Result<()> {
        let name = c_text(name, "setting")?;
        // SAFETY: the token is checked, the name lives for the call.
        check(unsafe { sys::zero_group_set(self.token(), group.0, name.as_ptr(), value) }).map(drop)
    }

    /// Read one setting of a group. Local.
    pub fn get(&self, group: Group, name: &str) -> Result<f64> {
        let (name, mut value) = (c_text(name, "setting")?, 0.0);
        // SAFETY: the token is checked, name and value live for the call.
        check(unsafe { sys::zero_group_get(self.token(), group.0, name.as_ptr(), &mut value) })?;
        Ok(value)
    }

    /// Read one setting of a group from memory of the GPU on, one number of `dtype` ([`Dtype::F32`] or
    /// [`Dtype::F64`]), when each step is made; null is the value that was set. Refused on the host. Local.
    ///
    /// # Safety
    ///
    /// The address is null, or stays that of a number that steps of this optimizer may read, until another one is
    /// given or the optimizer is dropped.
    pub unsafe fn set_from(
        &mut self,
        group: Group,
        name: &str,
        data: *const c_void,
        dtype: Dtype,
    ) -> Result<()> {
        let name = c_text(name, "setting")?;
        let (token, name, dtype) = (self.token(), name.as_ptr(), dtype.to_c());
        // SAFETY: the token is checked, the name lives for the call, and the rest is the caller's promise.
        check(unsafe { sys::zero_group_set_from(token, group.0, name, data, dtype) }).map(drop)
    }

    /// Freeze a parameter, by its number, or train it again, from the next step on: the same on every
    /// rank, and anew after a load. The gradient of a frozen one is ignored; its state stays. Local.
    pub fn set_trainable(&mut self, param: usize, trainable: bool) -> Result<()> {
        let param = i64::try_from(param).unwrap_or(i64::MAX);
        // SAFETY: the token is checked.
        check(unsafe { sys::zero_param_set_trainable(self.token(), param, trainable.into()) })
            .map(drop)
    }

    /// Deal out all parameters anew by the partition rule: first those that are trained now, then the
    /// frozen ones. With [`Partition::Manual`](crate::Partition::Manual) `owners` decides, one rank for
    /// each parameter in order of registration. State moves with ownership, and training has the same
    /// bits as without the call; nothing else ever moves owners. An error leaves all as it was.
    /// Collective.
    pub fn rebalance(&mut self, owners: Option<&[i32]>) -> Result<()> {
        let (first, count) = owners.map_or((ptr::null(), 0), |all| (all.as_ptr(), all.len()));
        // SAFETY: the token is checked, and there are `count` owners.
        check(unsafe { sys::zero_rebalance(self.token(), first, count, self.stream.as_ptr()) })
            .map(drop)
    }

    /// Copy every parameter from `root` to all ranks; None says that all wrote the same. The first step
    /// fails where neither was said and ranks differ. Collective.
    pub fn broadcast_params(&mut self, root: Option<i32>) -> Result<()> {
        let root = root.unwrap_or(sys::ZERO_ROOT_NONE);
        // SAFETY: the token is checked; parameters are ours for the call, by `&mut self` on every rank.
        check(unsafe { sys::zero_broadcast_params(self.token(), root, self.stream.as_ptr()) })
            .map(drop)
    }

    /// Announce, during the backward, that this rank's gradient of a parameter is final; null is "no gradient on
    /// this rank". The next call that reduces takes it, and on local comms it may be summed before. Local.
    ///
    /// # Safety
    ///
    /// The address is null, or valid for reads of the parameter's gradient (of its `grad_dtype`), which nothing
    /// writes until that call, or [`drop_grads`](Optim::drop_grads), has returned.
    pub unsafe fn grad_ready(&self, param: i64, grad: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.grad_ready_on(param, grad, self.stream) }
    }

    /// The same of a gradient that another stream's work so far makes.
    ///
    /// # Safety
    ///
    /// As [`grad_ready`](Optim::grad_ready).
    pub unsafe fn grad_ready_on(
        &self,
        param: i64,
        grad: *mut c_void,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the token is checked, and the rest is the caller's promise.
        check(unsafe { sys::zero_grad_ready(self.token(), param, grad, stream.as_ptr()) }).map(drop)
    }

    /// Begin a step before the backward: settings are fixed now, and a parameter whose gradient every rank has
    /// announced is updated at once, on a local comm; [`step`](Optim::step) does the rest. Refused where all gradients
    /// are needed before any update (norms, skips, trust ratios). Collective.
    ///
    /// # Safety
    ///
    /// From its announcement by [`grad_ready`](Optim::grad_ready) until the step has returned, a parameter is neither
    /// read nor written, whoever has been lent it.
    pub unsafe fn step_begin(&mut self, how: Reduction) -> Result<()> {
        let options = sys::zero_step_options {
            reduce_flags: Reduce::from(how).flags(),
            stream: self.stream.as_ptr(),
            ..init()
        };
        // SAFETY: the token is checked, and the rest is the caller's promise.
        check(unsafe { sys::zero_step_begin(self.token(), &options) }).map(drop)
    }

    /// Sum the registered gradients over the ranks, to their owners. Collective.
    pub fn reduce_grads(&mut self, how: impl Into<Reduce>) -> Result<()> {
        // SAFETY: no addresses are given.
        unsafe { self.reduce(None, how.into()) }
    }

    /// The same with other gradients, in order of registration; null is "no gradient on this rank".
    ///
    /// # Safety
    ///
    /// Each address is null, or valid for reads of its parameter's gradient (of its `grad_dtype`), which nothing writes
    /// during the call.
    pub unsafe fn reduce_raw_grads(
        &mut self,
        grads: &[*mut c_void],
        how: impl Into<Reduce>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.reduce(Some(grads), how.into()) }
    }

    unsafe fn reduce(&mut self, grads: Option<&[*mut c_void]>, how: Reduce) -> Result<()> {
        let (addresses, count) = (addresses(grads), grads.map_or(0, <[_]>::len));
        // SAFETY: C compares `count` with the number of parameters; the rest is the caller's promise.
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

    /// Scale the gradients so that their norm is at most `max_norm`; returns it from before. Collective.
    pub fn clip_grad_norm(&mut self, max_norm: f64, norm_type: f64) -> Result<f64> {
        self.clip(None, max_norm, norm_type)
    }

    /// The same for the parameters of these numbers alone, each given once and the same on every rank: their
    /// norm, and only they are scaled. Collective.
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
        // SAFETY: the token is checked; `params` and `norm` live for the call.
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

    /// Bring every element of the gradients into [-max_value, max_value]. Collective.
    pub fn clip_grad_value(&mut self, max_value: f64) -> Result<()> {
        // SAFETY: the token is checked.
        check(unsafe { sys::zero_clip_grad_value(self.token(), max_value, self.stream.as_ptr()) })
            .map(drop)
    }

    /// Set what gradients are divided by that are reduced next; the same on every rank. Local.
    pub fn set_loss_scale(&mut self, scale: f64) -> Result<()> {
        let (all, name) = (sys::ZERO_ALL_GROUPS, c"loss_scale");
        // SAFETY: the token is checked.
        check(unsafe { sys::zero_group_set(self.token(), all, name.as_ptr(), scale) }).map(drop)
    }

    /// The same from memory of the GPU on, as [`set_from`](Optim::set_from); not of a dynamic scale. Local.
    ///
    /// # Safety
    ///
    /// As of [`set_from`](Optim::set_from).
    pub unsafe fn set_loss_scale_from(&mut self, data: *const c_void, dtype: Dtype) -> Result<()> {
        let (all, name) = (sys::ZERO_ALL_GROUPS, c"loss_scale");
        // SAFETY: the token is checked, and the rest is the caller's promise.
        check(unsafe {
            sys::zero_group_set_from(self.token(), all, name.as_ptr(), data, dtype.to_c())
        })
        .map(drop)
    }

    /// Reduce the mean of the registered gradients unless that is done, update the owned share, and put
    /// the new parameters on every rank. Collective.
    pub fn step(&mut self) -> Result<Step> {
        self.step_with(Reduction::Mean)
    }

    /// The same with another reduction of the registered gradients.
    pub fn step_with(&mut self, how: impl Into<Reduce>) -> Result<Step> {
        self.run_step(&sys::zero_step_options { reduce_flags: how.into().flags(), ..init() })
    }

    /// The same with other gradients, in order of registration; null is "no gradient on this rank".
    ///
    /// # Safety
    ///
    /// As [`reduce_raw_grads`](Optim::reduce_raw_grads).
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
        // SAFETY: parameters and gradients are ours for the call, by `&mut self` on every rank, or by
        // what callers of the unsafe methods promised.
        let status = check(unsafe { sys::zero_step(self.token(), &options) })?;
        Ok(if status == sys::ZERO_SKIPPED { Step::Skipped } else { Step::Updated })
    }

    /// What the ranks agreed in the last step. Local.
    pub fn result(&self) -> Result<StepResult> {
        let mut raw: sys::zero_result = init();
        // SAFETY: the token is checked, `raw` lives for the call.
        let status = unsafe { sys::zero_step_result(self.token(), &mut raw) };
        // The status of the last step comes back; an error of this call leaves `raw` as it was.
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

    /// Wait until a parameter, by its number, may be read (None: all of them), in memory of the caller: with
    /// [`Options::overlap_gather`] a step returns before parameters are new. Until this returns for it, a parameter is
    /// neither read nor written, and its gradient not written; [`lend`](Optim::lend) and all other calls wait for the
    /// whole step. On a GPU what is queued later waits, and the host does not. An error if the comm broke meanwhile.
    /// Local.
    pub fn param_wait(&self, param: Option<usize>) -> Result<()> {
        self.param_wait_on(param, self.stream)
    }

    /// The same for what is queued on another stream.
    pub fn param_wait_on(&self, param: Option<usize>, stream: Stream) -> Result<()> {
        let param = param.map_or(i64::from(sys::ZERO_ALL_PARAMS), |number| {
            i64::try_from(number).unwrap_or(i64::MAX)
        });
        // SAFETY: the token is checked.
        check(unsafe { sys::zero_param_wait(self.token(), param, stream.as_ptr()) }).map(drop)
    }

    /// Forget what is reduced; writes no gradient. Local.
    pub fn drop_grads(&mut self) -> Result<()> {
        // SAFETY: the token is checked.
        check(unsafe { sys::zero_drop_grads(self.token()) }).map(drop)
    }

    /// Save parameters, rank 0's buffers, state, settings and step as the checkpoint `directory`.
    /// Collective.
    pub fn save(&mut self, directory: impl AsRef<Path>, replace: bool) -> Result<()> {
        let path = c_path(directory.as_ref())?;
        let flags = if replace { sys::ZERO_SAVE_REPLACE } else { 0 };
        let options = sys::zero_save_options { flags, ..init() };
        // SAFETY: the token is checked, path and options live for the call.
        check(unsafe { sys::zero_state_save(self.token(), path.as_ptr(), &options) }).map(drop)
    }

    /// Begin a `save` of the state as it is now, which threads write while training goes on. What a
    /// step is about to change is copied first: memory for a copy of what this rank writes must be
    /// there, and stays for the next save. Collective.
    pub fn save_begin(&mut self, directory: impl AsRef<Path>, replace: bool) -> Result<()> {
        let path = c_path(directory.as_ref())?;
        let flags = if replace { sys::ZERO_SAVE_REPLACE } else { 0 };
        let options = sys::zero_save_options { flags, ..init() };
        // SAFETY: as in save; what threads read is state of the library's and parameters that are
        // ours until drop, which waits for the threads.
        check(unsafe { sys::zero_state_save_begin(self.token(), path.as_ptr(), &options) })
            .map(drop)
    }

    /// Whether collective calls have found that the save which has begun is complete or failed, on
    /// all ranks alike. Local.
    pub fn save_ended(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the token is checked, done lives for the call.
        check(unsafe { sys::zero_state_save_poll(self.token(), &mut done) })?;
        Ok(done != 0)
    }

    /// Wait until the save that has begun is on stable storage. Collective.
    pub fn save_wait(&mut self) -> Result<()> {
        // SAFETY: the token is checked.
        check(unsafe { sys::zero_state_save_wait(self.token()) }).map(drop)
    }

    /// Load a checkpoint, or the latest sound one of a folder of them. Collective.
    pub fn load(&mut self, directory: impl AsRef<Path>, keep_settings: bool) -> Result<()> {
        let path = c_path(directory.as_ref())?;
        let flags = if keep_settings { sys::ZERO_LOAD_KEEP_SETTINGS } else { 0 };
        let options = sys::zero_load_options { flags, ..init() };
        // SAFETY: as in save; parameters are ours for the call, by `&mut self` on every rank.
        check(unsafe { sys::zero_state_load(self.token(), path.as_ptr(), &options) }).map(drop)
    }

    /// The number of a parameter in order of registration. Local.
    pub fn param_index(&self, name: &str) -> Result<usize> {
        let (name, mut index) = (c_text(name, "parameter")?, 0);
        // SAFETY: the token is checked, name and index live for the call.
        check(unsafe { sys::zero_param_index(self.token(), name.as_ptr(), &mut index) })?;
        Ok(index as usize)
    }

    /// What `rank` owns, of what is sealed. Local.
    pub fn owned_ranges(&self, rank: i32) -> Result<Vec<OwnedRange>> {
        let mut count = 0;
        // SAFETY: the token is checked; with a capacity of 0 only `count` is written.
        check(unsafe {
            sys::zero_owned_ranges(self.token(), rank, ptr::null_mut(), 0, &mut count)
        })?;
        let mut triples = vec![[0i64; 3]; count];
        let (room, memory) = (triples.len(), triples.as_mut_ptr().cast());
        // SAFETY: there is room for that many triples.
        check(unsafe { sys::zero_owned_ranges(self.token(), rank, memory, room, &mut count) })?;
        let range = |[param, first, count]: [i64; 3]| OwnedRange { param, first, count };
        Ok(triples.into_iter().map(range).collect())
    }

    /// Bytes by kind, seconds and bytes so far, of this rank. Local.
    pub fn stats(&self) -> Result<Statistics> {
        let mut statistics: Statistics = init();
        // SAFETY: the token is checked, `statistics` lives for the call.
        check(unsafe { sys::zero_stats(self.token(), &mut statistics) })?;
        Ok(statistics)
    }
}

pub(crate) fn addresses(given: Option<&[*mut c_void]>) -> *const *mut c_void {
    given.map_or(ptr::null(), <[_]>::as_ptr)
}

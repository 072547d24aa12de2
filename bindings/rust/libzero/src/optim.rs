// SPDX-License-Identifier: Apache-2.0
//! The sharded optimizer state of one model on one rank. Between calls, an optimizer lends the
//! memory that it allocates as slices. Therefore, no rank can access memory that another rank is
//! updating.
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use libzero_sys as sys;

use crate::arena::Arena;
use crate::comm::{Comm, failure_of};
use crate::custom::{CustomRule, Declared};
use crate::error::{Result, check};
use crate::options::{CSettings, Options};
use crate::seat::Seat;
use crate::slices::Slot;
use crate::stream::Stream;

/// A parameter group, which is identified by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub(crate) i32);

impl Group {
    /// Stands for all groups in [`Optim::set`].
    pub const ALL: Group = Group(sys::ZERO_ALL_GROUPS);
}

/// The sharded optimizer state of one model on one rank. It may move to another thread, but threads
/// cannot share it.
///
/// Create an optimizer with [`new`](Optim::new), add parameters with [`add`](Optim::add), write
/// their first values in [`initialize`](Optim::initialize), and repeat [`lend`](Optim::lend) and
/// [`step`](Optim::step). The [crate](crate) has an example.
///
/// Slices from [`lend`](Optim::lend) end before the next call that takes `&mut self`. Therefore, no
/// rank has a slice of its parameters while the library writes parameters on any rank.
#[derive(Debug)]
pub struct Optim {
    // Fields are dropped in this order. The library accepts any order, except that the rule must
    // live longer than the token.
    token: Token,
    pub(crate) rules: Vec<Declared>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) buffers: Vec<Slot>,
    pub(crate) arenas: Vec<Arena<u8>>,
    pub(crate) options: Options,
    pub(crate) stream: Stream,
    pub(crate) seat: Arc<Seat>,
}

// SAFETY: The slots point into the arenas, which are not bound to a thread.
unsafe impl Send for Optim {}

#[derive(Debug)]
struct Token(NonNull<sys::zero_optim>);

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: This is the only owner. Nothing can handle a failure here, for example after a
        // fork.
        unsafe { sys::zero_free(self.0.as_ptr()) };
    }
}

impl Optim {
    /// Creates an empty optimizer. [Local](crate#collective-and-local-calls), but every rank must
    /// create its optimizers in the same order and with the same options, except for `threads`.
    pub fn new(comm: &Comm, options: &Options) -> Result<Optim> {
        Optim::create(comm, options, None)
    }

    /// Does the same as [`new`](Optim::new), with your update rule instead of `options.optimizer`.
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
        // SAFETY: `out`, the options and everything they point to are valid during the call, and
        // the rule lives until the token is dropped.
        check(unsafe { sys::zero_create(&mut out, seat.token(), &c_options) })?;
        Ok(Optim {
            token: Token(NonNull::new(out).expect("the library returns a token with ZERO_OK")),
            rules: rule.into_iter().collect(),
            slots: Vec::new(),
            buffers: Vec::new(),
            arenas: Vec::new(),
            options: options.clone(),
            stream: Stream::DEFAULT,
            seat,
        })
    }

    pub(crate) fn refuse_broken(&self) -> Result<()> {
        failure_of(&self.seat)?.map_or(Ok(()), |failure| Err(failure.error))
    }

    pub(crate) fn token(&self) -> *mut sys::zero_optim {
        self.token.0.as_ptr()
    }
}

pub(crate) fn addresses(given: Option<&[*mut c_void]>) -> *const *mut c_void {
    given.map_or(ptr::null(), <[_]>::as_ptr)
}

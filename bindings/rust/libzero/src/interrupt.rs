// SPDX-License-Identifier: Apache-2.0
//! Interrupts, such as Ctrl-C, while a call waits for other ranks.
use std::ffi::c_void;
use std::mem;
use std::panic::catch_unwind;
use std::ptr;

use libzero_sys as sys;

use crate::error::{Result, check, load};

/// Lets `ask` end a call on the main thread of the process while the call waits for other ranks,
/// saves, loads or prunes. With None, the initial value, calls are not interrupted.
///
/// The library calls `ask` every 50 ms during a wait. `ask` can, for example, return a flag that a
/// SIGINT handler sets. It must not call libzero. If `ask` returns true, the comm is aborted. The
/// call then returns `ZERO_ERR_INTERRUPTED` on this rank, and calls on the other ranks return
/// `ZERO_ERR_ABORTED`.
pub fn set_interrupt(ask: Option<fn() -> bool>) -> Result<()> {
    load()?;
    let (callback, ctx): (sys::zero_interrupt_fn, *mut c_void) = match ask {
        Some(ask) => (Some(asked), ask as *mut c_void),
        None => (None, ptr::null_mut()),
    };
    // SAFETY: `ctx` is a function, which lives forever.
    check(unsafe { sys::zero_set_interrupt_callback(callback, ctx) }).map(drop)
}

unsafe extern "C" fn asked(ctx: *mut c_void) -> i32 {
    // SAFETY: set_interrupt converted a function of this type to `ctx`.
    let ask: fn() -> bool = unsafe { mem::transmute(ctx) };
    // A panic must not unwind into C. It counts as a request to stop.
    i32::from(catch_unwind(ask).unwrap_or_else(|payload| {
        mem::forget(payload);
        true
    }))
}

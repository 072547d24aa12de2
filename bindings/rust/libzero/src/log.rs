// SPDX-License-Identifier: Apache-2.0
//! Passes messages of the library to a function of the program.
use std::ffi::{CStr, c_char, c_void};
use std::mem;
use std::panic::catch_unwind;
use std::ptr;

use libzero_sys as sys;

use crate::error::{Result, check, load};
use crate::words::in_rust;

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is not as expected.
    Warning,
    /// Something happened.
    Info,
}

/// Sends messages up to `level` to `log`, for the whole process.
///
/// With None, the initial value, no messages are sent. The library then prints messages to standard
/// error if the environment variable ZERO_LOG is set to `error`, `warning` or `info`. `log` runs on
/// a thread that is inside a libzero call, and must not call libzero.
pub fn set_logger(log: Option<fn(Level, &str)>, level: Level) -> Result<()> {
    load()?;
    let max_level = match level {
        Level::Error => sys::ZERO_LOG_ERROR,
        Level::Warning => sys::ZERO_LOG_WARNING,
        Level::Info => sys::ZERO_LOG_INFO,
    };
    let (callback, ctx): (sys::zero_log_fn, *mut c_void) = match log {
        Some(log) => (Some(write), log as *mut c_void),
        None => (None, ptr::null_mut()),
    };
    // SAFETY: `ctx` is a function, which lives forever.
    check(unsafe { sys::zero_set_log_callback(callback, ctx, max_level) }).map(drop)
}

unsafe extern "C" fn write(ctx: *mut c_void, level: i32, message: *const c_char) {
    // SAFETY: set_logger converted a function of this type to `ctx`.
    let log: fn(Level, &str) = unsafe { mem::transmute(ctx) };
    // SAFETY: The text belongs to the library and is valid during the call.
    let text = in_rust(&unsafe { CStr::from_ptr(message) }.to_string_lossy());
    let level = match level {
        sys::ZERO_LOG_ERROR => Level::Error,
        sys::ZERO_LOG_WARNING => Level::Warning,
        _ => Level::Info,
    };
    // A panic of a logger must not unwind into C, and no caller can receive it.
    if let Err(payload) = catch_unwind(|| log(level, &text)) {
        mem::forget(payload);
    }
}

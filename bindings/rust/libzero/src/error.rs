// SPDX-License-Identifier: Apache-2.0
//! Errors, which consist of a negative status, the library's text and the error of a callback.
use std::any::Any;
use std::cell::RefCell;
use std::error;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::panic;
use std::sync::Arc;

use libzero_sys as sys;

use crate::words::in_rust;

/// The error of a function that the caller supplies. It becomes the source of the
/// [`Error`](crate::Error) that the call returns.
pub type Failed = Box<dyn error::Error + Send + Sync>;

/// The result of a call that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure of a call of the C library. If a function of the caller's [`Collectives`] or
/// [`CustomRule`] failed, `source()` returns the error of that function.
///
/// [`Collectives`]: crate::Collectives
/// [`CustomRule`]: crate::CustomRule
#[derive(Clone)]
pub struct Error {
    code: i32,
    message: String,
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error that this crate found before it called C.
    pub(crate) fn argument(message: String) -> Error {
        Error { code: sys::ZERO_ERR_ARGUMENT, message, source: None }
    }

    pub(crate) fn new(code: i32, message: String) -> Error {
        Error { code, message, source: None }
    }

    /// Returns the code, which is one of `libzero_sys::ZERO_ERR_*`.
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Returns the name of the constant, for example `"ZERO_ERR_PEER"`.
    pub fn name(&self) -> &'static str {
        // Without a library, only these two errors are possible.
        if sys::load().is_err() {
            return if self.code == sys::ZERO_ERR_ARGUMENT {
                "ZERO_ERR_ARGUMENT"
            } else {
                "ZERO_ERR_UNSUPPORTED"
            };
        }
        static_text(sys::zero_status_name(self.code))
    }

    /// Returns the text, which describes the failure, where it happened, and how to fix it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether another rank failed in this call. In that case, nothing has changed, and the
    /// comm stays usable.
    pub fn is_peer(&self) -> bool {
        self.code == sys::ZERO_ERR_PEER
    }

    /// Returns whether the group is broken or was never formed. In that case, create a new comm,
    /// load a checkpoint, and continue from there.
    pub fn is_comm(&self) -> bool {
        (sys::ZERO_ERR_ABORTED..=sys::ZERO_ERR_RENDEZVOUS).contains(&self.code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.message, self.name())
    }
}

/// Writes the same text as Display, because `main() -> Result` and `unwrap()` print the Debug text.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn error::Error + 'static))
    }
}

/// The failure of a callback.
pub(crate) enum Ending {
    Failed(Failed),
    Panicked(Box<dyn Any + Send>),
}

thread_local! {
    // C cannot pass the failure on, so it is kept here until the call that ran the callback
    // returns.
    static PENDING: RefCell<Option<Ending>> = const { RefCell::new(None) };
}

/// Keeps the failure of a callback on this thread. Only the first failure is kept.
pub(crate) fn keep(ending: Ending) {
    PENDING.with_borrow_mut(|pending| {
        pending.get_or_insert(ending);
    });
}

pub(crate) fn take_pending() -> Option<Ending> {
    PENDING.take()
}

pub(crate) fn set_pending(ending: Option<Ending>) {
    PENDING.set(ending);
}

/// Finds the library, unless it is linked or has already been found. If it cannot be found,
/// ZERO_ERR_UNSUPPORTED lists the places that were searched.
///
/// Calls that create a comm, and calls that need no comm, do this first.
pub fn load() -> Result<()> {
    sys::load().map_err(|error| Error::new(sys::ZERO_ERR_UNSUPPORTED, error.message().into()))
}

/// Returns the status of a call as a Result. If a callback panicked, the panic continues here.
pub(crate) fn check(status: sys::zero_status) -> Result<sys::zero_status> {
    let pending = take_pending();
    if status >= 0 {
        return Ok(status);
    }
    let source = match pending {
        Some(Ending::Panicked(payload)) => panic::resume_unwind(payload),
        Some(Ending::Failed(failed)) => Some(Arc::from(failed)),
        None => None,
    };
    // SAFETY: The text belongs to the library, ends with a NUL, and is valid until the next failing
    // call.
    let text = unsafe { CStr::from_ptr(sys::zero_last_error()) };
    Err(Error { code: status, message: in_rust(&text.to_string_lossy()), source })
}

/// Returns text that is in static storage of the library.
pub(crate) fn static_text(text: *const c_char) -> &'static str {
    // SAFETY: every caller passes what zero.h says is static, NUL-terminated storage.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("text that is not UTF-8")
}

/// Returns `value` for a `const char *`, which would end at a NUL.
pub(crate) fn c_text(value: &str, what: &str) -> Result<CString> {
    CString::new(value)
        .map_err(|_| Error::argument(format!("{what} {value:?} contains a NUL character")))
}

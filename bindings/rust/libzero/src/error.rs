// SPDX-License-Identifier: Apache-2.0
//! A negative status as a value, with the library's words and what a callback said.
use std::any::Any;
use std::cell::RefCell;
use std::error;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::panic;
use std::sync::Arc;

use libzero_sys as sys;

use crate::words::in_rust;

/// Why one of your functions failed: the source of the [`Error`](crate::Error) that comes out.
pub type Failed = Box<dyn error::Error + Send + Sync>;

/// What a fallible call returns.
pub type Result<T> = std::result::Result<T, Error>;

/// A call of the C library failed. `source()` is what the caller's own [`Collectives`] or [`CustomRule`]
/// said, if it was theirs.
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
    /// An error that this crate found before anything reached C.
    pub(crate) fn argument(message: String) -> Error {
        Error { code: sys::ZERO_ERR_ARGUMENT, message, source: None }
    }

    pub(crate) fn new(code: i32, message: String) -> Error {
        Error { code, message, source: None }
    }

    /// One of `libzero_sys::ZERO_ERR_*`.
    pub fn code(&self) -> i32 {
        self.code
    }

    /// The constant's name, as `"ZERO_ERR_PEER"`.
    pub fn name(&self) -> &'static str {
        // Without a library there are these two.
        if sys::load().is_err() {
            return if self.code == sys::ZERO_ERR_ARGUMENT {
                "ZERO_ERR_ARGUMENT"
            } else {
                "ZERO_ERR_UNSUPPORTED"
            };
        }
        static_text(sys::zero_status_name(self.code))
    }

    /// What, which and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Another rank failed in this call: nothing has changed, and the comm stays usable.
    pub fn is_peer(&self) -> bool {
        self.code == sys::ZERO_ERR_PEER
    }

    /// The group is broken, or never formed: make a new comm, load, and go on from there.
    pub fn is_comm(&self) -> bool {
        (sys::ZERO_ERR_ABORTED..=sys::ZERO_ERR_RENDEZVOUS).contains(&self.code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.message, self.name())
    }
}

/// The same: this is what `main() -> Result` and `unwrap()` print.
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

/// How a callback ended that did not end well.
pub(crate) enum Ending {
    Failed(Failed),
    Panicked(Box<dyn Any + Send>),
}

thread_local! {
    // C cannot carry it, so it waits here until the call that ran the callback returns.
    static PENDING: RefCell<Option<Ending>> = const { RefCell::new(None) };
}

/// Keep how a callback of this thread ended; the first one counts.
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

/// Find the library, unless it is linked, or found already: ZERO_ERR_UNSUPPORTED lists where it was looked for.
/// Whatever makes a comm, or needs none, does so first.
pub fn load() -> Result<()> {
    sys::load().map_err(|error| Error::new(sys::ZERO_ERR_UNSUPPORTED, error.message().into()))
}

/// The status of a call as a Result. A panic of a callback goes on from here.
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
    // SAFETY: the library's own text, NUL-terminated and valid until the next failing call.
    let text = unsafe { CStr::from_ptr(sys::zero_last_error()) };
    Err(Error { code: status, message: in_rust(&text.to_string_lossy()), source })
}

/// Text in static storage of the library.
pub(crate) fn static_text(text: *const c_char) -> &'static str {
    // SAFETY: every caller passes what zero.h says is static, NUL-terminated storage.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("text that is not UTF-8")
}

/// `value` for a `const char *`, which would end at a NUL.
pub(crate) fn c_text(value: &str, what: &str) -> Result<CString> {
    CString::new(value)
        .map_err(|_| Error::argument(format!("{what} {value:?} has a NUL character in it")))
}

// SPDX-License-Identifier: Apache-2.0
//! GPU streams that an engine creates.
use std::ffi::c_void;
use std::ptr;

/// A queue of work on a GPU, which is a `cudaStream_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(*mut c_void);

// SAFETY: CUDA accepts this handle from any thread.
unsafe impl Send for Stream {}
// SAFETY: See above.
unsafe impl Sync for Stream {}

impl Stream {
    /// The default stream of the GPU.
    pub const DEFAULT: Stream = Stream(ptr::null_mut());

    /// Wraps a `cudaStream_t`.
    ///
    /// # Safety
    ///
    /// `stream` must be a `cudaStream_t` of the GPU of every comm with which it is used. It must be
    /// valid as long as an optimizer uses it.
    pub unsafe fn from_raw(stream: *mut c_void) -> Stream {
        Stream(stream)
    }

    pub(crate) fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Memory whose contents the library reduces and updates in place.
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use libzero_sys as sys;

use crate::dtype::Plain;
use crate::error::{Error, Result, check};
use crate::seat::{Device, Seat};

/// The kind of an arena, which determines the number of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// One copy per rank, for gradients or for private copies of parameters.
    PerRank,
    /// One copy for all ranks of a local comm, for parameters.
    Shared,
}

/// A claim on an arena, which is memory whose contents the library reduces and updates in place.
///
/// Dropping an `Arena` gives up the claim. The memory is freed once no optimizer has parameters or
/// gradients in it. Programs that use [`Optim::add`] need no unsafe code, because the optimizer
/// then allocates its own arenas and lends slices.
///
/// [`Optim::add`]: crate::Optim::add
#[derive(Debug)]
pub struct Arena<T: Plain> {
    memory: NonNull<T>,
    len: usize,
    _elements: PhantomData<T>,
}

// SAFETY: The memory is not bound to a thread, and any thread may give up its claim.
unsafe impl<T: Plain> Send for Arena<T> {}

impl<T: Plain> Arena<T> {
    pub(crate) fn allocate(seat: &Seat, len: usize, memory: Memory) -> Result<Arena<T>> {
        if seat.device() != Device::Host {
            let message = format!("an arena on {:?} cannot be lent as slices", seat.device());
            return Err(Error::argument(message));
        }
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| Error::argument(format!("an arena of {len} elements is too large")))?;
        let kind = match memory {
            Memory::PerRank => sys::ZERO_MEMORY_PER_RANK,
            Memory::Shared => sys::ZERO_MEMORY_SHARED,
        };
        let mut out = ptr::null_mut();
        // SAFETY: The library checks the token, and `out` is valid during the call.
        check(unsafe { sys::zero_arena_alloc(seat.token(), bytes, kind, &mut out) })?;
        let memory = NonNull::new(out.cast()).expect("the library returns memory with ZERO_OK");
        Ok(Arena { memory, len, _elements: PhantomData })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false, because an arena always has elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first element, which is aligned to 64 bytes.
    pub fn as_ptr(&self) -> *mut T {
        self.memory.as_ptr()
    }

    /// Returns the elements.
    ///
    /// # Safety
    ///
    /// As long as the slice lives, neither a rank nor a call of the library may write to this
    /// memory. No rank may therefore be inside a collective call of an optimizer that has
    /// parameters or gradients in this arena.
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: The arena is zeroed and aligned, and lives as long as the claim. The caller
        // guarantees the rest.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }

    /// Returns the elements for writing.
    ///
    /// # Safety
    ///
    /// The conditions of [`as_slice`](Arena::as_slice) must hold, and no rank may read this memory.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: See as_slice.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: zero_arena_alloc returned this address. Nothing can handle a failure here, for
        // example after a fork.
        unsafe { sys::zero_arena_free(self.memory.as_ptr().cast()) };
    }
}

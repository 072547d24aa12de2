// SPDX-License-Identifier: Apache-2.0
//! Memory that the library reduces and updates in place.
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use libzero_sys as sys;

use crate::dtype::Plain;
use crate::error::{Error, Result, check};
use crate::seat::{Device, Seat};

/// How many copies of an arena there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// One a rank: for gradients, or a private copy of parameters.
    PerRank,
    /// One for all ranks of a local comm: for parameters.
    Shared,
}

/// A claim on an arena, given up on drop. The memory goes once no optimizer has parameters or gradients
/// in it. [`Optim::add`] makes its own arenas and lends slices of them, without unsafe code.
///
/// [`Optim::add`]: crate::Optim::add
#[derive(Debug)]
pub struct Arena<T: Plain> {
    memory: NonNull<T>,
    len: usize,
    _elements: PhantomData<T>,
}

// SAFETY: the memory belongs to no thread, and its claim may be given up from any.
unsafe impl<T: Plain> Send for Arena<T> {}

impl<T: Plain> Arena<T> {
    pub(crate) fn allocate(seat: &Seat, len: usize, memory: Memory) -> Result<Arena<T>> {
        if seat.device() != Device::Host {
            let message = format!("an arena on {:?} is no memory to lend slices of", seat.device());
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
        // SAFETY: the token is checked, `out` lives for the call.
        check(unsafe { sys::zero_arena_alloc(seat.token(), bytes, kind, &mut out) })?;
        let memory = NonNull::new(out.cast()).expect("the library returns memory with ZERO_OK");
        Ok(Arena { memory, len, _elements: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no element; it never is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element; 64-byte aligned.
    pub fn as_ptr(&self) -> *mut T {
        self.memory.as_ptr()
    }

    /// The elements.
    ///
    /// # Safety
    ///
    /// As long as the slice lives, no rank writes to this memory and no call of the library does: no
    /// collective call of an optimizer that has parameters or gradients here is under way on any rank.
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: the arena is zeroed, aligned, and lives as long as the claim; the rest is the caller's.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }

    /// The elements, to write.
    ///
    /// # Safety
    ///
    /// As [`as_slice`](Arena::as_slice), and no rank reads this memory either.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in as_slice.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: what zero_arena_alloc returned. A failure, as after a fork, has no one to hear it.
        unsafe { sys::zero_arena_free(self.memory.as_ptr().cast()) };
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Slices of parameters and gradients that an optimizer lends from its own arenas.
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};
use std::ptr;
use std::slice;

use crate::dtype::{Dtype, Element};
use crate::half::{Bf16, F16};

/// The address of elements of some type in an arena of the optimizer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) memory: *mut c_void,
    pub(crate) dtype: Dtype,
}

/// A parameter and its gradient, or a buffer, which has no gradient. A slot is null and has length
/// 0 if the tensor is in the caller's memory.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) weights: Place,
    pub(crate) grads: Place,
    pub(crate) len: usize,
}

impl Slot {
    pub(crate) fn elsewhere() -> Slot {
        let nowhere = Place { memory: ptr::null_mut(), dtype: Dtype::F32 };
        Slot { weights: nowhere, grads: nowhere, len: 0 }
    }

    fn is_elsewhere(&self) -> bool {
        self.weights.memory.is_null()
    }
}

type Pick = fn(&Slot) -> Place;

pub(crate) const WEIGHTS: Pick = |slot| slot.weights;
pub(crate) const GRADS: Pick = |slot| slot.grads;

/// Returns the elements of one slot. Panics if the slot has no elements of type T.
fn elements<T: Element>(slots: &[Slot], at: usize, pick: Pick) -> (*mut T, usize) {
    let slot = slots.get(at).unwrap_or_else(|| panic!("there is no tensor {at}"));
    assert!(!slot.is_elsewhere(), "tensor {at} is in the caller's own memory");
    let place = pick(slot);
    let (found, asked) = (place.dtype, T::TYPE);
    assert!(found == asked, "elements of tensor {at} are {found}; {asked} was asked for");
    (place.memory.cast(), slot.len)
}

/// The parameters or buffers of an [`Optim`](crate::Optim), indexed by number. The index operator
/// returns [`f32`] elements.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a> {
    slots: &'a [Slot],
}

impl<'a> Slices<'a> {
    /// The slots belong to an optimizer that `'a` borrows. No code writes parameters during this
    /// time.
    pub(crate) fn new(slots: &'a [Slot]) -> Slices<'a> {
        Slices { slots }
    }

    /// Returns the element type of one parameter. Panics if the parameter does not exist.
    pub fn dtype(self, at: usize) -> Dtype {
        self.slots[at].weights.dtype
    }

    /// Returns one parameter. Panics if the parameter does not exist, has another element type, or
    /// is in the caller's memory.
    pub fn get<T: Element>(self, at: usize) -> &'a [T] {
        let (memory, len) = elements(self.slots, at, WEIGHTS);
        // SAFETY: The slot is inside an arena of the optimizer that `'a` borrows, and has elements
        // of type T. No code writes parameters during this borrow.
        unsafe { slice::from_raw_parts(memory, len) }
    }
}

impl Index<usize> for Slices<'_> {
    type Output = [f32];

    fn index(&self, at: usize) -> &[f32] {
        self.get(at)
    }
}

/// The gradients or buffers of an [`Optim`](crate::Optim), indexed by number. They may also be its
/// parameters, while these may be written. The index operator returns [`f32`] elements.
#[derive(Debug)]
pub struct MutSlices<'a> {
    slots: &'a [Slot],
    pick: Pick,
    _exclusive: PhantomData<&'a mut [u8]>,
}

impl<'a> MutSlices<'a> {
    /// The slots belong to an optimizer that `'a` borrows exclusively. No other code uses the
    /// memory that `pick` selects during this time.
    pub(crate) fn new(slots: &'a [Slot], pick: Pick) -> MutSlices<'a> {
        MutSlices { slots, pick, _exclusive: PhantomData }
    }

    /// Returns the element type of one tensor. Panics if the tensor does not exist.
    pub fn dtype(&self, at: usize) -> Dtype {
        (self.pick)(&self.slots[at]).dtype
    }

    /// Returns one tensor. Panics like [`Slices::get`].
    pub fn get<T: Element>(&self, at: usize) -> &[T] {
        let (memory, len) = elements(self.slots, at, self.pick);
        // SAFETY: The slot is inside an arena of the optimizer that `'a` borrows exclusively, and
        // has elements of type T.
        unsafe { slice::from_raw_parts(memory, len) }
    }

    /// Returns one tensor for writing. Panics like [`Slices::get`].
    pub fn get_mut<T: Element>(&mut self, at: usize) -> &mut [T] {
        let (memory, len) = elements(self.slots, at, self.pick);
        // SAFETY: See get. `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(memory, len) }
    }

    /// Returns all tensors that are in arenas, which may be written at the same time.
    pub fn split(self) -> Vec<AnyMut<'a>> {
        let pick = self.pick;
        let own = self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_elsewhere());
        // SAFETY: See get_mut. Slots do not overlap, and each is returned once, because this
        // consumes `self`.
        own.map(|(at, slot)| unsafe {
            match pick(slot).dtype {
                Dtype::F32 => AnyMut::F32(whole(elements(self.slots, at, pick))),
                Dtype::F64 => AnyMut::F64(whole(elements(self.slots, at, pick))),
                Dtype::Bf16 => AnyMut::Bf16(whole(elements(self.slots, at, pick))),
                Dtype::F16 => AnyMut::F16(whole(elements(self.slots, at, pick))),
                Dtype::I32 => AnyMut::I32(whole(elements(self.slots, at, pick))),
                Dtype::I64 => AnyMut::I64(whole(elements(self.slots, at, pick))),
            }
        })
        .collect()
    }
}

/// # Safety
///
/// As long as the slice lives, these elements must be valid, and no other code may use them.
unsafe fn whole<'a, T: Element>((memory, len): (*mut T, usize)) -> &'a mut [T] {
    // SAFETY: The caller guarantees the conditions.
    unsafe { slice::from_raw_parts_mut(memory, len) }
}

impl Index<usize> for MutSlices<'_> {
    type Output = [f32];

    fn index(&self, at: usize) -> &[f32] {
        self.get(at)
    }
}

impl IndexMut<usize> for MutSlices<'_> {
    fn index_mut(&mut self, at: usize) -> &mut [f32] {
        self.get_mut(at)
    }
}

/// Writable elements of any type.
#[derive(Debug)]
pub enum AnyMut<'a> {
    /// Elements of [`Dtype::F32`].
    F32(&'a mut [f32]),
    /// Elements of [`Dtype::F64`].
    F64(&'a mut [f64]),
    /// Elements of [`Dtype::Bf16`].
    Bf16(&'a mut [Bf16]),
    /// Elements of [`Dtype::F16`].
    F16(&'a mut [F16]),
    /// Elements of [`Dtype::I32`].
    I32(&'a mut [i32]),
    /// Elements of [`Dtype::I64`].
    I64(&'a mut [i64]),
}

impl AnyMut<'_> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            AnyMut::F32(elements) => elements.len(),
            AnyMut::F64(elements) => elements.len(),
            AnyMut::Bf16(elements) => elements.len(),
            AnyMut::F16(elements) => elements.len(),
            AnyMut::I32(elements) => elements.len(),
            AnyMut::I64(elements) => elements.len(),
        }
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets every element to `value`, rounded to its type.
    pub fn fill(&mut self, value: f32) {
        match self {
            AnyMut::F32(elements) => elements.fill(value),
            AnyMut::F64(elements) => elements.fill(value.into()),
            AnyMut::Bf16(elements) => elements.fill(Bf16::from_f32(value)),
            AnyMut::F16(elements) => elements.fill(F16::from_f32(value)),
            AnyMut::I32(elements) => elements.fill(value as i32),
            AnyMut::I64(elements) => elements.fill(value as i64),
        }
    }
}

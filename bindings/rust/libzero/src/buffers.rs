// SPDX-License-Identifier: Apache-2.0
//! Buffers, which are tensors of the model that are not trained, such as running statistics and
//! counters.
use std::ffi::{CString, c_void};
use std::ptr;

use libzero_sys as sys;

use crate::arena::{Arena, Memory};
use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result, c_text, check};
use crate::optim::Optim;
use crate::options::init;
use crate::register::place;
use crate::slices::{GRADS, MutSlices, Slices, Slot, WEIGHTS};

/// The alignment of each new buffer, in bytes.
const ALIGNMENT: usize = 64;

/// The description of a buffer, without memory.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The name, which is unique among the optimizer's buffers and parameters.
    pub name: String,
    /// The dimensions, which are empty for a scalar.
    pub dims: Vec<i64>,
    /// The element type.
    pub dtype: Dtype,
}

impl Buffer {
    /// Describes a buffer with [`f32`] elements.
    pub fn new(name: &str, dims: &[i64]) -> Buffer {
        Buffer { name: name.to_owned(), dims: dims.to_vec(), dtype: Dtype::F32 }
    }

    /// Changes the element type, as in `Buffer::new("seen", &[]).of(Dtype::I64)`.
    pub fn of(mut self, dtype: Dtype) -> Buffer {
        self.dtype = dtype;
        self
    }

    fn elements(&self) -> Result<usize> {
        let wrong =
            || Error::argument(format!("buffer '{}' has dimensions {:?}", self.name, self.dims));
        self.dims.iter().try_fold(1usize, |product, &size| {
            usize::try_from(size).ok().and_then(|size| product.checked_mul(size)).ok_or_else(wrong)
        })
    }
}

/// A buffer in the caller's memory, for [`Optim::register_raw_buffers`].
#[derive(Clone, Debug)]
pub struct RawBuffer {
    /// The name, shape and element type.
    pub buffer: Buffer,
    /// The elements.
    pub data: *mut c_void,
}

impl RawBuffer {
    /// Describes a buffer that has the element type of the pointer.
    pub fn new<T: Element>(name: &str, dims: &[i64], data: *mut T) -> RawBuffer {
        RawBuffer { buffer: Buffer::new(name, dims).of(T::TYPE), data: data.cast() }
    }
}

impl Optim {
    /// Adds buffers and allocates one copy of each per rank, filled with zeros.
    /// [Collective](crate#collective-and-local-calls).
    pub fn add_buffers(&mut self, buffers: &[Buffer]) -> Result<()> {
        let (mut offsets, mut bytes) = (Vec::with_capacity(buffers.len()), 0usize);
        for buffer in buffers {
            let len = buffer.elements()?;
            let end = len
                .checked_mul(buffer.dtype.bytes())
                .and_then(|size| size.checked_add(bytes))
                .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
                .filter(|&end| i64::try_from(end).is_ok())
                .ok_or_else(|| Error::argument(format!("buffer '{}' is too large", buffer.name)))?;
            offsets.push((bytes as i64, len));
            bytes = end;
        }
        let arena = Arena::allocate(&self.seat, bytes.max(ALIGNMENT), Memory::PerRank)?;
        let nowhere = Slot::elsewhere();
        let slots: Vec<Slot> = buffers
            .iter()
            .zip(offsets)
            .map(|(buffer, (offset, len))| {
                let weights = place(&arena, offset, buffer.dtype, len);
                Slot { weights, grads: nowhere.grads, len }
            })
            .collect();
        self.register_buffers(buffers.iter().zip(slots.iter().map(|slot| slot.weights.memory)))?;
        self.buffers.extend(slots);
        self.arenas.push(arena);
        Ok(())
    }

    /// Adds buffers in the caller's memory. [Local](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// The following conditions must hold until the optimizer is dropped:
    /// - `data` is valid for reads and writes of the buffer's elements of its `dtype`.
    /// - No other code reads or writes these elements while a collective call of this optimizer
    ///   runs.
    pub unsafe fn register_raw_buffers(&mut self, buffers: &[RawBuffer]) -> Result<()> {
        self.register_buffers(buffers.iter().map(|raw| (&raw.buffer, raw.data)))?;
        self.buffers.extend(buffers.iter().map(|_| Slot::elsewhere()));
        Ok(())
    }

    /// Registers buffers. Their memory must be in an arena of this optimizer, or fulfil the
    /// conditions of register_raw_buffers.
    fn register_buffers<'a>(
        &mut self,
        given: impl Iterator<Item = (&'a Buffer, *mut c_void)>,
    ) -> Result<()> {
        let (mut names, mut entries) = (Vec::<CString>::new(), Vec::new());
        for (buffer, data) in given {
            let name = c_text(&buffer.name, "buffer")?;
            let ndim = i32::try_from(buffer.dims.len()).unwrap_or(i32::MAX);
            entries.push(sys::zero_buffer {
                name: name.as_ptr(),
                data,
                shape: if ndim == 0 { ptr::null() } else { buffer.dims.as_ptr() },
                ndim,
                dtype: buffer.dtype.to_c(),
                ..init()
            });
            names.push(name);
        }
        // SAFETY: The library checks the token, and names and shapes are valid during the call.
        check(unsafe { sys::zero_register_buffers(self.token(), entries.as_ptr(), entries.len()) })
            .map(drop)
    }

    /// Copies every buffer from `root` to all ranks.
    /// [Collective](crate#collective-and-local-calls).
    pub fn broadcast_buffers(&mut self, root: i32) -> Result<()> {
        // SAFETY: The library checks the token. During the call, `&mut self` keeps the buffers of
        // this rank exclusive, and no other rank writes to them.
        check(unsafe { sys::zero_broadcast_buffers(self.token(), root, self.stream.as_ptr()) })
            .map(drop)
    }

    /// Returns the buffers for reading, indexed in registration order.
    pub fn buffers(&self) -> Slices<'_> {
        Slices::new(&self.buffers)
    }

    /// Returns the buffers for writing until the next call.
    pub fn buffers_mut(&mut self) -> MutSlices<'_> {
        MutSlices::new(&self.buffers, WEIGHTS)
    }

    /// Lends the same slices as [`lend`](Optim::lend), and the buffers for writing.
    pub fn lend_all(&mut self) -> Result<(Slices<'_>, MutSlices<'_>, MutSlices<'_>)> {
        self.refuse_broken()?;
        let buffers = MutSlices::new(&self.buffers, WEIGHTS);
        Ok((Slices::new(&self.slots), MutSlices::new(&self.slots, GRADS), buffers))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The methods of Optim that add parameters, in the optimizer's arenas or in the caller's memory.
use std::ffi::c_void;

use libzero_sys as sys;

use crate::arena::{Arena, Memory};
use crate::custom::Declared;
use crate::dtype::Dtype;
use crate::error::{Error, Result, c_text, check};
use crate::groups::{GroupOptions, GroupRule};
use crate::optim::{Group, Optim, addresses};
use crate::options::CSettings;
use crate::params::{CParams, RawParam, Shape};
use crate::plan::plan_for;
use crate::slices::{Place, Slot};

impl Optim {
    /// Adds parameters as one group and allocates their memory.
    ///
    /// The ranks of a host share one copy of the parameters. If there are several instances, each
    /// rank has its own copy. Each rank has its own gradients. Parameters and gradients are zeros
    /// at first, and their layout avoids copies. [Collective](crate#collective-and-local-calls).
    pub fn add(&mut self, shapes: &[Shape], settings: &[(&str, f64)]) -> Result<Group> {
        self.add_with(shapes, GroupOptions::with_settings(settings))
    }

    /// Does the same as [`add`](Optim::add) for a group with options, such as its own rule.
    ///
    /// If groups differ in their rules or in the type of their state, their layout may need copies.
    /// [Collective](crate#collective-and-local-calls).
    pub fn add_with(&mut self, shapes: &[Shape], options: GroupOptions) -> Result<Group> {
        // SAFETY: The library checks the token.
        let world = check(unsafe { sys::zero_comm_world(self.seat.token()) })?;
        let plan = plan_for(self.seat.token(), shapes, world, &self.options)?;
        let several = self.options.instances > 1;
        let kind = if several { Memory::PerRank } else { Memory::Shared };
        let weights = self.arena(plan.arena_bytes, kind)?;
        let grads = self.arena(plan.grad_arena_bytes, Memory::PerRank)?;
        let mut slots = Vec::with_capacity(shapes.len());
        for (at, shape) in shapes.iter().enumerate() {
            let len = shape.elements()?;
            let weights = place(&weights, plan.offsets[at], shape.dtype, len);
            let grads = place(&grads, plan.grad_offsets[at], shape.grads(), len);
            slots.push(Slot { weights, grads, len });
        }
        let memory = |slot: &Slot| (slot.weights.memory, slot.grads.memory);
        let given = shapes.iter().zip(&slots).map(|(shape, slot)| (shape, memory(slot)));
        let params = CParams::new(given, |_| true)?;
        let group = self.register(&params, options)?;
        drop(params);
        self.slots.extend(slots);
        self.arenas.extend([weights, grads]);
        Ok(group)
    }

    /// Adds parameters in the caller's memory as one group.
    /// [Local](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// The following conditions must hold until the optimizer is dropped, or gets other addresses
    /// from [`bind_raw`](Optim::bind_raw):
    /// - `data` and `grad` are null, or valid for reads and writes of the shape's elements of its
    ///   `dtype` and `grad_dtype`. If `padded` is set, they are valid up to the next multiple of 16
    ///   elements.
    /// - No other code reads or writes these elements while a collective call of this optimizer
    ///   runs.
    pub unsafe fn register_raw(
        &mut self,
        params: &[RawParam],
        settings: &[(&str, f64)],
    ) -> Result<Group> {
        // SAFETY: The caller guarantees the conditions.
        unsafe { self.register_raw_with(params, GroupOptions::with_settings(settings)) }
    }

    /// Does the same as [`register_raw`](Optim::register_raw) for a group with options.
    /// [Local](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// The conditions of [`register_raw`](Optim::register_raw) must hold.
    pub unsafe fn register_raw_with(
        &mut self,
        params: &[RawParam],
        options: GroupOptions,
    ) -> Result<Group> {
        let given = params.iter().map(|param| (&param.shape, (param.data, param.grad)));
        let c_params = CParams::new(given, |at| params[at].padded)?;
        let group = self.register(&c_params, options)?;
        self.slots.extend(params.iter().map(|_| Slot::elsewhere()));
        Ok(group)
    }

    /// Sets new addresses for all parameters, all gradients or both, in registration order.
    /// Contents are not copied. A null in `data` keeps the address of that parameter.
    /// [Local](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// The conditions of [`register_raw`](Optim::register_raw) must hold, with the element types
    /// given there.
    pub unsafe fn bind_raw(
        &mut self,
        data: Option<&[*mut c_void]>,
        grads: Option<&[*mut c_void]>,
    ) -> Result<()> {
        let count = self.slots.len();
        for given in [data, grads].into_iter().flatten() {
            if given.len() != count {
                let text = format!("{} addresses given for {count} parameters", given.len());
                return Err(Error::argument(text));
            }
        }
        let (data, grads) = (addresses(data), addresses(grads));
        // SAFETY: Both arrays have `count` entries. The caller guarantees the rest.
        check(unsafe { sys::zero_bind_params(self.token(), data, grads, count) }).map(drop)
    }

    /// Fixes the owners, compares the registrations of all ranks, and allocates the state. The
    /// first collective call does this implicitly. [Collective](crate#collective-and-local-calls).
    pub fn seal(&mut self) -> Result<()> {
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_seal(self.token()) }).map(drop)
    }

    fn arena(&self, bytes: i64, memory: Memory) -> Result<Arena<u8>> {
        // A model without elements also needs an arena.
        let len = usize::try_from(bytes).unwrap_or(usize::MAX).max(64);
        Arena::allocate(&self.seat, len, memory)
    }

    fn register(&mut self, params: &CParams<'_>, options: GroupOptions) -> Result<Group> {
        let settings = CSettings::new(&options.settings)?;
        let (mut c_options, mut group) = (settings.to_group(), 0);
        c_options.state_dtype = options.state_dtype as i32;
        let (name, custom);
        let mut declared = None;
        match options.rule {
            GroupRule::OfOptimizer => {}
            GroupRule::Named(optimizer) => {
                name = c_text(optimizer.rule()?.name, "optimizer")?;
                c_options.optimizer = name.as_ptr();
            }
            GroupRule::Custom(rule) => {
                custom = declared.insert(Declared::new(rule)?).to_c();
                c_options.custom = &custom;
            }
        }
        // SAFETY: Names, shapes and options are valid during the call. The memory is in the
        // optimizer's arenas, or fulfils the conditions of register_raw.
        check(unsafe {
            sys::zero_register_params(
                self.token(),
                &c_options,
                params.as_ptr(),
                params.len(),
                &mut group,
            )
        })?;
        self.rules.extend(declared); // C calls it until the token is dropped
        Ok(Group(group))
    }
}

/// Returns the place of `len` elements at the byte `offset` of an arena. The elements must be
/// inside the arena and aligned.
pub(crate) fn place(arena: &Arena<u8>, offset: i64, dtype: Dtype, len: usize) -> Place {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = len.checked_mul(dtype.bytes()).and_then(|bytes| bytes.checked_add(offset));
    assert!(end.is_some_and(|end| end <= arena.len()) && offset % dtype.bytes() == 0);
    Place { memory: arena.as_ptr().wrapping_add(offset).cast(), dtype }
}

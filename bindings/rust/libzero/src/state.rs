// SPDX-License-Identifier: Apache-2.0
//! The methods of Optim for single tensors of the state, and for manual steps.
//!
//! Parameters are identified by their numbers in registration order. Tensors of state have the
//! names that torch uses. The master weights of 16-bit parameters are called "master". The name
//! None selects the values that a step updates, which are the master weights, or the parameter
//! itself if it has no master weights. Elements are f64 for f64 parameters, and f32 for all other
//! parameters.
use std::ffi::{CString, c_char};
use std::ptr;

use libzero_sys as sys;

use crate::dtype::Element;
use crate::error::{Error, Result, c_text, check, static_text};
use crate::optim::Optim;

const MOST_NAMES: usize = 16;

impl Optim {
    /// Returns the names of the tensors of state that a parameter has now. A save would write these
    /// tensors. [Local](crate#collective-and-local-calls).
    pub fn state_names(&self, param: usize) -> Result<Vec<&'static str>> {
        let (mut names, mut count) = ([ptr::null(); MOST_NAMES], 0);
        let room = names.as_mut_ptr();
        // SAFETY: The library checks the token, and there is room for this number of names.
        check(unsafe {
            let token = self.token();
            sys::zero_state_info(
                token,
                number(param),
                ptr::null_mut(),
                room,
                MOST_NAMES,
                &mut count,
            )
        })?;
        Ok(names[..count].iter().map(|name| static_text(*name)).collect())
    }

    /// Reads `out.len()` elements, starting at index `first`. This rank must own all of these
    /// elements. [Local](crate#collective-and-local-calls).
    pub fn state_get<T: Element>(
        &self,
        param: usize,
        name: Option<&str>,
        first: i64,
        out: &mut [T],
    ) -> Result<()> {
        self.check_elements::<T>(param)?;
        let (name, count, memory) = (c_name(name)?, length(out), out.as_mut_ptr().cast());
        // SAFETY: The library checks the token, the name is valid during the call, and `out` has
        // room for `count` elements of the state's type.
        check(unsafe {
            let token = self.token();
            sys::zero_state_get(token, number(param), pointer(&name), first, count, memory)
        })
        .map(drop)
    }

    /// Sets the elements that this rank owns, among the elements starting at index `first`. Every
    /// rank must make this call for the same parameters and names, with the whole tensor, any part
    /// of it, or an empty slice. To set master weights, use [`set_values`](Optim::set_values).
    /// [Local](crate#collective-and-local-calls).
    pub fn state_set<T: Element>(
        &mut self,
        param: usize,
        name: &str,
        first: i64,
        values: &[T],
    ) -> Result<()> {
        if name == "master" {
            return Err(Error::argument("masters are set with set_values".to_owned()));
        }
        // SAFETY: The call writes only state, which no other code can access.
        unsafe { self.set_tensor(param, Some(name), first, values) }
    }

    /// Sets the values that a step updates, for the elements that this rank owns. This sets the
    /// master weights and the parameters of this rank. [`share_params`](Optim::share_params) then
    /// copies the parameters to all ranks. [Local](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// No rank may have a slice of the parameters until [`share_params`](Optim::share_params) has
    /// been called.
    pub unsafe fn set_values<T: Element>(
        &mut self,
        param: usize,
        first: i64,
        values: &[T],
    ) -> Result<()> {
        // SAFETY: The caller guarantees the conditions.
        unsafe { self.set_tensor(param, None, first, values) }
    }

    unsafe fn set_tensor<T: Element>(
        &mut self,
        param: usize,
        name: Option<&str>,
        first: i64,
        values: &[T],
    ) -> Result<()> {
        self.check_elements::<T>(param)?;
        let (name, count, memory) = (c_name(name)?, length(values), values.as_ptr().cast());
        // SAFETY: The library checks the token, the name is valid during the call, and `values` has
        // `count` elements of the state's type. The caller guarantees that the elements may be
        // written.
        check(unsafe {
            let token = self.token();
            sys::zero_state_set(token, number(param), pointer(&name), first, count, memory)
        })
        .map(drop)
    }

    /// Reads the scalar "step" of a parameter, or "mu_product" with NAdam. None reads the
    /// optimizer's own value. [Local](crate#collective-and-local-calls).
    pub fn state_scalar(&self, param: Option<usize>, name: &str) -> Result<f64> {
        let (name, mut value) = (c_text(name, "name")?, 0.0);
        let param = param.map_or(sys::ZERO_ALL_PARAMS.into(), number);
        // SAFETY: The library checks the token, and the name and the value are valid during the
        // call.
        check(unsafe {
            let to = (&raw mut value).cast();
            sys::zero_state_get(self.token(), param, name.as_ptr(), 0, 1, to)
        })?;
        Ok(value)
    }

    /// Sets such a scalar. Every rank must set the same value. None sets the value of every
    /// parameter and the optimizer's own value. [Local](crate#collective-and-local-calls).
    pub fn set_state_scalar(&mut self, param: Option<usize>, name: &str, value: f64) -> Result<()> {
        let name = c_text(name, "name")?;
        let param = param.map_or(sys::ZERO_ALL_PARAMS.into(), number);
        // SAFETY: The library checks the token, and the name and the value are valid during the
        // call.
        check(unsafe {
            let from = (&raw const value).cast();
            sys::zero_state_set(self.token(), param, name.as_ptr(), 0, 1, from)
        })
        .map(drop)
    }

    /// Copies a whole sealed tensor into `out` on rank `to`, or on all ranks if `to` is None. On
    /// all other ranks, `out` may be empty. [Collective](crate#collective-and-local-calls).
    pub fn state_gather<T: Element>(
        &mut self,
        param: usize,
        name: Option<&str>,
        to: Option<i32>,
        out: &mut [T],
    ) -> Result<()> {
        self.check_elements::<T>(param)?;
        let (name, to) = (c_name(name)?, to.unwrap_or(sys::ZERO_ALL_RANKS));
        let (count, memory) = (out.len(), out.as_mut_ptr().cast());
        // SAFETY: The library checks the token, the name is valid during the call, and `out` has
        // room for `count` elements of the state's type. If C writes to `out`, it first compares
        // `count` with the parameter's number of elements.
        check(unsafe {
            let token = self.token();
            sys::zero_state_gather(token, number(param), pointer(&name), to, memory, count)
        })
        .map(drop)
    }

    /// Reads `out.len()` elements of the reduced gradient, starting at index `first`, as a step
    /// would use them. This rank must own all of these elements.
    /// [Local](crate#collective-and-local-calls).
    pub fn grad_get<T: Element>(&self, param: usize, first: i64, out: &mut [T]) -> Result<()> {
        self.check_elements::<T>(param)?;
        let (count, memory) = (length(out), out.as_mut_ptr().cast());
        // SAFETY: See state_get.
        check(unsafe { sys::zero_grad_get(self.token(), number(param), first, count, memory) })
            .map(drop)
    }

    /// Copies the ranges that this rank owns from its parameters to every rank. This replaces
    /// [`step`](Optim::step) in a manual step. Pass `keep_masters` after
    /// [`set_values`](Optim::set_values). [Collective](crate#collective-and-local-calls).
    pub fn share_params(&mut self, keep_masters: bool) -> Result<()> {
        let flags = if keep_masters { sys::ZERO_SHARE_KEEP_MASTERS } else { 0 };
        // SAFETY: The library checks the token. `&mut self` on every rank keeps the parameters
        // exclusive during the call.
        check(unsafe { sys::zero_share_params(self.token(), flags, self.stream.as_ptr()) })
            .map(drop)
    }

    /// Fails unless T is the element type of a parameter's state.
    fn check_elements<T: Element>(&self, param: usize) -> Result<()> {
        let (mut dtype, mut count) = (0, 0);
        // SAFETY: The library checks the token, and `dtype` and `count` are valid during the call.
        check(unsafe {
            let (token, names) = (self.token(), ptr::null_mut());
            sys::zero_state_info(token, number(param), &mut dtype, names, 0, &mut count)
        })?;
        if dtype == T::TYPE.to_c() {
            return Ok(());
        }
        let right = if dtype == sys::ZERO_FLOAT64 { "f64" } else { "f32" };
        Err(Error::argument(format!("the state of parameter {param} is {right}, not {}", T::TYPE)))
    }
}

/// Converts a number for C. A number that does not fit becomes a number that no parameter has,
/// which C refuses.
fn number(param: usize) -> i64 {
    i64::try_from(param).unwrap_or(i64::MAX)
}

fn length<T>(slice: &[T]) -> i64 {
    i64::try_from(slice.len()).unwrap_or(i64::MAX)
}

fn c_name(name: Option<&str>) -> Result<Option<CString>> {
    name.map(|name| c_text(name, "name")).transpose()
}

fn pointer(name: &Option<CString>) -> *const c_char {
    name.as_ref().map_or(ptr::null(), |name| name.as_ptr())
}

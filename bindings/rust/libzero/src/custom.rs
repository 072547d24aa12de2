// SPDX-License-Identifier: Apache-2.0
//! Update rules that the caller writes. The C library calls them through a function pointer.
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;

use libzero_sys as sys;

use crate::dtype::{Dtype, Element};
use crate::error::{Ending, Failed, Result, c_text, keep, set_pending, take_pending};
use crate::options::{CSettings, init};

type Function = Box<dyn FnMut(&mut Update<'_>) -> std::result::Result<(), Failed> + Send>;

/// An update rule that you write as a function, for [`Optim::with_rule`](crate::Optim::with_rule)
/// or [`GroupOptions::of_rule`](crate::GroupOptions::of_rule). Every rank must declare the same
/// rule. Its state is saved and loaded like the state of a built-in rule.
///
/// ```
/// # fn main() -> libzero::Result<()> {
/// use libzero::{Comm, CustomRule, Deadlines, Optim, Options, Shape};
///
/// let rule = CustomRule::new("momentum", |update| {
///     let lr = update.lr() as f32;
///     let mut arrays = update.arrays::<f32>().ok_or("only f32 is trained here")?;
///     for (at, value) in arrays.values.iter_mut().enumerate() {
///         arrays.slots[0][at] = 0.9 * arrays.slots[0][at] + arrays.gradient[at];
///         *value -= lr * arrays.slots[0][at];
///     }
///     Ok(())
/// });
/// let comm = Comm::solo(Deadlines::default())?;
/// let options = Options::default().set("lr", 0.1);
/// let mut optim = Optim::with_rule(&comm, &options, rule.slot("buffer"))?;
/// optim.add(&[Shape::new("w", &[10])], &[])?;
/// optim.lend()?.1[0].fill(1.0);
/// optim.step()?;
/// assert_eq!(optim.params()?[0], [-0.1; 10]);
/// # Ok(())
/// # }
/// ```
pub struct CustomRule {
    name: String,
    slots: Vec<String>,
    settings: Vec<(String, f64)>,
    whole_tensors: bool,
    update: Function,
}

impl CustomRule {
    /// Declares a rule without state. A step calls `update`, on its own thread, for each range of
    /// elements that this rank owns and that has a gradient.
    ///
    /// If `update` returns an error, the step fails, and `source()` of the step's error returns the
    /// error of `update`. If `update` panics, the panic continues in the step. In both cases the
    /// other ranks get the text of the error or panic, and no rank has changed anything.
    ///
    /// The ranges depend on the number of ranks, the partition and the bucket size. A rule that
    /// combines several elements needs [`whole_tensors`](CustomRule::whole_tensors). `name` is
    /// written to checkpoints. It must consist of letters, digits and the characters "_-.".
    pub fn new(
        name: &str,
        update: impl FnMut(&mut Update<'_>) -> std::result::Result<(), Failed> + Send + 'static,
    ) -> CustomRule {
        CustomRule {
            name: name.to_owned(),
            slots: Vec::new(),
            settings: Vec::new(),
            whole_tensors: false,
            update: Box::new(update),
        }
    }

    /// Adds a tensor of state with this name, which is zeros at first. A rule may have at most 8
    /// tensors.
    pub fn slot(mut self, name: &str) -> CustomRule {
        self.slots.push(name.to_owned());
        self
    }

    /// Adds a setting and its default. Every rule has the settings lr (1e-3) and weight_decay (0),
    /// and this call can also change their defaults.
    pub fn setting(mut self, name: &str, value: f64) -> CustomRule {
        self.settings.push((name.to_owned(), value));
        self
    }

    /// Passes a whole parameter to each call. [`Partition::Even`](crate::Partition::Even) then
    /// divides the parameters like [`Partition::Greedy`](crate::Partition::Greedy).
    pub fn whole_tensors(mut self) -> CustomRule {
        self.whole_tensors = true;
        self
    }
}

impl fmt::Debug for CustomRule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("CustomRule")
            .field("name", &self.name)
            .field("slots", &self.slots)
            .field("settings", &self.settings)
            .field("whole_tensors", &self.whole_tensors)
            .finish_non_exhaustive()
    }
}

/// The input of one call of a rule, which updates the elements `first()` to `first() + count() - 1`
/// of one parameter, in row-major order.
pub struct Update<'a> {
    raw: &'a sys::zero_update,
    // `&mut self` borrows the arrays.
    _arrays: PhantomData<&'a mut [u8]>,
}

/// The memory of an [`Update`], which consists of copies of equal length.
pub struct Arrays<'a, T> {
    /// The values to read and update. For 16-bit parameters, these are the master weights.
    pub values: &'a mut [T],
    /// The averaged, unscaled and clipped gradient, which may be overwritten.
    pub gradient: &'a mut [T],
    /// The state to read and update, in the order of declaration.
    pub slots: Vec<&'a mut [T]>,
}

impl Update<'_> {
    /// Returns the number of the parameter in registration order.
    pub fn param(&self) -> usize {
        self.raw.param as usize
    }

    /// Returns the parameter's name.
    pub fn name(&self) -> &str {
        text(self.raw.name)
    }

    /// Returns the shape of the whole parameter.
    pub fn shape(&self) -> &[i64] {
        let ndim = self.raw.ndim as usize;
        if ndim == 0 {
            return &[];
        }
        // SAFETY: zero.h guarantees this number of entries.
        unsafe { slice::from_raw_parts(self.raw.shape, ndim) }
    }

    /// Returns the type of the arrays, which is [`Dtype::F64`] for parameters of that type and
    /// [`Dtype::F32`] for all others.
    pub fn dtype(&self) -> Dtype {
        if self.raw.dtype == sys::ZERO_FLOAT64 { Dtype::F64 } else { Dtype::F32 }
    }

    /// Returns the index of the range's first element.
    pub fn first(&self) -> usize {
        self.raw.first as usize
    }

    /// Returns the number of elements in the range and in each array, which is at least 1.
    pub fn count(&self) -> usize {
        self.raw.count as usize
    }

    /// Returns the number of this step, counted for this parameter from 1.
    pub fn step(&self) -> i64 {
        self.raw.step
    }

    /// Returns the group's lr multiplied by the parameter's `lr_scale`.
    pub fn lr(&self) -> f64 {
        self.raw.lr
    }

    /// Returns the weight decay of the parameter if it has its own value, or else the group's
    /// value.
    pub fn weight_decay(&self) -> f64 {
        self.raw.weight_decay
    }

    /// Returns the setting of this name, which may also be `lr` or `weight_decay`.
    pub fn setting(&self, name: &str) -> Option<f64> {
        let count = self.raw.setting_count;
        // SAFETY: zero.h guarantees this number of entries.
        let (names, values) = unsafe {
            (
                slice::from_raw_parts(self.raw.setting_names, count),
                slice::from_raw_parts(self.raw.setting_values, count),
            )
        };
        let at = names.iter().position(|&one| text(one) == name)?;
        Some(values[at])
    }

    /// Returns the arrays if T is their element type, and None otherwise.
    pub fn arrays<T: Element>(&mut self) -> Option<Arrays<'_, T>> {
        if T::TYPE != self.dtype() {
            return None;
        }
        let count = self.count();
        // SAFETY: The library provides `count` elements of this type in each array. The arrays do
        // not overlap, and no other code uses them while `self` is borrowed.
        unsafe {
            let slots = if self.raw.slot_count == 0 {
                &[]
            } else {
                slice::from_raw_parts(self.raw.slots, self.raw.slot_count)
            };
            let array = |memory: *mut c_void| slice::from_raw_parts_mut(memory.cast::<T>(), count);
            Some(Arrays {
                values: array(self.raw.values),
                gradient: array(self.raw.gradient),
                slots: slots.iter().map(|&slot| array(slot)).collect(),
            })
        }
    }
}

/// Returns a name, which has been checked for UTF-8.
fn text<'a>(name: *const c_char) -> &'a str {
    // SAFETY: The text belongs to the library, ends with a NUL, and is valid during the call.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("")
}

/// A rule in the form that C needs, and its function at an address where C finds it.
pub(crate) struct Declared {
    name: CString,
    _slot_names: Vec<CString>,
    slots: Vec<*const c_char>,
    settings: CSettings,
    flags: i32,
    // This is an owned pointer. C calls the function on one thread at a time, from calls that have
    // exclusive access to the optimizer.
    function: NonNull<Function>,
}

impl Drop for Declared {
    fn drop(&mut self) {
        // SAFETY: `new` created the box, and nothing calls the function any more.
        drop(unsafe { Box::from_raw(self.function.as_ptr()) });
    }
}

impl Declared {
    pub(crate) fn new(rule: CustomRule) -> Result<Declared> {
        let slot_names =
            rule.slots.iter().map(|slot| c_text(slot, "slot")).collect::<Result<Vec<_>>>()?;
        Ok(Declared {
            name: c_text(&rule.name, "name")?,
            slots: slot_names.iter().map(|name| name.as_ptr()).collect(),
            _slot_names: slot_names,
            settings: CSettings::new(&rule.settings)?,
            flags: if rule.whole_tensors { sys::ZERO_CUSTOM_WHOLE_TENSORS } else { 0 },
            function: NonNull::from(Box::leak(Box::new(rule.update))),
        })
    }

    /// Returns a C struct that points into `self`.
    pub(crate) fn to_c(&self) -> sys::zero_custom_optimizer {
        sys::zero_custom_optimizer {
            name: self.name.as_ptr(),
            update: Some(call),
            ctx: self.function.as_ptr().cast(),
            slots: self.slots.as_ptr(),
            slot_count: self.slots.len(),
            setting_names: self.settings.names(),
            setting_values: self.settings.values().as_ptr(),
            setting_count: self.settings.values().len(),
            flags: self.flags,
            ..init()
        }
    }
}

impl fmt::Debug for Declared {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Declared").field(&self.name).finish()
    }
}

/// Writes as much of the text for the other ranks as fits.
///
/// # Safety
///
/// `update` must be the pointer that C has just passed.
unsafe fn say(update: &sys::zero_update, words: &str) {
    let mut end = words.len().min(update.message_bytes - 1);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    let end = words.as_bytes()[..end].iter().position(|&byte| byte == 0).unwrap_or(end);
    // SAFETY: The message has room for message_bytes, and its last byte is already zero.
    unsafe {
        words.as_ptr().copy_to_nonoverlapping(update.message.cast(), end);
        *update.message.add(end) = 0;
    }
}

unsafe extern "C" fn call(ctx: *mut c_void, update: *const sys::zero_update) -> sys::zero_status {
    // SAFETY: to_c passed the function, which no other code uses during the call. zero.h describes
    // the update.
    let (function, update) = unsafe { (&mut *ctx.cast::<Function>(), &*update) };
    // Calls of libzero inside the function set their own endings.
    let before = take_pending();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let ended = function(&mut Update { raw: update, _arrays: PhantomData });
        ended.map_err(|failed| {
            let words = failed.to_string(); // code of the program, which may panic
            (failed, words)
        })
    }));
    set_pending(before);
    let (ending, words) = match ended {
        Ok(Ok(())) => return sys::ZERO_OK,
        Ok(Err((failed, words))) => (Ending::Failed(failed), words),
        Err(payload) => {
            let said = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
            (Ending::Panicked(payload), format!("panic: {}", said.unwrap_or_default()))
        }
    };
    keep(ending);
    // SAFETY: The update belongs to this call.
    unsafe { say(update, &words) };
    sys::ZERO_ERR_CALLBACK
}

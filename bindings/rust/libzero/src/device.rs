// SPDX-License-Identifier: Apache-2.0
//! GPU memory that an engine allocates and fills.
use std::ffi::c_void;
use std::ptr;

use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result};
use crate::optim::{Group, Optim};
use crate::params::{RawParam, Shape};
use crate::seat::Device;
use crate::stream::Stream;

/// Elements in memory that kernels on a GPU can access.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice {
    memory: *mut c_void,
    len: usize,
    dtype: Dtype,
}

impl DeviceSlice {
    /// Describes `len` elements at `memory`.
    ///
    /// # Safety
    ///
    /// The following conditions must hold as long as an optimizer uses the slice:
    /// - Kernels on the GPU of the optimizer's comm may read and write `len` elements at `memory`.
    /// - Any other access is ordered before or after the optimizer's calls on its stream.
    pub unsafe fn new<T: Element>(memory: *mut T, len: usize) -> DeviceSlice {
        DeviceSlice { memory: memory.cast(), len, dtype: T::TYPE }
    }
}

/// A parameter on a GPU, for [`Optim::register_device`].
#[derive(Clone, Debug)]
pub struct DeviceParam {
    /// The name and shape. The slices determine the element types.
    pub shape: Shape,
    /// The elements of the parameter.
    pub data: DeviceSlice,
    /// The gradient, or None if each call gives it.
    pub grad: Option<DeviceSlice>,
}

impl DeviceParam {
    fn to_raw(&self) -> Result<RawParam> {
        let elements = self.shape.elements()?;
        for (slice, what) in [(Some(self.data), "parameter"), (self.grad, "gradient of parameter")]
        {
            if let Some(DeviceSlice { len, .. }) = slice.filter(|slice| slice.len < elements) {
                let name = &self.shape.name;
                let text =
                    format!("{what} '{name}' has {len} elements, but its shape has {elements}");
                return Err(Error::argument(text));
            }
        }
        let mut shape = self.shape.clone().of(self.data.dtype);
        if let Some(grad) = self.grad {
            shape = shape.with_grads(grad.dtype);
        }
        let room = self.data.len.min(self.grad.map_or(0, |grad| grad.len));
        Ok(RawParam {
            shape,
            data: self.data.memory,
            grad: self.grad.map_or(ptr::null_mut(), |grad| grad.memory),
            padded: elements.checked_next_multiple_of(16).is_some_and(|end| end <= room),
        })
    }
}

impl Optim {
    /// Adds parameters on the comm's GPU as one group. Slices may be longer than the shape. If both
    /// slices extend to the next multiple of 16 elements, parameters are sent without packing.
    /// [Local](crate#collective-and-local-calls).
    pub fn register_device(
        &mut self,
        params: &[DeviceParam],
        settings: &[(&str, f64)],
    ) -> Result<Group> {
        let raw = params.iter().map(DeviceParam::to_raw).collect::<Result<Vec<_>>>()?;
        self.refuse_host("its parameters are in host memory")?;
        // SAFETY: The caller guaranteed this when constructing the slices, and the slices are long
        // enough.
        unsafe { self.register_raw(&raw, settings) }
    }

    /// Queues the work of all later calls on `stream`, after the work that is queued on it by then.
    /// Before this call, work is queued on the default stream.
    /// [Local](crate#collective-and-local-calls).
    pub fn set_stream(&mut self, stream: Stream) -> Result<()> {
        self.refuse_host("there are no streams")?;
        self.stream = stream;
        Ok(())
    }

    fn refuse_host(&self, why: &str) -> Result<()> {
        match self.seat.device() {
            Device::Host => Err(Error::argument(format!("the comm is on the host: {why}"))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice<T: Element>(len: usize) -> DeviceSlice {
        // SAFETY: No optimizer uses the slice.
        unsafe { DeviceSlice::new(ptr::without_provenance_mut::<T>(4096), len) }
    }

    fn raw(elements: i64, data: DeviceSlice, grad: Option<DeviceSlice>) -> Result<RawParam> {
        DeviceParam { shape: Shape::new("w", &[elements]), data, grad }.to_raw()
    }

    #[test]
    fn slices_that_are_longer_are_padding_where_both_reach_far_enough() {
        for (elements, data, grad, padded) in [
            (17, 32, Some(32), true),
            (17, 32, Some(31), false),
            (17, 17, Some(40), false),
            (17, 32, None, false),
            (16, 16, Some(16), true),
        ] {
            let found = raw(elements, slice::<f32>(data), grad.map(slice::<f32>)).unwrap();
            assert_eq!(found.padded, padded, "{elements} {data} {grad:?}");
        }
    }

    #[test]
    fn slices_say_the_element_types() {
        let found = raw(4, slice::<crate::Bf16>(4), Some(slice::<f32>(4))).unwrap();
        assert_eq!((found.shape.dtype, found.shape.grads()), (Dtype::Bf16, Dtype::F32));
        assert_eq!((found.data.addr(), found.grad.addr()), (4096, 4096));
        assert!(raw(4, slice::<f32>(4), None).unwrap().grad.is_null());
    }
}

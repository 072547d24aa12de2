// SPDX-License-Identifier: Apache-2.0
//! Parameters, with and without memory, and their conversion to C structs.
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::ptr;

use libzero_sys as sys;

use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result, c_text};
use crate::options::init;

/// The description of a parameter, without memory.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The name, which is unique in the optimizer.
    pub name: String,
    /// The dimensions, which are empty for a scalar.
    pub dims: Vec<i64>,
    /// The position in the forward pass. None selects the position in registration order.
    pub order: Option<i64>,
    /// The rank that owns the parameter with [`Partition::Manual`](crate::Partition::Manual).
    pub owner: i32,
    /// The element type.
    pub dtype: Dtype,
    /// The element type of the gradient. None selects the type of the parameter.
    pub grad_dtype: Option<Dtype>,
    /// True if the parameter is not trained until
    /// [`Optim::set_trainable`](crate::Optim::set_trainable) enables training.
    pub frozen: bool,
    /// A factor for the group's lr, which is not saved.
    pub lr_scale: Option<f64>,
    /// A weight decay that replaces the group's value, and is not saved.
    pub weight_decay: Option<f64>,
}

impl Shape {
    /// Describes a parameter with [`f32`] elements that is registered in the order of the forward
    /// pass.
    pub fn new(name: &str, dims: &[i64]) -> Shape {
        Shape {
            name: name.to_owned(),
            dims: dims.to_vec(),
            order: None,
            owner: 0,
            dtype: Dtype::F32,
            grad_dtype: None,
            frozen: false,
            lr_scale: None,
            weight_decay: None,
        }
    }

    /// Changes the element type, as in `Shape::new("w", &[3]).of(Dtype::Bf16)`.
    pub fn of(mut self, dtype: Dtype) -> Shape {
        self.dtype = dtype;
        self
    }

    /// Sets the element type of the gradient, if it differs from the parameter's.
    pub fn with_grads(mut self, dtype: Dtype) -> Shape {
        self.grad_dtype = Some(dtype);
        self
    }

    /// Freezes the parameter, so that it is not trained at first.
    pub fn frozen(mut self) -> Shape {
        self.frozen = true;
        self
    }

    /// Multiplies the group's lr by `scale` for this parameter.
    pub fn with_lr_scale(mut self, scale: f64) -> Shape {
        self.lr_scale = Some(scale);
        self
    }

    /// Sets a weight decay for this parameter.
    pub fn with_weight_decay(mut self, decay: f64) -> Shape {
        self.weight_decay = Some(decay);
        self
    }

    pub(crate) fn grads(&self) -> Dtype {
        self.grad_dtype.unwrap_or(match self.dtype {
            Dtype::I32 | Dtype::I64 => Dtype::F32, // has no gradient, but space is reserved for one
            trained => trained,
        })
    }

    pub(crate) fn elements(&self) -> Result<usize> {
        let too_large = || Error::argument(format!("parameter '{}' is too large", self.name));
        self.dims.iter().try_fold(1usize, |product, &size| {
            let size = usize::try_from(size).map_err(|_| {
                Error::argument(format!("parameter '{}' has a dimension of {size}", self.name))
            })?;
            product.checked_mul(size).ok_or_else(too_large)
        })
    }
}

/// A parameter in the caller's memory, for [`Optim::register_raw`](crate::Optim::register_raw).
#[derive(Clone, Debug)]
pub struct RawParam {
    /// The name, shape and element types.
    pub shape: Shape,
    /// The address of the parameter, or null if it is bound later.
    pub data: *mut c_void,
    /// The address of the gradient, or null if each call gives it.
    pub grad: *mut c_void,
    /// True if libzero may read and write the parameter and the gradient past their end, up to the
    /// next multiple of 16 elements.
    pub padded: bool,
}

impl RawParam {
    /// Describes a parameter that has the element types of the pointers.
    pub fn new<T: Element, G: Element>(
        name: &str,
        dims: &[i64],
        data: *mut T,
        grad: *mut G,
    ) -> RawParam {
        let shape = Shape::new(name, dims).of(T::TYPE).with_grads(G::TYPE);
        RawParam { shape, data: data.cast(), grad: grad.cast(), padded: false }
    }
}

/// Parameters in the form that C needs.
pub(crate) struct CParams<'a> {
    _names: Vec<CString>,
    params: Vec<sys::zero_param>,
    _shapes: PhantomData<&'a [i64]>,
}

impl<'a> CParams<'a> {
    /// Converts shapes, each with its data and its gradient.
    pub(crate) fn new(
        given: impl Iterator<Item = (&'a Shape, (*mut c_void, *mut c_void))>,
        padded: impl Fn(usize) -> bool,
    ) -> Result<CParams<'a>> {
        let (mut names, mut params) = (Vec::new(), Vec::new());
        for (at, (shape, (data, grad))) in given.enumerate() {
            let name = c_text(&shape.name, "parameter")?;
            let ndim = i32::try_from(shape.dims.len()).unwrap_or(i32::MAX);
            let mut param = sys::zero_param {
                name: name.as_ptr(),
                data,
                grad,
                shape: if ndim == 0 { ptr::null() } else { shape.dims.as_ptr() },
                ndim,
                dtype: shape.dtype.to_c(),
                grad_dtype: shape.grads().to_c(),
                owner: shape.owner,
                order: shape.order.unwrap_or(0),
                lr_scale: shape.lr_scale.unwrap_or(0.0),
                weight_decay: shape.weight_decay.unwrap_or(0.0),
                ..init()
            };
            for (flag, given) in [
                (sys::ZERO_PARAM_ORDER, shape.order.is_some()),
                (sys::ZERO_PARAM_PADDED, padded(at)),
                (sys::ZERO_PARAM_FROZEN, shape.frozen),
                (sys::ZERO_PARAM_LR_SCALE, shape.lr_scale.is_some()),
                (sys::ZERO_PARAM_WEIGHT_DECAY, shape.weight_decay.is_some()),
            ] {
                param.flags |= if given { flag } else { 0 };
            }
            names.push(name);
            params.push(param);
        }
        Ok(CParams { _names: names, params, _shapes: PhantomData })
    }

    pub(crate) fn as_ptr(&self) -> *const sys::zero_param {
        self.params.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.params.len()
    }
}

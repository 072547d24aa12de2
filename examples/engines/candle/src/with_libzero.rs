// SPDX-License-Identifier: Apache-2.0
use std::ffi::c_void;
use std::ptr;

use candle_core::backprop::GradStore;
use candle_core::{Storage, Tensor, Var};
use libzero::{Comm, Deadlines, Optim, Options, RawParam, Reduction};

use crate::Result;

pub struct Update {
    optim: Optim,
    comm: Comm,
}

/// Returns the address of a contiguous tensor's elements. It is valid as long as the tensor lives.
fn address(tensor: &Tensor) -> Result<*mut f32> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(memory) => {
            Ok(memory.as_slice::<f32>()?[layout.start_offset()..].as_ptr().cast_mut())
        }
        _ => Err("a tensor is not on the CPU".into()),
    }
}

impl Update {
    pub fn new(vars: &[(&str, Var)]) -> Result<Update> {
        let comm = Comm::from_env(Deadlines::default())?;
        let mut optim = Optim::new(&comm, &Options::default().set("lr", 1e-3))?;
        let mut params = Vec::new();
        for (name, var) in vars {
            let dims: Vec<i64> = var.dims().iter().map(|&size| size as i64).collect();
            params.push(RawParam::new(name, &dims, address(var)?, ptr::null_mut::<f32>()));
        }
        // SAFETY: candle updates a Var in place and keeps its storage, and `vars` outlive this.
        unsafe { optim.register_raw(&params, &[])? };
        optim.broadcast_params(Some(0))?;
        Ok(Update { optim, comm })
    }

    pub fn rank(&self) -> usize {
        self.comm.rank() as usize
    }

    pub fn world(&self) -> usize {
        self.comm.world() as usize
    }

    pub fn step(&mut self, vars: &[(&str, Var)], grads: &GradStore) -> Result<()> {
        let mut kept = Vec::new(); // a gradient may be a view with strides
        let mut addresses: Vec<*mut c_void> = Vec::new();
        for (_, var) in vars {
            addresses.push(match grads.get(var) {
                Some(grad) => {
                    kept.push(grad.contiguous()?);
                    address(&kept[kept.len() - 1])?.cast()
                }
                None => ptr::null_mut(),
            });
        }
        // SAFETY: `kept` outlives the call, and nothing else reads or writes these tensors in it.
        unsafe { self.optim.step_raw(&addresses, Reduction::Mean)? };
        Ok(())
    }
}

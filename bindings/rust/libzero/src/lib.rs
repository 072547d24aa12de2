// SPDX-License-Identifier: Apache-2.0
//! ZeRO stage 1 for any training engine. The optimizer state is split over the ranks. Each rank
//! updates its shard, and every rank gets the new parameters.
//!
//! ```
//! # fn main() -> libzero::Result<()> {
//! use libzero::{Comm, Deadlines, Optim, Options, Shape};
//!
//! let comm = Comm::solo(Deadlines::default())?;
//! let mut optim = Optim::new(&comm, &Options::default().set("lr", 3e-4))?;
//! optim.add(&[Shape::new("w", &[784, 10]), Shape::new("b", &[10])], &[])?;
//! optim.initialize(0, |mut weights| weights[0].fill(0.01))?;
//! for _ in 0..3 {
//!     let (weights, mut grads) = optim.lend()?;
//!     grads[1][0] = weights[0][0]; // forward and backward
//!     optim.step()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Parameters and gradients may have the types [`f32`], [`f64`], [`Bf16`] and [`F16`], in any
//! mixture:
//!
//! ```
//! # fn main() -> libzero::Result<()> {
//! use libzero::{Bf16, Comm, Deadlines, Dtype, Master, Optim, Options, Shape};
//!
//! let comm = Comm::solo(Deadlines::default())?;
//! let options = Options { master: Master::Remainder, ..Options::default() };
//! let mut optim = Optim::new(&comm, &options)?;
//! optim.add(&[Shape::new("w", &[784, 10]).of(Dtype::Bf16).with_grads(Dtype::F32)], &[])?;
//! let (weights, mut grads) = optim.lend()?;
//! grads[0][0] = weights.get::<Bf16>(0)[0].to_f32() + 1.0;
//! optim.step()?;
//! # Ok(())
//! # }
//! ```
//!
//! By default, the first call that needs libzero.so loads it. LIBZERO_PATH may name the file or its
//! folder. If it is not set, the system loader searches for the library. A call of [`load`] loads
//! the library immediately.
//!
//! | Feature | Effect |
//! | --- | --- |
//! | `link` | links libzero.so |
//! | `static` | links libzero.a into the program |
//! | `vendored` | builds libzero.a first, with Meson, from the sources in libzero-sys, and links it |
//!
//! `link` and `static` look for the library in LIBZERO_LIB_DIR, or use pkg-config if that is not
//! set.
//!
//! A rank is a [`Comm`] and not a process, so threads may be ranks. Every rank of a comm must make
//! the collective calls in the same order. `zero.h` describes each call in more detail.
//!
//! A comm and an optimizer may move to another thread:
//!
//! ```
//! fn moves<T: Send>() {}
//! moves::<libzero::Comm>();
//! moves::<libzero::Optim>();
//! ```
//!
//! Two threads cannot use the same comm or optimizer at the same time:
//!
//! ```compile_fail,E0277
//! fn is_shared<T: Sync>() {}
//! is_shared::<libzero::Comm>();
//! ```
//!
//! ```compile_fail,E0277
//! fn is_shared<T: Sync>() {}
//! is_shared::<libzero::Optim>();
//! ```

mod arena;
mod checkpoints;
mod comm;
mod custom;
mod dtype;
mod error;
mod half;
mod interrupt;
mod log;
mod options;
mod params;
mod plan;
mod rules;
mod seat;
mod slices;
mod stream;
mod user;
mod words;

// The page of Optim shows impl blocks in the order of these modules.
mod optim;

mod register;

mod steps;

mod saves;

mod settings;

mod extras;

mod buffers;

mod join;

mod state;

mod inspect;

mod device;

pub use arena::{Arena, Memory};
pub use buffers::{Buffer, RawBuffer};
pub use checkpoints::{Checkpoint, list_checkpoints, prune_checkpoints};
pub use comm::{Comm, Deadlines, Failure, NcclId, Operation, Watcher};
pub use custom::{Arrays, CustomRule, Update};
pub use device::{DeviceParam, DeviceSlice};
pub use dtype::{Dtype, Element, Number, Plain};
pub use error::{Error, Failed, Result, load};
pub use half::{Bf16, F16};
pub use inspect::OwnedRange;
pub use interrupt::set_interrupt;
pub use log::{Level, set_logger};
pub use optim::{Group, Optim};
pub use options::{
    Master, Nonfinite, Optimizer, Options, Partition, Reduce, Reduction, UnevenInputs,
};
pub use params::{RawParam, Shape};
pub use plan::{Plan, partition_plan};
pub use rules::{Rule, Setting, Slot};
pub use seat::Device;
pub use slices::{AnyMut, MutSlices, Slices};
pub use steps::{Step, StepResult};
pub use stream::Stream;
pub use user::Collectives;

/// The statistics of one rank, with memory by kind, and totals of time and bytes. `zero.h`
/// describes the fields.
pub use libzero_sys::zero_statistics as Statistics;

/// Returns the version of the C library as major * 10000 + minor * 100 + patch. Panics if [`load`]
/// fails.
pub fn version() -> u32 {
    libzero_sys::zero_version()
}

/// Returns one line of "key: value; ..." with the comms, devices and instruction sets of the C
/// library. Panics if [`load`] fails.
pub fn build_info() -> &'static str {
    error::static_text(libzero_sys::zero_build_info())
}

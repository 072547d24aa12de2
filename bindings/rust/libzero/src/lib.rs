// SPDX-License-Identifier: Apache-2.0
//! ZeRO stage 1 for any training engine. The optimizer state is split over the ranks. Each rank
//! updates its shard, and every rank gets the new parameters.
//!
//! A *rank* is one member of the group that trains together, usually a process. A [`Comm`] is one
//! rank's handle to that group, and an [`Optim`] holds this rank's part of the optimizer state.
//! Every rank runs the same program:
//!
//! ```
//! # fn main() -> libzero::Result<()> {
//! use libzero::{Comm, Deadlines, Optim, Options, Shape};
//!
//! let comm = Comm::from_env(Deadlines::default())?; // from zero-run, torchrun, mpirun, srun, or alone
//! let mut optim = Optim::new(&comm, &Options::default().set("lr", 3e-4))?;
//! optim.add(&[Shape::new("w", &[784, 10]), Shape::new("b", &[10])], &[])?;
//! optim.initialize(0, |mut weights| weights[0].fill(0.01))?; // on rank 0; every rank gets them
//! for _ in 0..3 {
//!     let (weights, mut grads) = optim.lend()?;
//!     grads[0].copy_from_slice(&weights[0]); // forward and backward: overwrite every gradient
//!     grads[1].fill(comm.rank() as f32);
//!     optim.step()?; // average the gradients, update this rank's shard, share the parameters
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `zero-run -n 2 target/debug/PROGRAM` starts two ranks on this host. The program alone is a group
//! of one rank. A rank is a `Comm` and not a process, so threads may be ranks:
//!
//! ```
//! use libzero::{Comm, Deadlines, Optim, Optimizer, Options, Shape};
//! use std::thread;
//!
//! /// Trains one rank of two, and returns its only parameter.
//! fn train(rank: i32) -> libzero::Result<f32> {
//!     let name = format!("two-threads-{}", std::process::id()); // the same on both ranks
//!     let comm = Comm::local(&name, rank, 2, Deadlines::default())?;
//!     let sgd = Options { optimizer: Optimizer::Sgd, ..Options::default().set("lr", 0.5) };
//!     let mut optim = Optim::new(&comm, &sgd)?;
//!     optim.add(&[Shape::new("w", &[1])], &[])?;
//!     optim.lend()?.1[0][0] = if rank == 0 { 2.0 } else { 4.0 };
//!     optim.step()?; // the mean gradient is 3
//!     Ok(optim.params()?[0][0])
//! }
//!
//! let ranks = [0, 1].map(|rank| thread::spawn(move || train(rank)));
//! for rank in ranks {
//!     assert_eq!(rank.join().unwrap().unwrap(), -1.5);
//! }
//! ```
//!
//! # Collective and local calls
//!
//! Every call is *collective* or *local*, and its description ends with that word. If a method does
//! the same as another method, it is of the same kind. A call without either word is local.
//!
//! - A **collective** call works together with the other ranks. Every rank of the comm must make
//!   the same collective calls in the same order, and one at a time across all optimizers of the
//!   comm. A rank that makes another call causes an error on every rank. A rank that makes no call
//!   causes an error after a [deadline](Deadlines).
//! - A **local** call waits for no other rank. Every rank must nevertheless make some local calls,
//!   such as [`Optim::set`], with the same arguments.
//!
//! The receiver of a method does not tell whether the method is collective. [`Comm::barrier`] takes
//! `&self` and is collective, and [`Optim::set`] takes `&mut self` and is local. `zero.h` describes
//! each call in more detail.
//!
//! # Parameters and gradients
//!
//! [`Optim::add`] allocates parameters and gradients, and [`Optim::lend`] lends them as slices
//! until the next call on the optimizer that takes `&mut self`. Therefore, no rank has a slice of
//! its parameters while the library writes parameters on any rank. A step does not clear gradients.
//! Their contents are unspecified after a step, so overwrite or clear every gradient before the
//! next step.
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
//! for (grad, weight) in grads[0].iter_mut().zip(weights.get::<Bf16>(0)) {
//!     *grad = weight.to_f32() + 1.0;
//! }
//! optim.step()?;
//! # Ok(())
//! # }
//! ```
//!
//! # The library
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
//! # Threads
//!
//! A comm and an optimizer may move to another thread, but threads cannot share them. A program
//! that shares one does not compile. These tests check both properties:
//!
//! ```
//! fn moves_to_another_thread<T: Send>() {}
//! moves_to_another_thread::<libzero::Comm>();
//! moves_to_another_thread::<libzero::Optim>();
//! ```
//!
//! ```compile_fail,E0277
//! fn may_be_shared<T: Sync>() {}
//! may_be_shared::<libzero::Comm>(); // error: `Comm` cannot be shared between threads safely
//! ```
//!
//! ```compile_fail,E0277
//! fn may_be_shared<T: Sync>() {}
//! may_be_shared::<libzero::Optim>(); // error: `Optim` cannot be shared between threads safely
//! ```

mod arena;
mod checkpoints;
mod comm;
mod custom;
mod dtype;
mod error;
mod groups;
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

// The documentation page of Optim shows impl blocks in the order of these modules.
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
pub use groups::GroupOptions;
pub use half::{Bf16, F16};
pub use inspect::OwnedRange;
pub use interrupt::set_interrupt;
pub use log::{Level, set_logger};
pub use optim::{Group, Optim};
pub use options::{
    Master, Nonfinite, Optimizer, Options, Partition, Reduce, Reduction, StateDtype, UnevenInputs,
};
pub use params::{RawParam, Shape};
pub use plan::{Plan, partition_plan};
pub use rules::{Rule, Setting, Slot};
pub use seat::Device;
pub use slices::{AnyMut, MutSlices, Slices};
pub use steps::{Step, StepResult};
pub use stream::Stream;
pub use user::Collectives;

/// The statistics of one rank, from [`Optim::stats`].
///
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

// SPDX-License-Identifier: Apache-2.0
//! Computes the owners that an optimizer would choose, without any ranks.
use std::ptr;

use libzero_sys as sys;

use crate::error::{Result, check, load};
use crate::options::{CSettings, Options, init};
use crate::params::{CParams, Shape};

/// The way in which an optimizer would divide some parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The byte offset of each parameter in an arena. Parameters with this layout are sent without
    /// packing on every comm.
    pub offsets: Vec<i64>,
    /// The rank that owns each parameter, or None if several ranks own parts of the parameter.
    pub owners: Vec<Option<i32>>,
    /// The number of elements that each rank owns.
    pub elements: Vec<i64>,
    /// The size of an arena with that layout.
    pub arena_bytes: i64,
    /// The size of the optimizer state on the rank with the largest state, in bytes.
    pub state_bytes: i64,
    /// The byte offset of each gradient in a separate arena, which differs from `offsets` if the
    /// dtypes differ.
    pub grad_offsets: Vec<i64>,
    /// The size of the arena of gradients.
    pub grad_arena_bytes: i64,
}

/// Computes how an optimizer with these options would divide these parameters over `world` ranks.
///
/// The layout works for any comm. If every tensor has a single owner, the part of each owner is
/// padded to the size of the largest part, because ranks exchange parts of equal size.
/// [Local](crate#collective-and-local-calls).
pub fn partition_plan(shapes: &[Shape], world: i32, options: &Options) -> Result<Plan> {
    plan_for(ptr::null(), shapes, world, options)
}

/// Does the same as [`partition_plan`] with a layout for `comm`, which may need less memory. If
/// `comm` is null, the layout works for any comm.
pub(crate) fn plan_for(
    comm: *const sys::zero_comm,
    shapes: &[Shape],
    world: i32,
    options: &Options,
) -> Result<Plan> {
    load()?;
    let nowhere = (ptr::null_mut(), ptr::null_mut());
    let params = CParams::new(shapes.iter().map(|shape| (shape, nowhere)), |_| false)?;
    let settings = CSettings::new(&options.settings)?;
    let c_options = options.to_c(&settings);
    let (mut offsets, mut grad_offsets) = (vec![0; shapes.len()], vec![0; shapes.len()]);
    let mut owners = vec![0; shapes.len()];
    let mut elements = vec![0; usize::try_from(world).unwrap_or(0)];
    let mut plan = sys::zero_plan {
        offsets: offsets.as_mut_ptr(),
        grad_offsets: grad_offsets.as_mut_ptr(),
        owners: owners.as_mut_ptr(),
        elements: elements.as_mut_ptr(),
        comm,
        ..init()
    };
    // SAFETY: The parameters, the options and the four arrays of the plan are valid during the
    // call, and the arrays have the required length.
    check(unsafe {
        sys::zero_partition_plan(params.as_ptr(), params.len(), world, &c_options, &mut plan)
    })?;
    let owner = |rank| if rank == sys::ZERO_OWNER_SPLIT { None } else { Some(rank) };
    Ok(Plan {
        offsets,
        owners: owners.into_iter().map(owner).collect(),
        elements,
        arena_bytes: plan.arena_bytes,
        state_bytes: plan.state_bytes,
        grad_offsets,
        grad_arena_bytes: plan.grad_arena_bytes,
    })
}

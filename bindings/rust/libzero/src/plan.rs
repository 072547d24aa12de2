// SPDX-License-Identifier: Apache-2.0
//! Who would own what, without any rank.
use std::ptr;

use libzero_sys as sys;

use crate::error::{Result, check, load};
use crate::options::{CSettings, Options, init};
use crate::params::{CParams, Shape};

/// What an optimizer would do with some parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Byte offset of each parameter in an arena that travels unpacked on every comm.
    pub offsets: Vec<i64>,
    /// The rank that owns each parameter; None where several own a part.
    pub owners: Vec<Option<i32>>,
    /// Elements that each rank owns.
    pub elements: Vec<i64>,
    /// Size of an arena with that layout.
    pub arena_bytes: i64,
    /// Optimizer state of the busiest rank.
    pub state_bytes: i64,
    /// Byte offset of each gradient, in an arena of its own; differs from `offsets` where dtypes do.
    pub grad_offsets: Vec<i64>,
    /// Size of that arena.
    pub grad_arena_bytes: i64,
}

/// What an optimizer of these options would do with these parameters on `world` ranks. The layout is for
/// any comm: if whole tensors have one owner, each owner's part has the size of the longest, as what travels
/// has. Local.
pub fn partition_plan(shapes: &[Shape], world: i32, options: &Options) -> Result<Plan> {
    plan_for(ptr::null(), shapes, world, options)
}

/// The same with a layout for that comm, which may need less, or for any if it is null.
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
    // SAFETY: parameters, options and the plan's four arrays live for the call and have that room.
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

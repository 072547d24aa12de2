// SPDX-License-Identifier: Apache-2.0
//! The owners that an optimizer would choose, computed without any rank.
use std::ptr;

use libzero_sys as sys;

use crate::error::{Result, check, load};
use crate::options::{CSettings, Options, init};
use crate::params::{CParams, Shape};

/// The way in which an optimizer would divide some parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The byte offset of each parameter in an arena that travels unpacked on every comm.
    pub offsets: Vec<i64>,
    /// The rank that owns each parameter; None if several ranks own a part.
    pub owners: Vec<Option<i32>>,
    /// The number of elements that each rank owns.
    pub elements: Vec<i64>,
    /// The size of an arena with that layout.
    pub arena_bytes: i64,
    /// The optimizer state of the busiest rank, in bytes.
    pub state_bytes: i64,
    /// The byte offset of each gradient in a separate arena. It differs from `offsets` if dtypes
    /// do.
    pub grad_offsets: Vec<i64>,
    /// The size of that arena.
    pub grad_arena_bytes: i64,
}

/// Computes how an optimizer of these options would divide these parameters over `world` ranks.
///
/// The layout suits any comm. If whole tensors have one owner, each owner's part has the size of
/// the longest part, because parts that travel have equal sizes. Local.
pub fn partition_plan(shapes: &[Shape], world: i32, options: &Options) -> Result<Plan> {
    plan_for(ptr::null(), shapes, world, options)
}

/// Does the same with a layout for `comm`, which may need less memory. If `comm` is null, the
/// layout suits any comm.
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

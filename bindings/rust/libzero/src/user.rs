// SPDX-License-Identifier: Apache-2.0
//! Collectives that the caller implements. The C library calls them through a vtable.
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use libzero_sys as sys;

use crate::error::{Ending, Failed, Result, check, keep, set_pending, take_pending};
use crate::options::init;

/// The collectives of a comm that the caller implements, on host memory.
///
/// The functions must return, because libzero cannot interrupt them. A failure or a panic breaks
/// the comm. A panic continues in the call that ran the function.
pub trait Collectives: Send {
    /// Gathers small control messages. `pieces` has `world` pieces of equal size in rank order. The
    /// piece of this rank contains its data. Fill in all other pieces.
    fn exchange(&mut self, pieces: &mut [u8]) -> std::result::Result<(), Failed>;

    /// Does the same as `exchange` for parameters.
    fn all_gather(&mut self, pieces: &mut [u8]) -> std::result::Result<(), Failed>;

    /// Sends piece number r of `send` to rank r, and receives one piece from each rank into `recv`.
    /// Both buffers have `world` pieces of equal size, in rank order.
    fn all_to_all(&mut self, send: &[u8], recv: &mut [u8]) -> std::result::Result<(), Failed>;

    /// Returns whether [`split`](Collectives::split) works. The result must be the same on every
    /// rank.
    fn can_split(&self) -> bool {
        false
    }

    /// Returns the collectives of the sub-group of ranks that pass the same color, or None for a
    /// negative color. This is called on every rank of the parent group.
    fn split(
        &mut self,
        _color: i32,
        _rank: i32,
        _world: i32,
    ) -> std::result::Result<Option<Box<dyn Collectives>>, Failed> {
        Err("split is not implemented".into())
    }
}

/// The object to which the `ctx` of C points, with a reference count. The lock is never contended,
/// because libzero calls one function of a comm at a time.
struct Context {
    collectives: Mutex<Box<dyn Collectives>>,
    rank: usize,
    world: usize,
}

impl Context {
    fn into_raw(collectives: Box<dyn Collectives>, rank: i32, world: i32) -> *const Context {
        // C rejects an invalid rank or world before any function runs.
        let (rank, world) = (rank.max(0) as usize, world.max(0) as usize);
        Arc::into_raw(Arc::new(Context { collectives: Mutex::new(collectives), rank, world }))
    }
}

pub(crate) fn create(
    collectives: Box<dyn Collectives>,
    rank: i32,
    world: i32,
    options: &sys::zero_comm_options,
) -> Result<*mut sys::zero_comm> {
    let functions = sys::zero_comm_functions {
        exchange: Some(exchange),
        all_gather: Some(all_gather),
        all_to_all: Some(all_to_all),
        reduce_scatter: None,
        split: if collectives.can_split() { Some(split) } else { None },
        free: Some(free),
        ..init()
    };
    let raw = Context::into_raw(collectives, rank, world);
    // SAFETY: into_raw created the pointer. Rust has this reference count, and C has the other one.
    let ours = unsafe {
        Arc::increment_strong_count(raw);
        Arc::from_raw(raw)
    };
    let mut out = ptr::null_mut();
    // SAFETY: `out`, the functions and the options are valid during the call, and the context lives
    // until `free`.
    let status = unsafe {
        sys::zero_comm_create_user(
            &mut out,
            &functions,
            raw.cast_mut().cast(),
            rank,
            world,
            options,
        )
    };
    if status < 0 && Arc::strong_count(&ours) > 1 {
        // SAFETY: The comm was rejected before it took the context.
        unsafe { Arc::decrement_strong_count(raw) };
    }
    check(status).map(|_| out)
}

/// Runs a callback with its context. If the callback fails, the failure is kept for the call that
/// is running.
///
/// # Safety
///
/// `ctx` must be a result of Context::into_raw, and its comm must not have been freed.
unsafe fn guarded(
    ctx: *mut c_void,
    run: impl FnOnce(&Context, &mut dyn Collectives) -> std::result::Result<(), Failed>,
) -> sys::zero_status {
    // SAFETY: The caller guarantees the conditions.
    let context = unsafe { &*ctx.cast::<Context>() };
    // Calls of libzero inside the callback set their own endings.
    let before = take_pending();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut collectives = context.collectives.lock().unwrap_or_else(PoisonError::into_inner);
        run(context, &mut **collectives)
    }));
    set_pending(before);
    match ended {
        Ok(Ok(())) => return sys::ZERO_OK,
        Ok(Err(failed)) => keep(Ending::Failed(failed)),
        Err(payload) => keep(Ending::Panicked(payload)),
    }
    sys::ZERO_ERR_COMM
}

/// # Safety
///
/// `data` must be NULL with a `len` of 0, or point to `len` bytes that no code writes as long as
/// the slice lives.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: The caller guarantees the conditions.
    unsafe { slice::from_raw_parts(data.cast(), len) }
}

/// # Safety
///
/// `data` must be NULL with a `len` of 0, or point to `len` bytes that no other code uses as long
/// as the slice lives.
unsafe fn bytes_mut<'a>(data: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: The caller guarantees the conditions.
    unsafe { slice::from_raw_parts_mut(data.cast(), len) }
}

/// Copies `send` to its place in `recv` unless it is already at that place, so that no two slices
/// overlap.
///
/// # Safety
///
/// `send` must have `size` bytes, and `recv` must have `size` bytes for each rank.
unsafe fn gathered<'a>(
    context: &Context,
    send: *const c_void,
    recv: *mut c_void,
    size: usize,
) -> &'a mut [u8] {
    // SAFETY: The rank is below the world size, and copy() allows an overlap.
    unsafe {
        let own = recv.cast::<u8>().add(context.rank * size);
        ptr::copy(send.cast(), own, size);
        bytes_mut(recv, context.world * size)
    }
}

unsafe extern "C" fn exchange(
    ctx: *mut c_void,
    send: *const c_void,
    recv: *mut c_void,
    size: usize,
) -> sys::zero_status {
    // SAFETY: zero.h describes the arguments.
    unsafe {
        guarded(ctx, |context, collectives| {
            collectives.exchange(gathered(context, send, recv, size))
        })
    }
}

unsafe extern "C" fn all_gather(
    ctx: *mut c_void,
    send: *const c_void,
    recv: *mut c_void,
    size: usize,
    _stream: *mut c_void,
) -> sys::zero_status {
    // SAFETY: zero.h describes the arguments.
    unsafe {
        guarded(ctx, |context, collectives| {
            collectives.all_gather(gathered(context, send, recv, size))
        })
    }
}

unsafe extern "C" fn all_to_all(
    ctx: *mut c_void,
    send: *const c_void,
    recv: *mut c_void,
    size: usize,
    _stream: *mut c_void,
) -> sys::zero_status {
    // SAFETY: zero.h describes the arguments, and these two never overlap.
    unsafe {
        guarded(ctx, |context, collectives| {
            let len = context.world * size;
            collectives.all_to_all(bytes(send, len), bytes_mut(recv, len))
        })
    }
}

unsafe extern "C" fn split(
    ctx: *mut c_void,
    color: i32,
    rank: i32,
    world: i32,
    child: *mut *mut c_void,
) -> sys::zero_status {
    // SAFETY: zero.h describes the arguments.
    unsafe {
        guarded(ctx, |_, collectives| {
            match collectives.split(color, rank, world)? {
                Some(made) => *child = Context::into_raw(made, rank, world).cast_mut().cast(),
                None if color >= 0 => {
                    return Err("split returned None for a color that is not negative".into());
                }
                None => {}
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn free(ctx: *mut c_void) {
    // SAFETY: This is C's reference to the result of Context::into_raw. C calls this once.
    let context = unsafe { Arc::from_raw(ctx.cast::<Context>().cast_const()) };
    // The code that drops a comm cannot handle a panic in the context.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(context))) {
        std::mem::forget(payload);
    }
}

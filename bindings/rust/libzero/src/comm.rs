// SPDX-License-Identifier: Apache-2.0
//! The handle of one rank on a group of ranks.
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use libzero_sys as sys;

use crate::arena::{Arena, Memory};
use crate::checkpoints::c_path;
use crate::dtype::{Number, Plain};
use crate::error::{Error, Result, c_text, check, load};
use crate::options::init;
use crate::seat::{Device, Seat};
use crate::user::{self, Collectives};
use crate::words::in_rust;

/// The time limits of calls, in milliseconds. 0 selects the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadlines {
    /// The longest wait without progress, once all ranks are in the call. Default: 300,000.
    pub timeout_ms: i64,
    /// The longest wait for a live rank to enter the call. Default: 1,800,000.
    pub late_ms: i64,
    /// The longest wait for all ranks to find each other. Default: 120,000.
    pub rendezvous_ms: i64,
}

/// The id of a group of ranks on GPUs. The ranks that pass the same id form the group. One rank
/// draws the id and sends its bytes to the other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclId(pub [u8; sys::ZERO_NCCL_ID_BYTES as usize]);

impl NcclId {
    /// Draws a new id. If NCCL was not found, ZERO_ERR_UNSUPPORTED lists the places that were
    /// searched.
    pub fn draw() -> Result<NcclId> {
        load()?;
        let mut id = NcclId([0; sys::ZERO_NCCL_ID_BYTES as usize]);
        // SAFETY: `id` has room for ZERO_NCCL_ID_BYTES.
        check(unsafe { sys::zero_nccl_unique_id(id.0.as_mut_ptr().cast()) })?;
        Ok(id)
    }
}

impl Deadlines {
    fn to_c(self) -> Result<sys::zero_comm_options> {
        self.on(Device::Host)
    }

    /// Every call that creates a comm begins here, so this also finds the library.
    fn on(self, device: Device) -> Result<sys::zero_comm_options> {
        load()?;
        let mut options: sys::zero_comm_options = init();
        (options.device, options.device_ordinal) = match device {
            Device::Host => (sys::ZERO_DEVICE_HOST, 0),
            Device::Cuda(ordinal) => (sys::ZERO_DEVICE_CUDA, ordinal),
            Device::CudaOfLocalRank => (sys::ZERO_DEVICE_CUDA, sys::ZERO_ORDINAL_LOCAL_RANK),
        };
        for (given, field) in [
            (self.timeout_ms, &mut options.timeout_ms),
            (self.late_ms, &mut options.late_ms),
            (self.rendezvous_ms, &mut options.rendezvous_ms),
        ] {
            if given != 0 {
                *field = given;
            }
        }
        Ok(options)
    }
}

/// The way in which [`Comm::all_reduce`] combines values. With `Min` and `Max`, the result is NaN
/// if any value is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The sum, added in rank order.
    Sum,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
}

/// The handle of one rank on a group of ranks. It may move to another thread, but threads cannot
/// share it.
#[derive(Debug)]
pub struct Comm {
    seat: Arc<Seat>,
    _not_sync: PhantomData<Cell<()>>,
}

impl Comm {
    /// Creates a group of one rank.
    pub fn solo(deadlines: Deadlines) -> Result<Comm> {
        Comm::solo_on(Device::Host, deadlines)
    }

    /// Creates a group of one rank on a device. If this is impossible, ZERO_ERR_UNSUPPORTED gives
    /// the reason.
    pub fn solo_on(device: Device, deadlines: Deadlines) -> Result<Comm> {
        let mut out = ptr::null_mut();
        // SAFETY: `out` and the options are valid during the call.
        check(unsafe { sys::zero_comm_create_solo(&mut out, &deadlines.on(device)?) })?;
        Ok(Comm::from_token(out, device))
    }

    /// Joins the `world` ranks of this host that pass the same name. Ranks are processes or
    /// threads. [Collective](crate#collective-and-local-calls).
    pub fn local(name: &str, rank: i32, world: i32, deadlines: Deadlines) -> Result<Comm> {
        Comm::local_on(Device::Host, name, rank, world, deadlines)
    }

    /// Does the same as [`local`](Comm::local) on a device. GPUs must be able to access each
    /// other's memory, and several ranks may share one GPU.
    /// [Collective](crate#collective-and-local-calls).
    pub fn local_on(
        device: Device,
        name: &str,
        rank: i32,
        world: i32,
        deadlines: Deadlines,
    ) -> Result<Comm> {
        let (mut out, name) = (ptr::null_mut(), c_text(name, "name")?);
        let options = deadlines.on(device)?;
        // SAFETY: `out`, the name and the options are valid during the call.
        check(unsafe {
            sys::zero_comm_create_local(&mut out, name.as_ptr(), rank, world, &options)
        })?;
        Ok(Comm::from_token(out, device))
    }

    /// Joins the ranks that zero-run, torchrun, mpirun or srun started. Without a launcher, the
    /// group has one rank. [Collective](crate#collective-and-local-calls).
    pub fn from_env(deadlines: Deadlines) -> Result<Comm> {
        Comm::from_env_on(Device::Host, deadlines)
    }

    /// Does the same as [`from_env`](Comm::from_env) on a device. Ranks on GPUs of several hosts
    /// communicate through NCCL. For the environment variables that give them the address of rank
    /// 0, see docs/gpu.md. [Collective](crate#collective-and-local-calls).
    pub fn from_env_on(device: Device, deadlines: Deadlines) -> Result<Comm> {
        let mut out = ptr::null_mut();
        // SAFETY: `out` and the options are valid during the call.
        check(unsafe { sys::zero_comm_create_env(&mut out, &deadlines.on(device)?) })?;
        Ok(Comm::from_token(out, device))
    }

    /// Creates a group whose ranks communicate through `collectives`.
    pub fn user(
        collectives: Box<dyn Collectives>,
        rank: i32,
        world: i32,
        deadlines: Deadlines,
    ) -> Result<Comm> {
        let token = user::create(collectives, rank, world, &deadlines.to_c()?)?;
        Ok(Comm::from_token(token, Device::Host))
    }

    /// Joins the `world` ranks that pass the same id, on any number of hosts. Each rank uses its
    /// GPU `ordinal`. If the GPU or NCCL is missing, ZERO_ERR_UNSUPPORTED gives the reason.
    /// [Collective](crate#collective-and-local-calls).
    pub fn nccl(
        id: &NcclId,
        rank: i32,
        world: i32,
        ordinal: i32,
        deadlines: Deadlines,
    ) -> Result<Comm> {
        let (mut out, device) = (ptr::null_mut(), Device::Cuda(ordinal));
        let options = deadlines.on(device)?;
        // SAFETY: `out`, the id of 128 bytes and the options are valid during the call.
        check(unsafe {
            sys::zero_comm_create_nccl(&mut out, id.0.as_ptr().cast(), rank, world, &options)
        })?;
        Ok(Comm::from_token(out, device))
    }

    /// Creates a comm of the ranks of an engine's `ncclComm_t`, which must be on GPU `ordinal`. Any
    /// other GPU is refused with ZERO_ERR_ARGUMENT. Two communicators are split off the engine's
    /// communicator, and the engine keeps the original.
    /// [Collective](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// `nccl_comm` must be a live communicator that no other code uses during the call.
    pub unsafe fn wrap_nccl(
        nccl_comm: *mut c_void,
        ordinal: i32,
        deadlines: Deadlines,
    ) -> Result<Comm> {
        let (mut out, device) = (ptr::null_mut(), Device::Cuda(ordinal));
        // SAFETY: `out` and the options are valid during the call. The caller guarantees that the
        // communicator is valid.
        check(unsafe { sys::zero_comm_wrap_nccl(&mut out, nccl_comm, &deadlines.on(device)?) })?;
        Ok(Comm::from_token(out, device))
    }

    /// Creates a comm of the ranks of an MPI communicator, on any number of hosts.
    ///
    /// `mpi_comm` is an `MPI_Comm`, which rsmpi's `as_raw()` returns, or the `i32` that Fortran
    /// uses. None selects all ranks. The communicator is duplicated, and the caller keeps the
    /// original. [Collective](crate#collective-and-local-calls).
    ///
    /// # Safety
    ///
    /// `mpi_comm` must be a live communicator of the MPI library that this process has loaded.
    pub unsafe fn mpi<MpiComm: Copy>(
        mpi_comm: Option<MpiComm>,
        deadlines: Deadlines,
    ) -> Result<Comm> {
        let (mut out, options) = (ptr::null_mut(), deadlines.to_c()?);
        let place = mpi_comm.as_ref().map_or(ptr::null(), |comm| ptr::from_ref(comm).cast());
        // SAFETY: `out` and the options are valid during the call. The caller guarantees that the
        // communicator is valid.
        check(unsafe {
            sys::zero_comm_create_mpi(&mut out, place, size_of::<MpiComm>(), &options)
        })?;
        Ok(Comm::from_token(out, Device::Host))
    }

    fn from_token(token: *mut sys::zero_comm, device: Device) -> Comm {
        let token = NonNull::new(token).expect("the library returns a token with ZERO_OK");
        Comm { seat: Arc::new(Seat::new(token, device)), _not_sync: PhantomData }
    }

    /// Returns the device of the parameters, gradients and state of this comm's optimizers.
    pub fn device(&self) -> Device {
        self.seat.device()
    }

    pub(crate) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Creates a comm of the ranks that pass the same color, ordered by `key` and then by rank.
    /// Returns None for a negative color. [Collective](crate#collective-and-local-calls).
    pub fn split(&self, color: i32, key: i32) -> Result<Option<Comm>> {
        let mut out = ptr::null_mut();
        // SAFETY: `out` is valid during the call.
        check(unsafe { sys::zero_comm_split(&mut out, self.seat.token(), color, key) })?;
        Ok(if out.is_null() { None } else { Some(Comm::from_token(out, self.device())) })
    }

    /// Returns this rank's position in the group.
    pub fn rank(&self) -> i32 {
        // SAFETY: The library checks the token.
        unsafe { sys::zero_comm_rank(self.seat.token()) }
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> i32 {
        // SAFETY: The library checks the token.
        unsafe { sys::zero_comm_world(self.seat.token()) }
    }

    /// Waits until every rank has called this method.
    /// [Collective](crate#collective-and-local-calls).
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_comm_barrier(self.seat.token()) }).map(drop)
    }

    /// Starts a trace, which records this rank's operations, and the ranks that it waits for, in a
    /// separate file in `directory`.
    pub fn trace_start(&self, directory: impl AsRef<Path>) -> Result<()> {
        let path = c_path(directory.as_ref())?;
        // SAFETY: The library checks the token, and the path is valid during the call.
        check(unsafe { sys::zero_trace_start(self.seat.token(), path.as_ptr()) }).map(drop)
    }

    /// Ends the trace. Dropping the comm also ends the trace.
    pub fn trace_stop(&self) -> Result<()> {
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_trace_stop(self.seat.token()) }).map(drop)
    }

    /// Copies `data` from `root` to every rank. This method is intended for small values.
    /// [Collective](crate#collective-and-local-calls).
    pub fn broadcast<T: Plain>(&self, data: &mut [T], root: i32) -> Result<()> {
        let (token, bytes) = (self.seat.token(), size_of_val(data));
        // SAFETY: `data` is exclusive during the call, and any bytes are a valid value of a Plain
        // type.
        check(unsafe { sys::zero_comm_broadcast(token, data.as_mut_ptr().cast(), bytes, root) })
            .map(drop)
    }

    /// Combines `data` over all ranks in place. Results are bitwise identical on every rank.
    /// [Collective](crate#collective-and-local-calls).
    pub fn all_reduce<T: Number>(&self, data: &mut [T], operation: Operation) -> Result<()> {
        let operation = match operation {
            // All operations on zero numbers are equal, and a minimum is reserved for
            // Optim::initialize.
            _ if data.is_empty() => sys::ZERO_SUM,
            Operation::Sum => sys::ZERO_SUM,
            Operation::Min => sys::ZERO_MIN,
            Operation::Max => sys::ZERO_MAX,
        };
        let (token, memory, count) = (self.seat.token(), data.as_mut_ptr().cast(), data.len());
        // SAFETY: `data` is exclusive during the call, and has `count` elements of this dtype.
        check(unsafe { sys::zero_comm_all_reduce(token, memory, count, T::DTYPE, operation) })
            .map(drop)
    }

    /// Allocates `len` zeroed elements, which the library reduces and updates in place.
    /// [Collective](crate#collective-and-local-calls).
    pub fn arena<T: Plain>(&self, len: usize, memory: Memory) -> Result<Arena<T>> {
        Arena::allocate(&self.seat, len, memory)
    }

    /// Returns a handle that other threads may use. This rank remains in the group as long as the
    /// handle lives.
    pub fn watcher(&self) -> Watcher {
        Watcher { seat: Arc::clone(&self.seat) }
    }
}

/// A handle that can abort a comm or return its failure, from any thread.
#[derive(Clone, Debug)]
pub struct Watcher {
    seat: Arc<Seat>,
}

impl Watcher {
    /// Breaks the comm. On every rank, all current and later calls on the comm fail with `reason`.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = c_text(reason, "reason")?;
        // SAFETY: The library checks the token, and the text is valid during the call.
        check(unsafe { sys::zero_comm_abort(self.seat.token(), reason.as_ptr()) }).map(drop)
    }

    /// Returns the failure that broke the comm, or None while the comm is intact.
    pub fn failure(&self) -> Result<Option<Failure>> {
        failure_of(&self.seat)
    }
}

/// The failure that broke a comm.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The status and the text of the failure.
    pub error: Error,
    /// The rank whose death, absence or abort broke the comm, or None if no rank did.
    pub rank: Option<i32>,
    /// The number of optimizer steps that this rank had completed.
    pub step: i64,
    /// False if parameters were being copied to all ranks. In that case, load a checkpoint before
    /// you continue.
    pub params_consistent: bool,
    /// The call and its phase, for example "zero_step: publish".
    pub phase: String,
}

pub(crate) fn failure_of(seat: &Seat) -> Result<Option<Failure>> {
    let mut raw: sys::zero_failure = init();
    // SAFETY: The library checks the token, and `raw` is valid during the call and contains its own
    // size.
    check(unsafe { sys::zero_comm_failure(seat.token(), &mut raw) })?;
    if raw.status == sys::ZERO_OK {
        return Ok(None);
    }
    Ok(Some(Failure {
        error: Error::new(raw.status, in_rust(&text_in(&raw.text))),
        rank: (raw.rank >= 0).then_some(raw.rank),
        step: raw.step,
        params_consistent: raw.params_consistent != 0,
        phase: in_rust(&text_in(&raw.phase)),
    }))
}

fn text_in(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}

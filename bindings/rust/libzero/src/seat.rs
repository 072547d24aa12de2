// SPDX-License-Identifier: Apache-2.0
//! The comm handle that arenas and optimizers keep, and the device of their memory.
use std::ptr::NonNull;

use libzero_sys as sys;

/// The device of the parameters, gradients and state of a comm's optimizers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The memory of the host.
    #[default]
    Host,
    /// The GPU with this number within CUDA_VISIBLE_DEVICES. Parameters must be registered with
    /// pointers, because arenas, which lend slices, are only on the host.
    Cuda(i32),
    /// The only GPU that this process sees, for [`from_env_on`](crate::Comm::from_env_on). If the
    /// process sees several GPUs, this selects the GPU whose number is this rank's position among
    /// the ranks of its host.
    CudaOfLocalRank,
}

/// The library's token for a comm. The token is freed with the last Comm, Optim or Watcher that has
/// it.
#[derive(Debug)]
pub(crate) struct Seat {
    token: NonNull<sys::zero_comm>,
    device: Device,
}

// SAFETY: This crate uses a token only as a number. The library checks it in every call, and
// returns ZERO_ERR_BUSY to a second thread.
unsafe impl Send for Seat {}
// SAFETY: See above.
unsafe impl Sync for Seat {}

impl Seat {
    pub(crate) fn new(token: NonNull<sys::zero_comm>, device: Device) -> Seat {
        Seat { token, device }
    }

    pub(crate) fn token(&self) -> *mut sys::zero_comm {
        self.token.as_ptr()
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // SAFETY: This is the only owner of the token. Nothing can handle a failure here, for
        // example after a fork.
        unsafe { sys::zero_comm_free(self.token()) };
    }
}

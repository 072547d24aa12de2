// SPDX-License-Identifier: Apache-2.0
//! The methods of Optim that save and load checkpoints.
use std::path::Path;

use libzero_sys as sys;

use crate::checkpoints::c_path;
use crate::error::{Result, check};
use crate::optim::Optim;
use crate::options::init;

impl Optim {
    /// Saves the parameters, rank 0's buffers, the state, the settings and the step number as the
    /// checkpoint `directory`. If `replace` is true, a checkpoint of that name is replaced in one
    /// atomic exchange. If not, the call fails if `directory` exists.
    /// [Collective](crate#collective-and-local-calls).
    pub fn save(&mut self, directory: impl AsRef<Path>, replace: bool) -> Result<()> {
        let path = c_path(directory.as_ref())?;
        let flags = if replace { sys::ZERO_SAVE_REPLACE } else { 0 };
        let options = sys::zero_save_options { flags, ..init() };
        // SAFETY: The library checks the token, and the path and the options are valid during the
        // call.
        check(unsafe { sys::zero_state_save(self.token(), path.as_ptr(), &options) }).map(drop)
    }

    /// Begins a `save` of the current state, which threads write while training continues. Data
    /// that a step is about to change is copied first. The copy needs as much memory as this rank
    /// writes, and that memory is kept for the next save.
    /// [Collective](crate#collective-and-local-calls).
    pub fn save_begin(&mut self, directory: impl AsRef<Path>, replace: bool) -> Result<()> {
        let path = c_path(directory.as_ref())?;
        let flags = if replace { sys::ZERO_SAVE_REPLACE } else { 0 };
        let options = sys::zero_save_options { flags, ..init() };
        // SAFETY: See save. The threads read state of the library, and parameters that stay
        // exclusive until drop, which waits for the threads.
        check(unsafe { sys::zero_state_save_begin(self.token(), path.as_ptr(), &options) })
            .map(drop)
    }

    /// Returns true if collective calls have detected that the save in progress is complete or has
    /// failed. The result is the same on all ranks. [Local](crate#collective-and-local-calls).
    pub fn save_ended(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: The library checks the token, and `done` is valid during the call.
        check(unsafe { sys::zero_state_save_poll(self.token(), &mut done) })?;
        Ok(done != 0)
    }

    /// Waits until the save in progress is on stable storage.
    /// [Collective](crate#collective-and-local-calls).
    pub fn save_wait(&mut self) -> Result<()> {
        // SAFETY: The library checks the token.
        check(unsafe { sys::zero_state_save_wait(self.token()) }).map(drop)
    }

    /// Loads a checkpoint into an optimizer with the same parameters and groups. If `directory` is a
    /// folder of checkpoints, this loads the newest intact checkpoint in it. If `keep_settings` is
    /// true, the current settings are kept, and the saved ones are ignored.
    /// [Collective](crate#collective-and-local-calls).
    pub fn load(&mut self, directory: impl AsRef<Path>, keep_settings: bool) -> Result<()> {
        let path = c_path(directory.as_ref())?;
        let flags = if keep_settings { sys::ZERO_LOAD_KEEP_SETTINGS } else { 0 };
        let options = sys::zero_load_options { flags, ..init() };
        // SAFETY: See save. `&mut self` on every rank keeps the parameters exclusive during the
        // call.
        check(unsafe { sys::zero_state_load(self.token(), path.as_ptr(), &options) }).map(drop)
    }
}

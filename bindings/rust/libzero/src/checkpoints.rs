// SPDX-License-Identifier: Apache-2.0
//! Folders of checkpoints. These calls need no comm.
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use libzero_sys as sys;

use crate::error::{Error, Result, check, load};
use crate::options::init;

/// A complete checkpoint in a folder of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of its directory in the folder.
    pub name: OsString,
    /// The number of optimizer steps before the save.
    pub step: i64,
    /// The number of ranks that saved it.
    pub world: i32,
    /// The size of all its files.
    pub bytes: i64,
}

/// Lists the complete checkpoints in a folder, newest first. [`Optim::load`](crate::Optim::load)
/// loads the first checkpoint of this list. The list is empty if the folder does not exist.
pub fn list_checkpoints(folder: impl AsRef<Path>) -> Result<Vec<Checkpoint>> {
    load()?;
    let (path, mut count) = (c_path(folder.as_ref())?, 0);
    let mut found: Vec<sys::zero_checkpoint> = Vec::new();
    loop {
        // SAFETY: The path is valid during the call, and `found` has room for its length.
        check(unsafe {
            sys::zero_state_list(path.as_ptr(), found.as_mut_ptr(), found.len(), &mut count)
        })?;
        if count <= found.len() {
            return Ok(found[..count].iter().map(checkpoint).collect());
        }
        found.resize(count, init());
    }
}

/// Deletes old checkpoints in a folder, and returns the number of deleted checkpoints.
///
/// The newest `keep_last` checkpoints (at least 1) are kept, and also each checkpoint whose step is
/// a multiple of `keep_every` (0 keeps no others). Every byte of the newest checkpoint is verified
/// first. If that checkpoint is damaged, nothing is deleted. Only complete checkpoints are deleted.
/// Call this on one rank, after a save.
pub fn prune_checkpoints(
    folder: impl AsRef<Path>,
    keep_last: i64,
    keep_every: i64,
) -> Result<usize> {
    load()?;
    let (path, mut deleted) = (c_path(folder.as_ref())?, 0);
    // SAFETY: The path and the count are valid during the call.
    check(unsafe { sys::zero_state_prune(path.as_ptr(), keep_last, keep_every, &mut deleted) })?;
    Ok(deleted)
}

fn checkpoint(raw: &sys::zero_checkpoint) -> Checkpoint {
    let name = raw.name.iter().take_while(|&&letter| letter != 0).map(|&letter| letter as u8);
    Checkpoint {
        name: OsString::from_vec(name.collect()),
        step: raw.step,
        world: raw.world,
        bytes: raw.bytes,
    }
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::argument(format!("{} contains a NUL character", path.display())))
}

// SPDX-License-Identifier: Apache-2.0
//! Folders of checkpoints, which need no comm.
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use libzero_sys as sys;

use crate::error::{Error, Result, check, load};
use crate::options::init;

/// A complete checkpoint in a folder of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Of its directory in the folder.
    pub name: OsString,
    /// Optimizer steps done by its save.
    pub step: i64,
    /// Ranks that saved it.
    pub world: i32,
    /// Of all its files.
    pub bytes: i64,
}

/// The complete checkpoints in a folder, newest first, as [`Optim::load`](crate::Optim::load) takes them;
/// none if there is no such folder.
pub fn list_checkpoints(folder: impl AsRef<Path>) -> Result<Vec<Checkpoint>> {
    load()?;
    let (path, mut count) = (c_path(folder.as_ref())?, 0);
    let mut found: Vec<sys::zero_checkpoint> = Vec::new();
    loop {
        // SAFETY: the path lives for the call, and there is room for that many.
        check(unsafe {
            sys::zero_state_list(path.as_ptr(), found.as_mut_ptr(), found.len(), &mut count)
        })?;
        if count <= found.len() {
            return Ok(found[..count].iter().map(checkpoint).collect());
        }
        found.resize(count, init());
    }
}

/// Delete the complete checkpoints in a folder, but the newest `keep_last` (at least 1) and those whose step
/// is a multiple of `keep_every` (0: no others); returns how many. First every byte of the newest is
/// verified: if it is damaged, nothing is deleted. Nothing but checkpoints ever is. One rank calls it, after
/// a save.
pub fn prune_checkpoints(
    folder: impl AsRef<Path>,
    keep_last: i64,
    keep_every: i64,
) -> Result<usize> {
    load()?;
    let (path, mut deleted) = (c_path(folder.as_ref())?, 0);
    // SAFETY: path and count live for the call.
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
        .map_err(|_| Error::argument(format!("{} has a NUL character in it", path.display())))
}

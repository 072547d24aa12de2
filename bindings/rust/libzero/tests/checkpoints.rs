// SPDX-License-Identifier: Apache-2.0
//! Tests that a folder of checkpoints is listed and pruned.
mod common;

use std::fs;
use std::path::Path;

use common::{sgd, solo};
use libzero::{Optim, Shape, list_checkpoints, prune_checkpoints};

#[test]
fn a_folder_is_listed_newest_first_and_pruned() {
    let run = Path::new(env!("CARGO_TARGET_TMPDIR")).join("folder-of-checkpoints");
    let _ = fs::remove_dir_all(&run);
    assert!(list_checkpoints(&run).unwrap().is_empty());
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[3])], &[]).unwrap();
    for step in 1..5 {
        optim.step().unwrap();
        optim.save(run.join(format!("step-{step}")), false).unwrap();
    }
    let found = list_checkpoints(&run).unwrap();
    assert_eq!(found.iter().map(|one| one.step).collect::<Vec<_>>(), [4, 3, 2, 1]);
    assert_eq!((found[0].name.to_str(), found[0].world), (Some("step-4"), 1));
    assert!(found[0].bytes > 8192);
    assert_eq!(prune_checkpoints(&run, 1, 3).unwrap(), 2);
    assert_eq!(list_checkpoints(&run).unwrap().len(), 2);
    let error = prune_checkpoints(&run, 0, 0).unwrap_err();
    assert!(error.message().starts_with("prune_checkpoints: keep_last is 0"), "{error}");
}

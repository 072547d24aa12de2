// SPDX-License-Identifier: Apache-2.0
//! Tests that every rank can read a rank's own bytes from a checkpoint.
mod common;

use std::path::Path;

use common::run_ranks;
use libzero::{Comm, Optim, Options, Shape};

fn optim(comm: &Comm) -> Optim {
    let mut optim = Optim::new(comm, &Options::default()).unwrap();
    optim.add(&[Shape::new("w", &[3000])], &[]).unwrap();
    optim
}

#[test]
fn every_rank_reads_what_each_rank_set() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("extras");
    run_ranks(2, |comm| {
        let mut optim = optim(&comm);
        optim.state_extra_set("position", Some(&[0, comm.rank() as u8])).unwrap();
        optim.state_extra_set("gone", Some(b"x")).unwrap();
        optim.state_extra_set("gone", None).unwrap();
        optim.save(&directory, true).unwrap();
    });
    run_ranks(3, |comm| {
        let mut optim = optim(&comm);
        optim.load(&directory, false).unwrap();
        let all = optim.state_extra_list().unwrap();
        assert_eq!(all, [(0, "position".to_owned()), (1, "position".to_owned())]);
        for (rank, name) in all {
            assert_eq!(optim.state_extra_get(rank, &name).unwrap(), [0, rank as u8]);
        }
        let error = optim.state_extra_get(2, "position").unwrap_err();
        assert!(
            error.message().contains("Optim::state_extra_list lists those that were"),
            "{error}"
        );
        let error = optim.state_extra_set("empty", Some(&[])).unwrap_err();
        assert!(error.message().contains("0 bytes"), "{error}");
    });
}

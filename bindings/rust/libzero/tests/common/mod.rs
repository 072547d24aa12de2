// SPDX-License-Identifier: Apache-2.0
//! Ranks as threads, and helpers for tests with one rank.
#![allow(dead_code)]

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use libzero::{Comm, Deadlines, Optimizer, Options};

pub const DEADLINES: Deadlines =
    Deadlines { timeout_ms: 20_000, late_ms: 20_000, rendezvous_ms: 20_000 };

pub fn sgd() -> Options {
    Options { optimizer: Optimizer::Sgd, ..Options::default().set("lr", 0.5) }
}

pub fn solo() -> Comm {
    Comm::solo(Deadlines::default()).unwrap()
}

pub fn new_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("rust-{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Runs body(comm) on `world` threads of a local comm, and returns the results. A panic aborts the
/// other ranks.
pub fn run_ranks<R: Send>(world: i32, body: impl Fn(Comm) -> R + Sync) -> Vec<R> {
    let name = new_name();
    let run = |rank| {
        let comm = Comm::local(&name, rank, world, DEADLINES).expect("the ranks meet");
        let watcher = comm.watcher();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(comm)));
        ended.unwrap_or_else(|payload| {
            let _ = watcher.abort("a test failed");
            std::panic::resume_unwind(payload)
        })
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|rank| {
                scope.spawn({
                    let run = &run;
                    move || run(rank)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("the rank ends well")).collect()
    })
}

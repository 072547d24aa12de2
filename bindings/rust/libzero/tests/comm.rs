// SPDX-License-Identifier: Apache-2.0
//! Tests comms of every kind, and arenas.
mod common;

use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use common::{new_name, run_ranks};
use libzero::{
    Collectives, Comm, Deadlines, Device, Failed, Memory, NcclId, Operation, Optim, Options, Shape,
    Step,
};
use libzero_sys as sys;

#[test]
fn solo_is_rank_0_of_1() {
    let comm = Comm::solo(Deadlines::default()).unwrap();
    assert_eq!((comm.rank(), comm.world()), (0, 1));
    comm.barrier().unwrap();
    assert!(libzero::build_info().contains("local"));
    assert_eq!(libzero::version(), 200);
}

#[test]
fn a_gpu_that_is_not_there_is_unsupported_and_says_why() {
    assert_eq!(Comm::solo(Deadlines::default()).unwrap().device(), Device::Host);
    let info = libzero::build_info();
    if info.contains("cuda (driver") {
        return; // this machine may have a usable GPU
    }
    let why = if info.contains("(no driver)") { "no CUDA driver" } else { "built without CUDA" };
    let seats = [
        Comm::solo_on(Device::Cuda(0), Deadlines::default()),
        Comm::from_env_on(Device::Cuda(0), Deadlines::default()),
        Comm::from_env_on(Device::CudaOfLocalRank, Deadlines::default()),
    ];
    for seat in seats {
        let error = seat.unwrap_err();
        assert_eq!(error.name(), "ZERO_ERR_UNSUPPORTED");
        assert!(error.message().contains(why), "{error}");
    }
}

#[test]
fn an_nccl_comm_without_a_gpu_or_nccl_says_why() {
    let id = NcclId([0; 128]);
    let error = Comm::nccl(&id, 2, 2, 0, Deadlines::default()).unwrap_err();
    assert_eq!(error.code(), sys::ZERO_ERR_ARGUMENT);
    assert!(error.message().contains("rank 2 does not exist in a world of 2"), "{error}");
    match NcclId::draw() {
        Ok(id) => assert_ne!(id, NcclId::draw().unwrap()),
        Err(error) if error.is_comm() => {} // NCCL is installed, but creates no id on this machine
        Err(error) => {
            assert_eq!(error.name(), "ZERO_ERR_UNSUPPORTED");
            assert!(error.message().contains("libnccl.so.2"), "{error}");
        }
    }
    if libzero::build_info().contains("cuda (driver") {
        return;
    }
    let error = Comm::nccl(&id, 0, 1, 0, Deadlines::default()).unwrap_err();
    assert_eq!(error.name(), "ZERO_ERR_UNSUPPORTED");
}

#[test]
fn devices_are_numbered_from_0() {
    let error = Comm::solo_on(Device::Cuda(-2), Deadlines::default()).unwrap_err();
    assert_eq!(error.code(), sys::ZERO_ERR_ARGUMENT);
    assert!(error.message().contains("-2"), "{error}");
    let error = Comm::solo_on(Device::CudaOfLocalRank, Deadlines::default()).unwrap_err();
    assert_eq!(error.code(), sys::ZERO_ERR_ARGUMENT);
    assert!(error.message().starts_with("Comm::solo: "), "{error}");
    assert!(error.message().contains("Comm::from_env"), "{error}");
}

#[test]
fn errors_have_code_name_and_text() {
    let error = Comm::local(&new_name(), 5, 2, Deadlines::default()).unwrap_err();
    assert_eq!((error.code(), error.name()), (sys::ZERO_ERR_ARGUMENT, "ZERO_ERR_ARGUMENT"));
    assert!(error.message().contains('5'), "{error}");
    assert_eq!(error.to_string(), format!("{} (ZERO_ERR_ARGUMENT)", error.message()));
    assert_eq!(format!("{error:?}"), error.to_string());
    let error = Comm::local("a\0b", 0, 1, Deadlines::default()).unwrap_err();
    assert!(error.message().contains("NUL"), "{error}");
    let late = Deadlines { rendezvous_ms: 100, ..Deadlines::default() };
    let error = Comm::local(&new_name(), 0, 2, late).unwrap_err();
    assert_eq!(error.name(), "ZERO_ERR_RENDEZVOUS");
    assert!(error.is_comm() && !error.is_peer());
}

#[test]
fn values_reach_every_rank() {
    let results = run_ranks(3, |comm| {
        let mut bytes = [comm.rank() as u8; 3];
        comm.broadcast(&mut bytes, 2).unwrap();
        let (mut sum, mut most) = ([0.5f64, comm.rank() as f64], [i64::from(comm.rank())]);
        comm.all_reduce(&mut sum, Operation::Sum).unwrap();
        comm.all_reduce(&mut most, Operation::Max).unwrap();
        (bytes, sum, most)
    });
    assert_eq!(results, [([2; 3], [1.5, 3.0], [2]); 3]);
}

#[test]
fn split_orders_by_key_and_negative_takes_no_seat() {
    let results = run_ranks(3, |comm| {
        let color = if comm.rank() == 0 { -1 } else { 4 };
        comm.split(color, -comm.rank()).unwrap().map(|child| (child.rank(), child.world()))
    });
    assert_eq!(results, [None, Some((1, 2)), Some((0, 2))]);
}

#[test]
fn fault_of_one_rank_is_a_peer_error_on_the_others() {
    let results = run_ranks(3, |comm| {
        let root = if comm.rank() == 1 { 7 } else { 0 };
        let error = comm.broadcast(&mut [0u8; 4], root).unwrap_err();
        assert!(error.message().contains("root 7"), "{error}");
        comm.barrier().unwrap();
        error.is_peer()
    });
    assert_eq!(results, [true, false, true]);
}

#[test]
fn watcher_aborts_from_another_thread() {
    run_ranks(2, |comm| {
        let watcher = comm.watcher();
        assert!(watcher.failure().unwrap().is_none());
        thread::scope(|scope| {
            if comm.rank() == 1 {
                let watcher = watcher.clone();
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(50));
                    watcher.abort("enough").unwrap();
                });
                // Return before the barrier, because rank 0 waits there for this rank.
                return;
            }
            let error = comm.barrier().unwrap_err();
            assert_eq!(error.name(), "ZERO_ERR_ABORTED");
            assert!(error.message().contains("enough"), "{error}");
            let failure = watcher.failure().unwrap().unwrap();
            assert_eq!((failure.rank, failure.params_consistent), (Some(1), true));
            assert_eq!(failure.error.code(), error.code());
        });
    });
}

#[test]
fn arenas_are_zeroed_and_shared_where_asked() {
    let results = run_ranks(2, |comm| {
        let mut shared = comm.arena::<f32>(2, Memory::Shared).unwrap();
        let own = comm.arena::<i64>(2, Memory::PerRank).unwrap();
        assert_eq!((shared.len(), own.len()), (2, 2));
        assert_eq!(shared.as_ptr() as usize % 64, 0);
        if comm.rank() == 0 {
            // SAFETY: The other rank waits at the barrier.
            unsafe { shared.as_mut_slice() }.copy_from_slice(&[1.5, 2.5]);
        }
        comm.barrier().unwrap();
        // SAFETY: No rank writes to the arenas any more.
        let seen = unsafe { (shared.as_slice().to_vec(), own.as_slice().to_vec()) };
        drop(comm);
        seen
    });
    assert_eq!(results, vec![(vec![1.5, 2.5], vec![0, 0]); 2]);
    let solo = Comm::solo(Deadlines::default()).unwrap();
    assert!(solo.arena::<f64>(usize::MAX / 4, Memory::Shared).is_err());
}

/// Collectives between threads. Each thread publishes its bytes, waits, and copies what it needs.
struct Board {
    barrier: Barrier,
    posted: Mutex<Vec<Vec<u8>>>,
    freed: AtomicU32,
}

impl Board {
    fn new(world: usize) -> Arc<Board> {
        Arc::new(Board {
            barrier: Barrier::new(world),
            posted: Mutex::new(vec![Vec::new(); world]),
            freed: AtomicU32::new(0),
        })
    }

    fn post(&self, rank: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.posted.lock().unwrap()[rank] = bytes.to_vec();
        self.barrier.wait();
        let taken = self.posted.lock().unwrap().clone();
        self.barrier.wait();
        taken
    }
}

struct Seat {
    board: Arc<Board>,
    rank: usize,
    world: usize,
    child: Option<Arc<Board>>,
}

impl Collectives for Seat {
    fn exchange(&mut self, pieces: &mut [u8]) -> Result<(), Failed> {
        let size = pieces.len() / self.world;
        let all = self.board.post(self.rank, &pieces[self.rank * size..][..size]);
        pieces.copy_from_slice(&all.concat());
        Ok(())
    }

    fn all_gather(&mut self, pieces: &mut [u8]) -> Result<(), Failed> {
        self.exchange(pieces)
    }

    fn all_to_all(&mut self, send: &[u8], recv: &mut [u8]) -> Result<(), Failed> {
        let size = recv.len() / self.world;
        let all = self.board.post(self.rank, send);
        for (part, piece) in all.iter().zip(recv.chunks_mut(size)) {
            piece.copy_from_slice(&part[self.rank * size..][..size]);
        }
        Ok(())
    }

    fn can_split(&self) -> bool {
        self.child.is_some()
    }

    fn split(
        &mut self,
        color: i32,
        rank: i32,
        world: i32,
    ) -> Result<Option<Box<dyn Collectives>>, Failed> {
        let board = self.child.clone().ok_or("no child")?;
        let (rank, world) = (rank as usize, world as usize);
        Ok((color >= 0).then(|| Box::new(Seat { board, rank, world, child: None }) as Box<_>))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.board.freed.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn user_comm_trains_and_splits_as_any_other() {
    let (board, child) = (Board::new(2), Board::new(1));
    thread::scope(|scope| {
        for rank in 0..2 {
            let (board, child) = (Arc::clone(&board), Some(Arc::clone(&child)));
            scope.spawn(move || {
                let seat = Seat { board, rank, world: 2, child };
                let deadlines = Deadlines::default();
                let comm = Comm::user(Box::new(seat), rank as i32, 2, deadlines).unwrap();
                let options = Options {
                    optimizer: libzero::Optimizer::Sgd,
                    ..Options::default().set("lr", 0.5)
                };
                let mut optim = Optim::new(&comm, &options).unwrap();
                optim.add(&[Shape::new("w", &[3000])], &[]).unwrap();
                optim.initialize(0, |mut weights| weights[0].fill(1.0)).unwrap();
                optim.lend().unwrap().1[0].fill(rank as f32 + 1.0);
                assert_eq!(optim.step().unwrap(), Step::Updated);
                assert!(optim.lend().unwrap().0[0].iter().all(|&weight| weight == 0.25));
                assert_eq!(optim.stats().unwrap().copied_bytes, 0);
                let seated = comm.split(if rank == 0 { 0 } else { -1 }, 0).unwrap();
                assert_eq!(seated.map(|child| child.world()), (rank == 0).then_some(1));
            });
        }
    });
    assert_eq!(board.freed.load(Ordering::Relaxed), 2);
    assert_eq!(child.freed.load(Ordering::Relaxed), 1);
}

struct Faulty(fn() -> Result<(), Failed>);

impl Collectives for Faulty {
    fn exchange(&mut self, _: &mut [u8]) -> Result<(), Failed> {
        self.0()
    }

    fn all_gather(&mut self, _: &mut [u8]) -> Result<(), Failed> {
        self.0()
    }

    fn all_to_all(&mut self, _: &[u8], _: &mut [u8]) -> Result<(), Failed> {
        self.0()
    }
}

#[test]
fn failure_of_a_user_function_is_the_source_of_the_error() {
    let faulty = Faulty(|| Err("the network is down".into()));
    let comm = Comm::user(Box::new(faulty), 0, 1, Deadlines::default()).unwrap();
    let error = comm.barrier().unwrap_err();
    assert_eq!(error.name(), "ZERO_ERR_COMM");
    assert_eq!(error.source().unwrap().to_string(), "the network is down");
    assert!(comm.barrier().unwrap_err().source().is_none());
}

#[test]
fn panic_of_a_user_function_goes_on_in_the_call_that_ran_it() {
    let comm =
        Comm::user(Box::new(Faulty(|| panic!("oh no"))), 0, 1, Deadlines::default()).unwrap();
    let payload = catch_unwind(AssertUnwindSafe(|| comm.barrier())).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"oh no"));
    assert!(comm.barrier().unwrap_err().is_comm());
}

#[test]
fn refused_user_comm_drops_its_collectives_once() {
    let board = Board::new(1);
    let seat = Seat { board: Arc::clone(&board), rank: 0, world: 1, child: None };
    let error = Comm::user(Box::new(seat), 3, 1, Deadlines::default()).unwrap_err();
    assert_eq!(error.code(), sys::ZERO_ERR_ARGUMENT);
    assert_eq!(board.freed.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&board), 1);
}

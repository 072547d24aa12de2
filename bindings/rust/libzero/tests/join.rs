// SPDX-License-Identifier: Apache-2.0
//! Tests ranks whose inputs end at different times.
mod common;

use common::run_ranks;
use libzero::{Buffer, Comm, Deadlines, Optim, Optimizer, Options, RawParam, Shape, UnevenInputs};

fn options(uneven_inputs: UnevenInputs) -> Options {
    Options { optimizer: Optimizer::Sgd, uneven_inputs, ..Options::default().set("lr", 1.0) }
}

fn optim(comm: &Comm, uneven_inputs: UnevenInputs) -> Optim {
    let mut optim = Optim::new(comm, &options(uneven_inputs)).unwrap();
    optim.add(&[Shape::new("w", &[2])], &[]).unwrap();
    optim
}

/// Trains on one batch with this gradient.
fn step(optim: &mut Optim, gradient: f32) -> libzero::Result<()> {
    optim.lend().unwrap().1[0].fill(gradient);
    optim.step().map(drop)
}

#[test]
fn ranks_join_when_their_inputs_end_and_all_have_the_same_parameters() {
    for (uneven, expected) in [(UnevenInputs::World, -3.0), (UnevenInputs::Active, -6.0)] {
        let results = run_ranks(3, |comm| {
            let mut optim = optim(&comm, uneven);
            optim.add_buffers(&[Buffer::new("mean", &[])]).unwrap();
            optim.buffers_mut()[0][0] = comm.rank() as f32;
            for _ in 0..comm.rank() {
                step(&mut optim, 3.0).unwrap();
            }
            assert_eq!(optim.join().unwrap(), 2);
            assert_eq!(optim.buffers()[0][0], 2.0);
            let after = optim.params().unwrap()[0][1];
            step(&mut optim, 3.0).unwrap();
            (after, optim.params().unwrap()[0][0])
        });
        assert_eq!(results, vec![(expected, expected - 3.0); 3]);
    }
}

#[test]
fn what_a_rank_added_up_is_part_of_the_next_step_and_of_no_other() {
    let results = run_ranks(2, |comm| {
        let mut optim = optim(&comm, UnevenInputs::World);
        if comm.rank() == 1 {
            step(&mut optim, 3.0).unwrap();
            step(&mut optim, 3.0).unwrap();
        }
        optim.lend().unwrap().1[0].fill(1.0);
        optim.join_with_grads().unwrap();
        optim.params().unwrap()[0][0]
    });
    assert_eq!(results, vec![-(3.0 + 1.0) / 2.0 - 3.0 / 2.0; 2]);
}

#[test]
fn all_ranks_stop_with_the_first_if_asked_for() {
    run_ranks(2, |comm| {
        let mut optim = optim(&comm, UnevenInputs::Error);
        let mut ended = Ok(());
        for _ in 0..3 - comm.rank() {
            ended = ended.and_then(|()| step(&mut optim, 1.0));
        }
        let error = ended.and_then(|()| optim.join().map(drop)).unwrap_err();
        assert!(error.to_string().contains("rank 1 has run out of inputs"), "{error}");
        assert_eq!(optim.params().unwrap()[0][0], -2.0);
    });
}

#[test]
fn a_rank_that_leaves_with_an_error_ends_the_joins_of_the_others() {
    run_ranks(3, |comm| {
        let mut optim = optim(&comm, UnevenInputs::World);
        step(&mut optim, 1.0).unwrap();
        if comm.rank() == 2 {
            comm.watcher().abort("no batch").unwrap();
            return;
        }
        let error = optim.join().unwrap_err();
        assert!(error.to_string().contains("no batch"), "{error}");
    });
}

#[test]
fn gradients_in_memory_of_ones_own_are_given_by_address() {
    let comm = Comm::solo(Deadlines::default()).unwrap();
    let (mut weight, mut grad) = ([1.0f32; 2], [2.0f32; 2]);
    let mut optim = Optim::new(&comm, &options(UnevenInputs::Active)).unwrap();
    let raw = RawParam::new("w", &[2], weight.as_mut_ptr(), grad.as_mut_ptr());
    // SAFETY: The memory outlives the optimizer, and no other code uses it during that time.
    unsafe { optim.register_raw(&[raw], &[]) }.unwrap();
    let error = optim.join_with_grads().unwrap_err();
    assert!(error.to_string().contains("use join_raw"), "{error}");
    // SAFETY: See above.
    let wrong = unsafe { optim.join_raw(&[]) }.unwrap_err();
    assert!(wrong.to_string().contains("gradient"), "{wrong}");
    // SAFETY: See above.
    assert_eq!(unsafe { optim.join_raw(&[grad.as_mut_ptr().cast()]) }.unwrap(), 0);
    drop(optim);
    assert_eq!(weight, [1.0; 2]);
}

#[test]
fn without_the_option_nobody_joins() {
    let comm = Comm::solo(Deadlines::default()).unwrap();
    let error = optim(&comm, UnevenInputs::Off).join().unwrap_err();
    assert!(error.to_string().contains("uneven_inputs"), "{error}");
}

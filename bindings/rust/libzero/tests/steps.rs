// SPDX-License-Identifier: Apache-2.0
//! Tests the calls around and between the reduction of gradients and the update of parameters.
mod common;

use common::{run_ranks, sgd, solo};
use libzero::{Nonfinite, Optim, Options, Reduction, Shape, Step};

#[test]
fn clip_and_result_agree() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[2])], &[]).unwrap();
    optim.lend().unwrap().1[0].copy_from_slice(&[3.0, 4.0]);
    optim.reduce_grads(Reduction::Sum).unwrap();
    assert!(optim.reduce_grads(Reduction::Sum).is_err());
    assert_eq!(optim.clip_grad_norm(1.0, 2.0).unwrap(), 5.0);
    optim.step().unwrap();
    let result = optim.result().unwrap();
    assert_eq!((result.step, result.grad_norm, result.status), (1, Some(5.0), 0));
    assert!((result.clip_factor - 0.2).abs() < 1e-6);
    optim.drop_grads().unwrap();
}

#[test]
fn a_clip_of_some_leaves_the_others() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("a", &[2]), Shape::new("b", &[1])], &[]).unwrap();
    let mut grads = optim.lend().unwrap().1;
    grads[0].copy_from_slice(&[3.0, 4.0]);
    grads[1].copy_from_slice(&[8.0]);
    assert_eq!(optim.clip_grad_norm_of(&[0], 1.0, 2.0).unwrap(), 5.0);
    assert!((optim.clip_grad_norm_of(&[0], 9.0, 2.0).unwrap() - 1.0).abs() < 1e-6);
    assert_eq!(optim.clip_grad_norm_of(&[1], 9.0, 2.0).unwrap(), 8.0);
    assert_eq!(optim.clip_grad_norm_of(&[], 9.0, 2.0).unwrap(), 0.0);
    assert!(optim.clip_grad_norm_of(&[1, 1], 9.0, 2.0).is_err());
    optim.step().unwrap();
}

#[test]
fn an_announced_gradient_is_the_one_that_counts() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[2])], &[]).unwrap();
    optim.lend().unwrap().1[0].copy_from_slice(&[9.0, 9.0]);
    let mut announced = [3.0f32, 4.0];
    let address = announced.as_mut_ptr().cast();
    // SAFETY: No code writes `announced` until the clip has returned.
    unsafe { optim.grad_ready(0, address) }.unwrap();
    // SAFETY: See above.
    assert!(unsafe { optim.grad_ready(0, address) }.is_err());
    assert_eq!(optim.clip_grad_norm(f64::INFINITY, 2.0).unwrap(), 5.0);
    optim.step().unwrap();
}

#[test]
fn a_step_begins_before_its_gradients_come() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[2])], &[]).unwrap();
    let mut announced = [3.0f32, 4.0];
    let address = announced.as_mut_ptr().cast();
    // SAFETY: No code reads parameters until the step has returned.
    unsafe { optim.step_begin(Reduction::Sum) }.unwrap();
    // SAFETY: See above.
    assert!(unsafe { optim.step_begin(Reduction::Sum) }.is_err());
    // SAFETY: No code writes `announced` until the step has returned.
    unsafe { optim.grad_ready(0, address) }.unwrap();
    assert!(optim.drop_grads().is_err());
    optim.step().unwrap();
    assert_eq!(optim.result().unwrap().step, 1);
    assert_ne!(optim.lend().unwrap().0[0][0], 0.0);
}

#[test]
fn a_step_may_end_in_the_background() {
    let options = Options { overlap_gather: true, ..sgd() };
    let mut optim = Optim::new(&solo(), &options).unwrap();
    optim.add(&[Shape::new("w", &[2]), Shape::new("b", &[1])], &[]).unwrap();
    optim.lend().unwrap().1[0].copy_from_slice(&[3.0, 4.0]);
    optim.step().unwrap();
    optim.param_wait(Some(1)).unwrap();
    assert!(optim.param_wait(Some(2)).is_err());
    assert_ne!(optim.lend().unwrap().0[0][0], 0.0);
    optim.step().unwrap();
    assert_eq!(optim.result().unwrap().step, 2);
}

#[test]
fn copies_of_the_state_train_alike() {
    let results = run_ranks(4, |comm| {
        let end = |instances| {
            let options = Options { instances, ..sgd() };
            let mut optim = Optim::new(&comm, &options).unwrap();
            optim.add(&[Shape::new("w", &[3000])], &[]).unwrap();
            for _ in 0..2 {
                optim.lend().unwrap().1[0].fill(comm.rank() as f32);
                optim.step().unwrap();
            }
            let weights = optim.params().unwrap()[0][2999];
            (weights, optim.owned_ranges(comm.rank()).unwrap())
        };
        (end(1).0, end(2))
    });
    for (rank, (one, (two, owned))) in results.iter().enumerate() {
        assert_eq!(one, two);
        assert_eq!(owned, &results[rank % 2].1.1);
    }
    let error = Optim::new(&solo(), &Options { instances: 2, ..sgd() }).unwrap_err();
    assert!(error.message().contains("instances is 2"), "{error}");
}

#[test]
fn the_owner_adds_up_micro_batches() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[2])], &[]).unwrap();
    for gradient in [[1.0, 2.0], [2.0, 2.0]] {
        optim.lend().unwrap().1[0].copy_from_slice(&gradient);
        optim.reduce_grads(Reduction::Mean.accumulate()).unwrap();
    }
    assert!(optim.reduce_grads(Reduction::Sum.accumulate()).is_err());
    assert_eq!(optim.clip_grad_norm(f64::INFINITY, 2.0).unwrap(), 5.0);
    optim.drop_grads().unwrap();
    optim.reduce_grads(Reduction::Mean.accumulate()).unwrap();
    optim.step_with(Reduction::Mean.accumulate()).unwrap();
    assert_eq!(optim.result().unwrap().step, 1);
}

#[test]
fn nonfinite_gradients_skip_where_asked() {
    let options = Options { nonfinite: Nonfinite::Skip, ..Options::default() };
    let mut optim = Optim::new(&solo(), &options).unwrap();
    optim.add(&[Shape::new("w", &[2])], &[]).unwrap();
    optim.lend().unwrap().1[0][1] = f32::NAN;
    assert_eq!(optim.step().unwrap(), Step::Skipped);
    let result = optim.result().unwrap();
    assert_eq!((result.step, result.skipped, result.nonfinite), (0, 1, 1));
}

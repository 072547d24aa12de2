// SPDX-License-Identifier: Apache-2.0
//! Tests that state moves from one optimizer to another, and that a manual step equals the step of
//! the rule.
mod common;

use common::run_ranks;
use libzero::{Dtype, Optim, Optimizer, Options, Partition, Reduction, Shape};

const LEN: usize = 3000;

fn optim(comm: &libzero::Comm, partition: Partition) -> Optim {
    let options = Options { optimizer: Optimizer::Sgd, partition, ..Options::default() };
    let mut optim = Optim::new(comm, &options.set("lr", 0.5).set("momentum", 0.5)).unwrap();
    let shapes = [
        Shape::new("w", &[LEN as i64]),
        Shape::new("d", &[5]).of(Dtype::F64),
        Shape::new("h", &[40]).of(Dtype::Bf16).with_grads(Dtype::F32),
    ];
    optim.add(&shapes, &[]).unwrap();
    optim.seal().unwrap();
    optim
}

fn write_grads(optim: &mut Optim, step: usize) {
    let (_, mut grads) = optim.lend().unwrap();
    for at in 0..LEN {
        grads[0][at] = (at % 7 + step) as f32;
    }
    grads.get_mut::<f64>(1).fill(0.25);
    grads[2].fill(1.5);
}

#[test]
fn state_moves_to_another_optimizer() {
    run_ranks(2, |comm| {
        let mut from = optim(&comm, Partition::Even);
        let mut to = optim(&comm, Partition::Greedy);
        assert!(from.state_names(0).unwrap().is_empty());
        for step in 0..2 {
            write_grads(&mut from, step);
            from.step().unwrap();
        }
        assert_eq!(from.state_names(2).unwrap(), ["momentum_buffer", "master"]);
        let mut wrong = vec![0f64; LEN];
        assert!(from.state_gather(0, Some("momentum_buffer"), None, &mut wrong).is_err());
        let mut whole = vec![0f32; LEN];
        for (param, len) in [(0, LEN), (2, 40)] {
            let out = &mut whole[..len];
            from.state_gather(param, Some("momentum_buffer"), None, out).unwrap();
            to.state_set(param, "momentum_buffer", 0, out).unwrap();
            assert!(to.state_set(param, "master", 0, out).is_err());
            from.state_gather(param, None, None, out).unwrap();
            // SAFETY: No rank has a slice before the next step.
            unsafe { to.set_values(param, 0, out) }.unwrap();
        }
        let mut wide = [0f64; 5];
        from.state_gather(1, Some("momentum_buffer"), None, &mut wide).unwrap();
        to.state_set(1, "momentum_buffer", 0, &wide).unwrap();
        from.state_gather(1, None, None, &mut wide).unwrap();
        // SAFETY: See above.
        unsafe { to.set_values(1, 0, &wide) }.unwrap();
        to.set_state_scalar(None, "step", from.state_scalar(None, "step").unwrap()).unwrap();
        assert_eq!(to.state_scalar(Some(0), "step").unwrap(), 2.0);
        to.share_params(true).unwrap();
        for step in 2..4 {
            for one in [&mut from, &mut to] {
                write_grads(one, step);
                one.step().unwrap();
            }
            let (a, b) = (from.params().unwrap(), to.params().unwrap());
            assert_eq!(a[0], b[0]);
            assert_eq!(a.get::<f64>(1), b.get::<f64>(1));
        }
        assert_eq!(to.result().unwrap().step, 4);
    });
}

#[test]
fn a_step_by_hand_is_shared() {
    run_ranks(2, |comm| {
        let mut by_hand = optim(&comm, Partition::Even);
        write_grads(&mut by_hand, 1);
        by_hand.reduce_grads(Reduction::Mean).unwrap();
        for range in by_hand.owned_ranges(comm.rank()).unwrap() {
            if range.param != 0 {
                continue;
            }
            let mut grads = vec![0f32; range.count as usize];
            by_hand.grad_get(0, range.first, &mut grads).unwrap();
            assert_eq!(grads[0], (range.first % 7 + 1) as f32);
        }
        by_hand.drop_grads().unwrap();
        let values: Vec<f32> = (0..LEN).map(|at| at as f32 - 7.0).collect();
        // SAFETY: No rank has a slice before share_params.
        unsafe { by_hand.set_values(0, 0, &values) }.unwrap();
        by_hand.share_params(true).unwrap();
        assert_eq!(by_hand.params().unwrap()[0], values[..]);
    });
}

// SPDX-License-Identifier: Apache-2.0
//! Tests that owners change on request, together with their state.
mod common;

use common::run_ranks;
use libzero::{Optim, Options, OwnedRange, Partition, Shape};

#[test]
fn owners_are_those_that_were_named_and_training_goes_on() {
    let train = |moves: bool| {
        run_ranks(3, |comm| {
            let options = Options { partition: Partition::Manual, ..Options::default() };
            let mut optim = Optim::new(&comm, &options).unwrap();
            optim.add(&[Shape::new("a", &[700]), Shape::new("b", &[5])], &[]).unwrap();
            for step in 0..4 {
                let (_, mut grads) = optim.lend().unwrap();
                grads[0].fill(1.0 + step as f32);
                grads[1].fill(comm.rank() as f32);
                optim.step().unwrap();
                if moves && step == 1 {
                    assert!(optim.rebalance(Some(&[3, 0])).is_err());
                    assert!(optim.rebalance(Some(&[0])).is_err());
                    optim.rebalance(Some(&[2, 1])).unwrap();
                    let owned = [OwnedRange { param: 0, first: 0, count: 700 }];
                    assert_eq!(optim.owned_ranges(2).unwrap(), owned);
                    optim.rebalance(None).unwrap();
                    assert_eq!(optim.owned_ranges(2).unwrap(), owned);
                }
            }
            let weights = optim.params().unwrap();
            (weights[0].to_vec(), weights[1].to_vec())
        })
    };
    assert_eq!(train(true), train(false));
}

#[test]
fn frozen_parameters_come_last_where_a_rule_decides() {
    run_ranks(2, |comm| {
        let options = Options { partition: Partition::GreedyInOrder, ..Options::default() };
        let mut optim = Optim::new(&comm, &options).unwrap();
        let shapes = ["a", "b", "c", "d"].map(|name| Shape::new(name, &[10]));
        optim.add(&shapes, &[]).unwrap();
        optim.set_trainable(1, false).unwrap();
        optim.set_trainable(3, false).unwrap();
        optim.seal().unwrap();
        let owned = |optim: &Optim, rank| {
            let ranges = optim.owned_ranges(rank).unwrap();
            ranges.into_iter().map(|range| range.param).collect::<Vec<_>>()
        };
        assert_eq!((owned(&optim, 0), owned(&optim, 1)), (vec![0, 2], vec![1, 3]));
        assert!(optim.rebalance(Some(&[0; 4])).is_err());
        optim.rebalance(None).unwrap();
        assert_eq!((owned(&optim, 0), owned(&optim, 1)), (vec![0, 1], vec![2, 3]));
    });
}

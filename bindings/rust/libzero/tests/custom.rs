// SPDX-License-Identifier: Apache-2.0
//! Tests that custom update rules give bitwise the same results as built-in rules, and tests errors
//! and panics.
mod common;

use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::run_ranks;
use libzero::{
    Comm, CustomRule, Dtype, Element, GroupOptions, Optim, Optimizer, Options, Partition, Shape,
    Update,
};

const LEN: usize = 3000;

/// The arithmetic for both float types.
trait Real: Element + PartialEq + std::fmt::Debug {
    fn momentum(
        value: &mut Self,
        buffer: &mut Self,
        gradient: Self,
        lr: f64,
        keep: f64,
        first: bool,
    );
}

macro_rules! real {
    ($($type:ty),*) => {$(
        impl Real for $type {
            fn momentum(
                value: &mut Self,
                buffer: &mut Self,
                gradient: Self,
                lr: f64,
                keep: f64,
                first: bool,
            ) {
                *buffer = if first { gradient } else { keep as Self * *buffer + gradient };
                *value -= lr as Self * *buffer;
            }
        }
    )*};
}
real!(f32, f64);

fn sgd_of<T: Real>(update: &mut Update<'_>) {
    let (lr, first) = (update.lr(), update.step() == 1);
    let keep = update.setting("momentum").expect("it is declared");
    let Some(mut arrays) = update.arrays::<T>() else { return };
    for at in 0..arrays.values.len() {
        let gradient = arrays.gradient[at];
        T::momentum(&mut arrays.values[at], &mut arrays.slots[0][at], gradient, lr, keep, first);
    }
}

fn sgd() -> CustomRule {
    CustomRule::new("rust-sgd", |update| {
        sgd_of::<f32>(update);
        sgd_of::<f64>(update);
        Ok(())
    })
    .slot("momentum_buffer")
    .setting("momentum", 0.0)
}

fn shapes() -> [Shape; 3] {
    [
        Shape::new("w", &[LEN as i64]),
        Shape::new("d", &[5]).of(Dtype::F64).with_lr_scale(0.5),
        Shape::new("h", &[40]).of(Dtype::Bf16).with_grads(Dtype::F32),
    ]
}

fn train(mut optim: Optim) -> (Vec<f32>, Vec<f64>, Vec<f32>) {
    optim.add(&shapes(), &[]).unwrap();
    for step in 0..4 {
        let (_, mut grads) = optim.lend().unwrap();
        for at in 0..LEN {
            grads[0][at] = (at % 7 + step) as f32 * 0.1;
        }
        grads.get_mut::<f64>(1).fill(0.3);
        grads[2].fill(1.0 / 3.0);
        optim.step().unwrap();
    }
    let mut masters = vec![0f32; 40];
    optim.state_gather(2, None, None, &mut masters).unwrap();
    let params = optim.params().unwrap();
    (params[0].to_vec(), params.get::<f64>(1).to_vec(), masters)
}

fn options(partition: Partition) -> Options {
    let options = Options { optimizer: Optimizer::Sgd, partition, ..Options::default() };
    options.set("lr", 0.1).set("momentum", 0.9)
}

#[test]
fn a_group_follows_it_beside_another_rule() {
    let options = Options { optimizer: Optimizer::Sgd, ..Options::default().set("lr", 0.5) };
    let mut optim = Optim::new(&common::solo(), &options).unwrap();
    optim.add(&[Shape::new("other", &[2])], &[]).unwrap();
    let own = GroupOptions::of_rule(sgd().whole_tensors()).set("lr", 0.25);
    optim.add_with(&[Shape::new("own", &[2])], own).unwrap();
    optim.initialize(0, |weights| weights.split().iter_mut().for_each(|w| w.fill(1.0))).unwrap();
    for mut grad in optim.lend().unwrap().1.split() {
        grad.fill(0.5);
    }
    optim.step().unwrap();
    let (weights, _) = optim.lend().unwrap();
    assert_eq!((&weights[0][..], &weights[1][..]), (&[0.75; 2][..], &[0.875; 2][..]));
}

#[test]
fn a_rule_of_rust_has_the_bits_of_the_one_compiled_in() {
    for partition in [Partition::Even, Partition::Greedy] {
        run_ranks(2, |comm| {
            let options = options(partition);
            let compiled_in = train(Optim::new(&comm, &options).unwrap());
            let own = train(Optim::with_rule(&comm, &options, sgd()).unwrap());
            assert_eq!(own, compiled_in);
        });
    }
}

#[test]
fn it_is_told_about_its_range() {
    run_ranks(2, |comm| {
        let rule = CustomRule::new("look", |update| {
            assert_eq!(update.name(), ["w", "d", "h"][update.param()]);
            assert_eq!(update.shape(), [[LEN as i64], [5], [40]][update.param()]);
            assert_eq!(update.dtype(), if update.param() == 1 { Dtype::F64 } else { Dtype::F32 });
            assert_eq!((update.first(), update.count() as i64), (0, update.shape()[0]));
            assert_eq!(update.weight_decay(), 0.25);
            assert_eq!(update.setting("weight_decay"), Some(0.25));
            assert_eq!(update.setting("none"), None);
            assert_eq!(update.lr(), if update.param() == 1 { 0.5e-3 } else { 1e-3 });
            if update.param() == 1 {
                assert!(update.arrays::<f32>().is_none());
                assert_eq!(update.arrays::<f64>().unwrap().slots.len(), 2);
            }
            Ok(())
        });
        let rule = rule.slot("a").slot("b").setting("weight_decay", 0.25).whole_tensors();
        let options = Options { partition: Partition::Greedy, ..Options::default() };
        let mut optim = Optim::with_rule(&comm, &options, rule).unwrap();
        optim.add(&shapes(), &[]).unwrap();
        optim.step().unwrap();
        assert_eq!(optim.state_names(2).unwrap(), ["a", "b", "master"]);
    });
}

fn failing(comm: &Comm, fail: fn() -> Result<(), &'static str>) -> Optim {
    let first = std::sync::atomic::AtomicBool::new(true);
    let rule = CustomRule::new("failing", move |update| {
        if let Some(arrays) = update.arrays::<f32>() {
            arrays.values.fill(7.0);
        }
        if first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            fail()?;
        }
        Ok(())
    });
    let mut optim = Optim::with_rule(comm, &Options::default(), rule).unwrap();
    optim.add(&[Shape::new("w", &[LEN as i64])], &[]).unwrap();
    optim
}

#[test]
fn an_error_is_the_source_of_the_step_s_and_told_to_the_other_ranks() {
    run_ranks(2, |comm| {
        let own = comm.rank() == 1;
        let fail: fn() -> _ = if own { || Err("no matrix\0, no step") } else { || Ok(()) };
        let mut optim = failing(&comm, fail);
        let error = optim.step().unwrap_err();
        assert!(error.message().contains("parameter 'w'"), "{error}");
        assert!(error.message().contains("no matrix"), "{error}");
        if own {
            assert_eq!(error.name(), "ZERO_ERR_CALLBACK");
            assert_eq!(error.source().unwrap().to_string(), "no matrix\0, no step");
        } else {
            assert!(error.is_peer());
            assert!(error.source().is_none());
        }
        assert_eq!(optim.params().unwrap()[0], [0.0; LEN]);
        optim.step().unwrap();
        assert_eq!(optim.params().unwrap()[0], [7.0; LEN]);
        assert_eq!(optim.result().unwrap().step, 1);
    });
}

#[test]
fn a_panic_goes_on_in_the_step_that_ran_it() {
    run_ranks(2, |comm| {
        let own = comm.rank() == 0;
        let fail: fn() -> _ = if own { || panic!("out of bounds") } else { || Ok(()) };
        let mut optim = failing(&comm, fail);
        let ended = catch_unwind(AssertUnwindSafe(|| optim.step()));
        if own {
            assert_eq!(*ended.unwrap_err().downcast::<&str>().unwrap(), "out of bounds");
        } else {
            let error = ended.unwrap().unwrap_err();
            assert!(error.message().contains("panic: out of bounds"), "{error}");
        }
        assert_eq!(optim.params().unwrap()[0], [0.0; LEN]);
        optim.step().unwrap();
    });
}

#[derive(Debug)]
struct Speechless;

impl std::fmt::Display for Speechless {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Speechless {}

#[test]
fn a_panic_in_the_words_of_an_error_goes_on_in_the_step_that_ran_it() {
    let comm = Comm::solo(libzero::Deadlines::default()).unwrap();
    let rule = CustomRule::new("speechless", |_| Err(Speechless.into()));
    let mut optim = Optim::with_rule(&comm, &Options::default(), rule).unwrap();
    optim.add(&[Shape::new("w", &[LEN as i64])], &[]).unwrap();
    let ended = catch_unwind(AssertUnwindSafe(|| optim.step()));
    assert_eq!(*ended.unwrap_err().downcast::<&str>().unwrap(), "no words");
}

#[test]
fn wrong_declarations_are_refused() {
    let comm = Comm::solo(libzero::Deadlines::default()).unwrap();
    let refused =
        |rule: CustomRule| Optim::with_rule(&comm, &Options::default(), rule).unwrap_err();
    let rule = |name| CustomRule::new(name, |_| Ok(()));
    assert!(refused(rule("a b")).message().contains("'a b'"));
    assert!(refused(rule("a").slot("master")).message().contains("'master'"));
    assert!(refused(rule("a").setting("lr", -1.0)).message().contains("'lr' is -1"));
}

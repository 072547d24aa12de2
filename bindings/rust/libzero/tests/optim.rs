// SPDX-License-Identifier: Apache-2.0
//! Tests optimizers that lend their memory, and optimizers that use the caller's memory.
mod common;

use std::{env, fs, process, ptr};

use common::{run_ranks, sgd, solo};
use libzero::{
    Comm, CustomRule, Dtype, Group, GroupOptions, Level, Operation, Optim, Optimizer, Options,
    Partition, RawParam, Reduction, Shape, StateDtype, Step, partition_plan, set_logger,
};
use libzero_sys as sys;

fn is_send<T: Send>() {}

#[test]
fn seats_and_optimizers_move_between_threads() {
    is_send::<Comm>();
    is_send::<Optim>();
    is_send::<libzero::Arena<f32>>();
    is_send::<libzero::Error>();
    let comm = solo();
    let mut optim = Optim::new(&comm, &sgd()).unwrap();
    drop(comm);
    optim.add(&[Shape::new("w", &[3])], &[]).unwrap();
    let optim = std::thread::spawn(move || {
        optim.lend().unwrap().1[0].fill(2.0);
        optim.step().unwrap();
        optim
    });
    assert_eq!(optim.join().unwrap().lend().unwrap().0[0], [-1.0; 3]);
}

#[test]
fn ranks_step_on_the_mean_of_their_gradients() {
    let results = run_ranks(3, |comm| {
        let mut optim = Optim::new(&comm, &sgd()).unwrap();
        let shapes = [Shape::new("w", &[40, 50]), Shape::new("b", &[7]), Shape::new("s", &[])];
        optim.add(&shapes, &[]).unwrap();
        optim
            .initialize(1, |weights| {
                for (at, mut weight) in weights.split().into_iter().enumerate() {
                    weight.fill(at as f32);
                }
            })
            .unwrap();
        for _ in 0..2 {
            let (weights, mut grads) = optim.lend().unwrap();
            assert_eq!((weights[0].len(), weights[1].len(), weights[2].len()), (2000, 7, 1));
            for at in 0..3 {
                grads[at].fill(comm.rank() as f32);
            }
            assert_eq!(optim.step().unwrap(), Step::Updated);
        }
        let weights = optim.params().unwrap();
        assert_eq!(optim.stats().unwrap().copied_bytes, 0);
        (weights[0][1999], weights[1].to_vec(), weights[2][0])
    });
    assert_eq!(results, vec![(-1.0, vec![0.0; 7], 1.0); 3]);
}

/// Rank 0 calls initialize, and rank 1 makes another call. Nothing is written, and both ranks get
/// an error.
fn nothing_is_initialized_when(
    other: impl Fn(&Comm, &mut [Optim; 2]) -> libzero::Result<()> + Sync,
) {
    run_ranks(2, |comm| {
        let mut optims = [(); 2].map(|()| {
            let mut optim = Optim::new(&comm, &sgd()).unwrap();
            optim.add(&[Shape::new("w", &[40])], &[]).unwrap();
            optim
        });
        let ended = if comm.rank() == 0 {
            optims[0].initialize(0, |_| panic!("another rank may be reading"))
        } else {
            other(&comm, &mut optims)
        };
        assert!(ended.is_err());
    });
}

#[test]
fn parameters_that_another_rank_may_hold_are_not_written() {
    nothing_is_initialized_when(|comm, optims| {
        let weights = optims[0].params()?;
        let met = comm.barrier();
        assert_eq!(weights[0], [0.0; 40]);
        met
    });
    for operation in [Operation::Sum, Operation::Min, Operation::Max] {
        nothing_is_initialized_when(|comm, _| comm.all_reduce::<i32>(&mut [], operation));
    }
    nothing_is_initialized_when(|comm, _| comm.broadcast::<u8>(&mut [], 0));
    nothing_is_initialized_when(|_, optims| optims[0].broadcast_params(None));
    nothing_is_initialized_when(|_, optims| optims[0].broadcast_params(Some(0)));
    nothing_is_initialized_when(|_, optims| optims[1].initialize(0, |_| ()));
    nothing_is_initialized_when(|_, optims| optims[0].initialize(1, |_| panic!("two write")));
}

#[test]
fn owned_ranges_cover_every_element_once() {
    let ranges = run_ranks(2, |comm| {
        let mut optim = Optim::new(&comm, &Options::default()).unwrap();
        optim.add(&[Shape::new("a", &[5000]), Shape::new("b", &[2])], &[]).unwrap();
        assert!(optim.owned_ranges(0).is_err());
        optim.seal().unwrap();
        assert_eq!(optim.param_index("b").unwrap(), 1);
        assert!(optim.param_index("c").is_err());
        optim.owned_ranges(comm.rank()).unwrap()
    });
    let mut elements: Vec<(i64, i64)> = ranges
        .concat()
        .iter()
        .flat_map(|range| (0..range.count).map(|at| (range.param, range.first + at)))
        .collect();
    elements.sort_unstable();
    let wanted: Vec<_> = (0..5000).map(|at| (0, at)).chain([(1, 0), (1, 1)]).collect();
    assert_eq!(elements, wanted);
}

#[test]
fn settings_are_read_and_written_by_group() {
    let options = Options::default().set("lr", 0.5).set("lr", 0.1);
    let mut optim = Optim::new(&solo(), &options).unwrap();
    let first = optim.add(&[Shape::new("a", &[1])], &[]).unwrap();
    let second = optim.add(&[Shape::new("b", &[1])], &[("lr", 0.2)]).unwrap();
    assert_eq!(optim.get(first, "lr").unwrap(), 0.1);
    assert_eq!(optim.get(second, "lr").unwrap(), 0.2);
    optim.set(Group::ALL, "lr", 0.3).unwrap();
    assert_eq!(optim.get(second, "lr").unwrap(), 0.3);
    let error = optim.set(first, "momentum", 1.0).unwrap_err();
    assert!(error.message().contains("momentum"), "{error}");
    let error = Optim::new(&solo(), &Options::default().set("momentum", 1.0)).unwrap_err();
    assert_eq!(error.code(), sys::ZERO_ERR_ARGUMENT);
}

#[test]
fn a_group_follows_its_own_rule() {
    let options = Options { optimizer: Optimizer::Lion, ..Options::default() };
    let mut optim = Optim::new(&solo(), &options.set("lr", 0.25)).unwrap();
    optim.add(&[Shape::new("own", &[2])], &[]).unwrap();
    let other = GroupOptions::of(Optimizer::Sgd).set("lr", 0.5);
    let group = optim.add_with(&[Shape::new("other", &[2])], other).unwrap();
    optim.initialize(0, |weights| weights.split().iter_mut().for_each(|w| w.fill(1.0))).unwrap();
    for mut grad in optim.lend().unwrap().1.split() {
        grad.fill(0.5);
    }
    optim.step().unwrap();
    let (weights, _) = optim.lend().unwrap();
    assert_eq!((&weights[0][..], &weights[1][..]), (&[0.75; 2][..], &[0.75; 2][..]));
    assert_eq!(optim.get(group, "momentum").unwrap(), 0.0);
}

#[test]
fn raw_memory_trains_in_place() {
    let results = run_ranks(2, |comm| {
        let (mut weight, mut other) = (vec![1.0f32; 4], vec![5.0f32; 4]);
        let mut grad = vec![comm.rank() as f32 * 2.0; 4];
        let mut optim = Optim::new(&comm, &sgd()).unwrap();
        let none = ptr::null_mut::<f32>();
        let param = RawParam::new("w", &[2, 2], weight.as_mut_ptr(), none);
        let grad = grad.as_mut_ptr().cast();
        // SAFETY: The vectors outlive the optimizer, and no code accesses them during its calls.
        unsafe {
            optim.register_raw(&[param], &[]).unwrap();
            optim.step_raw(&[grad], Reduction::Sum).unwrap();
            optim.bind_raw(Some(&[other.as_mut_ptr().cast()]), Some(&[grad])).unwrap();
            optim.step().unwrap();
            assert!(optim.bind_raw(Some(&[]), None).is_err());
            assert!(optim.step_raw(&[], Reduction::Mean).is_err());
            optim.reduce_raw_grads(&[grad], Reduction::Mean).unwrap();
        }
        optim.drop_grads().unwrap();
        drop(optim);
        (weight[3], other[0])
    });
    assert_eq!(results, [(0.0, 4.5); 2]);
}

#[test]
#[should_panic(expected = "tensor 0 is in the caller's own memory")]
fn raw_memory_is_not_lent() {
    let mut weight = [0.0f32];
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    let param = RawParam::new("w", &[1], weight.as_mut_ptr(), ptr::null_mut::<f32>());
    // SAFETY: The array outlives the optimizer.
    unsafe { optim.register_raw(&[param], &[]) }.unwrap();
    let _ = optim.params().unwrap()[0];
}

#[test]
fn nothing_is_lent_of_a_broken_comm() {
    let comm = solo();
    let mut optim = Optim::new(&comm, &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[1])], &[]).unwrap();
    comm.watcher().abort("enough").unwrap();
    assert_eq!(optim.lend().unwrap_err().name(), "ZERO_ERR_ABORTED");
}

#[test]
fn different_settings_are_told_to_all() {
    let mut names = run_ranks(2, |comm| {
        let mut optim = Optim::new(&comm, &sgd()).unwrap();
        let lr = 0.25 * (1.0 + f64::from(comm.rank()));
        optim.add(&[Shape::new("w", &[1])], &[("lr", lr)]).unwrap();
        let error = optim.step().unwrap_err();
        assert!(error.message().contains("lr"), "{error}");
        error.name()
    });
    names.sort_unstable();
    assert_eq!(names, ["ZERO_ERR_MISMATCH", "ZERO_ERR_PEER"]);
}

#[test]
fn what_two_ranks_saved_one_loads() {
    let folder = env::temp_dir().join(format!("libzero-rust-{}", process::id()));
    let path = folder.join("step-2");
    let shapes = [Shape::new("w", &[2000]), Shape::new("b", &[])];
    let saved = run_ranks(2, |comm| {
        let mut optim = Optim::new(&comm, &Options::default().set("lr", 0.125)).unwrap();
        optim.add(&shapes, &[]).unwrap();
        for _ in 0..2 {
            optim.lend().unwrap().1[0][5] = 1.0 + comm.rank() as f32;
            optim.step().unwrap();
        }
        optim.save(&path, false).unwrap();
        let error = optim.save(&path, false).unwrap_err();
        assert!(error.is_peer() || error.code() == sys::ZERO_ERR_STATE, "{error}");
        let saved = optim.params().unwrap()[0].to_vec();
        optim.save_begin(&path, true).unwrap();
        assert_eq!(optim.initialize(0, |_| ()).unwrap_err().name(), "ZERO_ERR_BUSY");
        optim.step().unwrap();
        optim.save_wait().unwrap();
        assert!(optim.save_ended().is_err());
        saved
    });
    let mut optim = Optim::new(&solo(), &Options::default()).unwrap();
    let group = optim.add(&shapes, &[]).unwrap();
    optim.load(&folder, false).unwrap();
    assert_eq!(optim.params().unwrap()[0], saved[0]);
    assert_eq!((optim.result().unwrap().step, optim.get(group, "lr").unwrap()), (2, 0.125));
    let error = optim.load(folder.join("none"), true).unwrap_err();
    assert_eq!(error.name(), "ZERO_ERR_CKPT_INVALID");
    fs::remove_dir_all(folder).unwrap();
}

fn of_state(comm: &Comm, state_dtype: StateDtype) -> Optim {
    let mut optim = Optim::new(comm, &Options::default()).unwrap();
    let options = GroupOptions::default().state_dtype(state_dtype).set("lr", 0.125);
    optim.add_with(&[Shape::new("w", &[6 * 1024])], options).unwrap();
    optim
}

/// Takes steps with gradients that are the same on every rank, and returns the parameter.
fn steps(optim: &mut Optim, steps: std::ops::Range<usize>) -> Vec<f32> {
    for step in steps {
        for (at, grad) in optim.lend().unwrap().1[0].iter_mut().enumerate() {
            *grad = (1 + at % 7 + step) as f32 * 0.1;
        }
        optim.step().unwrap();
    }
    optim.params().unwrap()[0].to_vec()
}

#[test]
fn one_rank_continues_with_the_state_in_bf16_that_two_saved() {
    let folder = env::temp_dir().join(format!("libzero-rust-bf16-{}", process::id()));
    let trained = run_ranks(2, |comm| {
        let [mut full, mut half] =
            [StateDtype::Full, StateDtype::Bf16].map(|state_dtype| of_state(&comm, state_dtype));
        let expected = steps(&mut full, 0..3);
        let near = steps(&mut half, 0..3);
        assert!(near.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 0.01 && *b < -0.3));
        let [bytes, halved] = [&full, &half].map(|optim| optim.stats().unwrap().state_bytes);
        assert_eq!((halved * 2, full.stats().unwrap().owned_elements * 8), (bytes, bytes));
        half.save(&folder, false).unwrap();
        let error = full.load(&folder, false).unwrap_err();
        assert!(error.message().contains("state_dtype bfloat16 in the checkpoint"), "{error}");
        steps(&mut half, 3..6)
    });
    let mut optim = of_state(&solo(), StateDtype::Bf16);
    optim.load(&folder, false).unwrap();
    let continued = steps(&mut optim, 3..6);
    assert!(trained.iter().all(|rank| *rank == continued));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_group_that_cannot_have_its_state_in_bf16_is_refused() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    let half = |options: GroupOptions| options.state_dtype(StateDtype::Bf16);
    let shapes = [Shape::new("w", &[16]), Shape::new("d", &[5]).of(Dtype::F64)];
    let error = optim.add_with(&shapes, half(GroupOptions::default())).unwrap_err();
    assert_eq!(error.name(), "ZERO_ERR_UNSUPPORTED");
    assert!(error.message().contains("parameter 'd' is float64"), "{error}");
    let rule = CustomRule::new("own", |_| Ok(()));
    let error = optim.add_with(&shapes[..1], half(GroupOptions::of_rule(rule))).unwrap_err();
    assert!(error.message().contains("is StateDtype::Bf16, but 'custom:own'"), "{error}");
    assert!(optim.param_index("w").is_err());
    optim.add_with(&shapes[..1], half(GroupOptions::of(Optimizer::Lion))).unwrap();
    optim.step().unwrap();
    assert_eq!(optim.stats().unwrap().state_bytes, 16 * 2);
}

#[test]
fn raw_memory_of_a_group_with_options_trains_in_place() {
    let (mut weight, mut grad) = ([1.0f32; 16], [0.5f32; 16]);
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    let param = RawParam::new("w", &[16], weight.as_mut_ptr(), grad.as_mut_ptr());
    let options = GroupOptions::of(Optimizer::Lion).state_dtype(StateDtype::Bf16).set("lr", 0.25);
    // SAFETY: The arrays outlive the optimizer, and no code accesses them during its calls.
    unsafe { optim.register_raw_with(&[param], options) }.unwrap();
    optim.step().unwrap();
    assert_eq!(optim.stats().unwrap().state_bytes, 16 * 2);
    drop(optim);
    assert_eq!(weight, [0.75; 16]);
}

#[test]
fn plan_needs_no_ranks() {
    let mut shapes = [Shape::new("a", &[1]), Shape::new("b", &[5]), Shape::new("c", &[4])];
    let greedy = Options { partition: Partition::Greedy, ..Options::default() };
    let plan = partition_plan(&shapes, 2, &greedy).unwrap();
    assert_eq!((plan.owners, plan.elements), (vec![Some(1), Some(0), Some(1)], vec![5, 5]));
    let large = partition_plan(&[Shape::new("a", &[5000])], 2, &Options::default()).unwrap();
    assert_eq!(large.owners, [None]);
    shapes[1].dims[0] = -1;
    assert!(partition_plan(&shapes, 2, &greedy).is_err());
    assert!(partition_plan(&shapes, 0, &greedy).is_err());
}

#[test]
fn logger_is_set_and_unset() {
    set_logger(Some(|level, text| assert!(level <= Level::Info && !text.is_empty())), Level::Info)
        .unwrap();
    set_logger(None, Level::Error).unwrap();
}

#[test]
fn frozen_parameters_stay_and_own_settings_count() {
    let results = run_ranks(2, |comm| {
        let mut optim = Optim::new(&comm, &sgd()).unwrap();
        let shapes = [
            Shape::new("a", &[3]).with_lr_scale(0.5),
            Shape::new("b", &[3]).frozen(),
            Shape::new("c", &[3]).with_weight_decay(1.0),
            Shape::new("ids", &[2]).of(Dtype::I64).frozen(),
        ];
        optim.add(&shapes, &[]).unwrap();
        optim
            .initialize(0, |weights| weights.split().into_iter().for_each(|mut w| w.fill(1.0)))
            .unwrap();
        for (frozen, trained) in [(0, 0), (0, 1)] {
            let (_, mut grads) = optim.lend().unwrap();
            (0..3).for_each(|at| grads[at].fill(if at == 2 { 0.0 } else { 1.0 }));
            optim.step().unwrap();
            optim.set_trainable(frozen, false).unwrap();
            optim.set_trainable(trained, trained == 1).unwrap();
        }
        let (_, mut grads) = optim.lend().unwrap();
        (0..3).for_each(|at| grads[at].fill(1.0));
        optim.step().unwrap();
        assert!(optim.set_trainable(3, true).is_err());
        let (weights, _) = optim.lend().unwrap();
        assert_eq!(weights.get::<i64>(3), [1, 1]);
        [weights[0][2], weights[1][2], weights[2][2]]
    });
    for values in results {
        // b was frozen for two steps, and a for the last two. c decays by a half in each step, and
        // the last step also has a gradient for it.
        assert_eq!(values, [0.75, 0.5, -0.375]);
    }
}

#[test]
fn what_steps_on_a_gpu_read_from_memory_is_refused_on_the_host() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    let number = 1.0f32;
    let at = ptr::from_ref(&number).cast();
    // SAFETY: The number outlives the optimizer.
    let errors = unsafe {
        [
            optim.set_from(Group::ALL, "lr", at, Dtype::F32).unwrap_err(),
            optim.set_loss_scale_from(at, Dtype::F32).unwrap_err(),
        ]
    };
    for error in errors {
        assert_eq!(error.code(), sys::ZERO_ERR_UNSUPPORTED);
        assert!(error.to_string().contains("on the host, set its value"), "{error}");
    }
}

#[test]
fn a_rule_tells_its_settings_and_state() {
    let rule = Optimizer::AdamW.rule().unwrap();
    assert_eq!(rule.name, "adamw");
    let beta1 = rule.settings.iter().find(|one| one.name == "beta1").unwrap();
    assert_eq!((beta1.default, beta1.range), (0.9, "in [0, 1)"));
    let needed: Vec<_> = rule.slots.iter().map(|one| (one.name, one.setting)).collect();
    let wanted = [("exp_avg", None), ("exp_avg_sq", None), ("max_exp_avg_sq", Some("amsgrad"))];
    assert_eq!(needed, wanted);
    assert_eq!(Optimizer::Lars.rule().unwrap().name, "lars");
}

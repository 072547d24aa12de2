// SPDX-License-Identifier: Apache-2.0
//! Tests 16-bit numbers against their definition, and training with each element type and with all
//! of them.
mod common;

use std::ptr;

use common::{run_ranks, sgd, solo};
use libzero::{
    AnyMut, Bf16, Dtype, F16, Master, Memory, Optim, Options, RawParam, Reduction, Shape, Step,
    partition_plan,
};

/// Every number converts to f32 and back. Values between two numbers are rounded to the nearer one,
/// and ties to even.
fn check_rounding(largest: u16, to_f32: fn(u16) -> f32, from_f32: fn(f32) -> u16) {
    for bits in 0..=largest {
        let value = to_f32(bits);
        assert_eq!(from_f32(value), bits, "{value}");
        assert_eq!(from_f32(-value), bits | 0x8000, "{value}");
        if bits == largest {
            continue;
        }
        // `middle` is also an exact f32, because both types have at most 11 bits of precision.
        let middle = ((f64::from(value) + f64::from(to_f32(bits + 1))) / 2.0) as f32;
        assert_eq!(from_f32(middle), bits + (bits & 1), "{middle}");
        let [below, above] = [middle.to_bits() - 1, middle.to_bits() + 1].map(f32::from_bits);
        assert_eq!(from_f32(below), bits, "below {middle}");
        assert_eq!(from_f32(above), bits + 1, "above {middle}");
    }
}

#[test]
fn numbers_of_16_bits_are_what_their_format_says() {
    check_rounding(0x7F7F, |bits| Bf16::from_bits(bits).to_f32(), |v| Bf16::from_f32(v).to_bits());
    check_rounding(0x7BFF, |bits| F16::from_bits(bits).to_f32(), |v| F16::from_f32(v).to_bits());
    for (bits, value) in [
        (0x3C00, 1.0),
        (0xC000, -2.0),
        (0x7BFF, 65504.0),
        (0x0400, 0.5f32.powi(14)),
        (0x0001, 0.5f32.powi(24)),
        (0x3555, 0.33325195),
    ] {
        assert_eq!(f32::from(F16::from_bits(bits)), value);
    }
    for (bits, value) in [(0x3F80, 1.0), (0xC000, -2.0), (0x3EAB, 171.0 / 512.0)] {
        assert_eq!(f32::from(Bf16::from_bits(bits)), value);
    }
    assert_eq!(F16::from_f32(65519.996).to_bits(), 0x7BFF);
    assert_eq!(F16::from_f32(-65520.0).to_bits(), 0xFC00);
    assert_eq!(F16::from_bits(0x7C00).to_f32(), f32::INFINITY);
    assert_eq!(Bf16::from_f32(f32::MAX).to_f32(), f32::INFINITY);
    assert_eq!(Bf16::from_f32(f32::NEG_INFINITY).to_f32(), f32::NEG_INFINITY);
    for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7F80_0001), f32::from_bits(0xFF80_0001)] {
        assert!(Bf16::from_f32(nan).to_f32().is_nan());
        assert!(F16::from_f32(nan).to_f32().is_nan());
    }
    assert_eq!(format!("{} {:?}", F16::from_f32(1.5), Bf16::from_f32(-0.5)), "1.5 -0.5Bf16");
}

/// Returns a multiple of 2^-9, which is the same in every test. Some put master weights halfway
/// between two parameter values.
fn gradient(rank: i32, step: i32, at: usize) -> f32 {
    let mixed = (at as u32 + 31 * step as u32 + 977 * rank as u32).wrapping_mul(0x9E37_79B9) >> 16;
    (mixed % 401) as f32 / 512.0 - 0.390625
}

/// Rounds to the nearest number, and ties away from zero.
fn away(value: f32) -> Bf16 {
    Bf16::from_bits(((value.to_bits() + 0x8000) >> 16) as u16)
}

#[test]
fn bf16_parameters_are_the_rounding_of_their_masters() {
    const LEN: usize = 1500;
    let first = |at: usize| Bf16::from_f32(at as f32 / 100.0 - 7.0);
    let expected = |round: fn(f32) -> Bf16| -> Vec<Bf16> {
        let step_of = |master: f32, step, at| {
            master - 0.5 * ((gradient(0, step, at) + gradient(1, step, at)) * 0.5)
        };
        (0..LEN)
            .map(|at| round((0..4).fold(first(at).to_f32(), |now, step| step_of(now, step, at))))
            .collect()
    };
    let (even, far) = (expected(Bf16::from_f32), expected(away));
    assert_ne!(even, far);
    for (master, wanted, bytes) in [(Master::Float32, even, 4), (Master::Remainder, far, 2)] {
        let results = run_ranks(2, |comm| {
            let mut optim = Optim::new(&comm, &Options { master, ..sgd() }).unwrap();
            let shape = Shape::new("w", &[LEN as i64]).of(Dtype::Bf16).with_grads(Dtype::F32);
            optim.add(&[shape], &[]).unwrap();
            optim
                .initialize(0, |mut weights| {
                    let values = weights.get_mut::<Bf16>(0).iter_mut().enumerate();
                    values.for_each(|(at, value)| *value = first(at));
                })
                .unwrap();
            for step in 0..4 {
                let (_, mut grads) = optim.lend().unwrap();
                let values = grads[0].iter_mut().enumerate();
                values.for_each(|(at, value)| *value = gradient(comm.rank(), step, at));
                assert_eq!(optim.step().unwrap(), Step::Updated);
            }
            let stats = optim.stats().unwrap();
            assert_eq!(stats.copied_bytes, 0);
            (optim.params().unwrap().get::<Bf16>(0).to_vec(), stats.state_bytes)
        });
        assert_eq!([&results[0].0, &results[1].0], [&wanted; 2]);
        // The layout rounds up to a multiple of 16 elements.
        assert_eq!(results[0].1 + results[1].1, bytes * LEN.next_multiple_of(16) as i64);
    }
}

#[test]
fn types_mix_in_one_optimizer() {
    let shapes = [
        Shape::new("a", &[2000]).of(Dtype::Bf16).with_grads(Dtype::F32),
        Shape::new("b", &[3, 5]).of(Dtype::F16),
        Shape::new("c", &[70]).of(Dtype::F64),
        Shape::new("d", &[33]).with_grads(Dtype::F64),
    ];
    run_ranks(2, |comm| {
        let mut optim = Optim::new(&comm, &sgd()).unwrap();
        optim.add(&shapes, &[]).unwrap();
        optim
            .initialize(1, |weights| weights.split().iter_mut().for_each(|w| w.fill(1.0)))
            .unwrap();
        let (weights, grads) = optim.lend().unwrap();
        let types = [0, 1, 2, 3].map(|at| (weights.dtype(at), grads.dtype(at)));
        assert_eq!(
            types,
            [0, 1, 2, 3].map(|at: usize| {
                (shapes[at].dtype, shapes[at].grad_dtype.unwrap_or(shapes[at].dtype))
            })
        );
        let mut all = grads.split();
        assert_eq!(all.iter().map(AnyMut::len).collect::<Vec<_>>(), [2000, 15, 70, 33]);
        assert!(!all[0].is_empty());
        all.iter_mut().for_each(|grad| grad.fill(comm.rank() as f32 * 2.0));
        optim.step().unwrap();
        let weights = optim.params().unwrap();
        assert_eq!(weights.get::<Bf16>(0), [Bf16::from_f32(0.5); 2000]);
        assert_eq!(weights.get::<F16>(1), [F16::from_f32(0.5); 15]);
        assert_eq!(weights.get::<f64>(2), [0.5; 70]);
        assert_eq!(weights[3], [0.5; 33]);
        assert_eq!(optim.stats().unwrap().copied_bytes, 0);
    });
}

#[test]
fn f64_is_computed_in_f64() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[2]).of(Dtype::F64)], &[]).unwrap();
    optim.initialize(0, |mut weights| weights.get_mut::<f64>(0).fill(1.0)).unwrap();
    optim.lend().unwrap().1.get_mut::<f64>(0).fill(1e-12);
    optim.step().unwrap();
    assert_eq!(optim.params().unwrap().get::<f64>(0), [1.0 - 0.5 * 1e-12; 2]);
}

#[test]
fn raw_memory_has_the_types_of_its_pointers() {
    let (mut weight, mut grad) = ([F16::from_f32(1.0); 3], [0.5f64; 3]);
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    let param = RawParam::new("w", &[3], weight.as_mut_ptr(), ptr::null_mut::<f64>());
    assert_eq!((param.shape.dtype, param.shape.grad_dtype), (Dtype::F16, Some(Dtype::F64)));
    // SAFETY: The arrays outlive the optimizer, and no code accesses them during its calls.
    unsafe {
        optim.register_raw(&[param], &[]).unwrap();
        optim.step_raw(&[grad.as_mut_ptr().cast()], Reduction::Mean).unwrap();
    }
    drop(optim);
    assert_eq!(weight, [F16::from_f32(0.75); 3]);
}

#[test]
#[should_panic(expected = "elements of tensor 0 are bfloat16; float32 was asked for")]
fn another_type_is_not_lent() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[1]).of(Dtype::Bf16)], &[]).unwrap();
    let _ = optim.params().unwrap()[0];
}

#[test]
#[should_panic(expected = "elements of tensor 0 are float64; float16 was asked for")]
fn another_type_of_gradient_is_not_lent() {
    let mut optim = Optim::new(&solo(), &sgd()).unwrap();
    optim.add(&[Shape::new("w", &[1]).of(Dtype::F16).with_grads(Dtype::F64)], &[]).unwrap();
    optim.lend().unwrap().1.get_mut::<F16>(0).fill(F16::default());
}

#[test]
fn ranks_with_other_types_are_told() {
    let mut names = run_ranks(2, |comm| {
        let mut optim = Optim::new(&comm, &sgd()).unwrap();
        let dtype = if comm.rank() == 0 { Dtype::Bf16 } else { Dtype::F16 };
        optim.add(&[Shape::new("w", &[64]).of(dtype)], &[]).unwrap();
        let error = optim.seal().unwrap_err();
        assert!(error.message().contains("'w'"), "{error}");
        error.name()
    });
    names.sort_unstable();
    assert_eq!(names, ["ZERO_ERR_MISMATCH", "ZERO_ERR_PEER"]);
}

#[test]
fn plan_lays_gradients_out_by_their_own_size() {
    let shapes = [Shape::new("a", &[2000]), Shape::new("b", &[48])]
        .map(|shape| shape.of(Dtype::Bf16).with_grads(Dtype::F32));
    let plan = partition_plan(&shapes, 2, &Options::default()).unwrap();
    assert!(plan.grad_arena_bytes >= 4 * 2048 && plan.arena_bytes < plan.grad_arena_bytes);
    for (data, grad) in plan.offsets.iter().zip(&plan.grad_offsets) {
        assert_eq!(2 * data, *grad);
    }
    let arena = solo().arena::<Bf16>(5, Memory::PerRank).unwrap();
    // SAFETY: No optimizer has memory in the arena.
    assert_eq!(unsafe { arena.as_slice() }, [Bf16::default(); 5]);
}

// SPDX-License-Identifier: Apache-2.0
//! Tests that buffers are copied from any rank and saved, and that steps do not change them.
mod common;

use std::{env, fs, process};

use common::run_ranks;
use libzero::{Bf16, Buffer, Comm, Deadlines, Dtype, Optim, Optimizer, Options, RawBuffer, Shape};

fn optim(comm: &Comm) -> Optim {
    let options = Options { optimizer: Optimizer::Sgd, ..Options::default().set("lr", 0.5) };
    let mut optim = Optim::new(comm, &options).unwrap();
    optim.add(&[Shape::new("w", &[3])], &[]).unwrap();
    optim
        .add_buffers(&[
            Buffer::new("mean", &[2, 5]),
            Buffer::new("seen", &[]).of(Dtype::I64),
            Buffer::new("half", &[3]).of(Dtype::Bf16),
        ])
        .unwrap();
    optim
}

#[test]
fn every_rank_gets_the_roots() {
    run_ranks(3, |comm| {
        let mut optim = optim(&comm);
        for root in 0..3 {
            let (weights, mut grads, mut buffers) = optim.lend_all().unwrap();
            grads[0][0] = weights[0][0];
            buffers[0].fill((10 * root + comm.rank()) as f32);
            buffers.get_mut::<i64>(1)[0] = (1 << 60) + i64::from(comm.rank());
            buffers.get_mut::<Bf16>(2)[2] = Bf16::from_f32(comm.rank() as f32);
            optim.broadcast_buffers(root).unwrap();
            optim.step().unwrap();
            let buffers = optim.buffers();
            assert_eq!(buffers[0], [(11 * root) as f32; 10]);
            assert_eq!(buffers.get::<i64>(1), [(1 << 60) + i64::from(root)]);
            assert_eq!(buffers.get::<Bf16>(2)[2].to_f32(), root as f32);
        }
        assert!(optim.broadcast_buffers(3).is_err());
    });
}

#[test]
fn checkpoints_bring_rank_0s_back() {
    let path = env::temp_dir().join(format!("libzero-rust-buffers-{}", process::id()));
    run_ranks(2, |comm| {
        let mut optim = optim(&comm);
        optim.buffers_mut()[0].fill((7 + comm.rank()) as f32);
        optim.save(&path, false).unwrap();
        optim.buffers_mut()[0].fill(0.0);
        optim.load(&path, false).unwrap();
        assert_eq!(optim.buffers()[0], [7.0; 10]);
    });
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn memory_of_ones_own_is_used_as_it_is() {
    let comm = Comm::solo(Deadlines::default()).unwrap();
    let mut memory = [1i32, 2, 3];
    let mut optim = optim(&comm);
    let raw = [RawBuffer::new("ids", &[3], memory.as_mut_ptr())];
    // SAFETY: The memory outlives the optimizer, and no other code uses it during that time.
    unsafe { optim.register_raw_buffers(&raw) }.unwrap();
    // SAFETY: See above. The call is rejected.
    let twice = unsafe { optim.register_raw_buffers(&raw) }.unwrap_err();
    assert!(twice.to_string().contains("'ids' is registered twice"), "{twice}");
    optim.broadcast_buffers(0).unwrap();
    drop(optim);
    assert_eq!(memory, [1, 2, 3]);
}

#[test]
fn wrong_buffers_are_refused() {
    let comm = Comm::solo(Deadlines::default()).unwrap();
    let mut optim = Optim::new(&comm, &Options::default()).unwrap();
    for (wrong, says) in [
        (Buffer::new("a", &[-1]), "dimensions [-1]"),
        (Buffer::new("a", &[i64::MAX, 3]), "dimensions"),
        (Buffer::new("", &[1]), "is empty"),
        (Buffer::new("a\0", &[1]), "NUL"),
    ] {
        let error = optim.add_buffers(&[wrong]).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(optim.broadcast_buffers(0).is_err());
}

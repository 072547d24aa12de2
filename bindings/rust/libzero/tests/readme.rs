// SPDX-License-Identifier: Apache-2.0
//! The loop of the README, line for line (tests/abi/check_docs.py compares them).
use libzero::{Comm, Deadlines, MutSlices, Optim, Options, Shape, Slices};

fn forward_backward(weights: &Slices, grads: &mut MutSlices, batch: usize) {
    grads[1][0] = weights[0][0] + batch as f32;
}

#[rustfmt::skip]
fn train(batches: std::ops::Range<usize>) -> libzero::Result<i64> {
    let comm = Comm::from_env(Deadlines::default())?;
    let mut optim = Optim::new(&comm, &Options::default().set("lr", 3e-4))?;
    optim.add(&[Shape::new("w", &[784, 10]), Shape::new("b", &[10])], &[])?;
    for batch in batches {
        let (weights, mut grads) = optim.lend()?;
        forward_backward(&weights, &mut grads, batch);
        optim.step()?;
    }
    Ok(optim.result()?.step)
}

#[test]
fn the_loop_of_the_readme_steps_once_a_batch() {
    assert_eq!(train(0..3).unwrap(), 3);
}

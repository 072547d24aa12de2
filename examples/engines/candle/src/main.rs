// SPDX-License-Identifier: Apache-2.0
//! A classifier in candle. With the feature `with_libzero` ranks share the batch, and libzero's AdamW
//! replaces candle's. Only one file differs: `with_libzero.rs` replaces `own.rs`.
//!
//! usage: candle-with-libzero STEPS FILE. Rank 0 writes the parameters to FILE, in fp32.
use std::time::Instant;

use candle_core::{Device, Tensor, Var};

#[cfg_attr(feature = "with_libzero", path = "with_libzero.rs")]
#[cfg_attr(not(feature = "with_libzero"), path = "own.rs")]
mod update;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROWS: usize = 96;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, steps, file] = &arguments[..] else { return Err("usage: STEPS FILE".into()) };
    let mut seed = 1u64;
    let mut drawn = |count: usize, scale: f32| -> Vec<f32> {
        let mut one = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            scale * ((seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5)
        };
        (0..count).map(|_| one()).collect()
    };
    let mut vars = Vec::new();
    for (name, rows, columns) in
        [("weight1", 64, 512), ("bias1", 1, 512), ("weight2", 512, 10), ("bias2", 1, 10)]
    {
        let values = drawn(rows * columns, 0.1);
        vars.push((name, Var::from_vec(values, (rows, columns), &Device::Cpu)?));
    }
    let inputs = Tensor::from_vec(drawn(ROWS * 64, 1.0), (ROWS, 64), &Device::Cpu)?;
    let labels: Vec<u32> =
        drawn(ROWS, 1.0).iter().map(|value| ((value + 0.5) * 10.0) as u32).collect();
    let labels = Tensor::from_vec(labels, ROWS, &Device::Cpu)?;

    let mut update = update::Update::new(&vars)?;
    let share = ROWS / update.world();
    let (inputs, labels) = (
        inputs.narrow(0, update.rank() * share, share)?,
        labels.narrow(0, update.rank() * share, share)?,
    );
    let mut micros = Vec::new();
    for _ in 0..steps.parse()? {
        let hidden = inputs.matmul(&vars[0].1)?.broadcast_add(&vars[1].1)?.gelu()?;
        let logits = hidden.matmul(&vars[2].1)?.broadcast_add(&vars[3].1)?;
        let grads = candle_nn::loss::cross_entropy(&logits, &labels)?.backward()?;
        let begin = Instant::now();
        update.step(&vars, &grads)?;
        micros.push(begin.elapsed().as_nanos() / 1000);
    }
    if update.rank() == 0 {
        micros.sort();
        println!("step: {}.0 us", micros[micros.len() / 2]);
        let mut bytes = Vec::new();
        for (_, var) in &vars {
            for value in var.flatten_all()?.to_vec1::<f32>()? {
                bytes.extend(value.to_ne_bytes());
            }
        }
        std::fs::write(file, bytes)?;
    }
    Ok(())
}

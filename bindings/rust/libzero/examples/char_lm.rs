// SPDX-License-Identifier: Apache-2.0
//! A character-level language model, trained by any number of ranks with libzero:
//!
//!     cargo build --release --example char_lm
//!     zero-run -n 4 target/release/examples/char_lm --text ../../LICENSE --steps 300
//!
//! It has the model, the data and the options of examples/c/char_lm.c, and ends with the same bits,
//! because it does the same operations in the same order.
use std::error::Error;
use std::path::PathBuf;
use std::{env, fs, process};

use libzero::{
    Comm, Deadlines, Level, MutSlices, Operation, Optim, Options, Shape, Slices, set_logger,
};

const CONTEXT: usize = 8;
const EMBED: usize = 16;
const INPUT: usize = CONTEXT * EMBED;
const HIDDEN: usize = 384;
const SYMBOLS: usize = 256;

const EMBEDDING: usize = 0;
const W1: usize = 1;
const B1: usize = 2;
const W2: usize = 3;
const B2: usize = 4;
const PARAMS: usize = 5;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn shapes() -> [Shape; PARAMS] {
    let size = |count: usize| count as i64;
    [
        Shape::new("embedding", &[size(SYMBOLS), size(EMBED)]),
        Shape::new("hidden.weight", &[size(INPUT), size(HIDDEN)]),
        Shape::new("hidden.bias", &[size(HIDDEN)]),
        Shape::new("output.weight", &[size(HIDDEN), size(SYMBOLS)]),
        Shape::new("output.bias", &[size(SYMBOLS)]),
    ]
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
    x ^ (x >> 31)
}

/// Returns 64 random bits, the same on every rank and in every language.
fn draw(seed: u64, a: u64, b: u64) -> u64 {
    mix(mix(mix(seed.wrapping_add(0x9e3779b97f4a7c15)).wrapping_add(a)).wrapping_add(b))
}

/// Draws weights uniformly in +-1/sqrt(fan in). Biases are zero.
fn initialize(mut params: MutSlices<'_>, seed: u64) {
    for (at, fan_in) in [(EMBEDDING, 1), (W1, INPUT), (W2, HIDDEN)] {
        for (i, value) in params[at].iter_mut().enumerate() {
            let unit = (draw(seed, at as u64, i as u64) >> 11) as f64 / 9007199254740992.0;
            *value = ((2.0 * unit - 1.0) / (fan_in as f64).sqrt()) as f32;
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for lane in 0..8 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6]))
        + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
}

/// exp for x <= 0 with only + and *, because math libraries differ in the last bits: its series at
/// x/1024, squared ten times.
fn exponential(x: f64) -> f64 {
    let y = x / 1024.0;
    let fourth = 1.0 + y / 4.0 * (1.0 + y / 5.0 * (1.0 + y / 6.0));
    let series = 1.0 + y * (1.0 + y / 2.0 * (1.0 + y / 3.0 * fourth));
    if x < -100.0 { 0.0 } else { (0..10).fold(series, |value, _| value * value) }
}

fn hyperbolic_tangent(x: f32) -> f32 {
    let e = exponential(-2.0 * f64::from(x).abs());
    let value = ((1.0 - e) / (1.0 + e)) as f32;
    if x < 0.0 { -value } else { value }
}

fn add_scaled(out: &mut [f32], values: &[f32], scale: f32) {
    for (out, value) in out.iter_mut().zip(values) {
        *out += value * scale;
    }
}

struct Activations {
    input: [f32; INPUT],
    hidden: [f32; HIDDEN],
    out: [f32; SYMBOLS],
}

/// Writes the probabilities of the next character to `out`.
fn forward(params: Slices<'_>, context: &[u8], to: &mut Activations) {
    for (slot, &symbol) in to.input.chunks_exact_mut(EMBED).zip(context) {
        slot.copy_from_slice(&params[EMBEDDING][symbol as usize * EMBED..][..EMBED]);
    }
    to.hidden.copy_from_slice(&params[B1]);
    for (row, &input) in params[W1].chunks_exact(HIDDEN).zip(&to.input) {
        add_scaled(&mut to.hidden, row, input);
    }
    to.hidden.iter_mut().for_each(|value| *value = hyperbolic_tangent(*value));
    to.out.copy_from_slice(&params[B2]);
    for (row, &hidden) in params[W2].chunks_exact(SYMBOLS).zip(&to.hidden) {
        add_scaled(&mut to.out, row, hidden);
    }
    let largest = to.out.iter().copied().fold(f32::MIN, f32::max);
    to.out.iter_mut().for_each(|value| {
        *value = exponential(f64::from(*value - largest)) as f32;
    });
    let total: f32 = to.out.iter().sum();
    to.out.iter_mut().for_each(|value| *value /= total);
}

/// Returns the loss of one example, and adds its gradient times `weight` to `grads`.
fn example(
    params: Slices<'_>,
    grads: &mut MutSlices<'_>,
    context: &[u8],
    weight: f32,
    at: &mut Activations,
) -> f64 {
    let target = context[CONTEXT] as usize;
    forward(params, context, at);
    let loss = -(f64::from(at.out[target]) + 1e-30).ln(); // only printed

    // From here on, `out` is the gradient of the loss with respect to the logits.
    at.out[target] -= 1.0;
    at.out.iter_mut().for_each(|value| *value *= weight);
    add_scaled(&mut grads[B2], &at.out, 1.0);
    let mut slope = [0.0f32; HIDDEN];
    let rows = params[W2].chunks_exact(SYMBOLS).zip(grads[W2].chunks_exact_mut(SYMBOLS));
    for ((row, grad), (slope, &hidden)) in rows.zip(slope.iter_mut().zip(&at.hidden)) {
        add_scaled(grad, &at.out, hidden);
        *slope = dot(row, &at.out) * (1.0 - hidden * hidden);
    }
    add_scaled(&mut grads[B1], &slope, 1.0);
    for (i, row) in params[W1].chunks_exact(HIDDEN).enumerate() {
        add_scaled(&mut grads[W1][i * HIDDEN..][..HIDDEN], &slope, at.input[i]);
        grads[EMBEDDING][context[i / EMBED] as usize * EMBED + i % EMBED] += dot(row, &slope);
    }
    loss
}

struct Settings {
    text: PathBuf,
    save: Option<PathBuf>,
    load: Option<PathBuf>,
    dump: Option<PathBuf>,
    steps: i64,
    batch: usize,
    seed: u64,
    lr: f64,
    progress: bool,
}

/// Trains on this rank's part of the batch. Gradients are weighted so that their mean over ranks is
/// the mean over the batch, even if the number of ranks does not divide it.
fn forward_backward(
    set: &Settings,
    text: &[u8],
    optim: &mut Optim,
    step: i64,
    (rank, world): (usize, usize),
) -> Outcome<f64> {
    let (params, mut grads) = optim.lend()?;
    let mut activations =
        Activations { input: [0.0; INPUT], hidden: [0.0; HIDDEN], out: [0.0; SYMBOLS] };
    let (weight, mut loss) = (world as f32 / set.batch as f32, 0.0);
    for at in 0..PARAMS {
        grads[at].fill(0.0);
    }
    for i in set.batch * rank / world..set.batch * (rank + 1) / world {
        let chance = draw(set.seed + 1, step as u64, i as u64);
        let first = (chance % (text.len() - CONTEXT) as u64) as usize;
        let context = &text[first..=first + CONTEXT];
        loss += example(params, &mut grads, context, weight, &mut activations);
    }
    Ok(loss / set.batch as f64)
}

fn bytes(params: Slices<'_>) -> Vec<u8> {
    (0..PARAMS).flat_map(|at| params[at].iter().flat_map(|value| value.to_ne_bytes())).collect()
}

/// FNV-1a over the bytes of all parameters.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf29ce484222325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100000001b3))
}

fn train(set: &Settings) -> Outcome<()> {
    let text = fs::read(&set.text).map_err(|error| format!("{}: {error}", set.text.display()))?;
    if text.len() <= CONTEXT {
        return Err(format!("{}: is too short to train on", set.text.display()).into());
    }
    // One such message says that the other ranks have waited ten seconds for one rank.
    set_logger(Some(|level, message| eprintln!("libzero: {level:?}: {message}")), Level::Warning)?;
    let comm = Comm::from_env(Deadlines::default())?;
    let (rank, world) = (comm.rank() as usize, comm.world() as usize);
    let mut optim = Optim::new(&comm, &Options::default().set("lr", set.lr))?;
    optim.add(&shapes(), &[])?;
    match &set.load {
        Some(path) => optim.load(path, false)?,
        None => optim.initialize(0, |params| initialize(params, set.seed))?,
    }
    let done = optim.result()?.step;
    if let (Some(path), 0) = (&set.load, rank) {
        println!("loaded={} step={done} world={world}", path.display());
    }
    let every = if set.progress { 1 } else { (set.steps + 9) / 10 };
    for step in done + 1..=set.steps {
        let mut loss = [forward_backward(set, &text, &mut optim, step, (rank, world))?];
        optim.step()?;
        comm.all_reduce(&mut loss, Operation::Sum)?;
        if rank == 0 && (step % every == 0 || step == set.steps) {
            println!("step={step} loss={:.4}", loss[0]);
        }
    }
    if let Some(path) = &set.save {
        optim.save(path, true)?;
    }
    if rank == 0 {
        let bytes = bytes(optim.params()?);
        println!("checksum={:016X}", checksum(&bytes));
        if let Some(path) = &set.dump {
            fs::write(path, &bytes)?;
        }
    }
    let stats = optim.stats()?;
    println!(
        "stats rank={rank} world={world} parameters={} owned={} state_bytes={} staging_bytes={} \
         copied_bytes={}",
        stats.parameter_elements,
        stats.owned_elements,
        stats.state_bytes,
        stats.staging_bytes,
        stats.copied_bytes,
    );
    comm.barrier()?;
    Ok(())
}

fn parse() -> Outcome<Settings> {
    let mut set = Settings {
        text: "LICENSE".into(),
        save: None,
        load: None,
        dump: None,
        steps: 200,
        batch: 192,
        seed: 1,
        lr: 2e-3,
        progress: false,
    };
    let mut words = env::args().skip(1);
    while let Some(flag) = words.next() {
        if flag == "--progress" {
            set.progress = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--text" => set.text = value.into(),
            "--save" => set.save = Some(value.into()),
            "--load" => set.load = Some(value.into()),
            "--dump" => set.dump = Some(value.into()),
            "--steps" => set.steps = value.parse()?,
            "--batch" => set.batch = value.parse()?,
            "--seed" => set.seed = value.parse()?,
            "--lr" => set.lr = value.parse()?,
            _ => return Err(format!("{flag} is unknown").into()),
        }
    }
    if set.batch == 0 || set.steps < 0 {
        return Err("--batch is at least 1, --steps at least 0".into());
    }
    Ok(set)
}

const USAGE: &str = "usage: char_lm [--text FILE] [--steps N] [--lr X] [--seed N] [--batch N]
               [--save DIR] [--load DIR] [--dump FILE] [--progress]
--steps counts those of a loaded checkpoint. --dump writes the final parameters.";

fn main() {
    let set = parse().unwrap_or_else(|error| {
        eprintln!("char_lm: {error}\n{USAGE}");
        process::exit(2)
    });
    if let Err(error) = train(&set) {
        eprintln!("char_lm: {error}");
        process::exit(1)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Trains with the program in the README, alone and on two ranks. tests/abi/check_docs.py compares
//! the two line by line. Without ZERO_RUN, this trains only alone.
use std::path::Path;
use std::process::Command;
use std::{env, fs};

mod program {
    use libzero::{Comm, Deadlines, MutSlices, Optim, Options, Shape, Slices};

    fn forward_backward(weights: Slices, grads: &mut MutSlices, rank: i32) {
        for at in 0..2 {
            for (grad, weight) in grads[at].iter_mut().zip(&weights[at]) {
                *grad = weight - (rank + 1) as f32;
            }
        }
    }

    fn main() -> libzero::Result<()> {
        let comm = Comm::from_env(Deadlines::default())?;
        let mut optim = Optim::new(&comm, &Options::default().set("lr", 0.01))?;
        optim.add(&[Shape::new("w", &[784, 10]), Shape::new("b", &[10])], &[])?;
        optim.initialize(0, |mut weights| weights[0].fill(0.5))?;
        for _ in 0..1000 {
            let (weights, mut grads) = optim.lend()?;
            forward_backward(weights, &mut grads, comm.rank());
            optim.step()?;
        }
        optim.save("run/step-1000", true)?;
        let (value, owned) = (optim.params()?[0][0], optim.stats()?.owned_elements);
        println!("rank {} of {}: w[0] is {value:.2}, owns {owned}", comm.rank(), comm.world());
        Ok(())
    }

    pub(super) fn run() -> libzero::Result<()> {
        main()
    }
}

const TEST: &str = "the_program_of_the_readme_trains_alone_and_on_two_ranks";

#[test]
fn the_program_of_the_readme_trains_alone_and_on_two_ranks() {
    if env::var_os("README_PROGRAM").is_some() {
        return program::run().unwrap();
    }
    for (ranks, said) in [
        (1, &["rank 0 of 1: w[0] is 1.00, owns 7850"][..]),
        (2, &["rank 0 of 2: w[0] is 1.50, owns 4090", "rank 1 of 2: w[0] is 1.50, owns 3760"]),
    ] {
        let test = env::current_exe().unwrap();
        let mut command = match env::var_os("ZERO_RUN") {
            Some(zero_run) => Command::new(zero_run),
            None if ranks > 1 => break,
            None => Command::new("env"),
        };
        if env::var_os("ZERO_RUN").is_some() {
            command.args(["-n", &ranks.to_string()]);
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("readme-{ranks}"));
        fs::create_dir_all(&folder).unwrap();
        command.arg(test).args([TEST, "--exact", "--nocapture"]);
        let done = command.env("README_PROGRAM", "1").current_dir(&folder).output().unwrap();
        let printed = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{printed}{}", String::from_utf8_lossy(&done.stderr));
        for line in said {
            assert!(printed.contains(line), "{printed}");
        }
        let saved = libzero::list_checkpoints(folder.join("run")).unwrap();
        assert_eq!((saved.len(), saved[0].step, saved[0].world), (1, 1000, ranks));
    }
}

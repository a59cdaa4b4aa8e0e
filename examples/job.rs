//! Starts a job from a program: every worker is a command, four of them here or on the hosts of a hostfile.
//!
//! ```console
//! $ cargo run --example job -- sh -c 'echo rank $RANK'
//! $ HOSTFILE=hosts cargo run --example job -- train --lr 0.1
//! ```

#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "this is a program of its own"
)]

use std::error::Error;
use std::process::ExitCode;

use remuda::agent::serve_if_agent;
use remuda::launch::{Accelerator, FailureCause, Job};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The launcher executes this program on every node as its agent.
    if let Some(status) = serve_if_agent() {
        return Ok(status.into());
    }
    let mut words = std::env::args_os().skip(1);
    let program = words.next().ok_or("usage: job PROGRAM [ARGUMENT…]")?;
    let mut job = match std::env::var_os("HOSTFILE") {
        Some(path) => Job::hostfile(path)?,
        None => Job::local(4),
    };
    if let Some(parent) = std::env::var_os("RUN_DIR") {
        job = job.run_dir(parent);
    }
    if let Some(file) = std::env::var_os("SSH_CONFIG") {
        job = job.ssh_config(file).accelerator(Accelerator::Cpu);
    }
    let outcome = job.program(program).args(words).env("STARTED_BY", "example").run()?;
    if let Some(FailureCause::Worker(end)) = &outcome.cause {
        println!("rank {} was the cause", end.rank);
    }
    Ok(outcome.status.into())
}

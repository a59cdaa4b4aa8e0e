//! Checks that the kernel accepts the arguments and variables of a worker: it has one limit for
//! both together.

use std::ffi::OsStr;

use rustix::process::{Resource, getrlimit};

use crate::base::{Status, env_vars};
use crate::cli::codes::machine::INVALID_FOR_WORKERS;
use crate::cli::error::CliError;
use crate::plan::{EnvValue, LaunchPlan, WorkerPlan};

/// Smallest limit of the kernel, whatever the limit of the stack is.
const BYTES_MIN: u64 = 128 << 10;
/// Largest limit of the kernel: three quarters of the usual stack of 8 MiB.
const BYTES_MAX: u64 = 6 << 20;
/// Size that is assumed for each value that is not known yet.
const UNKNOWN_BYTES: usize = 256;

/// Refuses workers that a node with the limit of this one could not start.
pub(in crate::cli) fn check_size(plan: &LaunchPlan) -> Result<(), CliError> {
    let inherited: usize =
        env_vars::all().iter().map(|(name, value)| cost(name.len() + 1 + value.len())).sum();
    let workers = plan.nodes.iter().flat_map(|node| &node.workers);
    let needed = workers.map(|worker| inherited + size(worker)).max().unwrap_or(0);
    refuse_above(needed as u64, limit(getrlimit(Resource::Stack).current))
}

fn refuse_above(needed: u64, limit: u64) -> Result<(), CliError> {
    if needed <= limit {
        return Ok(());
    }
    let message = format!(
        "arguments and variables of a worker are {needed} bytes; the limit here is {limit}"
    );
    Err(CliError::new(Status::OsLimit, INVALID_FOR_WORKERS, message)
        .help("raise it with `ulimit -s`, or let the script read a file"))
}

/// Returns the limit: a quarter of the stack, as for `execve`.
fn limit(stack: Option<u64>) -> u64 {
    stack.map_or(BYTES_MAX, |bytes| bytes / 4).clamp(BYTES_MIN, BYTES_MAX)
}

fn size(worker: &WorkerPlan) -> usize {
    let argv = worker.argv().map(|word| cost(word.len()));
    let value = |value: &EnvValue| match value {
        EnvValue::Known(value) => value.len(),
        _ => UNKNOWN_BYTES,
    };
    let env = worker.env().map(|(name, found)| cost(OsStr::len(name) + 1 + value(&found)));
    argv.chain(env).sum()
}

/// Returns the size of a string with its final NUL and the pointer to it.
fn cost(bytes: usize) -> usize {
    bytes + 1 + size_of::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_that_of_the_kernel() {
        assert_eq!(limit(Some(8 << 20)), 2 << 20);
        assert_eq!(limit(Some(64 << 10)), BYTES_MIN);
        assert_eq!(limit(Some(1 << 40)), BYTES_MAX);
        assert_eq!(limit(None), BYTES_MAX);
    }

    #[test]
    fn refusal_names_size_and_limit() {
        assert!(refuse_above(100, 100).is_ok());
        let error = refuse_above(101, 100).expect_err("too much");
        assert_eq!(error.status(), Status::OsLimit);
        let screen = error.screen(crate::report::diagnostic::Paint::Plain);
        assert!(screen.contains("are 101 bytes; the limit here is 100"), "{screen}");
    }
}

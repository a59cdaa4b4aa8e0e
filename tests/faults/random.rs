//! Kills any one process of remuda at a random moment.

#![expect(clippy::disallowed_macros, reason = "a case that fails says which it was")]

use std::process::Stdio;

use rustix::process::Signal;

use crate::support::launch::{Outcome, hosts};
use crate::support::process::{Process, Role, while_stopped};
use crate::support::proof::{Random, proof_cases};

const WORKERS: usize = 4;
const QUIET: &str = "setsid sleep 1000 & exec sleep 1000";
const LOUD: &str = "setsid yes & exec yes";

// Sleeping is not synchronisation here but the random moment itself.

/// Two hosts with two workers each; one process of a random kind is killed at a random moment after
/// the first of its kind has appeared, mostly while the job is still being started.
#[test]
fn prove_random_kill() {
    let mut random = Random::from_seed();
    for case in 0..proof_cases(8) {
        let role = [Role::Launcher, Role::Agent, Role::Shim, Role::Worker][random.below(4)];
        let moment = random.below(40_000) as u64;
        let script = [QUIET, LOUD][random.below(2)];
        eprintln!("case {case}: {role:?} {moment} µs after the first, workers run `{script}`");
        kill_one(role, moment, random.below(WORKERS), script);
    }
}

/// The same, but a shim is stopped by a signal at a random moment, again and again.
#[test]
fn prove_random_stop_of_a_shim() {
    let mut random = Random::from_seed();
    for case in 0..proof_cases(2) {
        let moment = random.below(40_000) as u64;
        let script = [QUIET, LOUD][random.below(2)];
        eprintln!("case {case}: {moment} µs after the first, workers run `{script}`");
        let launch = hosts(&[("n0", 2), ("n1", 2)]).options(["--grace", "2s", "--lease", "10s"]);
        let job = launch.stdout(Stdio::null()).sh(script).start();
        job.wait_for_role(Role::Shim, 1);
        std::thread::sleep(std::time::Duration::from_micros(moment));
        let victims = job.wait_for_role(Role::Shim, 1);
        let victim = victims[random.below(victims.len())].clone();
        let outcome = while_stopped(&victim, || job.end()).code(75);
        let why = "did not answer for 10 s (--lease); remuda killed it and its workers";
        drop(
            outcome
                .says(&format!("node n{} was lost: its `remuda-shim`,", node_of(&victim)))
                .says(why),
        );
    }
}

fn kill_one(role: Role, moment_us: u64, which: usize, script: &str) {
    let launch = hosts(&[("n0", 2), ("n1", 2)]).options(["--grace", "2s"]);
    let job = launch.stdout(Stdio::null()).sh(script).start();
    job.wait_for_role(role, 1);
    std::thread::sleep(std::time::Duration::from_micros(moment_us));
    let victims = job.wait_for_role(role, 1);
    let victim = victims[which % victims.len()].clone();
    victim.signal(Signal::KILL);
    let outcome = job.end();
    let node = node_of(&victim);
    match role {
        Role::Launcher => drop(outcome.killed_by(Signal::KILL)),
        Role::Agent => {
            let outcome = outcome.code(75).says(" was killed by signal 9 (SIGKILL); ");
            drop(outcome.says(&format!("node n{node} was lost: its remuda process ")));
        }
        Role::Shim => {
            drop(outcome.code(75).says(&format!("node n{node} was lost: its `remuda-shim`,")));
        }
        Role::Worker | Role::Other => check_worker(&outcome),
    }
}

/// The node of an agent or a shim; empty before the process has executed its program.
fn node_of(victim: &Process) -> &str {
    victim.command.split("node=").nth(1).map_or("", str::trim)
}

/// The killed worker is named, and by the only error line.
#[track_caller]
fn check_worker(outcome: &Outcome) {
    let record = outcome.record();
    assert_eq!(record["exit"], 137, "{outcome:#?}");
    assert_eq!(record["cause"]["kind"], "worker_failed", "{outcome:#?}");
    assert_eq!(record["cause"]["signal"], 9, "{outcome:#?}");
    assert_eq!(outcome.stderr.matches("error[").count(), 1, "{outcome:#?}");
}

/// The launcher receives a signal to stop and is then killed, as impatient users and batch systems
/// do.
#[test]
fn prove_stop_then_kill() {
    let mut random = Random::from_seed();
    for case in 0..proof_cases(4) {
        let moment = random.below(40_000) as u64;
        let signal = [Signal::INT, Signal::TERM, Signal::HUP][random.below(3)];
        eprintln!("case {case}: {signal:?} after {moment} µs");
        let script = "trap '' INT TERM HUP; setsid sleep 1000 & while :; do sleep 0.1; done";
        let launch = hosts(&[("n0", 2), ("n1", 2)]).options(["--grace", "100ms"]);
        let job = launch.sh(script).start();
        job.wait_for_role(Role::Agent, 1);
        job.signal(signal);
        std::thread::sleep(std::time::Duration::from_micros(moment));
        job.signal(Signal::KILL);
        let _ = job.end();
    }
}

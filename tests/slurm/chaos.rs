//! Any process of a launch inside an allocation, killed at any moment. The oracle knows the victim: the screen
//! must name it as the cause, and nothing may be left on any node.

#![expect(clippy::disallowed_macros, reason = "a case that fails says which it was")]

use rustix::process::Signal;

use crate::slurm::allocation::job;
use crate::slurm::cluster::{NODES, Slurm, can_run};
use crate::support::launch::{Outcome, Running};
use crate::support::process::Process;
use crate::support::proof::{Random, proof_cases};
use crate::support::wait_for;

/// Kinds of processes of a job. A *member* takes part in the job on its node, and is the parent of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Launcher,
    Step,
    Member,
    Agent,
    Shim,
    Worker,
}

const VICTIMS: [Victim; 6] =
    [Victim::Launcher, Victim::Step, Victim::Member, Victim::Agent, Victim::Shim, Victim::Worker];

impl Victim {
    fn is(self, process: &Process) -> bool {
        let words: Vec<&str> = process.command.split_whitespace().collect();
        let is_remuda = words.first().is_some_and(|word| word.ends_with("/remuda"));
        match self {
            Self::Launcher => is_remuda && words.get(1) == Some(&"run"),
            Self::Step => process.name == "srun",
            Self::Member => is_remuda && words.get(1) == Some(&"node"),
            Self::Agent => process.name == "remuda-agent",
            Self::Shim => process.name == "remuda-shim",
            Self::Worker => process.name == "sleep",
        }
    }

    /// Processes of this kind; a child has the name of its parent at first.
    fn find(self, running: &Running) -> Vec<Process> {
        let mut found = running.processes();
        found.retain(|process| self.is(process));
        let pids: Vec<_> = found.iter().map(|process| process.pid.as_raw_pid()).collect();
        found.retain(|process| !pids.contains(&process.parent));
        found
    }
}

/// Three nodes with two workers each; one process of a random kind is killed at a random moment after the first
/// of its kind has appeared.
#[test]
fn prove_chaos_over_slurm() {
    if !can_run("prove_chaos_over_slurm") {
        return;
    }
    let slurm = Slurm::start();
    let mut random = Random::from_seed();
    for case in 0..proof_cases(6) {
        let victim = VICTIMS[(case + random.below(2)) % VICTIMS.len()];
        let moment_us = random.below(60_000) as u64;
        eprintln!("case {case}: {victim:?} {moment_us} µs after the first");
        let running = start(&slurm, victim);
        // Not synchronisation, but the random moment itself.
        std::thread::sleep(std::time::Duration::from_micros(moment_us));
        let found =
            wait_for("victims", || Some(victim.find(&running)).filter(|found| !found.is_empty()));
        let process = &found[random.below(found.len())];
        process.signal(Signal::KILL);
        judge(victim, process, running.end());
    }
}

/// Starts a job that has a victim. On a busy machine Slurm may fail to answer `salloc`, which then starts nothing: it is
/// asked again.
fn start(slurm: &Slurm, victim: Victim) -> Running {
    loop {
        let launch = job().options(["--grace", "2s"]).program(["sleep", "1000"]);
        let mut running = slurm.allocate(launch, &["-N3", "--ntasks-per-node=2"]).start();
        let is_there = wait_for("a victim", || {
            let is_there = !victim.find(&running).is_empty();
            (is_there || running.has_ended()).then_some(is_there)
        });
        if is_there {
            return running;
        }
        let outcome = running.end();
        let is_refused = outcome.stderr.starts_with("salloc: ") && outcome.stdout.is_empty();
        assert!(is_refused, "the job ended before it had a victim: {outcome:#?}");
        eprint!("again: {}", outcome.stderr);
    }
}

#[track_caller]
fn judge(victim: Victim, process: &Process, outcome: Outcome) {
    match victim {
        // The status is that of `salloc`, which ignores how its program ended.
        Victim::Launcher => {}
        Victim::Worker => {
            let outcome = outcome.code(137);
            let cause = outcome.record()["cause"].clone();
            let found = (&cause["kind"], &cause["pid"], &cause["signal"]);
            let pid = process.pid.as_raw_pid();
            assert_eq!(found, (&"worker_failed".into(), &pid.into(), &9.into()), "{outcome:#?}");
        }
        Victim::Step => {
            let error = loss_of(&outcome);
            assert!(error.contains("srun") || error.contains("node0"), "{outcome:#?}");
        }
        Victim::Member | Victim::Agent | Victim::Shim => {
            let error = loss_of(&outcome);
            // The allocation has three of the cluster's nodes.
            let is_named = |node: &usize| error.contains(&format!("node{node:02}"));
            let named = (1..=NODES).filter(is_named).count();
            assert_eq!(named, 1, "one node is the cause: {outcome:#?}");
        }
    }
}

/// The one error of a job that has lost a node, or could not reach it.
#[track_caller]
fn loss_of(outcome: &Outcome) -> &str {
    let code = outcome.status.code().expect("no signal");
    assert!([69, 75, 76].contains(&code), "{outcome:#?}");
    let at = outcome.stderr.find("error[R1").expect("an error");
    let error = &outcome.stderr[at..];
    assert_eq!(error.matches("error[").count(), 1, "{outcome:#?}");
    error
}

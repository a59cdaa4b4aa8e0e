//! Any process of a launch over ssh, killed at any moment. The oracle knows the victim: the screen must
//! name it as the cause, and nothing may be left on any host.

#![expect(clippy::disallowed_macros, reason = "a case that fails says which it was")]

use rustix::process::Signal;

use crate::ssh::cluster::{Cluster, can_run};
use crate::support::launch::{Outcome, Running};
use crate::support::process::{Process, while_stopped};
use crate::support::proof::{Random, proof_cases};
use crate::support::wait_for;

/// By name, as the kernel has it; the last is what the workers execute.
const VICTIMS: [&str; 6] =
    ["remuda", "ssh", "remuda-agent", "remuda-shim", "remuda-janitor", "sleep"];

/// Three hosts with two workers each; one process of a random kind is killed at a random moment
/// after the first of its kind has appeared, also while hosts are still logging in.
#[test]
fn prove_chaos() {
    if !can_run("prove_chaos") {
        return;
    }
    let mut random = Random::from_seed();
    // Where launchers keep their sockets; one that is left fails the case that left it.
    let private = std::env::temp_dir().join(format!("remuda-chaos-{}", std::process::id()));
    std::fs::create_dir(&private).expect("a directory");
    for case in 0..proof_cases(6) {
        let kind = VICTIMS[random.below(VICTIMS.len())];
        let mux = ["native", "process"][random.below(2)];
        let moment_us = random.below(60_000) as u64;
        eprintln!("case {case}: {kind} {moment_us} µs after the first, mux {mux}");
        let (_cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2), ("n3", 2)]);
        let launch = launch.options(["--grace", "2s", "--ssh_mux", mux]);
        let launch = launch.env("XDG_RUNTIME_DIR", &private);
        let running = launch.program(["sleep", "1000"]).start();
        wait_for(kind, || named(&running, kind).into_iter().next());
        // Not synchronisation, but the random moment itself.
        std::thread::sleep(std::time::Duration::from_micros(moment_us));
        let victims = wait_for(kind, || Some(named(&running, kind)).filter(|all| !all.is_empty()));
        let victim = &victims[random.below(victims.len())];
        victim.signal(Signal::KILL);
        judge(kind, victim, running);
        let is_clear = || (std::fs::read_dir(&private).ok()?.count() == 0).then_some(());
        wait_for("the end of the private directory", is_clear);
    }
    std::fs::remove_dir(private).expect("it is empty");
}

/// The same, but the process is stopped by a signal again and again. An ssh is stopped once workers
/// run: a suspended login times out after a minute.
#[test]
fn prove_chaos_of_stops() {
    const KINDS: [&str; 3] = ["ssh", "remuda-shim", "remuda-janitor"];
    if !can_run("prove_chaos_of_stops") {
        return;
    }
    let mut random = Random::from_seed();
    let private = std::env::temp_dir().join(format!("remuda-stops-{}", std::process::id()));
    std::fs::create_dir(&private).expect("a directory");
    for case in 0..proof_cases(3) {
        let kind = KINDS[(case + random.below(2)) % KINDS.len()];
        let mux = ["native", "process"][random.below(2)];
        let moment_us = random.below(60_000) as u64;
        eprintln!("case {case}: {kind} {moment_us} µs after the first, mux {mux}");
        let (_cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2), ("n3", 2)]);
        let launch = launch.options(["--grace", "2s", "--lease", "10s", "--ssh_mux", mux]);
        let launch = launch.env("XDG_RUNTIME_DIR", &private);
        let running = launch.sh("echo ready; exec sleep 1000").start();
        if kind == "ssh" {
            running.wait_for_lines("ready", 6);
        }
        wait_for(kind, || named(&running, kind).into_iter().next());
        // Not synchronisation, but the random moment itself.
        std::thread::sleep(std::time::Duration::from_micros(moment_us));
        let victims =
            wait_for(kind, || Some(stoppable(&running, kind)).filter(|all| !all.is_empty()));
        let victim = &victims[random.below(victims.len())];
        while_stopped(victim, || match kind {
            "ssh" => blames(&running.end(), &[75], &host_of_ssh(victim)),
            "remuda-shim" => blames(&running.end(), &[75], &host_of_agent(victim)),
            _ => {
                running.signal(Signal::TERM);
                running.end().code(143);
            }
        });
        let is_clear = || (std::fs::read_dir(&private).ok()?.count() == 0).then_some(());
        wait_for("the end of the private directory", is_clear);
    }
    std::fs::remove_dir(private).expect("it is empty");
}

/// The processes of a kind that a job cannot do without. The ssh of a channel has handed its pipes to the
/// ssh of the connection (`-M`): the job goes on while the former is stopped.
fn stoppable(running: &Running, kind: &str) -> Vec<Process> {
    let mut found = named(running, kind);
    found.retain(|process| kind != "ssh" || process.command.contains(" -M "));
    found
}

/// Processes with this name in `/proc/PID/comm`, in order of their pids.
fn named(running: &Running, kind: &str) -> Vec<Process> {
    let mut found = running.processes();
    found.retain(|process| process.name == kind);
    // An ssh that only prints its settings (`ssh -G`) is not part of the job, one without arguments may be
    // such a one, and other processes have the launcher's name before they get their own.
    found.retain(|process| !process.command.is_empty() && !process.command.contains(" -G "));
    found.retain(|process| kind != "remuda" || process.pid == running.pid());
    // A shim has the name of its agent at first, and a worker that of its shim.
    let pids: Vec<_> = found.iter().map(|process| process.pid.as_raw_pid()).collect();
    found.retain(|process| !pids.contains(&process.parent));
    found.sort_by_key(|process| process.pid.as_raw_pid());
    found
}

fn judge(kind: &str, victim: &Process, running: Running) {
    match kind {
        "remuda" => drop(running.end().killed_by(Signal::KILL)),
        // The job does not depend on it.
        "remuda-janitor" => {
            running.signal(Signal::TERM);
            running.end().code(143);
        }
        "sleep" => {
            let outcome = running.end().code(137);
            let cause = outcome.record()["cause"].clone();
            let found = (&cause["kind"], &cause["pid"], &cause["signal"]);
            let pid = victim.pid.as_raw_pid();
            assert_eq!(found, (&"worker_failed".into(), &pid.into(), &9.into()), "{outcome:#?}");
        }
        "ssh" => blames(&running.end(), &[69, 75, 76], &host_of_ssh(victim)),
        "remuda-agent" => blames(&running.end(), &[75, 76], &host_of_agent(victim)),
        "remuda-shim" => blames(&running.end(), &[75], &host_of_agent(victim)),
        _ => unreachable!("one of VICTIMS"),
    }
}

/// The one error is about this host and no other.
#[track_caller]
fn blames(outcome: &Outcome, codes: &[i32], host: &str) {
    let code = outcome.status.code().expect("no signal");
    assert!(codes.contains(&code), "{host}: {outcome:#?}");
    let at = outcome.stderr.find("error[R10").expect("an error");
    let error = &outcome.stderr[at..];
    let named: Vec<_> = ["n1", "n2", "n3"].into_iter().filter(|name| names(error, name)).collect();
    assert_eq!(named, [host], "{outcome:#?}");
    assert_eq!(error.matches("error[").count(), 1, "{outcome:#?}");
}

/// Whether a text has a word.
fn names(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|found| found == word)
}

/// `node=K` is what an agent and its shim were started with.
fn host_of_agent(victim: &Process) -> String {
    let node = victim.command.split("node=").nth(1).expect("every agent has one");
    host(node.split(' ').next().expect("a number"))
}

/// Its socket is called after the node.
fn host_of_ssh(victim: &Process) -> String {
    let mut words = victim.command.split(' ').skip_while(|word| *word != "-S");
    let socket = words.nth(1).expect("every ssh has a socket");
    let file = socket.rsplit('/').next().expect("a name");
    host(file.split('.').next().expect("a number"))
}

fn host(node: &str) -> String {
    format!("n{}", node.parse::<u32>().expect("a number") + 1)
}

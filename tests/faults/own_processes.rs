//! Processes of remuda that are killed or suspended: launcher, agent, shim, alone and together.

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::support::launch::{Running, command, hosts, workers};
use crate::support::process::{MARK, Process, Role, assert_clean, marked};
use crate::support::proof::skip;
use crate::support::wait_for;

/// SIGTERM ends it and the processes that it starts.
const POLITE: &str = "sleep 1000 & echo ready; wait";
/// Handles SIGTERM and continues to run.
const STUBBORN: &str = "trap ': >\"$TERMED\"' TERM; echo ready; while :; do sleep 0.05; done";
/// Leaves its parent and its session, and does not end when asked.
const DAEMON: &str = "setsid sh -c \"trap '' TERM HUP; : >\\\"$FLAG.$RANK\\\"; \
     while :; do sleep 0.05; done\" >/dev/null 2>&1 & \
     until [ -e \"$FLAG.$RANK\" ]; do sleep 0.01; done; echo ready; exec sleep 1000";

/// Two hosts with two workers each, all of them with a daemon of their own.
fn two_hosts() -> Running {
    let launch = hosts(&[("n0", 2), ("n1", 2)]).options(["--grace", "300ms"]);
    let flag = launch.dir().join("flag");
    let job = launch.env("FLAG", flag).sh(DAEMON).start();
    job.wait_for_lines("ready", 4);
    job
}

/// The process of this role on `n1`.
fn of_n1(job: &Running, role: Role) -> Process {
    let agents = job.wait_for_role(Role::Agent, 2);
    let agent = agents.into_iter().find(|agent| agent.command.contains("node=1")).expect("n1");
    match role {
        Role::Shim => {
            let shims = job.wait_for_role(Role::Shim, 2);
            let ours = |shim: &Process| shim.parent == agent.pid.as_raw_pid();
            shims.into_iter().find(ours).expect("every agent has one")
        }
        _ => agent,
    }
}

#[test]
fn test_jobs_leave_no_directory() {
    let unused = workers(1).dir().to_owned();
    assert!(!unused.exists(), "of a launch that was not started");
    let launch = workers(1).sh("sleep 1000");
    let (another, dir) = (launch.another(), launch.dir().to_owned());
    drop(launch.start());
    assert!(dir.exists(), "another launch needs it");
    drop(another);
    assert!(!dir.exists(), "of a job that was not waited for");
}

#[test]
fn processes_of_remuda_have_their_own_names() {
    let job = two_hosts();
    assert!(of_n1(&job, Role::Agent).command.contains("remuda agent job="));
    assert_eq!(of_n1(&job, Role::Agent).name, "remuda-agent");
    assert_eq!(of_n1(&job, Role::Shim).name, "remuda-shim");
    job.signal(Signal::TERM);
    job.end().code(143);
}

#[test]
fn killed_shim_stops_its_workers_and_is_the_cause() {
    let job = two_hosts();
    of_n1(&job, Role::Shim).signal(Signal::KILL);
    let outcome = job
        .end()
        .code(75)
        .says("node n1 was lost: its `remuda-shim`, which starts the workers, was killed or crashed; ")
        .says("; ranks 2-3 exited with it");
    let record = outcome.record();
    assert_eq!(record["cause"]["kind"], "node_lost");
    assert_eq!(record["cause"]["host"], "n1");
}

#[test]
fn killed_agent_is_the_cause_and_stops_other_nodes() {
    let job = two_hosts();
    of_n1(&job, Role::Agent).signal(Signal::KILL);
    let outcome = job
        .end()
        .code(75)
        .says("node n1 was lost: its remuda process was killed by signal 9 (SIGKILL)");
    assert_eq!(outcome.record()["exit_of"], "remuda");
}

#[test]
fn killed_agent_of_a_single_node_is_the_cause() {
    let job = workers(1).sh(POLITE).start();
    job.wait_for_lines("ready", 1);
    job.the(Role::Agent).signal(Signal::KILL);
    job.end()
        .code(75)
        .says("node localhost was lost: its remuda process was killed by signal 9 (SIGKILL)");
}

/// Only the launcher is left to clean up: it inherits all processes of the node.
#[test]
fn agent_and_shim_killed_together_leave_nothing() {
    let job = two_hosts();
    let (agent, shim) = (of_n1(&job, Role::Agent), of_n1(&job, Role::Shim));
    // Stopped first, so that neither sees the other die.
    for signal in [Signal::STOP, Signal::KILL] {
        shim.signal(signal);
        agent.signal(signal);
    }
    job.end()
        .code(75)
        .says("node n1 was lost: its remuda process was killed by signal 9 (SIGKILL)");
}

#[test]
fn killed_launcher_leaves_nothing() {
    let job = two_hosts();
    job.signal(Signal::KILL);
    let outcome = job.end().killed_by(Signal::KILL);
    let record = outcome.record();
    assert_eq!((&record["state"], &record["exit"]), (&"running".into(), &Value::Null));
    let workers = record["workers"].as_array().expect("workers").iter();
    let ends: Vec<_> = workers.map(|worker| (worker["rank"].as_u64(), &worker["code"])).collect();
    let running = (0..4).map(|rank| (Some(rank), &Value::Null));
    assert_eq!((&record["end"], ends), (&Value::Null, running.collect()));
}

#[test]
fn killed_launcher_lets_workers_receive_sigterm_first() {
    let launch = workers(1).options(["--grace", "300ms"]);
    let termed = launch.dir().join("termed");
    let job = launch.env("TERMED", termed.clone()).sh(STUBBORN).start();
    job.wait_for_lines("ready", 1);
    job.signal(Signal::KILL);
    wait_for("SIGTERM at the worker", || termed.exists().then_some(()));
    job.end().killed_by(Signal::KILL);
}

#[test]
fn launcher_and_agent_killed_together_leave_nothing() {
    let job = two_hosts();
    let agent = of_n1(&job, Role::Agent);
    for signal in [Signal::STOP, Signal::KILL] {
        agent.signal(signal);
        job.signal(signal);
    }
    job.end().killed_by(Signal::KILL);
}

#[test]
fn launcher_and_shim_killed_together_leave_nothing() {
    let job = two_hosts();
    let shim = of_n1(&job, Role::Shim);
    for signal in [Signal::STOP, Signal::KILL] {
        shim.signal(signal);
        job.signal(signal);
    }
    job.end().killed_by(Signal::KILL);
}

/// As a batch system signals a whole control group.
#[test]
fn sigterm_to_all_processes_keeps_the_grace() {
    let script = "trap 'echo asked; sleep 0.2; echo done; exit 0' TERM; echo ready; \
         while :; do sleep 0.01; done";
    let job = hosts(&[("n0", 1), ("n1", 1)]).sh(script).start();
    job.wait_for_lines("ready", 2);
    for process in job.processes() {
        process.signal(Signal::TERM);
    }
    job.wait_for_lines("done", 2);
    job.end().code(143).says("SIGTERM received");
}

/// The lease is long enough for heartbeats on a busy machine.
#[test]
fn suspended_launcher_loses_its_lease() {
    let launch = workers(1).options(["--grace", "200ms", "--lease", "10s"]);
    let termed = launch.dir().join("termed");
    let script = format!("(while :; do echo flood; done) & {STUBBORN}");
    let job = launch.env("TERMED", termed.clone()).sh(&script).start();
    job.wait_for_lines("ready", 1);
    job.signal(Signal::STOP);
    wait_for("SIGTERM at the worker", || termed.exists().then_some(()));
    wait_for("the end of all other processes", || (job.processes().len() == 1).then_some(()));
    job.signal(Signal::CONT);
    let outcome = job.end().code(75).says("stopping the workers");
    let outcome = outcome.says("Stalled  launcher was suspended for ");
    outcome
        .says("node localhost was lost: it received no heartbeat from the launcher for 10 s (--lease) and stopped its workers");
}

#[test]
fn suspended_agents_are_lost_together() {
    let launch = hosts(&[("n0", 1), ("n1", 1), ("n2", 1)]).options(["--lease", "10s"]);
    let job = launch.sh(POLITE).start();
    job.wait_for_lines("ready", 3);
    let agents = job.wait_for_role(Role::Agent, 3);
    for agent in &agents[..2] {
        agent.signal(Signal::STOP);
    }
    let outcome = job
        .end()
        .code(75)
        .says("the launcher received no heartbeat from it")
        .says(" for 10 s (--lease)");
    outcome.says("lost too: n").says("to continue without them: --exclude n");
}

/// A launcher that is process 1 of a container also inherits orphans that do not belong to the job,
/// such as those of `kubectl exec`.
#[test]
fn process_1_stops_only_processes_of_the_job() {
    const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let made = command(NAMESPACE[0]).args(&NAMESPACE[1..]).arg("true").status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("pid namespaces", "process_1_stops_only_processes_of_the_job");
    }
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--grace", "1h"]).through(&NAMESPACE);
    let flag = launch.dir().join("flag");
    let script = format!("[ $RANK = 1 ] || {{ {STUBBORN}; }}; {DAEMON}");
    let job = launch.env("FLAG", flag).env("TERMED", "/dev/null").sh(&script).start();
    job.wait_for_lines("ready", 2);

    // The namespace's own process 1 is the child of `unshare`.
    let init = job.wait_for_role(Role::Agent, 1).remove(0);
    let mark = format!("{}-stranger", std::process::id());
    let mut enter = command("nsenter");
    enter.args(["--pid", "--mount", "--target", &init.pid.to_string(), "sh", "-c"]);
    enter.arg("sleep 1000 </dev/null >/dev/null 2>&1 & exit 0").env(MARK, &mark);
    assert!(enter.status().expect("nsenter").success());
    wait_for("the stranger", || adopted(&mark, init.pid));

    let agents = job.processes().into_iter().filter(|process| process.name == "remuda-agent");
    let mut agents = agents.filter(|agent| agent.command.contains("node=1"));
    agents.next().expect("n1").signal(Signal::KILL);
    job.wait_for_error("Stopping");
    wait_for("the end of everything of n1", || {
        let rest = job.processes();
        let daemon = |process: &Process| process.command.starts_with("sh -c trap '' TERM HUP");
        (!rest.iter().any(daemon)).then_some(())
    });
    assert!(adopted(&mark, init.pid).is_some(), "it does not belong to the job");
    init.signal(Signal::INT);
    job.wait_for_error("SIGINT received");
    std::thread::sleep(remuda::job::REQUEST_MERGE_INTERVAL);
    init.signal(Signal::INT);
    assert_eq!(job.end().status.code(), Some(75));
    assert_clean(&mark, init.pid);
}

/// Whether there is a process with this mark whose parent is this one.
fn adopted(mark: &str, parent: Pid) -> Option<()> {
    let found = marked(mark, parent);
    found.iter().any(|process| process.parent == parent.as_raw_pid()).then_some(())
}

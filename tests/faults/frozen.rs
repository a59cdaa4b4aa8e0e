//! A shim that is stopped by a signal (SIGSTOP): continued once, then killed, and nothing is left. An
//! agent that is stopped is killed.

use rustix::process::Signal;

use crate::support::launch::{hosts, workers};
use crate::support::process::{Process, Role, while_stopped};

/// Leaves its parent and its session, and ignores what asks it to end.
const DAEMON: &str = "setsid sh -c \"trap '' TERM HUP; : >\\\"$FLAG.$RANK\\\"; \
     while :; do sleep 0.05; done\" >/dev/null 2>&1 & \
     until [ -e \"$FLAG.$RANK\" ]; do sleep 0.01; done; echo ready; exec sleep 1000";

#[test]
fn stopped_shim_is_continued_and_the_job_goes_on() {
    let launch = workers(2).options(["--lease", "10s"]);
    let flag = launch.dir().join("flag");
    let script = "echo ready; until [ -e \"$FLAG\" ]; do sleep 0.05; done; echo done";
    let job = launch.env("FLAG", &flag).sh(script).start();
    job.wait_for_lines("ready", 2);
    job.the(Role::Shim).signal(Signal::STOP);
    job.wait_for_error("remuda-shim did not answer for 10 s (--lease); sent SIGCONT");
    std::fs::write(flag, "").expect("a flag");
    let outcome = job.end().code(0);
    assert_eq!(outcome.stdout_text().matches("done").count(), 2, "{outcome:#?}");
}

#[test]
fn stopped_shim_is_killed_with_its_workers() {
    let launch = hosts(&[("n0", 2), ("n1", 2)]).options(["--grace", "300ms", "--lease", "10s"]);
    let flag = launch.dir().join("flag");
    let job = launch.env("FLAG", flag).sh(DAEMON).start();
    job.wait_for_lines("ready", 4);
    let agents = job.wait_for_role(Role::Agent, 2);
    let agent = agents.into_iter().find(|agent| agent.command.contains("node=1")).expect("n1");
    let shims = job.wait_for_role(Role::Shim, 2);
    let of_n1 = |shim: &Process| shim.parent == agent.pid.as_raw_pid();
    let shim = shims.into_iter().find(of_n1).expect("every agent has one");
    let outcome = while_stopped(&shim, || job.end()).code(75);
    let outcome = outcome.says(
        "error[R103]: node n1 was lost: its `remuda-shim`, which starts the workers, did not answer for 10 s \
         (--lease); remuda killed it and its workers; ",
    );
    let record = outcome.says("lost with it: ranks 2-3").record();
    assert_eq!(record["cause"]["kind"], "node_lost");
    assert_eq!(record["cause"]["host"], "n1");
}

#[test]
fn stopped_shim_is_replaced_by_a_restart() {
    let launch = workers(1).options(["--lease", "10s", "--max_restarts", "1"]);
    let script = "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; echo ready; exec sleep 1000";
    let job = launch.sh(script).start();
    job.wait_for_lines("ready", 1);
    let shim = job.the(Role::Shim);
    while_stopped(&shim, || job.end()).code(0).says("did not answer for 10 s (--lease)");
}

#[test]
fn stopped_shim_cannot_outlast_a_timeout() {
    let launch = workers(2).options(["--grace", "300ms", "--timeout", "10s", "--lease", "1h"]);
    let flag = launch.dir().join("flag");
    let job = launch.env("FLAG", flag).sh(DAEMON).start();
    job.wait_for_lines("ready", 2);
    let shim = job.the(Role::Shim);
    let outcome = while_stopped(&shim, || job.end()).code(124).does_not_say("had to be stopped");
    // The shim may be continued before the workers are killed.
    outcome.says("the job did not end within 10 s (--timeout); 2 workers were ");
}

#[test]
fn stopped_shim_forwards_a_signal() {
    let script = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let job = workers(2).options(["--lease", "1h"]).sh(script).start();
    job.wait_for_lines("ready", 2);
    job.the(Role::Shim).signal(Signal::STOP);
    job.signal(Signal::TERM);
    let outcome = job.end().code(143);
    assert_eq!(outcome.stdout_text().matches("asked").count(), 2, "{outcome:#?}");
}

#[test]
fn stopped_shim_of_a_killed_launcher_leaves_nothing() {
    let launch = workers(2).options(["--grace", "300ms", "--lease", "1h"]);
    let flag = launch.dir().join("flag");
    let job = launch.env("FLAG", flag).sh(DAEMON).start();
    job.wait_for_lines("ready", 2);
    let shim = job.the(Role::Shim);
    job.signal(Signal::KILL);
    while_stopped(&shim, || job.end()).killed_by(Signal::KILL);
}

#[test]
fn stopped_agent_leaves_no_process_and_no_warning() {
    let launch = workers(2).options(["--grace", "300ms", "--lease", "10s"]);
    let flag = launch.dir().join("flag");
    let job = launch.env("FLAG", flag).sh(DAEMON).start();
    job.wait_for_lines("ready", 2);
    let agent = job.the(Role::Agent);
    let outcome = while_stopped(&agent, || job.end()).code(75);
    let outcome = outcome.says("received no heartbeat from it for 10 s (--lease)");
    drop(outcome.does_not_say("still running"));
}

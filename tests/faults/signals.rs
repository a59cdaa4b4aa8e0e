//! Signals that the user or the system sends to the launcher.

use std::process::Stdio;

use rustix::process::{Pid, Signal};

use crate::support::launch::{Launch, Running, hosts, workers};
use crate::support::process::Role;
use crate::support::wait_for;

/// Prints every signal that it receives; no signal ends it.
const TELLS: &str = "for s in INT TERM HUP QUIT; do trap \"echo got $s\" $s; done; echo ready; \
     while :; do sleep 0.02; done";
const POLITE: &str = "echo ready; exec sleep 1000";

/// Starts a launch and waits until every worker runs.
fn ready(launch: Launch, script: &str, workers: usize) -> Running {
    let job = launch.sh(script).start();
    job.wait_for_lines("ready", workers);
    job
}

#[test]
fn first_sigint_is_forwarded_and_becomes_sigterm() {
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--grace", "5s"]);
    let job = ready(launch, TELLS, 2);
    job.signal(Signal::INT);
    job.wait_for_lines("got INT", 2);
    job.wait_for_lines("got TERM", 2);
    let outcome =
        job.end().code(130).says("SIGINT received, grace 5.0 s; send it again to kill them now");
    let outcome = outcome.says("Killing").says("the job was stopped by SIGINT");
    assert_eq!(outcome.record()["exit_of"], "remuda");
    let cause = &outcome.record()["cause"];
    assert_eq!((&cause["kind"], &cause["signal"]), (&"interrupted".into(), &2.into()));
    assert_eq!(cause["rank"], serde_json::Value::Null);
}

#[test]
fn second_sigint_kills_workers() {
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--grace", "1h"]);
    let job = ready(launch, TELLS, 2);
    job.signal(Signal::INT);
    job.wait_for_lines("got INT", 2);
    job.signal_again(Signal::INT);
    let outcome = job.end().code(130).says("   Killing  ranks 0, 1\n");
    drop(outcome.says("the job was stopped by SIGINT; 2 workers were killed\n"));
}

/// `timeout` sends a signal to its command and then to its whole group, which contains the command.
#[test]
fn signal_sent_twice_by_timeout_is_one_request() {
    let script =
        "trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let launch = workers(2).options(["--grace", "1h"]).through(&["timeout", "1h"]);
    let job = ready(launch, script, 2);
    job.signal(Signal::TERM);
    let outcome = job.end().code(143).says("SIGTERM received").does_not_say("Killing");
    assert_eq!(outcome.stdout_text().matches("saved").count(), 2, "{outcome:#?}");
}

/// A suspended agent confirms nothing.
#[test]
fn third_sigint_exits_and_names_unconfirmed_nodes() {
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--grace", "1h"]);
    let job = ready(launch, TELLS, 2);
    let agents = job.wait_for_role(Role::Agent, 2);
    let stopped = agents.into_iter().find(|agent| agent.command.contains("node=1")).expect("n1");
    stopped.signal(Signal::STOP);
    job.signal(Signal::INT);
    job.wait_for_error("SIGINT received");
    job.signal_again(Signal::INT);
    job.wait_for_error("Killing");
    job.signal_again(Signal::INT);
    job.wait_for_error("could not confirm that all processes have exited on: ");
    // It finds its link closed as soon as it continues.
    stopped.signal(Signal::CONT);
    // The answer of the other agent may have been too late.
    let outcome = job.end().code(130);
    assert!(outcome.stderr.ends_with("on: n1\n") || outcome.stderr.ends_with(", n1\n"));
}

#[test]
fn sigterm_is_143_and_keeps_the_grace() {
    let job = ready(workers(2), POLITE, 2);
    job.signal(Signal::TERM);
    let outcome = job.end().code(143).says("SIGTERM received");
    assert_eq!(outcome.record()["workers"][1]["signal"], 15);
    assert_eq!(outcome.record()["workers"][1]["stopped"], true);
}

#[test]
fn closed_terminal_stops_the_job() {
    let job = ready(workers(2), POLITE, 2);
    job.signal(Signal::HUP);
    let outcome = job.end().code(129).says("SIGHUP received");
    assert_eq!(outcome.record()["workers"][0]["signal"], 1);
}

#[test]
fn nohup_is_kept_by_launcher_and_workers() {
    let launch = workers(2).under("trap '' HUP").options(["--grace", "300ms"]);
    let job = ready(launch, "trap 'echo got HUP' HUP; echo ready; while :; do sleep 0.02; done", 2);
    job.signal(Signal::HUP);
    for worker in job.wait_for_role(Role::Worker, 2) {
        worker.signal(Signal::HUP);
    }
    // Both signals have been handled once a later one has.
    job.signal(Signal::QUIT);
    job.wait_for_error("State  rank 1");
    job.signal(Signal::TERM);
    let outcome = job.end().code(143);
    assert!(!outcome.stdout_text().contains("got HUP"), "{outcome:#?}");
}

/// A shell without job control starts a command with `&` so.
#[test]
fn sigint_and_sigquit_are_received_although_they_were_ignored() {
    let launch = workers(2).under("trap '' INT QUIT").options(["--grace", "5s"]);
    let job = ready(launch, POLITE, 2);
    job.signal(Signal::QUIT);
    job.wait_for_error("State  rank 1");
    job.signal(Signal::INT);
    let _outcome = job.end().code(130).says("the job was stopped by SIGINT");
}

#[test]
fn suspended_job_suspends_its_workers_and_resumes() {
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--stdin", "all"]);
    let mut job = ready(launch.stdin(Stdio::piped()), "echo ready; read go; exit 0", 2);
    for _ in 0..2 {
        job.signal(Signal::TSTP);
        wait_for("launcher and workers to stop", || {
            let mut stopped = job.processes();
            stopped.retain(|process| process.state() == Some('T'));
            (stopped.len() == 3).then_some(())
        });
        job.signal(Signal::CONT);
        wait_for("all processes to continue", || {
            job.processes().iter().all(|process| process.state() != Some('T')).then_some(())
        });
    }
    drop(job.take_stdin());
    job.end().code(0).says("Paused  2 workers").says("Running  2 workers");
}

/// A suspended worker cannot exit when it is asked to.
#[test]
fn suspended_workers_resume_when_the_launcher_is_killed() {
    let launch = workers(1).options(["--grace", "1h"]);
    let termed = launch.dir().join("termed");
    let script = "trap ': >\"$TERMED\"; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let job = ready(launch.env("TERMED", &termed), script, 1);
    job.signal(Signal::TSTP);
    let launcher = job.the(Role::Launcher);
    wait_for("the launcher to stop", || (launcher.state() == Some('T')).then_some(()));
    job.signal(Signal::KILL);
    wait_for("SIGTERM at the worker", || termed.exists().then_some(()));
    job.end().killed_by(Signal::KILL);
}

#[test]
fn sigquit_shows_every_worker() {
    let launch = hosts(&[("n0", 2), ("n1", 1)]);
    let flag = launch.dir().join("flag");
    let script = "[ $RANK = 1 ] && exit 0; echo ready; until [ -e \"$FLAG\" ]; do sleep 0.01; done";
    let job = ready(launch.env("FLAG", flag.clone()), script, 2);
    wait_for("the end of rank 1", || (job.wait_for_role(Role::Worker, 1).len() == 2).then_some(()));
    // The launcher may receive the exit a little later than the test sees it.
    wait_for("the launcher to report the exit of rank 1", || {
        job.signal(Signal::QUIT);
        job.stderr().contains("State  rank 1 (n0): exited with code 0\n").then_some(())
    });
    job.wait_for_error("State  rank 2 (n1): pid ");
    std::fs::write(flag, "").expect("a flag");
    job.end().code(0).says("State  rank 0 (n0): pid ");
}

/// Suspended by another process than the launcher.
#[test]
fn sigquit_shows_suspended_workers() {
    let job = ready(hosts(&[("n0", 1), ("n1", 1)]), POLITE, 2);
    let worker = job.wait_for_role(Role::Worker, 2).remove(0);
    worker.signal(Signal::STOP);
    wait_for("a worker that is suspended", || (worker.state() == Some('T')).then_some(()));
    job.signal(Signal::QUIT);
    let pid = worker.pid;
    let line = format!("pid {pid} is suspended (state T); `kill -CONT {pid}` there continues it\n");
    job.wait_for_error(&line);
    let stderr = job.stderr();
    let runs = stderr.lines().find(|line| line.contains(&format!("pid {pid}, running for ")));
    let who = runs.and_then(|line| line.split(": ").next()).expect("who it is");
    assert!(stderr.contains(&format!("{who}: {line}")), "{stderr}");
    assert_eq!(stderr.matches("is suspended").count(), 1, "{stderr}");
    worker.signal(Signal::CONT);
    job.signal(Signal::TERM);
    job.end().code(143);
}

#[test]
fn user_signals_are_forwarded_to_workers() {
    let script = "trap 'echo got USR1; exit 0' USR1; echo ready; while :; do sleep 0.02; done";
    let job = ready(workers(2), script, 2);
    job.signal(Signal::USR1);
    job.wait_for_lines("got USR1", 2);
    job.end().code(0);
}

#[test]
fn worker_without_a_handler_for_a_user_signal_is_explained() {
    let job = ready(workers(1), "echo ready; exec sleep 1000", 1);
    job.signal(Signal::USR1);
    let outcome = job.end().code(138).says("was killed by signal 10 (SIGUSR1)");
    drop(outcome.says("remuda forwarded SIGUSR1; the program has no handler for it\n"));
}

/// Ctrl-C reaches the whole foreground group of a terminal: agents and workers are not in it.
#[test]
fn ctrl_c_reaches_only_the_launcher() {
    let job = ready(workers(1), TELLS, 1);
    let ours = job.processes().into_iter().filter(|process| process.role != Role::Other);
    let groups: Vec<_> = ours.map(|process| group_and_session(process.pid)).collect();
    let (group, session) = group_and_session(job.pid());
    assert_eq!(groups.len(), 4);
    assert_eq!(groups.iter().filter(|of| of.0 == group || of.1 == session).count(), 1);
    job.signal(Signal::TERM);
    job.wait_for_lines("got TERM", 1);
    job.signal_again(Signal::TERM);
    job.end().code(143);
}

/// Group and session from `/proc`: 0 where the leader is in an outer pid namespace.
fn group_and_session(pid: Pid) -> (i32, i32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let mut fields = stat.rsplit_once(") ").expect("the name ends").1.split(' ').skip(2);
    let mut number = || fields.next().expect("a field").parse().expect("a number");
    (number(), number())
}

#[test]
fn job_over_its_timeout_is_124() {
    let job = hosts(&[("n0", 1), ("n1", 1)]).options(["--timeout", "300ms", "--grace", "200ms"]);
    let outcome = job.sh(TELLS).end().code(124).says("the job did not end within 300 ms");
    assert_eq!(outcome.record()["exit_of"], "remuda");
    workers(1).options(["--timeout", "1ms"]).sh(POLITE).end().code(124);
    workers(1).options(["--timeout", "1h"]).sh("exit 0").end().code(0);
}

#[test]
fn two_jobs_do_not_touch_each_other() {
    let (one, other) = (ready(workers(2), POLITE, 2), ready(workers(2), POLITE, 2));
    one.wait_for_role(Role::Agent, 1)[0].signal(Signal::KILL);
    one.end().code(75);
    assert_eq!(other.processes().len(), 5);
    other.signal(Signal::TERM);
    other.end().code(143);
}

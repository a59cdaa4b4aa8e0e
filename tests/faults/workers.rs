//! Workers that fail, exit early, are killed or leave processes behind.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::Signal;

use crate::faults::trace_ffi::Tracer;
use crate::support::cgroup::Group;
use crate::support::launch::{Launch, Outcome, Running, command, hosts, python, workers};
use crate::support::process::Role;
use crate::support::proof::skip;
use crate::support::wait_for;

/// A worker that prints `ready` and then sleeps; SIGTERM ends it.
const WAITS: &str = "echo ready; exec sleep 1000";
/// Rank 0 fails once rank 1 has created a file.
fn after_rank_1(fails: &str, rank_1: &str) -> String {
    format!(
        "if [ $RANK = 1 ]; then {rank_1}; fi; until [ -e \"$FLAG\" ]; do sleep 0.01; done; {fails}"
    )
}

/// Two workers: rank 0 does `fails` once rank 1 has made the file `$FLAG`.
fn failing(fails: &str, rank_1: &str) -> Launch {
    let launch = workers(2);
    let flag = launch.dir().join("flag");
    launch.env("FLAG", flag).sh(&after_rank_1(fails, rank_1))
}

/// Only remuda has sent a signal to this worker, so the signal is not its failure.
#[test]
fn worker_that_gave_up_is_named() {
    for launch in [
        workers(3),
        hosts(&[("n0", 2), ("n1", 1)]).options([
            "--no_python",
            "--no_local_rank",
            "--accelerator",
            "cpu",
        ]),
    ] {
        let outcome = launch
            .misbehave("give-up")
            .end()
            .code(1)
            .says("error[R101]: rank 1 (")
            .says(") aborted the collectives of all ranks after ")
            .says("rank 1 aborted the group: the loss is not a number")
            .says(" exited with code 1 after it detected this failure; this rank was then stopped by remuda")
            .does_not_say("killed by signal");
        let cause = &outcome.record()["cause"];
        assert_eq!((&cause["rank"], &cause["code"]), (&1.into(), &1.into()), "{cause}");
    }
}

/// The rank that waited reports to its agent before it tells the others, which exit at once.
#[test]
fn rank_for_which_a_silent_rank_waited_is_named() {
    let outcome = workers(3).misbehave("wait-in-vain").end().code(1);
    let outcome = outcome.says("error[R101]: rank 2 (localhost) did not take part: rank 1 ");
    assert_eq!(outcome.record()["cause"]["evidence"], "reports_of_others");
}

#[test]
fn exit_code_is_the_status_and_stops_other_workers() {
    let outcome = hosts(&[("n0", 1), ("n1", 2)])
        .sh("if [ $RANK = 2 ]; then echo bad luck >&2; exit 3; fi; exec sleep 1000")
        .end()
        .code(3)
        .says("rank 2 (n1) exited with code 3 after ")
        .says("; 2 other workers were stopped")
        .says("    | bad luck\n");
    let record = outcome.record();
    assert_eq!(record["exit"], 3);
    assert_eq!(record["exit_of"], "worker");
    assert_eq!(record["cause"]["rank"], 2);
    assert_eq!(record["cause"]["host"], "n1");
    assert_eq!(record["workers"][0]["signal"], 15);
    assert_eq!(record["workers"][0]["stopped"], true);
    assert_eq!(record["workers"][2]["code"], 3);
    assert_eq!(record["workers"][2]["stopped"], false);
}

#[test]
fn early_success_stops_no_worker() {
    let job = workers(2).sh("if [ $RANK = 0 ]; then echo early; exit 0; fi; read line; echo late");
    let mut job = job.options(["--stdin", "1"]).stdin(Stdio::piped()).start();
    let stdin = job.take_stdin();
    job.wait_for_lines("early", 1);
    wait_for("rank 0's end", || (job.wait_for_role(Role::Worker, 1).len() == 1).then_some(()));
    drop(stdin);
    let outcome = job.end().code(0);
    assert!(outcome.stdout_text().contains("late"), "{outcome:#?}");
}

#[test]
fn killed_worker_is_137() {
    let job = workers(2).sh("echo ready $$; exec sleep 1000").start();
    job.wait_for_lines("ready", 2);
    let victim = job.wait_for_role(Role::Worker, 2).remove(0);
    victim.signal(Signal::KILL);
    job.end().code(137).says("was killed by signal 9 (SIGKILL)").says("1 other worker was stopped");
}

#[test]
fn crash_names_its_signal_and_core_dump() {
    let crash = "ulimit -c 0; kill -SEGV $$";
    let alone = command("sh").args(["-c", crash]).status().expect("a shell");
    let core = if alone.core_dumped() { ", core dumped" } else { " after " };
    let bus = workers(1).sh("ulimit -c 0; kill -BUS $$").end().code(135);
    drop(bus.says(
        "help: shared memory that is full ends a process so: see `df /dev/shm` on localhost",
    ));
    workers(1).sh(crash).end().code(139).says(&format!("was killed by signal 11 (SIGSEGV){core}"));
}

#[test]
fn oom_killed_worker_is_reported() {
    let Some(group) = Group::with_memory(64 << 20) else {
        return skip("cgroup", "oom_killed_worker_is_reported");
    };
    let enter = format!("echo $$ >'{}'", group.members().display());
    // It keeps everything until the first line ends.
    let script = "[ $RANK = 1 ] && exec sleep 1000; exec tail </dev/zero";
    let outcome = workers(2).under(&enter).sh(script).end().code(137);
    let outcome = outcome.says("rank 0 (localhost) was killed by signal 9 (SIGKILL)");
    let record = outcome.says("OOM killer killed 1 process while this worker ran").record();
    assert_eq!(record["workers"][0]["oom_kills"], 1);
}

#[test]
fn simultaneous_crashes_name_one_rank() {
    let outcome = hosts(&[("n0", 4), ("n1", 4)]).sh("echo trouble >&2; exit 9").end().code(9);
    assert_eq!(outcome.stderr.matches("error[").count(), 1, "{outcome:#?}");
    assert_eq!(outcome.record()["workers"].as_array().map(Vec::len), Some(8));
}

#[test]
fn worker_ignoring_sigterm_is_killed_after_grace() {
    let rank_1 = "trap '' TERM; : >\"$FLAG\"; while :; do sleep 0.05; done";
    let outcome = failing("exit 4", rank_1).options(["--grace", "300ms"]).end();
    let outcome = outcome.code(4).says("grace 300 ms").says("   Killing  rank 1\n");
    assert_eq!(outcome.record()["workers"][1]["signal"], 9);
}

/// Runs for ever in a session of its own and ignores SIGTERM, SIGHUP and SIGINT.
const DAEMON: &str = "setsid sh -c \"trap '' TERM HUP INT; : >\\\"$FLAG\\\"; \
     while :; do sleep 0.05; done\" >/dev/null 2>&1 </dev/null &";

/// As if a driver hung in the kernel: the parent is never notified of the exit.
#[test]
fn unkillable_worker_is_reported() {
    let job = failing("exit 3", WAITS).options(["--grace", "100ms"]).start();
    let flag = job.dir().join("flag");
    job.wait_for_lines("ready", 1);
    // It prints `ready` before it executes `sleep 1000`; rank 0 executes short ones.
    let waits =
        || job.processes().into_iter().find(|worker| worker.command.trim_end() == "sleep 1000");
    let undead = wait_for("rank 1", waits).pid;
    let Some(tracer) = Tracer::attach(undead) else {
        job.signal(Signal::TERM);
        job.end();
        return skip("ptrace", "a worker that outlives SIGKILL");
    };
    File::create(flag).expect("the directory is ours");
    let outcome = job.end().code(3).says("rank 0 (localhost) exited with code 3");
    drop(tracer);
    let outcome = outcome.says("; 1 other worker still running after SIGKILL\n");
    let outcome =
        outcome.says(&format!("pid {undead} (sleep) on localhost is still running after SIGKILL"));
    assert_eq!(outcome.record()["leaked"][0]["pid"], undead.as_raw_nonzero().get());
}

#[test]
fn leftover_daemon_of_a_success_is_reported_and_killed() {
    let launch = workers(2).options(["--grace", "200ms"]);
    let flag = launch.dir().join("flag");
    let script = format!(
        "[ $RANK = 1 ] && exit 0; {DAEMON} until [ -e \"$FLAG\" ]; do sleep 0.01; done; exit 0"
    );
    launch.env("FLAG", flag).sh(&script).end().code(0).says("  Leftover  rank 0 left ");
}

#[test]
fn leftover_daemon_of_a_failure_is_killed() {
    let rank_1 = format!("{DAEMON} exec sleep 1000");
    let outcome = failing("exit 5", &rank_1).options(["--grace", "200ms"]).end();
    outcome.code(5).says("rank 0 (localhost) exited with code 5");
}

/// A process without a rank in its environment, in a session of its own.
#[test]
fn leftover_daemon_without_a_rank_is_killed() {
    let script = "[ $RANK = 1 ] && { read line; exit 0; }; \
         env -u RANK setsid sh -c \": >\\\"$FLAG\\\"; exec sleep 1000\" >/dev/null 2>&1 & \
         until [ -e \"$FLAG\" ]; do sleep 0.01; done; exit 0";
    let launch = workers(2).options(["--stdin", "1"]).stdin(Stdio::piped());
    let flag = launch.dir().join("flag");
    let mut job = launch.env("FLAG", flag).sh(script).start();
    let stdin = job.take_stdin();
    wait_for("the daemon", || {
        job.processes().iter().any(|process| process.command == "sleep 1000 ").then_some(())
    });
    drop(stdin);
    job.end().code(0);
}

/// A process that is no descendant of the worker holds its standard output.
#[test]
fn held_output_pipe_does_not_block_the_end() {
    let mut job = workers(1).stdin(Stdio::piped()).sh("echo said; read line; exit 0").start();
    job.wait_for_lines("said", 1);
    let worker = job.the(Role::Worker);
    let held = File::options().write(true).open(format!("/proc/{}/fd/1", worker.pid));
    let _held = held.expect("the write end of its output");
    drop(job.take_stdin());
    assert_eq!(job.end().code(0).stdout, b"said\n");
}

#[test]
fn leftover_holding_the_output_is_reported_and_stopped() {
    let launch = workers(1).options(["--grace", "200ms"]);
    let flag = launch.dir().join("flag");
    let script = "setsid sh -c \"trap '' TERM; : >\\\"$FLAG\\\"; sleep 1000; sleep 1000\" & \
         until [ -e \"$FLAG\" ]; do sleep 0.01; done; echo said; exit 0";
    let outcome = launch.env("FLAG", flag).sh(script).end().code(0).says("Leftover  rank 0 left ");
    assert_eq!(outcome.stdout, b"said\n");
}

#[test]
fn fork_chain_does_not_escape_a_failure() {
    for _ in 0..3 {
        let launch = workers(2).options(["--grace", "100ms"]);
        let script = "if [ $RANK = 1 ]; then exec \"$0\" fork-chain; fi; \
             until [ -e \"$FLAG\" ]; do sleep 0.01; done; exit 6";
        let flag = launch.dir().join("flag");
        let job = launch.env("FLAG", flag.clone()).sh_of_misbehave(script).start();
        job.wait_for_lines("ready", 1);
        std::fs::write(flag, "").expect("a flag");
        job.end().code(6);
    }
}

#[test]
fn fork_chain_of_a_success_does_not_block_the_end() {
    for _ in 0..3 {
        workers(1).options(["--grace", "50ms"]).misbehave("leave-fork-chain").end().code(0);
    }
}

/// Only the worker that started the daemon is reported.
#[test]
fn leftover_daemon_is_reported_once_with_its_rank() {
    let launch = workers(2).options(["--grace", "500ms", "--stdin", "1"]).stdin(Stdio::piped());
    let flag = launch.dir().join("flag");
    let script = format!(
        "[ $RANK = 1 ] && {{ read go; exit 0; }}; {DAEMON} \
         until [ -e \"$FLAG\" ]; do sleep 0.01; done; exit 0"
    );
    let mut job = launch.env("FLAG", flag).sh(&script).start();
    job.wait_for_error("Leftover");
    drop(job.take_stdin());
    let outcome = job.end().code(0).says("  Leftover  rank 0 left ").does_not_say("rank 1 left");
    assert_eq!(outcome.stderr.matches("Leftover").count(), 1, "{outcome:#?}");
}

/// Workers that exit at the same time have left one daemon each.
#[test]
fn leftovers_of_simultaneous_exits_are_counted_by_rank() {
    let script = "setsid sleep 600 </dev/null >/dev/null 2>&1 & exit 0";
    let outcome = workers(3).options(["--grace", "500ms"]).sh(script).end().code(0);
    let mut lines: Vec<_> =
        outcome.stderr.lines().filter_map(|line| line.split_once(" behind: ")).collect();
    lines.sort_unstable();
    let counts: Vec<&str> = lines.into_iter().map(|(count, _)| count.trim_start()).collect();
    let expected = [0, 1, 2].map(|rank| format!("Leftover  rank {rank} left 1 process"));
    assert_eq!(counts, expected, "{outcome:#?}");
}

/// Processes that wait are stopped before processes that compute, which are named nevertheless.
#[test]
fn leftovers_that_compute_are_named_after_those_that_wait() {
    let script = "case $RANK in \
         0) setsid sleep 600 </dev/null >/dev/null 2>&1 & ;; \
         1) setsid sh -c 'while :; do :; done' </dev/null >/dev/null 2>&1 & ;; \
         esac; exit 0";
    let launch = workers(2).options(["--grace", "300ms"]).sh(script);
    launch.end().code(0).says("rank 0 left 1 process").says("rank 1 left 1 process");
}

/// Python's resource tracker outlives its parent by milliseconds. On a machine that is busy it may be
/// more, so one clean run of several is enough; the tracker of one worker in 24 fails a run.
#[test]
fn shared_memory_of_python_leaves_no_line() {
    const RUNS: usize = 10;
    let run = || {
        let launch = python(24).options(["--no_local_rank"]);
        let script = launch.dir().join("shm.py");
        let text = "import multiprocessing.shared_memory as s\n\
                    m = s.SharedMemory(create=True, size=1000); m.close(); m.unlink()\n";
        std::fs::write(&script, text).expect("a script");
        launch.program([script]).end().code(0)
    };
    let is_clean = |outcome: Outcome| !outcome.stderr.contains("Leftover");
    assert!((0..RUNS).any(|_| is_clean(run())), "a Leftover in each of {RUNS} runs");
}

#[test]
fn leftover_of_a_success_is_not_signalled_for_a_second() {
    let launch = workers(1).options(["--grace", "60s"]);
    let dir = launch.dir().to_owned();
    let script = "now() { date +%s%N; }; \
         (trap 'now >$D/asked; exit' TERM; : >$D/there; while :; do sleep 0.01; done) & \
         until [ -e $D/there ]; do sleep 0.01; done; now >$D/ended; exit 0";
    let outcome = launch.env("D", &dir).sh(script).end().code(0).says("Leftover  rank 0 left ");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("written");
    let time = |name: &str| read(name).trim().parse::<u64>().expect("a number");
    let lingered = time("asked") - time("ended");
    assert!(1_000_000_000 <= lingered, "{lingered} ns: {outcome:#?}");
}

#[test]
fn zombies_are_not_leftovers() {
    let job = workers(2).misbehave("zombie").start();
    job.wait_for_lines("ready", 2);
    job.signal(Signal::TERM);
    job.end().code(143).does_not_say("Leftover");
}

/// The shim reaps orphans when they exit.
#[test]
fn orphans_that_exit_are_reaped() {
    let job =
        workers(1).sh("(true & true &) ; (setsid true &); echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 1);
    let shim = job.the(Role::Shim);
    wait_for("no zombie below the shim", || {
        (zombies_below(&shim.pid.to_string()) == 0).then_some(())
    });
    stop(job);
}

fn zombies_below(parent: &str) -> usize {
    let listing = command("ps").args(["-o", "stat=", "--ppid", parent]).output().expect("ps");
    String::from_utf8_lossy(&listing.stdout).lines().filter(|state| state.starts_with('Z')).count()
}

fn stop(job: Running) {
    job.signal(Signal::TERM);
    job.end().code(143);
}

#[test]
fn successful_job_has_a_complete_record() {
    let outcome = hosts(&[("n0", 2), ("n1", 1)]).sh("exit 0").end().code(0);
    let record = outcome.record();
    assert_eq!(record["version"], 4);
    assert_eq!(record["exit"], 0);
    assert_eq!(record["cause"], serde_json::Value::Null);
    assert_eq!(record["leaked"], serde_json::json!([]));
    assert_eq!(record["plan"].as_str().map(str::len), Some(64));
    let workers = record["workers"].as_array().expect("a list");
    assert_eq!(workers.len(), 3);
    for (rank, worker) in workers.iter().enumerate() {
        assert_eq!(worker["rank"], rank);
        assert_eq!(worker["host"], if rank < 2 { "n0" } else { "n1" });
        assert_eq!(worker["code"], 0);
        assert_eq!(worker["stopped"], false);
        assert!(worker["pid"].is_u64() && worker["seconds"].is_f64(), "{worker}");
        // It has reported nothing.
        for field in ["step", "phase"] {
            assert_eq!(worker.get(field), Some(&serde_json::Value::Null), "{worker}");
        }
    }
}

#[test]
fn late_crash_does_not_become_the_cause() {
    let rank_1 = "trap 'sleep 0.5; kill -SEGV $$' TERM; : >\"$FLAG\"; while :; do sleep 0.05; done";
    failing("exit 3", rank_1).end().code(3).says("rank 0 (localhost) exited with code 3");
}

#[test]
fn job_of_two_workers_has_five_marked_processes() {
    let job = workers(2).sh(WAITS).start();
    job.wait_for_lines("ready", 2);
    // A process is not found by its environment while it executes another program.
    let all = "launcher, agent, shim, two workers";
    wait_for(all, || (job.processes().len() == 5).then_some(()));
    stop(job);
}

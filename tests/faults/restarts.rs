//! Jobs whose workers are restarted after a failure.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal};

use crate::support::launch::{Launch, Outcome, REMUDA, command, hosts, workers};
use crate::support::process::{MARK, Role, assert_clean, marked};
use crate::support::wait_for;

/// Prints its epoch, and fails in every epoch before this one.
fn fails_before(epoch: u32, how: &str) -> String {
    format!(
        "echo rank $RANK in epoch $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; \
         [ $TORCHELASTIC_RESTART_COUNT -lt {epoch} ] && {{ {how}; }}; exit 0"
    )
}

/// Rank 2 fails once every worker has written its file; the others wait to be stopped.
const RANK_2_FAILS: &str = "touch $D/$TORCHELASTIC_RESTART_COUNT.$RANK; \
    [ $RANK = 2 ] || sleep 1000; \
    while [ $(ls $D/$TORCHELASTIC_RESTART_COUNT.* | wc -l) -lt 4 ]; do sleep 0.02; done; exit 5";

fn two_hosts() -> Launch {
    hosts(&[("n1", 2), ("n2", 2)])
}

#[track_caller]
fn count(outcome: &Outcome, text: &str) -> usize {
    outcome.stdout_text().lines().filter(|line| line.contains(text)).count()
}

/// The fourth pause begins after three of 7 s together and the attempts, and lasts for 8 s.
#[test]
fn timeout_in_a_pause_shows_the_last_failure() {
    let launch = workers(1).options(["--max_restarts", "9", "--timeout", "12s"]);
    let outcome = launch.sh("echo bad >&2; exit 3").end().code(124);
    let title = "error[R105]: the job did not end within 12 s (--timeout), which passed while remuda \
                 waited to restart it\n";
    let outcome = outcome.says(title);
    let outcome = outcome.says("  the last failure: rank 0 (localhost) exited with code 3 after ");
    let outcome = outcome.says("    | bad\n");
    assert!(!outcome.stderr.contains("if the job hangs again"), "{outcome:#?}");
}

#[test]
fn failure_restarts_every_worker_of_every_node() {
    let launch = two_hosts().options(["--max_restarts", "3"]);
    let dir = launch.dir().join("spoke");
    fs::create_dir(&dir).expect("a directory");
    let launch = launch.env("D", dir);
    let outcome = launch.sh(&fails_before(2, RANK_2_FAILS)).end().code(0);
    for (epoch, directory) in ["", "restart1/", "restart2/"].into_iter().enumerate() {
        for rank in 0..4 {
            let said = outcome.run_file(&format!("{directory}rank{rank}.stdout"));
            let expected = format!("rank {rank} in epoch {epoch} of 3\n");
            assert_eq!(String::from_utf8_lossy(&said), expected);
        }
    }
    let lines: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("Restart")).collect();
    assert_eq!(lines.len(), 2, "{outcome:#?}");
    assert!(lines[0].contains("rank 2 (n2) exited with code 5 after"), "{lines:?}");
    assert!(lines[0].ends_with("; restart 1 of 3 in 1.0 s"), "{lines:?}");
    assert!(lines[1].ends_with("; restart 2 of 3 in 2.0 s"), "{lines:?}");
    let record = outcome.record();
    assert_eq!(record["epochs"].as_array().map(Vec::len), Some(3));
    assert_eq!(record["epochs"][0]["cause"]["code"], 5);
    assert_eq!(record["epochs"][0]["cause"]["rank"], 2);
    assert_eq!(record["epochs"][2]["cause"], serde_json::Value::Null);
    assert_eq!((&record["exit"], &record["cause"]), (&0.into(), &serde_json::Value::Null));
}

#[test]
fn last_failure_is_the_cause_and_each_is_recorded() {
    let launch = two_hosts().options(["--max_restarts", "1"]);
    let fails = "[ $RANK = 3 ] && { echo words of $TORCHELASTIC_RESTART_COUNT >&2; \
                 exit $((7 + TORCHELASTIC_RESTART_COUNT)); }; sleep 1000";
    let outcome = launch.sh(fails).end().code(8);
    let outcome = outcome.says("rank 3 (n2) exited with code 8").says("after 1 restart");
    let end = outcome.stderr.rfind("error[R101]").expect("a last screen");
    assert!(outcome.stderr[end..].contains("    | words of 1"), "{outcome:#?}");
    assert!(!outcome.stderr[end..].contains("words of 0"), "{outcome:#?}");
    let record = outcome.record();
    let code = |epoch: usize| record["epochs"][epoch]["cause"]["code"].as_u64();
    assert_eq!([code(0), code(1)], [Some(7), Some(8)]);
    let log = |name: &str| String::from_utf8(outcome.run_file(name)).expect("text");
    assert_eq!(log("rank3.stderr"), "words of 0\n");
    assert_eq!(log("restart1/rank3.stderr"), "words of 1\n");
}

#[test]
fn epoch_leaves_no_process_in_the_next_one() {
    // Every worker leaves a daemon; a worker of the second epoch that finds one exits with 9.
    let script = "echo $$ > $D/$RANK.$TORCHELASTIC_RESTART_COUNT; \
        if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then \
          setsid sh -c 'trap \"\" TERM; echo $$ > $D/daemon.$RANK; sleep 1000' & \
          while [ $(ls $D | wc -l) -lt 4 ]; do sleep 0.02; done; \
          [ $RANK = 1 ] && exit 5; trap '' TERM; sleep 1000; \
        fi; \
        for pid in $(cat $D/*.0 $D/daemon.*); do kill -0 $pid 2>/dev/null && exit 9; done; exit 0";
    let launch = workers(2).options(["--max_restarts", "1", "--grace", "300ms"]);
    let dir = launch.dir().join("pids");
    fs::create_dir(&dir).expect("a directory");
    launch.env("D", dir).sh(script).end().code(0).says("restart 1 of 1");
}

#[test]
fn program_that_cannot_be_executed_is_not_restarted() {
    let launch = workers(1).options(["--max_restarts", "3"]);
    let script = launch.dir().join("nonsense");
    fs::write(&script, "\x7fELF").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&script, mode).expect("executable");
    launch.program([script]).end().code(126).does_not_say("Restart");
}

#[test]
fn refused_restart_keeps_the_failure_as_the_cause() {
    let launch = workers(2).options(["--max_restarts", "1"]);
    let script = launch.dir().join("moves");
    // The script disappears when both workers have read it.
    let text = "#!/bin/sh\n[ $RANK = 1 ] || { touch \"$0.read\"; exec sleep 1000; }\n\
                while ! [ -e \"$0.read\" ]; do sleep 0.02; done\nrm -f \"$0\"\nexit 5\n";
    fs::write(&script, text).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&script, mode).expect("executable");
    let outcome = launch.program([script]).end();
    let outcome = outcome.says("restart 1 of 1").does_not_say("lost with its node");
    let cause = "error[R101]: rank 1 (localhost) exited with code 5 after";
    assert!(outcome.stderr.contains(cause), "{outcome:#?}");
}

#[test]
fn job_stopped_by_the_user_is_not_restarted() {
    let job = workers(2).options(["--max_restarts", "3"]).sh("echo up; sleep 1000").start();
    job.wait_for_lines("up", 2);
    job.signal(Signal::TERM);
    job.end().code(143).does_not_say("Restart");
    let launch = workers(1).options(["--max_restarts", "3", "--timeout", "200ms"]);
    launch.sh("sleep 1000").end().code(124).does_not_say("Restart");
}

#[test]
fn signal_between_two_epochs_ends_the_job() {
    let launch = workers(1).options(["--max_restarts", "50"]).sh("exit 5");
    let job = launch.start();
    job.wait_for_error("restart 3 of 50 in 4.0 s");
    job.signal(Signal::INT);
    job.end().code(130).says("SIGINT");
}

#[test]
fn killed_shim_is_replaced_with_its_agent() {
    let script = fails_before(1, "sleep 1000");
    let job = two_hosts().options(["--max_restarts", "1"]).sh(&script).start();
    job.wait_for_lines("in epoch 0", 4);
    job.wait_for_role(Role::Shim, 2)[0].signal(Signal::KILL);
    let outcome = job
        .end()
        .code(0)
        .says(", which starts the workers, was killed or crashed; ranks ")
        .says("restart 1 of 1");
    assert_eq!(count(&outcome, "in epoch 1"), 4, "{outcome:#?}");
}

#[test]
fn killed_agent_is_replaced() {
    let script = fails_before(1, "sleep 1000");
    let job = two_hosts().options(["--max_restarts", "1"]).sh(&script).start();
    job.wait_for_lines("in epoch 0", 4);
    job.wait_for_role(Role::Agent, 2)[1].signal(Signal::KILL);
    let outcome = job.end().code(0).says("was lost: its remuda process ").says("restart 1 of 1");
    assert_eq!(count(&outcome, "in epoch 1"), 4, "{outcome:#?}");
}

#[test]
fn restart_without_the_program_keeps_the_first_cause() {
    let launch = workers(1).options(["--max_restarts", "3"]);
    let script = launch.dir().join("once");
    fs::write(&script, "#!/bin/sh\nrm \"$0\"\nexit 5\n").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&script, mode).expect("executable");
    let outcome = launch.program([script]).end().code(5);
    outcome.says("there was no restart").says("rank 0 (localhost) exited with code 5");
}

#[test]
fn stdin_continues_after_a_restart() {
    let script = "read line; echo read $line; [ $line = one ] && exit 5; exit 0";
    let launch = workers(1).options(["--max_restarts", "1"]).sh(script);
    let mut job = launch.stdin(std::process::Stdio::piped()).start();
    let mut stdin = job.take_stdin();
    std::io::Write::write_all(&mut stdin, b"one\n").expect("taken");
    job.wait_for_error("restart 1 of 1");
    std::io::Write::write_all(&mut stdin, b"two\n").expect("taken");
    let outcome = job.end().code(0);
    assert_eq!(outcome.stdout_text(), "read one\nread two\n");
}

#[test]
fn pre_term_signal_precedes_sigterm() {
    let script = "trap 'echo saving' USR1; trap 'echo asked; exit 3' TERM; echo up; \
                  while :; do sleep 0.05; done";
    let launch = workers(2).options(["--pre_term_signal", "USR1:300ms"]).sh(script);
    let job = launch.start();
    job.wait_for_lines("up", 2);
    job.signal(Signal::TERM);
    let outcome = job.end().code(143).says("sent SIGUSR1 to all workers");
    assert_eq!((count(&outcome, "saving"), count(&outcome, "asked")), (2, 2), "{outcome:#?}");
    let text = outcome.stdout_text();
    let first_asked = text.find("asked").expect("they were");
    assert_eq!(text[..first_asked].matches("saving").count(), 2, "{text}");
}

#[test]
fn pre_term_wait_ends_when_workers_exit() {
    let script = "trap 'echo saved; exit 0' USR1; echo up; while :; do sleep 0.05; done";
    let launch = workers(2).options(["--pre_term_signal", "USR1:1h"]).sh(script);
    let job = launch.start();
    job.wait_for_lines("up", 2);
    job.signal(Signal::TERM);
    let outcome = job.end().code(143);
    assert_eq!(count(&outcome, "saved"), 2, "{outcome:#?}");
}

/// `remuda train` on two nodes of this machine, keeping a checkpoint every few steps.
fn train(dir: &Path, mark: &str, options: &[&str]) -> std::process::Command {
    fs::create_dir_all(dir).expect("a directory");
    let hostfile = dir.join("hosts");
    fs::write(&hostfile, "n1 slots=1\nn2 slots=1\n").expect("a hostfile");
    let mut train = command(REMUDA);
    train.arg("train").arg("-H").arg(hostfile).arg("--checkpoint_dir").arg(dir.join("kept"));
    train.arg("--run_dir").arg(dir.join("runs")).args(["--launcher", "local", "--model", "gpt"]);
    train.args(["--layers", "1", "--heads", "2", "--width", "16", "--block", "8"]);
    train.args(["--batch_size", "2", "--steps", "200", "--save_every", "10", "--eval_every", "0"]);
    train.args(options).env(MARK, mark).stdin(Stdio::null());
    train.stdout(Stdio::piped()).stderr(Stdio::piped());
    train
}

/// The files of two ranks in a checkpoint.
fn shards(checkpoint: &Path) -> [Vec<u8>; 2] {
    [0, 1].map(|rank| {
        fs::read(checkpoint.join(format!("rank-0000{rank}.safetensors"))).expect("it was saved")
    })
}

/// Runs a training of which a worker is killed after two checkpoints. Returns the launcher, which has exited,
/// and its output.
fn train_until_a_worker_is_killed(place: &Path, mark: &str, options: &[&str]) -> (Pid, Output) {
    let job = train(place, mark, options).spawn().expect("it starts");
    let launcher = Pid::from_child(&job);
    let is_saved = || place.join("kept/step-00000020").exists().then_some(());
    wait_for("two checkpoints", is_saved);
    let mut all = marked(mark, launcher);
    all.retain(|process| process.role == Role::Worker);
    all.last().expect("workers run").signal(Signal::KILL);
    (launcher, job.wait_with_output().expect("ours"))
}

#[test]
fn failed_training_names_its_newest_checkpoint() {
    let launch = workers(1);
    let (place, mark) = (launch.dir().join("failed"), launch.mark().to_owned());
    let (launcher, ended) = train_until_a_worker_is_killed(&place, &mark, &[]);
    let stderr = String::from_utf8_lossy(&ended.stderr);
    let help = "help: to continue: add `--resume auto` (newest undamaged checkpoint: step ";
    assert!(stderr.contains(help), "{stderr}");
    assert_clean(&mark, launcher);
    let _ = fs::remove_dir_all(launch.dir());
}

#[test]
fn train_after_a_killed_worker_ends_with_the_same_bits() {
    let launch = workers(1);
    let (dir, mark) = (launch.dir().to_owned(), launch.mark().to_owned());
    let last = |run: &str| shards(&dir.join(run).join("kept/step-00000200"));
    let undisturbed = train(&dir.join("undisturbed"), &mark, &[]).output().expect("it starts");
    assert!(undisturbed.status.success(), "{}", String::from_utf8_lossy(&undisturbed.stderr));

    let place = dir.join("disturbed");
    let (launcher, ended) = train_until_a_worker_is_killed(&place, &mark, &["--max_restarts", "1"]);
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{stderr}");
    assert!(stderr.contains("restart 1 of 1"), "{stderr}");
    let stdout = String::from_utf8_lossy(&ended.stdout);
    let resumed = stdout.lines().find(|line| line.contains("resuming after step"));
    assert!(resumed.is_some(), "it did not restart from step 0: {stdout}");
    assert!(last("disturbed") == last("undisturbed"));
    assert_clean(&mark, launcher);
    let _ = fs::remove_dir_all(dir);
}

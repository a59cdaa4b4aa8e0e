//! A job on several hosts: what its workers and its user see.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use crate::ssh::cluster::{Cluster, can_run, untrusted_copy};
use crate::support::launch::{Launch, REMUDA, command, on_hosts};
use crate::support::wait_for;

#[test]
fn every_worker_knows_its_rank_and_the_master_address() {
    if !can_run("every_worker_knows_its_rank_and_the_master_address") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 1)]);
    let script = "echo r=$RANK l=$LOCAL_RANK n=$NODE_RANK w=$WORLD_SIZE a=$MASTER_ADDR h=$HOME";
    let outcome = launch.option("--prefix").option("").sh(script).end().code(0);
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    // All addresses of the loopback are this machine: the address of rank 0 is the source address of packets to n2.
    let home = cluster.home();
    let expected = [(0, 0, 0), (1, 1, 0), (2, 0, 1)].map(|(rank, local_rank, node)| {
        format!("r={rank} l={local_rank} n={node} w=3 a=127.0.0.1 h={}", home.display())
    });
    assert_eq!(lines, expected);
}

#[test]
fn status_is_that_of_the_cause_and_the_cause_is_named() {
    if !can_run("status_is_that_of_the_cause_and_the_cause_is_named") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    let script = "[ $RANK = 3 ] && { sleep 0.1; echo bad luck >&2; exit 5; }; sleep 1000";
    let outcome = launch.sh(script).end().code(5);
    let outcome = outcome.says("rank 3 (n2) exited with code 5").says("bad luck");
    outcome.says("3 other workers were stopped");
}

#[test]
fn signal_of_a_remote_worker_is_reported() {
    if !can_run("signal_of_a_remote_worker_is_reported") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let outcome = launch.sh("[ $RANK = 1 ] && kill -SEGV $$; sleep 1000").end().code(139);
    outcome.says("rank 1 (n2) was killed by signal 11 (SIGSEGV)");
}

#[test]
fn arguments_arrive_unchanged() {
    if !can_run("arguments_arrive_unchanged") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let words = ["a b", "$HOME", "x'y", "\"", "", "*", "`id`", "$(id)", "\\", "line\nend", "!!"];
    let mut words: Vec<OsString> = words.map(OsString::from).into();
    words.push(OsString::from_vec(b"\xff\xfe\x80".to_vec()));
    let launch = launch.program(["sh", "-c", "printf '<%s>' \"$@\"", "sh"]).program(words.clone());
    let outcome = launch.end().code(0);
    let expected: Vec<u8> = words
        .into_iter()
        .flat_map(|word| [b"<".to_vec(), word.into_vec(), b">".to_vec()].concat())
        .collect();
    assert_eq!(outcome.stdout, expected);
}

const CANARY: &str = "canary-5f0c1d";

/// A secret comes from a file of variables, by `--env`, and because of its name; the agent is sent once,
/// and then found in the cache. No process receives it by arguments, which
/// every user of a machine can read. Arguments of the launcher stay there.
#[test]
fn secrets_are_in_no_process_arguments() {
    if !can_run("secrets_are_in_no_process_arguments") {
        return;
    }
    let (cluster, first) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let copy = untrusted_copy(cluster.dir());
    let dir = cluster.dir().to_owned();
    fs::write(dir.join(".deepspeed_env"), format!("FROM_FILE={CANARY}\n")).expect("a file");
    let found = Arc::new(Mutex::new(BTreeSet::new()));
    let over = Arc::new(AtomicBool::new(false));
    let (shared, is_over) = (Arc::clone(&found), Arc::clone(&over));
    let watch = std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            shared.lock().expect("no thread panics").extend(arguments_with(CANARY));
        }
    });
    let again = on_hosts(&[("n1", 1), ("n2", 1)]).option("--ssh_config");
    let again = again.option(dir.join("ssh_config"));
    let outcomes = [first, again].map(|launch| {
        let launch = launch.remuda(&copy).cwd(&dir).env("API_KEY", CANARY);
        let launch = launch.env("UCX_TOKEN", CANARY).options(["--env", "API_KEY"]);
        let running = launch.sh("echo got=$API_KEY,$UCX_TOKEN,$FROM_FILE; sleep 1000").start();
        running.wait_for_lines(&format!("got={CANARY},{CANARY},{CANARY}"), 2);
        running.signal(Signal::TERM);
        running.end().code(143)
    });
    over.store(true, Ordering::Relaxed);
    watch.join().expect("it watched");
    assert_eq!(*found.lock().expect("no thread panics"), BTreeSet::new(), "{outcomes:#?}");
}

/// Arguments of living processes that hold a text.
fn arguments_with(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("mounted").flatten();
    let commands = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let commands = commands.map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
    commands.filter(|command| command.contains(text)).collect()
}

#[test]
fn worker_has_the_login_environment_and_exported_variables() {
    if !can_run("worker_has_the_login_environment_and_exported_variables") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let launch = launch.env("OF_THE_LAUNCHER", "1").option("--env").option("EXPORTED=a b");
    let outcome = launch.program(["env"]).end().code(0);
    let text = outcome.stdout_text();
    assert!(text.lines().any(|line| line == "EXPORTED=a b"), "{text}");
    assert!(!text.contains("OF_THE_LAUNCHER"), "{text}");
    assert!(
        !text.lines().any(|line| line.starts_with("OLDPWD=")),
        "OLDPWD of the bootstrap command: {text}"
    );
}

#[test]
fn missing_program_is_reported_before_the_start() {
    if !can_run("missing_program_is_reported_before_the_start") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let outcome = launch.program(["/nowhere/program"]).end().code(127);
    outcome
        .says("2 of 2 nodes cannot take part")
        .says("n[1-2]: program `/nowhere/program` does not exist");
}

#[test]
fn signal_stops_the_workers_of_every_host() {
    if !can_run("signal_stops_the_workers_of_every_host") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    let running = launch.sh("trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done").start();
    running.wait_for_lines("ready", 4);
    running.signal(Signal::INT);
    running.end().code(130).says("the job was stopped by SIGINT");
}

#[test]
fn output_of_megabytes_is_complete() {
    if !can_run("output_of_megabytes_is_complete") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let launch = launch.option("--prefix").option("");
    let outcome = launch.sh("seq 200000").end().code(0);
    let mut numbers: Vec<u32> =
        outcome.stdout_text().lines().map(|line| line.parse().expect("a whole line")).collect();
    numbers.sort_unstable();
    let expected: Vec<u32> = (1..=200_000).flat_map(|number| [number, number]).collect();
    assert!(numbers == expected, "{} lines", numbers.len());
}

/// `remuda train` needs no files on the nodes: its workers are the agent's executable.
#[test]
fn training_across_hosts_equals_training_on_one_host() {
    if !can_run("training_across_hosts_equals_training_on_one_host") {
        return;
    }
    let (cluster, _launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let dir = cluster.dir();
    let train = |place: &[&str]| {
        let mut train = command(REMUDA);
        train.args(["train", "--quiet", "--steps", "3", "--run_dir"]).arg(dir.join("runs"));
        train.args(place).env(crate::support::process::MARK, "train");
        let output = train.output().expect("remuda starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        losses(&output.stdout)
    };
    let (hostfile, config) = (dir.join("hostfile"), dir.join("ssh_config"));
    let (hostfile, config) = (hostfile.display().to_string(), config.display().to_string());
    let across = train(&["-H", &hostfile, "--ssh_config", &config]);
    let here = train(&["--num_gpus", "2", "--accelerator", "cpu"]);
    assert!(!here.is_empty());
    assert_eq!(across, here);
}

fn losses(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    text.split_whitespace().skip_while(|word| *word != "loss").map(str::to_owned).take(2).collect()
}

#[test]
fn single_remote_host_is_reached_over_ssh() {
    if !can_run("single_remote_host_is_reached_over_ssh") {
        return;
    }
    let (cluster, launch): (Cluster, Launch) = Cluster::new(&[("n1", 1)]);
    launch.sh("exit 0").end().code(0);
    assert_eq!(cluster.connections(0), 1, "one connection for a host");
}

/// The user's jump host applies, and so do remuda's mandatory options.
#[test]
fn host_behind_a_jump_host_is_reached() {
    if !can_run("host_behind_a_jump_host_is_reached") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure_client("Host n2\n  ProxyJump n1\nHost *");
    launch.sh("exit 0").end().code(0);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (2, 1));
}

/// The same launch through a second ssh for each host: bytes, status, and the cause.
#[test]
fn process_mux_behaves_like_native_mux() {
    if !can_run("process_mux_behaves_like_native_mux") {
        return;
    }
    let launch = |(cluster, launch): (Cluster, Launch)| {
        (cluster, launch.options(["--ssh_mux", "process", "--prefix", ""]))
    };
    let (_cluster, megabytes) = launch(Cluster::new(&[("n1", 1)]));
    let outcome = megabytes.sh("seq 200000").end().code(0);
    let lines = outcome.stdout_text().lines();
    let numbers = lines.map(|line| line.parse::<u32>().expect("a whole line"));
    assert!(numbers.eq(1..=200_000), "{} bytes", outcome.stdout.len());
    let (_cluster, failing) = launch(Cluster::new(&[("n1", 1), ("n2", 1)]));
    let outcome = failing.sh("[ $RANK = 1 ] && exit 5; sleep 1000").end().code(5);
    outcome.says("rank 1 (n2) exited with code 5");
}

#[test]
fn process_mux_reports_a_host_without_an_agent() {
    if !can_run("process_mux_reports_a_host_without_an_agent") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    cluster.configure("ForceCommand echo This account is currently not available.; exit 1");
    let outcome = launch.options(["--ssh_mux", "process"]).sh("exit 0").end().code(76);
    outcome.says("This account is currently not available.");
    assert_eq!(cluster.connections(0), 1);
}

fn own_name() -> String {
    let output = command("id").arg("-un").output().expect("id runs");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

const FAST_NOTE: &str = "note: `--ssh_kex fast` makes connections to so many hosts several times \
                         cheaper; it gives up protection against quantum computers\n";

/// With more than 32 hosts and a slow key exchange the hint is shown once, but not with `--quiet`.
#[test]
fn hint_about_fast_key_exchange_is_shown_once() {
    if !can_run("hint_about_fast_key_exchange_is_shown_once") {
        return;
    }
    let names: Vec<String> = (1..=33).map(|number| format!("n{number}")).collect();
    let hosts: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let (cluster, launch) = Cluster::new(&hosts);
    let slow = "KexAlgorithms ecdh-sha2-nistp521,curve25519-sha256";
    cluster.configure_client(slow);
    let again = |hosts: &[(&str, usize)], options: &[&str]| {
        let run = launch.another().on(hosts).option("--ssh_config");
        let run = run.option(cluster.dir().join("ssh_config")).options(options);
        run.options(["--no_python", "--no_local_rank", "--accelerator", "cpu"]).sh("exit 0").end()
    };
    let outcome = again(&hosts, &[]).code(0);
    let screen = outcome.screen();
    let said: Vec<_> = screen.split_inclusive('\n').collect();
    let [note, begin, logs, end] = said[..] else { panic!("{outcome:#?}") };
    assert!(begin.starts_with("    Launch  33 workers on 33 nodes "), "{outcome:#?}");
    assert_eq!(note, FAST_NOTE);
    assert!(logs.starts_with("      Logs  "), "{outcome:#?}");
    assert!(end.starts_with("  Finished  33 workers in "), "{outcome:#?}");
    let _outcome = again(&hosts, &["--ssh_kex", "fast"]).code(0).does_not_say("ssh_kex");
    let _outcome = again(&hosts, &["--quiet"]).code(0).does_not_say("ssh_kex");
    let _outcome = again(&hosts[1..], &[]).code(0).does_not_say("ssh_kex");
    let _ = fs::remove_dir_all(cluster.dir());
}

/// The user of a hostfile outranks the configuration's, and is no part of the host's name.
#[test]
fn user_of_the_hostfile_is_the_login_user() {
    if !can_run("user_of_the_hostfile_is_the_login_user") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure_client("Host n1\n  User unknown-user\nHost *");
    let lines = format!("{}@n1 slots=1\nn2 slots=1\n", own_name());
    fs::write(cluster.dir().join("hostfile"), lines).expect("a file");
    let launch = launch.options(["--include", "n1", "--prefix", "{host} "]);
    let outcome = launch.sh("echo user=$(id -un)").end().code(0);
    assert_eq!(outcome.stdout_text(), format!("n1 user={}\n", own_name()));
}

#[test]
fn refused_user_of_the_hostfile_is_named() {
    if !can_run("refused_user_of_the_hostfile_is_named") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let lines = "n1 slots=1\nunknown-user@n2 slots=1\n";
    fs::write(cluster.dir().join("hostfile"), lines).expect("a file");
    let outcome = launch.sh("exit 0").end().code(77);
    let outcome = outcome.says("    n2: unknown-user@127.0.0.3: Permission denied");
    outcome.says("--exclude n2");
}

/// The port of `--ssh_port` outranks that of the configuration.
#[test]
fn ssh_port_overrides_the_configuration() {
    if !can_run("ssh_port_overrides_the_configuration") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    cluster.configure_client("Host n1\n  Port 1\nHost *");
    launch.option("--ssh_port").option(cluster.port(0).to_string()).sh("exit 0").end().code(0);
    assert_eq!(cluster.connections(0), 1);
}

/// Two jobs of one user on the same hosts never touch each other.
#[test]
fn two_jobs_on_the_same_hosts_do_not_interfere() {
    if !can_run("two_jobs_on_the_same_hosts_do_not_interfere") {
        return;
    }
    let (cluster, first) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let first = first.sh("echo ready; exec sleep 1000").start();
    first.wait_for_lines("ready", 2);
    let workers =
        || first.processes().into_iter().filter(|process| process.name == "sleep").count();
    // The line appears a moment before the worker's shell becomes `sleep`.
    wait_for("both workers of the first job", || (workers() == 2).then_some(()));
    let mut second = command(REMUDA);
    second.args(["run", "--accelerator", "cpu", "--no_python", "-H"]);
    second.arg(cluster.dir().join("hostfile")).arg("--ssh_config");
    second.arg(cluster.dir().join("ssh_config")).arg("--run_dir").arg(cluster.dir().join("runs"));
    let output = second.arg("false").output().expect("remuda starts");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(workers(), 2);
    first.signal(Signal::TERM);
    first.end().code(143);
}

/// SIGQUIT shows the state of every rank of every node and ends no process.
#[test]
fn sigquit_shows_the_state_of_every_rank() {
    if !can_run("sigquit_shows_the_state_of_every_rank") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    let running = launch.sh("echo ready; [ $RANK = 3 ] || exec sleep 1000").start();
    running.wait_for_lines("ready", 4);
    // The end of rank 3 may still be on its way.
    wait_for("the state of rank 3", || {
        running.signal(Signal::QUIT);
        running.stderr().contains("State  rank 3 (n2): exited with code 0").then_some(())
    });
    for (rank, host) in [(0, "n1"), (1, "n1"), (2, "n2")] {
        running.wait_for_error(&format!("State  rank {rank} ({host}): pid "));
    }
    running.signal(Signal::TERM);
    let outcome = running.end().code(143);
    assert!(outcome.stderr.contains(", running for "), "{outcome:#?}");
}

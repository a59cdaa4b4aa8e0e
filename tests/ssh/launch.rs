//! A job on several hosts, seen by its workers and by whoever started it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use crate::cluster::{Cluster, can_run, untrusted_copy};
use crate::support::launch::{Launch, REMUDA, command, on_hosts};
use crate::support::wait_for;

#[test]
fn every_worker_knows_its_place_and_where_rank_0_is() {
    if !can_run("every_worker_knows_its_place_and_where_rank_0_is") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 1)]);
    let script = "echo r=$RANK l=$LOCAL_RANK n=$NODE_RANK w=$WORLD_SIZE a=$MASTER_ADDR h=$HOME";
    let outcome = launch.option("--prefix").option("").sh(script).end().code(0);
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    // All addresses of the loopback are this machine: rank 0 is where packets to n2 come from.
    let home = cluster.home();
    let expected = [(0, 0, 0), (1, 1, 0), (2, 0, 1)].map(|(rank, local_rank, node)| {
        format!("r={rank} l={local_rank} n={node} w=3 a=127.0.0.1 h={}", home.display())
    });
    assert_eq!(lines, expected);
}

#[test]
fn the_status_is_the_cause_s_and_the_cause_is_named() {
    if !can_run("the_status_is_the_cause_s_and_the_cause_is_named") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    let script = "[ $RANK = 3 ] && { sleep 0.1; echo bad luck >&2; exit 5; }; sleep 1000";
    let outcome = launch.sh(script).end().code(5);
    let outcome = outcome.says("rank 3 (n2) exited with code 5").says("bad luck");
    outcome.says("3 other workers were stopped");
}

#[test]
fn a_death_by_signal_is_told_from_another_machine_too() {
    if !can_run("a_death_by_signal_is_told_from_another_machine_too") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let outcome = launch.sh("[ $RANK = 1 ] && kill -SEGV $$; sleep 1000").end().code(139);
    outcome.says("rank 1 (n2) was killed by signal 11 (SIGSEGV)");
}

#[test]
fn bytes_of_arguments_arrive_as_they_were() {
    if !can_run("bytes_of_arguments_arrive_as_they_were") {
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

/// A secret comes from a file of variables, by `--env`, and because of its name; the agent is sent, and
/// found where it was sent to. From the first process to the last one nobody is told it by arguments,
/// which everybody on a machine may read. What the user writes into the launcher's own stays there.
#[test]
fn no_secret_is_in_the_arguments_of_any_process() {
    if !can_run("no_secret_is_in_the_arguments_of_any_process") {
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
            shared.lock().expect("nobody panics").extend(arguments_with(CANARY));
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
    assert_eq!(*found.lock().expect("nobody panics"), BTreeSet::new(), "{outcomes:#?}");
}

/// Arguments of living processes that hold a text.
fn arguments_with(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("mounted").flatten();
    let commands = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let commands = commands.map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
    commands.filter(|command| command.contains(text)).collect()
}

#[test]
fn a_worker_has_the_environment_of_a_login_and_what_was_exported() {
    if !can_run("a_worker_has_the_environment_of_a_login_and_what_was_exported") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let launch = launch.env("OF_THE_LAUNCHER", "1").option("--env").option("EXPORTED=a b");
    let outcome = launch.program(["env"]).end().code(0);
    let text = outcome.stdout_text();
    assert!(text.lines().any(|line| line == "EXPORTED=a b"), "{text}");
    assert!(!text.contains("OF_THE_LAUNCHER"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("OLDPWD=")), "ours, not the login's: {text}");
}

#[test]
fn what_is_missing_on_a_node_is_told_before_anything_starts() {
    if !can_run("what_is_missing_on_a_node_is_told_before_anything_starts") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let outcome = launch.program(["/nowhere/program"]).end().code(127);
    outcome
        .says("2 of 2 nodes cannot take part")
        .says("n[1-2]: program `/nowhere/program` does not exist");
}

#[test]
fn a_signal_stops_the_workers_of_every_host() {
    if !can_run("a_signal_stops_the_workers_of_every_host") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    let running = launch.sh("trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done").start();
    running.wait_for_lines("ready", 4);
    running.signal(Signal::INT);
    running.end().code(130).says("the job was stopped by SIGINT");
}

#[test]
fn output_of_megabytes_arrives_whole() {
    if !can_run("output_of_megabytes_arrives_whole") {
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

/// The bundled trainer needs nothing on the nodes either: its workers are the agent's executable.
#[test]
fn training_across_hosts_gives_what_one_host_gives() {
    if !can_run("training_across_hosts_gives_what_one_host_gives") {
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
fn one_host_that_is_not_this_machine_is_reached_over_ssh() {
    if !can_run("one_host_that_is_not_this_machine_is_reached_over_ssh") {
        return;
    }
    let (cluster, launch): (Cluster, Launch) = Cluster::new(&[("n1", 1)]);
    launch.sh("exit 0").end().code(0);
    assert_eq!(cluster.connections(0), 1, "one connection for a host");
}

/// What the user's configuration says about the way holds, and so do our guards on it.
#[test]
fn a_host_behind_another_is_reached_through_it() {
    if !can_run("a_host_behind_another_is_reached_through_it") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure_client("Host n2\n  ProxyJump n1\nHost *");
    launch.sh("exit 0").end().code(0);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (2, 1));
}

/// The same launch through a second ssh for each host: bytes, status, and the cause.
#[test]
fn a_channel_of_openssh_s_own_does_the_same() {
    if !can_run("a_channel_of_openssh_s_own_does_the_same") {
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
fn a_host_that_does_not_bring_up_an_agent_says_so_through_a_process_too() {
    if !can_run("a_host_that_does_not_bring_up_an_agent_says_so_through_a_process_too") {
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

/// More hosts than 32, and a key exchange that costs: once, and only for whoever may want to know.
#[test]
fn many_hosts_are_told_of_the_fast_key_exchange_once() {
    if !can_run("many_hosts_are_told_of_the_fast_key_exchange_once") {
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
fn a_user_of_the_hostfile_is_as_whom_a_host_is_reached() {
    if !can_run("a_user_of_the_hostfile_is_as_whom_a_host_is_reached") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure_client("Host n1\n  User nobody-has-this-name\nHost *");
    let lines = format!("{}@n1 slots=1\nn2 slots=1\n", own_name());
    fs::write(cluster.dir().join("hostfile"), lines).expect("a file");
    let launch = launch.options(["--include", "n1", "--prefix", "{host} "]);
    let outcome = launch.sh("echo user=$(id -un)").end().code(0);
    assert_eq!(outcome.stdout_text(), format!("n1 user={}\n", own_name()));
}

#[test]
fn a_user_of_the_hostfile_who_is_not_let_in_is_named() {
    if !can_run("a_user_of_the_hostfile_who_is_not_let_in_is_named") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let lines = "n1 slots=1\nnobody-has-this-name@n2 slots=1\n";
    fs::write(cluster.dir().join("hostfile"), lines).expect("a file");
    let outcome = launch.sh("exit 0").end().code(77);
    let outcome = outcome.says("    n2: nobody-has-this-name@127.0.0.3: Permission denied");
    outcome.says("--exclude 'n2'");
}

/// The port of `--ssh_port` outranks that of the configuration.
#[test]
fn the_port_of_the_command_line_is_where_sshd_is_sought() {
    if !can_run("the_port_of_the_command_line_is_where_sshd_is_sought") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    cluster.configure_client("Host n1\n  Port 1\nHost *");
    launch.option("--ssh_port").option(cluster.port(0).to_string()).sh("exit 0").end().code(0);
    assert_eq!(cluster.connections(0), 1);
}

/// Two jobs of one user on the same hosts never touch each other.
#[test]
fn a_job_that_ends_leaves_another_on_the_same_hosts_alone() {
    if !can_run("a_job_that_ends_leaves_another_on_the_same_hosts_alone") {
        return;
    }
    let (cluster, first) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let first = first.sh("echo ready; while :; do sleep 0.05; done").start();
    first.wait_for_lines("ready", 2);
    let mut second = command(REMUDA);
    second.args(["run", "--accelerator", "cpu", "--no_python", "-H"]);
    second.arg(cluster.dir().join("hostfile")).arg("--ssh_config");
    second.arg(cluster.dir().join("ssh_config")).arg("--run_dir").arg(cluster.dir().join("runs"));
    let output = second.arg("false").output().expect("remuda starts");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let workers = first.processes().into_iter().filter(|process| process.name == "sh").count();
    assert_eq!(workers, 2);
    first.signal(Signal::TERM);
    first.end().code(143);
}

/// SIGQUIT tells how every rank of every node is doing, and ends nothing.
#[test]
fn the_state_of_every_rank_of_every_node_can_be_asked_for() {
    if !can_run("the_state_of_every_rank_of_every_node_can_be_asked_for") {
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
    assert!(outcome.stderr.contains(", runs for "), "{outcome:#?}");
}

//! Any one of our processes killed: the truth is told, and nothing is left on any host.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::cluster::{Cluster, can_run};
use crate::support::launch::{Outcome, Running, on_hosts};
use crate::support::process::{Process, while_stopped};
use crate::support::{wait_for, wait_for_or};

const SCRIPT: &str = "sleep 1000 & echo ready; wait";

/// A job of two workers on each of two hosts, all of which live.
fn start(cluster: &mut Option<Cluster>) -> Running {
    let (hosts, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    *cluster = Some(hosts);
    let running = launch.options(["--grace", "2s"]).sh(SCRIPT).start();
    running.wait_for_lines("ready", 4);
    running
}

/// Processes with this name in `/proc/PID/comm`, in order of their pids.
fn named(running: &Running, name: &str) -> Vec<Process> {
    let mut found = running.processes();
    // An ssh that only tells us its settings is missed by nobody.
    found.retain(|process| process.name == name && !process.command.contains(" -G "));
    found.sort_by_key(|process| process.pid.as_raw_pid());
    found
}

fn kill_one(running: &Running, name: &str) {
    let found = wait_for(name, || named(running, name).into_iter().next());
    found.signal(Signal::KILL);
}

/// Where the launch keeps its sockets, as its ssh processes say.
fn control_dir(running: &Running) -> PathBuf {
    let ssh = named(running, "ssh").remove(0);
    let config = ssh.command.split(' ').skip_while(|word| *word != "-F").nth(1);
    Path::new(config.expect("every ssh has one")).parent().expect("a file in it").to_owned()
}

fn assert_gone(dir: &Path) {
    let gone = || (!dir.exists()).then_some(());
    wait_for_or(|| format!("the end of {}", dir.display()), gone);
}

/// A small training on three hosts that goes on until somebody ends it.
fn train(cluster: &mut Option<Cluster>) -> Running {
    let names = [("n1", 1), ("n2", 1), ("n3", 1)];
    let (hosts, launch) = Cluster::new(&names);
    let config = hosts.dir().join("ssh_config");
    *cluster = Some(hosts);
    let train = launch.another().command("train").on(&names).option("--ssh_config").option(config);
    let train = train.options(["--grace", "2s", "--steps", "1000000", "--eval_every", "0"]);
    let train = train.options(["--layers", "1", "--heads", "2", "--width", "16", "--block", "8"]);
    let running = train.start();
    running.wait_for_lines(" 1/1000000 ", 1);
    running
}

/// Workers that wait for those of the lost node say so in their files; the screen has the cause.
#[test]
fn a_training_that_loses_an_agent_shows_one_error() {
    if !can_run("a_training_that_loses_an_agent_shows_one_error") {
        return;
    }
    let mut cluster = None;
    let running = train(&mut cluster);
    let workers = named(&running, "remuda");
    let is_worker = |process: &&Process| process.command.starts_with("remuda train-worker ");
    assert_eq!(workers.iter().filter(is_worker).count(), 3, "{workers:#?}");
    let agents = named(&running, "remuda-agent");
    let of_n2 = agents.iter().find(|agent| agent.command.contains("node=1 "));
    of_n2.expect("it has one").signal(Signal::KILL);
    let outcome = running.end().code(75);
    let lines = lines_without_launch(&outcome);
    // The other workers may have ended before we hear of the agent: nobody is left to be stopped, or
    // it is what they are stopped for.
    let (before, error) = lines.split_at(lines.len().saturating_sub(4));
    let lost = "      Lost  n2: the connection stands, but a signal ended the agent";
    assert!(before.contains(&lost), "{outcome:#?}");
    // A worker may also have ended, with its word about it, before anybody knew of a failure.
    let may_stand = ["  Stopping  ", "remuda train: rank "];
    let is_fine = |line: &&str| *line == lost || may_stand.iter().any(|may| line.starts_with(may));
    assert!(before.iter().all(is_fine), "{before:#?}");
    let (how, others) = error[0].split_once("; ").expect("what became of the others");
    assert_eq!(how, "error[R103]: the link to the agent on n2 ended", "{outcome:#?}");
    assert!(others.contains(" other worker"), "{outcome:#?}");
    let help = [
        "  lost with it: rank 1",
        "help: is n2 up? see `uptime` and `dmesg` there",
        "help: to go on without it: --exclude 'n2'",
    ];
    assert_eq!(error[1..], help, "{outcome:#?}");
    let survivor = String::from_utf8_lossy(&outcome.run_file("rank0.stderr")).into_owned();
    assert!(survivor.contains("is gone"), "it is kept: {survivor}");
    let _ = std::fs::remove_dir_all(outcome.dir());
}

/// Without the lines that say what begins.
/// All workers save and stop together, and it is still no success: the steps that were asked for are
/// not done.
#[test]
fn a_worker_of_a_training_that_somebody_asks_to_stop_is_told() {
    if !can_run("a_worker_of_a_training_that_somebody_asks_to_stop_is_told") {
        return;
    }
    let mut cluster = None;
    let running = train(&mut cluster);
    let workers = named(&running, "remuda");
    let mut workers = workers.iter().filter(|one| one.command.starts_with("remuda train-worker "));
    workers.next().expect("there are three").signal(Signal::TERM);
    let outcome = running.end().code(143);
    let error = outcome.stderr.lines().find(|line| line.starts_with("error")).expect("an error");
    assert!(error.starts_with("error[R101]: rank "), "{outcome:#?}");
    assert!(error.contains(" exited with code 143 after "), "{outcome:#?}");
    assert!(
        String::from_utf8_lossy(&outcome.stdout).contains("stopped after step "),
        "{outcome:#?}"
    );
    let _ = std::fs::remove_dir_all(outcome.dir());
}

/// What it has saved itself is no other run's.
#[test]
fn a_training_that_is_restarted_finds_its_own_checkpoints() {
    if !can_run("a_training_that_is_restarted_finds_its_own_checkpoints") {
        return;
    }
    let hosts = [("n1", 1), ("n2", 1)];
    let (cluster, launch) = Cluster::new(&hosts);
    let config = cluster.dir().join("ssh_config");
    let train = launch.another().command("train").on(&hosts).option("--ssh_config").option(config);
    let train = train.option("--checkpoint_dir").option(cluster.dir().join("kept"));
    let train = train.options(["--save_every", "1", "--steps", "2000", "--max_restarts", "1"]);
    let train = train.options(["--layers", "1", "--heads", "2", "--width", "16", "--block", "8"]);
    let running = train.option("--keep").option("2").start();
    running.wait_for_lines("is saved in", 3);
    let workers = named(&running, "remuda");
    let mut workers = workers.iter().filter(|one| one.command.starts_with("remuda train-worker "));
    workers.next().expect("there are two").signal(Signal::KILL);
    running.wait_for_error("restart 1 of 1");
    running.wait_for_lines("resuming after step ", 1);
    running.signal(Signal::TERM);
    running.end().code(143);
    let _ = std::fs::remove_dir_all(cluster.dir());
}

#[test]
fn a_training_elsewhere_whose_directory_cannot_be_made_ends_before_its_first_step() {
    let test = "a_training_elsewhere_whose_directory_cannot_be_made_ends_before_its_first_step";
    if !can_run(test) {
        return;
    }
    let (hosts, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let config = hosts.dir().join("ssh_config");
    let train = launch.another().command("train").on(&[("n1", 1), ("n2", 1)]);
    let train = train.option("--ssh_config").option(config).options(["--grace", "2s"]);
    let train = train.options(["--steps", "1000000", "--checkpoint_dir", "/proc/none"]);
    let outcome = train.start().end().code(73);
    let line = "remuda train: rank 0: cannot write `/proc/none`: no such file or directory";
    assert!(outcome.stderr.contains(line), "{outcome:#?}");
    assert!(!String::from_utf8_lossy(&outcome.stdout).contains("step "), "{outcome:#?}");
    let _ = std::fs::remove_dir_all(outcome.dir());
}

fn lines_without_launch(outcome: &Outcome) -> Vec<&str> {
    const FRAME: [&str; 3] = ["    Launch  ", "      Logs  ", "  Finished  "];
    let is_frame = |line: &&str| FRAME.iter().any(|start| line.starts_with(start));
    outcome.stderr.lines().filter(|line| !is_frame(line)).collect()
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_on_any_host() {
    if !can_run("a_launcher_that_is_killed_leaves_nothing_on_any_host") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    let dir = control_dir(&running);
    assert!(dir.exists());
    running.signal(Signal::KILL);
    running.end().killed_by(Signal::KILL);
    assert_gone(&dir);
}

/// Nobody is left to clear up: the next launch does, and touches nothing of a job that lives.
#[test]
fn what_launcher_and_janitor_leave_the_next_launch_clears() {
    if !can_run("what_launcher_and_janitor_leave_the_next_launch_clears") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    let private = cluster.dir().join("p");
    std::fs::create_dir(&private).expect("a directory");
    let config = cluster.dir().join("ssh_config");
    // What is left of each is looked for apart.
    let [living, next] = [(); 2].map(|()| {
        let launch = on_hosts(&[("n1", 2), ("n2", 2)]).option("--ssh_config").option(&config);
        launch.env("XDG_RUNTIME_DIR", &private)
    });
    let dead = launch.env("XDG_RUNTIME_DIR", &private).sh(SCRIPT).start();
    dead.wait_for_lines("ready", 4);
    let left = control_dir(&dead);
    // Stopped, neither can see the end of the other.
    let janitor = named(&dead, "remuda-janitor").remove(0);
    for signal in [Signal::STOP, Signal::KILL] {
        janitor.signal(signal);
        dead.signal(signal);
    }
    // With it goes the directory of the test.
    let _outcome = dead.end().killed_by(Signal::KILL);
    assert!(left.join("config").exists(), "nobody was there to clear up");
    let living = living.sh(SCRIPT).start();
    living.wait_for_lines("ready", 4);
    assert_gone(&left);
    let held = control_dir(&living);
    next.sh("exit 0").end().code(0);
    assert!(held.join("config").exists(), "its owner lives");
    living.signal(Signal::TERM);
    living.end().code(143);
    assert_eq!(std::fs::read_dir(&private).expect("it is there").count(), 0);
}

/// With a second ssh for each host, which is the one whose command line ends in the constant.
fn start_with_process_mux(cluster: &mut Option<Cluster>) -> Running {
    let (hosts, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    *cluster = Some(hosts);
    let launch = launch.options(["--grace", "2s", "--ssh_mux", "process"]);
    let running = launch.sh(SCRIPT).start();
    running.wait_for_lines("ready", 4);
    running
}

#[test]
fn a_launcher_with_processes_for_its_channels_leaves_none() {
    if !can_run("a_launcher_with_processes_for_its_channels_leaves_none") {
        return;
    }
    let mut cluster = None;
    let running = start_with_process_mux(&mut cluster);
    let dir = control_dir(&running);
    assert_eq!(named(&running, "ssh").len(), 4);
    running.signal(Signal::KILL);
    running.end().killed_by(Signal::KILL);
    assert_gone(&dir);
}

#[test]
fn a_process_of_a_channel_that_is_killed_is_named() {
    if !can_run("a_process_of_a_channel_that_is_killed_is_named") {
        return;
    }
    let mut cluster = None;
    let running = start_with_process_mux(&mut cluster);
    let is_client = |ssh: &Process| ssh.command.contains("exec sh -c");
    let client = named(&running, "ssh").into_iter().find(is_client).expect("one for each host");
    client.signal(Signal::KILL);
    let outcome = running.end().code(75).says("the link to the agent on n");
    outcome.says("the ssh process of its channel was killed by signal 9 (SIGKILL)");
}

#[test]
fn an_agent_behind_a_process_that_is_killed_is_told_from_its_connection() {
    if !can_run("an_agent_behind_a_process_that_is_killed_is_told_from_its_connection") {
        return;
    }
    let mut cluster = None;
    let running = start_with_process_mux(&mut cluster);
    kill_one(&running, "remuda-agent");
    let outcome = running.end().code(75).says("the link to the agent on n");
    outcome.says("the connection stands, but a signal ended the agent");
}

#[test]
fn a_job_survives_its_janitor() {
    if !can_run("a_job_survives_its_janitor") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    let dir = control_dir(&running);
    kill_one(&running, "remuda-janitor");
    running.signal(Signal::TERM);
    running.end().code(143);
    assert_gone(&dir);
}

#[test]
fn stopped_janitor_does_not_delay_the_end() {
    if !can_run("stopped_janitor_does_not_delay_the_end") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    let dir = control_dir(&running);
    named(&running, "remuda-janitor").remove(0).signal(Signal::STOP);
    running.signal(Signal::TERM);
    running.end().code(143);
    assert_gone(&dir);
}

#[test]
fn stopped_ssh_master_is_killed_at_the_end() {
    if !can_run("stopped_ssh_master_is_killed_at_the_end") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    let launch = launch.options(["--grace", "2s", "--lease", "2s"]);
    let running = launch.sh(SCRIPT).start();
    running.wait_for_lines("ready", 4);
    let dir = control_dir(&running);
    let master = named(&running, "ssh").remove(0);
    let outcome = while_stopped(&master, || running.end()).code(75);
    outcome.says(": nothing heard for 2.0 s");
    assert_gone(&dir);
}

#[test]
fn stopped_ssh_master_of_a_killed_launcher_leaves_nothing() {
    if !can_run("stopped_ssh_master_of_a_killed_launcher_leaves_nothing") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    let dir = control_dir(&running);
    named(&running, "ssh").remove(0).signal(Signal::STOP);
    running.signal(Signal::KILL);
    running.end().killed_by(Signal::KILL);
    assert_gone(&dir);
}

/// Whoever answers a signal clears up itself, from the moment on that there is something to clear up.
#[test]
fn a_launch_without_its_janitor_that_is_ended_at_once_leaves_nothing() {
    if !can_run("a_launch_without_its_janitor_that_is_ended_at_once_leaves_nothing") {
        return;
    }
    for _ in 0..8 {
        let (cluster, launch) = Cluster::new(&[("n1", 1)]);
        let private = cluster.dir().join("p");
        std::fs::create_dir(&private).expect("a directory");
        let running = launch.env("XDG_RUNTIME_DIR", &private).program(["sleep", "1000"]).start();
        kill_one(&running, "remuda-janitor");
        running.signal(Signal::TERM);
        let outcome = running.end().code(143);
        let left = std::fs::read_dir(&private).expect("it is there").count();
        assert_eq!(left, 0, "{outcome:#?}");
    }
}

#[test]
fn a_connection_that_breaks_is_a_lost_node() {
    if !can_run("a_connection_that_breaks_is_a_lost_node") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    let dir = control_dir(&running);
    kill_one(&running, "ssh");
    let outcome = running.end().code(75).says("the link to the agent on n");
    outcome.says("to go on without it: --exclude 'n");
    assert_gone(&dir);
}

#[test]
fn an_agent_that_is_killed_takes_its_workers_with_it() {
    if !can_run("an_agent_that_is_killed_takes_its_workers_with_it") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    kill_one(&running, "remuda-agent");
    let outcome = running.end().code(75).says("the link to the agent on n");
    outcome.says("the connection stands, but a signal ended the agent");
}

#[test]
fn a_shim_that_is_killed_is_named() {
    if !can_run("a_shim_that_is_killed_is_named") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    kill_one(&running, "remuda-shim");
    running.end().code(75).says("remuda-shim on n");
}

#[test]
fn a_worker_that_is_killed_is_the_cause() {
    if !can_run("a_worker_that_is_killed_is_the_cause") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    kill_one(&running, "sh");
    running.end().code(137).says("was killed by signal 9 (SIGKILL)");
}

/// Ends a launcher of which one host accepts and says nothing; the control directory is gone.
#[track_caller]
fn end_while_logging_in(signal: Signal) -> Outcome {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure_client(&format!("Host n2\n  HostName 127.0.0.1\n  Port {port}\nHost *"));
    let running = launch.sh("exit 0").start();
    let (_held, _) = silent.accept().expect("somebody connects");
    let dir = control_dir(&running);
    running.signal(signal);
    let outcome = running.end();
    assert_gone(&dir);
    outcome
}

/// The kernel ends what is still logging in, for it has no socket yet that anybody could find.
#[test]
fn a_launcher_that_is_killed_while_hosts_are_logging_in_leaves_nothing() {
    if can_run("a_launcher_that_is_killed_while_hosts_are_logging_in_leaves_nothing") {
        end_while_logging_in(Signal::KILL).killed_by(Signal::KILL);
    }
}

#[test]
fn a_launch_that_is_interrupted_while_hosts_are_logging_in_leaves_nothing() {
    if can_run("a_launch_that_is_interrupted_while_hosts_are_logging_in_leaves_nothing") {
        end_while_logging_in(Signal::INT).code(130);
    }
}

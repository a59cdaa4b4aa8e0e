//! Each process of remuda killed: the screen names the cause, and nothing is left on any host.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::ssh::cluster::{Cluster, can_run};
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
    // An ssh that only prints its settings (`ssh -G`) is not part of the job.
    found.retain(|process| process.name == name && !process.command.contains(" -G "));
    found.sort_by_key(|process| process.pid.as_raw_pid());
    found
}

fn kill_one(running: &Running, name: &str) {
    let found = wait_for(name, || named(running, name).into_iter().next());
    found.signal(Signal::KILL);
}

/// Control directory of the launch, from the arguments of its ssh processes.
fn control_dir(running: &Running) -> PathBuf {
    let ssh = named(running, "ssh").remove(0);
    let config = ssh.command.split(' ').skip_while(|word| *word != "-F").nth(1);
    Path::new(config.expect("every ssh has one")).parent().expect("a file in it").to_owned()
}

fn assert_gone(dir: &Path) {
    let gone = || (!dir.exists()).then_some(());
    wait_for_or(|| format!("the end of {}", dir.display()), gone);
}

/// A small training on three hosts that runs until it is ended.
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

/// The launcher cannot kill an agent on another machine; the shim of that agent does.
#[test]
fn stopped_agent_of_a_lost_node_is_killed_there() {
    if !can_run("stopped_agent_of_a_lost_node_is_killed_there") {
        return;
    }
    let (_hosts, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let running = launch.options(["--grace", "300ms", "--lease", "10s"]).sh(SCRIPT).start();
    running.wait_for_lines("ready", 2);
    let agents = named(&running, "remuda-agent");
    let agent = agents.iter().find(|agent| agent.command.contains("node=1")).expect("n2 has one");
    let outcome = while_stopped(agent, || running.end()).code(75);
    drop(
        outcome.says(
            "node n2 was lost: the launcher received no heartbeat from it for 10 s (--lease)",
        ),
    );
}

/// The files of the other workers contain their errors; the screen has the cause.
#[test]
fn training_that_loses_an_agent_shows_one_error() {
    if !can_run("training_that_loses_an_agent_shows_one_error") {
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
    // The other workers may exit before the launcher detects the loss of the agent; then the launcher
    // stops none.
    let at = lines.iter().position(|line| line.starts_with("error[")).expect("an error");
    let (before, error) = lines.split_at(at);
    // The survivors write how they failed, before or after the launcher detects the loss.
    let is_hidden = |line: &&&str| line.contains(" after the failure ");
    let error = error.iter().copied().filter(|line| !is_hidden(&line)).collect::<Vec<_>>();
    let lost = "      Lost  n2: the ssh connection is open, but the agent was killed by a signal";
    assert!(before.contains(&lost), "{outcome:#?}");
    // A worker may also exit with its own message before the launcher detects a failure.
    let may_stand = ["  Stopping  ", "remuda train: rank "];
    let is_fine = |line: &&str| *line == lost || may_stand.iter().any(|may| line.starts_with(may));
    assert!(before.iter().all(is_fine), "{before:#?}");
    let (how, others) = error[0].split_once("; ").expect("what became of the others");
    assert_eq!(
        how, "error[R103]: node n2 was lost: its remuda process was killed by a signal",
        "{outcome:#?}"
    );
    assert!(others.contains(" other worker"), "{outcome:#?}");
    assert!(error[2].starts_with("  log: "), "{outcome:#?}");
    let error = [&error[..2], &error[3..]].concat();
    let help = [
        "  lost with it: rank 1",
        "help: if no user killed it, check `dmesg` on n2 for the OOM killer",
        "help: to continue without it: --exclude n2",
    ];
    assert_eq!(error[1..], help, "{outcome:#?}");
    let survivor = String::from_utf8_lossy(&outcome.run_file("rank0.stderr")).into_owned();
    // Before rank 1 ends, it may notice the loss of its agent and abort the group.
    let texts =
        ["rank 1 on host `n2` is gone", "rank 1 aborted the group: the connection to the agent"];
    assert!(texts.iter().any(|text| survivor.contains(text)), "it is kept: {survivor}");
    let _ = std::fs::remove_dir_all(outcome.dir());
}

/// All workers save and stop together, and the job still fails, because the requested steps are not
/// done.
#[test]
fn training_worker_that_receives_sigterm_is_named() {
    if !can_run("training_worker_that_receives_sigterm_is_named") {
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

/// A restarted run may continue from its own checkpoints.
#[test]
fn restarted_training_finds_its_own_checkpoints() {
    if !can_run("restarted_training_finds_its_own_checkpoints") {
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
fn training_ends_if_its_directory_cannot_be_created() {
    let test = "training_ends_if_its_directory_cannot_be_created";
    if !can_run(test) {
        return;
    }
    let (hosts, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let config = hosts.dir().join("ssh_config");
    let train = launch.another().command("train").on(&[("n1", 1), ("n2", 1)]);
    let train = train.option("--ssh_config").option(config).options(["--grace", "2s"]);
    let train = train.options(["--steps", "1000000", "--checkpoint_dir", "/proc/none"]);
    let outcome = train.start().end().code(73);
    let line = "error[T006]: rank 0: cannot write `/proc/none`: no such file or directory";
    assert!(outcome.stderr.contains(line), "{outcome:#?}");
    assert!(!String::from_utf8_lossy(&outcome.stdout).contains("step "), "{outcome:#?}");
    let _ = std::fs::remove_dir_all(outcome.dir());
}

/// Lines of the screen except those about the launch, the logs and the end.
fn lines_without_launch(outcome: &Outcome) -> Vec<&str> {
    const FRAME: [&str; 3] = ["    Launch  ", "      Logs  ", "  Finished  "];
    let is_frame = |line: &&str| FRAME.iter().any(|start| line.starts_with(start));
    outcome.stderr.lines().filter(|line| !is_frame(line)).collect()
}

#[test]
fn killed_launcher_leaves_nothing_on_any_host() {
    if !can_run("killed_launcher_leaves_nothing_on_any_host") {
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

/// The next launch clears up, and does not touch a running job.
#[test]
fn next_launch_clears_after_killed_launcher_and_janitor() {
    if !can_run("next_launch_clears_after_killed_launcher_and_janitor") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 2), ("n2", 2)]);
    let private = cluster.dir().join("p");
    std::fs::create_dir(&private).expect("a directory");
    let config = cluster.dir().join("ssh_config");
    // Each launch has a directory of its own.
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
    // Dropping the outcome removes the directory of the test.
    let _outcome = dead.end().killed_by(Signal::KILL);
    assert!(left.join("config").exists(), "the directory was cleared early");
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
fn killed_launcher_with_process_mux_leaves_nothing() {
    if !can_run("killed_launcher_with_process_mux_leaves_nothing") {
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
fn killed_channel_process_is_named() {
    if !can_run("killed_channel_process_is_named") {
        return;
    }
    let mut cluster = None;
    let running = start_with_process_mux(&mut cluster);
    let is_client = |ssh: &Process| ssh.command.contains("exec sh -c");
    let client = named(&running, "ssh").into_iter().find(is_client).expect("one for each host");
    client.signal(Signal::KILL);
    let outcome =
        running.end().code(75).says("was lost: the connection to its remuda process closed");
    outcome.says("the ssh process of its channel was killed by signal 9 (SIGKILL)");
}

#[test]
fn killed_agent_differs_from_a_lost_connection() {
    if !can_run("killed_agent_differs_from_a_lost_connection") {
        return;
    }
    let mut cluster = None;
    let running = start_with_process_mux(&mut cluster);
    kill_one(&running, "remuda-agent");
    let outcome = running.end().code(75).says("error[R103]: node n");
    outcome.says("the ssh connection is open, but the agent was killed by a signal");
}

#[test]
fn job_survives_its_janitor() {
    if !can_run("job_survives_its_janitor") {
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
fn stopped_janitor_does_not_delay_the_exit() {
    if !can_run("stopped_janitor_does_not_delay_the_exit") {
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
    let launch = launch.options(["--grace", "2s", "--lease", "10s"]);
    let running = launch.sh(SCRIPT).start();
    running.wait_for_lines("ready", 4);
    let dir = control_dir(&running);
    let master = named(&running, "ssh").remove(0);
    let outcome = while_stopped(&master, || running.end()).code(75);
    outcome.says("the launcher received no heartbeat from it for 10 s (--lease)");
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

/// The launcher clears up at SIGTERM from the moment on at which the directory exists.
#[test]
fn launch_without_its_janitor_clears_up_at_sigterm() {
    if !can_run("launch_without_its_janitor_clears_up_at_sigterm") {
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
fn broken_connection_is_a_lost_node() {
    if !can_run("broken_connection_is_a_lost_node") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    let dir = control_dir(&running);
    kill_one(&running, "ssh");
    let outcome =
        running.end().code(75).says("was lost: the connection to its remuda process closed");
    outcome.says("to continue without it: --exclude n");
    assert_gone(&dir);
}

#[test]
fn killed_agent_ends_its_workers() {
    if !can_run("killed_agent_ends_its_workers") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    kill_one(&running, "remuda-agent");
    let outcome = running.end().code(75).says("error[R103]: node n");
    outcome.says("the ssh connection is open, but the agent was killed by a signal");
}

#[test]
fn killed_shim_is_named() {
    if !can_run("killed_shim_is_named") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    kill_one(&running, "remuda-shim");
    running.end().code(75).says(", which starts the workers, was killed or crashed; rank");
}

#[test]
fn killed_worker_is_the_cause() {
    if !can_run("killed_worker_is_the_cause") {
        return;
    }
    let mut cluster = None;
    let running = start(&mut cluster);
    kill_one(&running, "sh");
    running.end().code(137).says("was killed by signal 9 (SIGKILL)");
}

/// Ends a launcher while one host accepts and sends nothing; checks that the control directory is removed.
#[track_caller]
fn end_while_logging_in(signal: Signal) -> Outcome {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure_client(&format!("Host n2\n  HostName 127.0.0.1\n  Port {port}\nHost *"));
    let running = launch.sh("exit 0").start();
    let (_held, _) = silent.accept().expect("ssh connects");
    let dir = control_dir(&running);
    running.signal(signal);
    let outcome = running.end();
    assert_gone(&dir);
    outcome
}

/// The kernel ends an ssh that is still logging in, because it has no socket that the janitor could find.
#[test]
fn killed_launcher_leaves_nothing_during_logins() {
    if can_run("killed_launcher_leaves_nothing_during_logins") {
        end_while_logging_in(Signal::KILL).killed_by(Signal::KILL);
    }
}

#[test]
fn interrupted_launch_leaves_nothing_during_logins() {
    if can_run("interrupted_launch_leaves_nothing_during_logins") {
        end_while_logging_in(Signal::INT).code(130);
    }
}

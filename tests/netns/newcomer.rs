//! The first session of a new user with eight hosts: trains, pulls a cable, kills each process of remuda,
//! mistypes a host. Each time there is one correct error screen, and only the agent's executable is left
//! on the hosts.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::netns::hosts::{Hosts, can_run};
use crate::ssh::cluster::untrusted_copy;
use crate::support::launch::{Launch, Outcome, Running};
use crate::support::process::Process;
use crate::support::wait_for_or;

const NAMES: [&str; 8] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
/// Index of the host with the faults.
const VICTIM: usize = 4;
/// A number of steps that no test reaches.
const ENDLESS: &str = "1000000";

#[test]
fn newcomer_session_has_one_error_screen_per_fault() {
    if !can_run("newcomer_session_has_one_error_screen_per_fault") {
        return;
    }
    let place = Place::new();
    let wrong = NAMES.map(|name| if name == "n5" { "n55" } else { name });
    let outcome = place.train(&wrong, "3").end().code(69);
    let said = one_error(&outcome, "[R107]: 1 of 8 hosts cannot be reached; nothing was started");
    assert!(said.contains("n55: ssh: Could not resolve hostname"), "{outcome:#?}");
    assert!(said.contains("help: to continue without it: --exclude n55"), "{outcome:#?}");
    place.assert_clean();

    place.succeeds();
    place.kill("the worker", |job| find(job, "remuda", |it| is_of(job, it)));
    place.kill("the shim", |job| find(job, "remuda-shim", |it| it.command.contains("node=4 ")));
    place.kill("the agent", |job| find(job, "remuda-agent", |it| it.command.contains("node=4 ")));
    place.kill("the ssh process", |job| find(job, "ssh", |it| it.command.ends_with("-- n5 ")));
    place.kill("the launcher", |job| find(job, "remuda", |it| it.pid == job.pid()));
    place.kill("the janitor", |job| find(job, "remuda-janitor", |_| true));
    place.pull_the_cable();
    place.succeeds();
}

/// State that all jobs share.
struct Place {
    first: Launch,
    hosts: Hosts,
    remuda: PathBuf,
    /// Where launchers keep their sockets; so short that ssh takes it.
    private: PathBuf,
}

impl Place {
    fn new() -> Self {
        let first = Launch::new();
        let hosts = Hosts::behind(&first, &NAMES.map(str::to_owned));
        let remuda = untrusted_copy(first.dir());
        let private = std::env::temp_dir().join(format!("remuda-newcomer-{}", std::process::id()));
        fs::create_dir(&private).expect("a directory");
        Self { first, hosts, remuda, private }
    }

    /// A small training, one worker for each host.
    fn train(&self, names: &[&str], steps: &str) -> Launch {
        let [nsenter, net] = self.hosts.network.head.enter();
        let launch = self.first.another().command("train").through(&[&nsenter, &net]);
        let launch = launch.remuda(&self.remuda).env("XDG_RUNTIME_DIR", &self.private);
        let hosts: Vec<_> = names.iter().map(|name| (*name, 1)).collect();
        let launch = launch.on(&hosts).option("--ssh_config");
        let launch = launch.option(self.first.dir().join("ssh_config"));
        let launch = launch.options(["--grace", "2s", "--lease", "10s", "--steps", steps]);
        launch.options(["--layers", "1", "--heads", "2", "--width", "16", "--block", "8"])
    }

    fn succeeds(&self) {
        let outcome = self.train(&NAMES, "3").end().code(0);
        let text = outcome.stdout_text();
        assert!(text.contains("done after step 3"), "{outcome:#?}");
        assert!(!outcome.stderr.contains("error"), "{outcome:#?}");
        self.assert_clean();
    }

    fn start(&self) -> Running {
        let job = self.train(&NAMES, ENDLESS).start();
        job.wait_for_lines(&format!(" 1/{ENDLESS} "), 1);
        job
    }

    /// Kills a process during a training.
    fn kill(&self, who: &str, find: impl Fn(&Running) -> Process) {
        let job = self.start();
        let victim = find(&job);
        victim.signal(Signal::KILL);
        if who == "the janitor" {
            // The job does not need it, and the launcher cleans up.
            job.signal(Signal::INT);
        }
        let outcome = job.end();
        match who {
            "the launcher" => assert_eq!(outcome.stderr.matches("error").count(), 0),
            "the janitor" => drop(one_error(&outcome, "[R106]: the job was stopped by SIGINT")),
            "the worker" => {
                let title = "[R101]: rank 4 (n5) was killed by signal 9 (SIGKILL)";
                let said = one_error(&outcome, title);
                assert!(said.contains(&format!("pid {}", victim.pid)), "{outcome:#?}");
            }
            "the shim" => {
                one_error(&outcome, "[R103]: node n5 was lost: its `remuda-shim`, ");
            }
            _ => {
                let title = match who {
                    "the agent" => {
                        "[R103]: node n5 was lost: its remuda process was killed by a signal; "
                    }
                    _ => {
                        "[R103]: node n5 was lost: the connection to its remuda process closed: the ssh process "
                    }
                };
                one_error(&outcome, title);
                let why = match who {
                    "the agent" => {
                        "the ssh connection is open, but the agent was killed by a signal"
                    }
                    _ => "the ssh process of its connection was killed by signal 9 (SIGKILL)",
                };
                assert!(outcome.stderr.contains(&format!("Lost  n5: {why}")), "{outcome:#?}");
            }
        }
        self.assert_clean();
    }

    /// The link stays cut until nothing is left at either of its ends.
    fn pull_the_cable(&self) {
        let job = self.start();
        self.hosts.network.disconnect(VICTIM);
        let outcome = job.end().code(75);
        let said = one_error(
            &outcome,
            "[R103]: node n5 was lost: the launcher received no heartbeat from it for 10 s (--lease)",
        );
        assert!(said.contains("help: to continue without it: --exclude n5"), "{outcome:#?}");
        // A cut link does not notify the workers at its other end; the launcher does.
        let survivor = String::from_utf8_lossy(&outcome.run_file("rank0.stderr")).into_owned();
        assert!(survivor.contains("rank 4 on host `n5` is gone"), "{survivor}");
        self.assert_clean();
        self.hosts.network.reconnect(VICTIM);
    }

    /// Nothing is left on any host but the agent, and nothing here.
    fn assert_clean(&self) {
        for (host, name) in NAMES.iter().enumerate() {
            let left = || {
                let mut files = self.hosts.files(host);
                files.retain(|file| !file.ends_with("remuda"));
                files
            };
            let is_clean = || left().is_empty().then_some(());
            wait_for_or(|| format!("the end of {:#?} on {name}", left()), is_clean);
            assert!(self.hosts.files(host).len() <= 1, "more than one agent on {name}");
        }
        let left = || fs::read_dir(&self.private).expect("ours").count();
        let is_clean = || (left() == 0).then_some(());
        wait_for_or(|| format!("the end of what is in {}", self.private.display()), is_clean);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(self.first.dir());
            let _ = fs::remove_dir(&self.private);
        }
    }
}

/// The only error of a screen, from its code on to the end.
#[track_caller]
fn one_error<'a>(outcome: &'a Outcome, title: &str) -> &'a str {
    let errors: Vec<_> = outcome.stderr.match_indices("error[").collect();
    assert_eq!(errors.len(), 1, "{outcome:#?}");
    let said = &outcome.stderr[errors[0].0 + "error".len()..];
    assert!(said.starts_with(title), "{title}: {outcome:#?}");
    said
}

#[track_caller]
fn find(job: &Running, name: &str, is_it: impl Fn(&Process) -> bool) -> Process {
    let mut found = job.processes();
    found.retain(|process| process.name == name && is_it(process));
    assert!(!found.is_empty(), "no {name} among {:#?}", job.processes());
    found.remove(0)
}

/// Whether a process is a worker of the host with the faults.
fn is_of(job: &Running, process: &Process) -> bool {
    let all = job.processes();
    let shim = all.iter().find(|it| it.pid.as_raw_pid() == process.parent);
    shim.is_some_and(|shim| shim.name == "remuda-shim" && shim.command.contains("node=4 "))
}

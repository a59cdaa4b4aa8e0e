//! Two jobs that want the same GPU. There is none here: in a mount namespace of its own a launch finds
//! the files that the driver would show (`/proc/driver/nvidia/gpus`), with UUIDs that no other test
//! has. Everything else is real: the locks, and the processes that hold them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::launch::{Launch, command, hosts};
use crate::support::process::Role;
use crate::support::proof::skip;
use crate::support::wait_for;

/// Two GPUs; what jobs leave of their claims is removed at the end.
struct Gpus {
    uuids: [String; 2],
}

impl Gpus {
    /// `None`, with a note, where nothing may be mounted.
    fn new(test: &str) -> Option<Self> {
        let mark = Launch::new().mark().replace('-', "");
        let uuids =
            [0, 1].map(|number| format!("GPU-{mark:0>8}-0000-0000-0000-00000000000{number}"));
        let gpus = Self { uuids };
        let words = gpus.namespace();
        let mut probe = command(&words[0]);
        probe.args(&words[1..]).arg("true").stderr(Stdio::null());
        if probe.status().is_ok_and(|status| status.success()) {
            return Some(gpus);
        }
        skip("mount", test);
        None
    }

    /// The command that starts a program in the namespace.
    fn namespace(&self) -> Vec<String> {
        let mut shell = "mount -t tmpfs none /proc/driver".to_owned();
        for (number, uuid) in self.uuids.iter().enumerate() {
            let dir = format!("/proc/driver/nvidia/gpus/0000:0{number}:00.0");
            let line = format!("echo 'GPU UUID: {uuid}' >{dir}/information");
            shell = [&shell, &*format!("mkdir -p {dir}"), &line].join(" && ");
        }
        let shell = shell + " && exec \"$@\"";
        ["unshare", "--mount", "sh", "-c", &shell, "sh"].map(str::to_owned).into()
    }

    fn hosts(&self, names: &[(&str, usize)]) -> Launch {
        let words = self.namespace();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let launch = hosts(names).options(["--accelerator", "cuda", "--oversubscribe"]);
        launch.options(["--grace", "1s"]).through(&words)
    }

    fn files(&self) -> Vec<PathBuf> {
        let places = ["/run/lock", "/dev/shm", "/tmp"].map(Path::new);
        let file = |place: &Path, uuid: &String| place.join(format!("remuda-{uuid}"));
        places.iter().flat_map(|place| self.uuids.iter().map(|uuid| file(place, uuid))).collect()
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        for file in self.files() {
            let _ = fs::remove_file(file);
        }
    }
}

const WAITS: &str = "echo ready; exec sleep 1000";

#[test]
fn gpu_in_use_refuses_a_second_job() {
    let Some(gpus) = Gpus::new("gpu_in_use_refuses_a_second_job") else {
        return;
    };
    let first = gpus.hosts(&[("n0", 2)]).options(["--include", "n0:1"]).sh(WAITS).start();
    first.wait_for_lines("ready", 1);
    let agent = first.the(Role::Agent).pid;

    // The GPU of its first host is free.
    let second = gpus.hosts(&[("n0", 1), ("n1", 2)]).sh("touch started");
    let started = second.dir().join("started");
    let dir = second.dir().to_owned();
    let outcome = second.cwd(dir).end().code(69);
    let outcome = outcome.says("1 of 2 nodes cannot take part; nothing was started");
    let uuid = &gpus.uuids[1];
    let outcome = outcome.says(&format!("n1: slot 1 (GPU {uuid}) is used by job "));
    let outcome = outcome.says(&format!("(agent pid {agent}, for "));
    let _outcome = outcome.says("or share the GPU with --share");
    assert!(!started.exists());

    gpus.hosts(&[("n0", 2)]).options(["--include", "n0:1", "--share"]).sh("exit 0").end().code(0);
    gpus.hosts(&[("n0", 2)]).options(["--accelerator", "cpu"]).sh("exit 0").end().code(0);
    first.signal(Signal::KILL);
    first.end().killed_by(Signal::KILL);
    gpus.hosts(&[("n0", 2)]).sh("exit 0").end().code(0);
}

#[test]
fn gpu_is_shared_by_hosts_of_one_job() {
    let Some(gpus) = Gpus::new("gpu_is_shared_by_hosts_of_one_job") else {
        return;
    };
    gpus.hosts(&[("n0", 2), ("n1", 2)]).sh("exit 0").end().code(0);
}

/// The shim is suspended, so it cannot exit with its agent.
#[test]
fn gpu_lock_is_held_until_agent_and_shim_exit() {
    let Some(gpus) = Gpus::new("gpu_lock_is_held_until_agent_and_shim_exit") else {
        return;
    };
    let first = gpus.hosts(&[("n0", 1)]).sh(WAITS).start();
    first.wait_for_lines("ready", 1);
    let (agent, shim, worker) =
        (first.the(Role::Agent), first.the(Role::Shim), first.the(Role::Worker));
    let holders = || {
        let files = gpus.files();
        let holds = |pid| {
            let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            links.filter_map(|link| fs::read_link(link.path()).ok()).any(|to| files.contains(&to))
        };
        [agent.pid, shim.pid, worker.pid].map(holds)
    };
    assert_eq!(holders(), [true, true, false], "agent and shim, and no worker");
    // The launcher would end what its agent leaves.
    first.signal(Signal::STOP);
    shim.signal(Signal::STOP);
    agent.signal(Signal::KILL);
    wait_for("the end of the agent", || (holders() == [false, true, false]).then_some(()));
    gpus.hosts(&[("n0", 1)]).sh("exit 0").end().code(69);
    shim.signal(Signal::CONT);
    first.signal(Signal::CONT);
    first.end().code(75);
    gpus.hosts(&[("n0", 1)]).sh("exit 0").end().code(0);
}

/// Also in the pause between two epochs, when no worker runs.
#[test]
fn gpu_lock_survives_a_restart() {
    let Some(gpus) = Gpus::new("gpu_lock_survives_a_restart") else {
        return;
    };
    let script = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; echo again; exec sleep 1000";
    let first = gpus.hosts(&[("n0", 1)]).options(["--max_restarts", "1"]).sh(script).start();
    first.wait_for_error("restart 1 of 1");
    let refused = gpus.hosts(&[("n0", 1)]).sh("exit 0").end().code(69);
    let _outcome = refused.says("is used by job ");
    first.wait_for_lines("again", 1);
    gpus.hosts(&[("n0", 1)]).sh("exit 0").end().code(69);
    first.signal(Signal::TERM);
    first.end().code(143);
    gpus.hosts(&[("n0", 1)]).sh("exit 0").end().code(0);
}

//! A Slurm of this machine alone: one controller and four nodes, which are daemons on ports that the kernel
//! chose, with an authentication service of their own. No file of the system is read or written. The names of the
//! nodes are known to Slurm alone, which has an address of the loopback for each.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use remuda::base::clock;
use remuda::os::process::process_tree::env_var_of;
use rustix::process::{Pid, Signal};

use crate::support::launch::{Launch, command};
use crate::support::process::{pids, signal_to};
use crate::support::proof::{has, skip};
use crate::support::wait_for;

/// Number of nodes: `node01` and so on.
pub(crate) const NODES: usize = 4;
/// Time that a daemon has to end before it is killed.
const END_LIMIT: Duration = Duration::from_secs(2);
const MUNGED: &str = "/usr/sbin/munged";
const SLURMCTLD: &str = "/usr/sbin/slurmctld";
const SLURMD: &str = "/usr/sbin/slurmd";

/// Whether this machine has what these tests need; a skip is recorded.
pub(crate) fn can_run(test: &str) -> bool {
    // slurmd starts tasks as their users, so it is root.
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("slurm", test);
    }
    is_root && has("slurm", test)
}

/// Daemons that live as long as this does.
pub(crate) struct Slurm {
    dir: PathBuf,
    daemons: Vec<Child>,
}

impl Slurm {
    /// Starts the daemons, and waits until all nodes are ready.
    pub(crate) fn start() -> Self {
        // The path of a socket has at most 107 bytes.
        let dir = std::env::temp_dir().join(format!("remuda-slurm-{}", next_number()));
        fs::DirBuilder::new().mode(0o755).create(&dir).expect("a directory");
        let mut slurm = Self { dir, daemons: Vec::new() };
        slurm.start_munge();
        slurm.write_config();
        let config = slurm.config();
        let words = ["-D".into(), "-f".into(), config.clone().into_os_string()];
        slurm.spawn(SLURMCTLD, &words);
        for node in 1..=NODES {
            let name = format!("node{node:02}");
            fs::create_dir(slurm.dir.join(&name)).expect("a directory");
            let words = [&words[..], &["-N".into(), name.into()]].concat();
            slurm.spawn(SLURMD, &words);
        }
        wait_for("idle nodes", || {
            let shown = slurm.ask("sinfo", &["-h", "-N", "-o", "%T"]);
            (shown.lines().filter(|line| *line == "idle").count() == NODES).then_some(())
        });
        slurm
    }

    fn start_munge(&mut self) {
        let key = self.dir.join("munge.key");
        fs::write(&key, [7; 1024]).expect("a key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a mode");
        let file = |option: &str, name: &str| {
            let path = self.dir.join(name);
            format!("--{option}={}", path.display()).into()
        };
        let words = [
            "--foreground".into(),
            "--force".into(),
            file("key-file", "munge.key"),
            file("socket", "munge.socket"),
            file("pid-file", "munged.pid"),
            file("seed-file", "munged.seed"),
        ];
        self.spawn(MUNGED, &words);
        let socket = self.dir.join("munge.socket");
        wait_for("the socket of munge", || socket.exists().then_some(()));
    }

    fn write_config(&self) {
        let dir = self.dir.display();
        let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let host = name.trim().split('.').next().expect("a name");
        let ports = free_ports(NODES + 1);
        let mut text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={dir}/munge.socket\nSlurmctldPort={}\n\
             SlurmctldPidFile={dir}/slurmctld.pid\nStateSaveLocation={dir}\n\
             SlurmdPidFile={dir}/%n.pid\nSlurmdSpoolDir={dir}/%n\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nSelectType=select/cons_tres\nMpiDefault=none\nReturnToService=2\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             KillWait=5\nTreeWidth=2\nSwitchType=switch/none\nSchedulerParameters=bf_interval=1\n",
            ports[0]
        );
        for (node, port) in (1..).zip(&ports[1..]) {
            let _ = writeln!(
                text,
                "NodeName=node{node:02} NodeHostname={host} NodeAddr=127.0.0.{} Port={port} CPUs=2 \
                 RealMemory=100",
                node + 1
            );
        }
        text += "PartitionName=all Nodes=ALL Default=YES State=UP\n";
        fs::write(self.config(), text).expect("a file");
        fs::write(self.dir.join("cgroup.conf"), "CgroupAutomount=no\n").expect("a file");
    }

    fn spawn(&mut self, program: &str, words: &[std::ffi::OsString]) {
        let log = fs::File::options().append(true).create(true).open(self.dir.join("log"));
        let log = log.expect("a file");
        let mut command = command(program);
        command.args(words).stdin(Stdio::null()).env("SLURM_CONF", self.config());
        command.stdout(log.try_clone().expect("a copy")).stderr(log);
        self.daemons.push(command.spawn().expect("a daemon"));
    }

    fn config(&self) -> PathBuf {
        self.dir.join("slurm.conf")
    }

    /// Output of a command of Slurm.
    pub(crate) fn ask(&self, program: &str, words: &[&str]) -> String {
        let mut command: Command = command(program);
        let output = command.args(words).env("SLURM_CONF", self.config()).output();
        String::from_utf8(output.expect("it runs").stdout).expect("text")
    }

    /// Starts remuda as the program of an allocation with these options.
    pub(crate) fn allocate(&self, launch: Launch, options: &[&str]) -> Launch {
        let words = [&["salloc", "-Q"], options].concat();
        launch.env("SLURM_CONF", self.config()).through(&words)
    }

    /// Ends the jobs, and waits until no process of a step is left: one that cannot reach the controller any more would
    /// try for a long time.
    fn end_steps(&self) {
        self.ask("scancel", &["--user=root"]);
        let config = self.config();
        let is_own = |pid: &Pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            let of = env_var_of(*pid, "SLURM_CONF");
            name.is_ok_and(|name| name.trim() == "slurmstepd")
                && of.is_some_and(|of| Path::new(&of) == config)
        };
        let end = clock::now() + END_LIMIT;
        while pids().any(|pid| is_own(&pid)) && clock::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        for pid in pids().filter(is_own) {
            signal_to(pid, Signal::KILL);
        }
    }

    /// Where the files are.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&fs::read_to_string(self.dir.join("log")).unwrap_or_default());
        }
        self.end_steps();
        // The nodes first. A slurmd that is still starting may miss the signal.
        for mut daemon in self.daemons.drain(..).rev() {
            let pid = Pid::from_child(&daemon);
            signal_to(pid, Signal::TERM);
            let end = clock::now() + END_LIMIT;
            while clock::now() < end && matches!(daemon.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            signal_to(pid, Signal::KILL);
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[expect(clippy::disallowed_macros, reason = "a failing test shows the log of the daemons")]
fn show(log: &str) {
    let lines: Vec<_> = log.lines().collect();
    eprintln!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
}

fn next_number() -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("{}-{number}", std::process::id())
}

fn free_ports(count: usize) -> Vec<u16> {
    let listen = |_| TcpListener::bind("0.0.0.0:0").expect("a port");
    let listeners: Vec<_> = (0..count).map(listen).collect();
    listeners.iter().map(|open| open.local_addr().expect("bound").port()).collect()
}

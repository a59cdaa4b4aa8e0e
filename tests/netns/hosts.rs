//! Hosts of a network of the test's own, each with an sshd.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::ssh::cluster::{SSHD, make_key, sshd_config};
use crate::support::launch::{Launch, command, on_hosts};
use crate::support::net::Network;
use crate::support::proof::has;
use crate::support::wait_for_or;

/// Whether this machine has what these tests need; a skip is recorded.
pub(crate) fn can_run(test: &str) -> bool {
    has("ssh", test) && has("netns", test)
}

/// They live as long as this does.
pub(crate) struct Hosts {
    sshds: Vec<Child>,
    pub(crate) network: Network,
    dir: PathBuf,
}

impl Hosts {
    /// `n1`, `n2` and so on with so many slots each, behind a launch that knows how to reach them.
    pub(crate) fn new(slots: &[usize]) -> (Self, Launch) {
        let names: Vec<String> = (1..=slots.len()).map(|number| format!("n{number}")).collect();
        let hosts: Vec<_> = names.iter().map(String::as_str).zip(slots.iter().copied()).collect();
        let launch = on_hosts(&hosts);
        let hosts = Self::behind(&launch, &names);
        let [nsenter, net] = hosts.network.head.enter();
        let launch = launch.through(&[&nsenter, &net]).option("--ssh_config");
        let config = launch.dir().join("ssh_config");
        (hosts, launch.option(config))
    }

    /// In the directory of a launch and with its marker.
    pub(crate) fn behind(launch: &Launch, names: &[String]) -> Self {
        let network = Network::new(names.len());
        let dir = launch.dir().to_owned();
        for private in ["home", "run", "cache"] {
            fs::DirBuilder::new().mode(0o700).create(dir.join(private)).expect("a directory");
        }
        make_key(&dir.join("user_key"));
        fs::copy(dir.join("user_key.pub"), dir.join("authorized_keys")).expect("copied");
        make_key(&dir.join("host_key"));
        // sshd wants it to be there, and an installation makes it at boot.
        let _ = fs::create_dir("/run/sshd");
        let start = |host| start_sshd(&network, host, &dir, launch.mark());
        let sshds = (0..names.len()).map(start).collect();
        write_client_config(&dir, names);
        Self { sshds, network, dir }
    }

    /// What jobs may leave on a host beside processes: shared memory, and files where the agent is
    /// kept. Both are its own.
    pub(crate) fn files(&self, host: usize) -> Vec<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.sshds[host].id()));
        let inside = |dir: &Path| root.join(dir.strip_prefix("/").expect("absolute"));
        let (mut dirs, mut found) =
            (vec![inside(Path::new("/dev/shm")), inside(&self.dir.join("run"))], Vec::new());
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).expect("the sshd lives").flatten() {
                let kind = entry.file_type().expect("it is there");
                if kind.is_dir() { dirs.push(entry.path()) } else { found.push(entry.path()) }
            }
        }
        found
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for sshd in &mut self.sshds {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
    }
}

fn start_sshd(network: &Network, host: usize, dir: &Path, mark: &str) -> Child {
    let address = Network::address(host);
    let (config, log) = (dir.join(format!("sshd_{host}")), dir.join(format!("sshd_{host}.log")));
    let text = sshd_config(dir, &dir.join("host_key"), mark);
    fs::write(&config, format!("ListenAddress {address}:22\n{text}")).expect("a file");
    let [nsenter, net] = network.host(host).enter();
    // Whatever ends the test ends it as well.
    let mut sshd = command("setpriv");
    let mount =
        "mount -t tmpfs none /dev/shm && mount -t tmpfs -o mode=700 none \"$0\" && exec \"$@\"";
    sshd.args(["--pdeathsig", "KILL", &nsenter, &net, "unshare", "--mount", "sh", "-c", mount]);
    sshd.arg(dir.join("run")).args([SSHD, "-D", "-f"]).arg(config);
    sshd.arg("-E").arg(&log).stdin(Stdio::null());
    let sshd = sshd.spawn().expect("setpriv starts");
    let log_of = || fs::read_to_string(&log).unwrap_or_default();
    let listens = || log_of().contains("Server listening").then_some(());
    wait_for_or(|| format!("an sshd on {address}: {}", log_of()), listens);
    sshd
}

fn write_client_config(dir: &Path, names: &[String]) {
    let (mut config, mut known) = (String::new(), String::new());
    let public = fs::read_to_string(dir.join("host_key.pub")).expect("made before");
    for (host, name) in names.iter().enumerate() {
        let address = Network::address(host);
        let _ = writeln!(config, "Host {name}\n  HostName {address}");
        let _ = writeln!(known, "{address} {}", public.trim());
    }
    let shown = dir.display();
    let _ = write!(
        config,
        "Host *\n  IdentityFile \"{shown}/user_key\"\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
         UserKnownHostsFile \"{shown}/known_hosts\"\n  GlobalKnownHostsFile /dev/null\n  \
         KexAlgorithms curve25519-sha256\n"
    );
    fs::write(dir.join("ssh_config"), config).expect("a file");
    fs::write(dir.join("known_hosts"), known).expect("a file");
}

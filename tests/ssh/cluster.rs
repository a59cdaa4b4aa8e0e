//! Hosts for tests over ssh: each is an address of the loopback with a port that the
//! kernel chose, a host key of its own, and OpenSSH's sshd behind it, one process for each
//! connection. No file of the user is read or written: names, keys and ports come from a generated
//! configuration, and the nodes' home is a directory of the test.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal};

use crate::support::launch::{Launch, LaunchDir, REMUDA, command, on_hosts};
use crate::support::process::{MARK, signal_to};
use crate::support::proof::has;
use crate::support::wait_for;

/// Path of sshd on Debian and Fedora; it must be started by its absolute path.
pub(crate) const SSHD: &str = "/usr/sbin/sshd";

/// Whether this machine has what these tests need; a skip is recorded.
pub(crate) fn can_run(test: &str) -> bool {
    has("ssh", test)
}

/// Hosts that live as long as this does.
pub(crate) struct Cluster {
    dir: PathBuf,
    doors: Vec<Door>,
    /// Held until the hosts are gone.
    _held: Arc<LaunchDir>,
}

impl Cluster {
    /// One host for each name, behind a launch that knows how to reach them.
    pub(crate) fn new(hosts: &[(&str, usize)]) -> (Self, Launch) {
        let launch = on_hosts(hosts);
        let dir = launch.dir().to_owned();
        for private in ["home", "run", "cache"] {
            fs::DirBuilder::new().mode(0o700).create(dir.join(private)).expect("a directory");
        }
        make_key(&dir.join("user_key"));
        fs::copy(dir.join("user_key.pub"), dir.join("authorized_keys")).expect("copied");
        if rustix::process::geteuid().is_root() {
            // sshd requires this directory, which an installation creates at boot.
            let _ = fs::create_dir("/run/sshd");
        }
        let mark = launch.mark().to_owned();
        let open =
            |(number, (name, _)): (usize, &(&str, usize))| Door::open(&dir, name, number, &mark);
        let doors = hosts.iter().enumerate().map(open).collect();
        let cluster = Self { dir, doors, _held: launch.shared_dir() };
        cluster.write_config();
        let config = cluster.dir.join("ssh_config");
        (cluster, launch.option("--ssh_config").option(config))
    }

    /// Where the files of the test are.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The home that logins see.
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    /// Where logins find their runtime directory, the first place of an agent.
    pub(crate) fn cache(&self) -> PathBuf {
        self.dir.join("run/remuda")
    }

    /// Adds lines to the configuration of sshd.
    pub(crate) fn configure(&self, lines: &str) {
        (0..self.doors.len()).for_each(|host| self.configure_one(host, lines));
    }

    /// The same for one host.
    pub(crate) fn configure_one(&self, host: usize, lines: &str) {
        let config = &self.doors[host].config;
        let text = fs::read_to_string(config).expect("written before");
        fs::write(config, format!("{lines}\n{text}")).expect("a file");
    }

    /// Gives every login a variable; the first value that sshd reads is the one that holds.
    pub(crate) fn set_variable(&self, name: &str, value: &str) {
        (0..self.doors.len()).for_each(|host| self.set_variable_of(host, name, value));
    }

    /// The same for those of one host.
    pub(crate) fn set_variable_of(&self, host: usize, name: &str, value: &str) {
        let config = &self.doors[host].config;
        let text = fs::read_to_string(config).expect("written before");
        let text = text.replace("SetEnv ", &format!("SetEnv \"{name}={value}\" "));
        fs::write(config, text).expect("a file");
    }

    /// Inserts lines at the beginning of the ssh configuration.
    pub(crate) fn configure_client(&self, lines: &str) {
        let path = self.dir.join("ssh_config");
        let text = fs::read_to_string(&path).expect("written before");
        fs::write(path, format!("{lines}\n{text}")).expect("a file");
    }

    /// Removes the addresses of hosts from the ssh configuration.
    pub(crate) fn forget_addresses(&self) {
        let path = self.dir.join("ssh_config");
        let text = fs::read_to_string(&path).expect("written before");
        let is_kept = |line: &&str| !line.trim_start().starts_with("HostName ");
        let kept: Vec<&str> = text.lines().filter(is_kept).collect();
        fs::write(path, kept.join("\n") + "\n").expect("a file");
    }

    /// Makes a host close the next connections at once, as sshd does above MaxStartups.
    pub(crate) fn drop_connections(&self, host: usize, count: usize) {
        self.doors[host].shared.drops.store(count, Ordering::SeqCst);
    }

    /// Number of connections to the host.
    pub(crate) fn connections(&self, host: usize) -> usize {
        self.doors[host].shared.connections.load(Ordering::SeqCst)
    }

    /// Where a host's sshd listens.
    pub(crate) fn port(&self, host: usize) -> u16 {
        self.doors[host].address.port()
    }

    /// A host gets a new key, as after a new installation.
    pub(crate) fn change_host_key(&self, host: usize) {
        let key = &self.doors[host].key;
        fs::remove_file(key).expect("it had one");
        make_key(key);
    }

    /// Empties the known_hosts file.
    pub(crate) fn forget_host_keys(&self) {
        fs::write(self.dir.join("known_hosts"), "").expect("a file");
    }

    /// Content of the known_hosts file.
    pub(crate) fn known_hosts(&self) -> String {
        fs::read_to_string(self.dir.join("known_hosts")).expect("a file")
    }

    fn write_config(&self) {
        let (mut config, mut known) = (String::new(), String::new());
        for door in &self.doors {
            let (ip, port) = (door.address.ip(), door.address.port());
            let _ = writeln!(config, "Host {}\n  HostName {ip}\n  Port {port}", door.name);
            let public = fs::read_to_string(door.key.with_extension("pub")).expect("made before");
            let _ = writeln!(known, "[{ip}]:{port} {}", public.trim());
        }
        let dir = self.dir.display();
        let _ = write!(
            config,
            "Host *\n  IdentityFile \"{dir}/user_key\"\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
             UserKnownHostsFile \"{dir}/known_hosts\"\n  GlobalKnownHostsFile /dev/null\n  \
             KexAlgorithms curve25519-sha256\n"
        );
        fs::write(self.dir.join("ssh_config"), config).expect("a file");
        fs::write(self.dir.join("known_hosts"), known).expect("a file");
    }
}

/// A copy of the program in a world-writable directory: its path is not trusted on a node, so the
/// nodes receive the binary.
pub(crate) fn untrusted_copy(dir: &Path) -> PathBuf {
    let dir = dir.join("writable");
    fs::create_dir(&dir).expect("a directory");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("permissions can be set");
    let copy = dir.join("remuda");
    // A separate process copies it: a fork of another test would inherit a descriptor that is open
    // for writing, and such a file cannot be executed.
    let copied = command("cp").arg(REMUDA).arg(&copy).status().expect("cp starts");
    assert!(copied.success());
    copy
}

pub(crate) fn make_key(path: &Path) {
    let _ = fs::remove_file(path.with_extension("pub"));
    let mut keygen = command("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).stdin(Stdio::null());
    assert!(keygen.status().expect("ssh-keygen runs").success());
}

/// One host: its listener and its sshds.
struct Door {
    name: String,
    address: SocketAddr,
    key: PathBuf,
    config: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    drops: AtomicUsize,
    connections: AtomicUsize,
    sshds: Mutex<Vec<Child>>,
}

impl Door {
    fn open(dir: &Path, name: &str, number: usize, mark: &str) -> Self {
        let listener = TcpListener::bind(format!("127.0.0.{}:0", number + 2)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let (key, config) =
            (dir.join(format!("host_key_{name}")), dir.join(format!("sshd_{name}")));
        make_key(&key);
        fs::write(&config, sshd_config(dir, &key, mark)).expect("a file");
        let shared = Arc::new(Shared::default());
        let (of_thread, config_of_thread) = (Arc::clone(&shared), config.clone());
        let log = dir.join(format!("sshd_{name}.log"));
        let thread =
            std::thread::spawn(move || answer(&listener, &config_of_thread, &log, &of_thread));
        Self { name: name.to_owned(), address, key, config, shared, thread: Some(thread) }
    }
}

pub(crate) fn sshd_config(dir: &Path, key: &Path, mark: &str) -> String {
    let (dir, key) = (dir.display(), key.display());
    format!(
        "HostKey \"{key}\"\nAuthorizedKeysFile \"{dir}/authorized_keys\"\nStrictModes no\n\
         UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin yes\nPidFile none\nPrintMotd no\nLogLevel VERBOSE\n\
         SetEnv {MARK}={mark} \"HOME={dir}/home\" \"XDG_RUNTIME_DIR={dir}/run\" \
         \"XDG_CACHE_HOME={dir}/cache\"\n"
    )
}

/// Gives every connection an sshd of its own.
fn answer(listener: &TcpListener, config: &Path, log: &Path, shared: &Shared) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let dropped = shared
            .drops
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |drops| drops.checked_sub(1));
        if dropped.is_ok() {
            continue;
        }
        let socket: OwnedFd = stream.into();
        let copy = socket.try_clone().expect("a descriptor");
        let mut sshd = command(SSHD);
        sshd.arg("-i").arg("-f").arg(config).arg("-E").arg(log);
        sshd.stdin(Stdio::from(copy)).stdout(Stdio::from(socket)).stderr(Stdio::null());
        let child = sshd.spawn().expect("sshd starts");
        shared.sshds.lock().expect("no panic while holding it").push(child);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Wakes the thread.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let sshds = std::mem::take(&mut *self.shared.sshds.lock().expect("no panic while held"));
        for mut sshd in sshds {
            // They end with their connections; a test that failed may have left some.
            if std::thread::panicking() {
                signal_to(Pid::from_child(&sshd), Signal::KILL);
            }
            wait_for("the end of an sshd", || sshd.try_wait().expect("permissions can be set"));
        }
    }
}

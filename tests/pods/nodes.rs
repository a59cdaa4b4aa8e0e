//! The nodes of one job, each of them a command line of its own.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::support::launch::Launch;

/// Addresses of the nodes.
pub(crate) const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// What all nodes of a job are given.
pub(crate) struct Nodes {
    slots: Vec<usize>,
    pub(crate) port: u16,
    dir: PathBuf,
}

impl Nodes {
    /// As many nodes as there are numbers of slots.
    pub(crate) fn new(slots: &[usize]) -> Self {
        let port = three_ports();
        let name = format!("{}-{port}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pods").join(name);
        fs::create_dir_all(&dir).expect("a directory for the test");
        let nodes = Self { slots: slots.to_vec(), port, dir };
        nodes.write_key("key", b"a secret of the test, and long enough");
        nodes
    }

    /// Where this test keeps its files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a key that others cannot read.
    pub(crate) fn write_key(&self, name: &str, key: &[u8]) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, key).expect("a key file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .expect("permissions can be set");
        path
    }

    /// One of them, without a program.
    pub(crate) fn node(&self, rank: usize) -> Launch {
        self.node_with_key(rank, &self.dir.join("key"))
    }

    /// The same with another key.
    pub(crate) fn node_with_key(&self, rank: usize, key: &Path) -> Launch {
        let launch = self.bare(rank).options(["--no_python", "--no_local_rank"]);
        launch.option("--key_file").option(key)
    }

    /// The same for another command, or without a key.
    pub(crate) fn bare(&self, rank: usize) -> Launch {
        let launch = Launch::new().options(["--accelerator", "cpu", "--no_ssh"]);
        let hosts = HOSTS.iter().zip(&self.slots);
        let lines = hosts
            .fold(String::new(), |text, (host, slots)| text + &format!("{host} slots={slots}\n"));
        let hostfile = launch.dir().join("hostfile");
        fs::write(&hostfile, lines).expect("a hostfile");
        let launch = launch.option("-H").option(hostfile);
        let launch = launch.option(format!("--node_rank={rank}"));
        launch.option("--master_addr=127.0.0.1").option(format!("--master_port={}", self.port))
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// The first of three ports that were free a moment ago, and that no other test of this process gets.
fn three_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = NEXT.fetch_add(3, Ordering::Relaxed);
        let port = 20_000 + (std::process::id() as u16 % 3_000) * 3 + step % 900;
        let is_free = |port: u16| TcpListener::bind(("0.0.0.0", port)).is_ok();
        if (port..port + 3).all(is_free) {
            return port;
        }
    }
}

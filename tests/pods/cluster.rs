//! Pods as a kubelet makes them, on a network of the test's own: each has an address, a host name, a
//! file of names that may be written late, and remuda as process 1.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, Running};
use crate::support::net::{Namespace, Network};
use crate::support::process::{Process, Role};
use crate::support::proof::has;

/// Of the job, and of the headless Service that gives its pods their names.
const NAME: &str = "train";

/// Whether this machine has what these tests need; a skip is recorded.
pub(crate) fn can_run(test: &str) -> bool {
    has("netns", test)
}

/// Where pods run.
pub(crate) struct Cluster {
    pub(crate) network: Network,
    nodes: Nodes,
    /// What pods are called, without their number, and the Service that gives them their names.
    names: (&'static str, &'static str),
}

impl Cluster {
    /// With room for so many pods, whose names exist already.
    pub(crate) fn new(pods: usize) -> Self {
        Self::of((NAME, NAME), pods)
    }

    /// The same for pods that are called `BASE-0.SERVICE`, `BASE-1.SERVICE` and so on.
    pub(crate) fn of(names: (&'static str, &'static str), pods: usize) -> Self {
        let cluster = Self { network: Network::new(pods), nodes: Nodes::new(&[]), names };
        cluster.publish(pods);
        cluster
    }

    /// From now on these names exist, and no others.
    pub(crate) fn publish(&self, pods: usize) {
        let (base, service) = self.names;
        let name = |pod| format!("{} {base}-{pod}.{service} {base}-{pod}\n", Network::address(pod));
        let names: String = (0..pods).map(name).collect();
        // Written in place: pods have the file itself before their eyes.
        fs::write(self.file("hosts"), format!("127.0.0.1 localhost\n{names}")).expect("a file");
    }

    /// A file that all pods may be given.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.nodes.dir().join(name)
    }

    /// One of so many pods of an Indexed Job, without a program.
    pub(crate) fn pod(&self, rank: usize, pods: usize) -> Launch {
        let launch = self.contain(rank, Launch::new().command("pod"), "true");
        let launch = launch.options(["--accelerator", "cpu", "--no_python", "--no_local_rank"]);
        let launch = launch.options(["--grace", "1s"]).env("REMUDA_NODES", pods.to_string());
        let launch = launch.env("JOB_COMPLETION_INDEX", rank.to_string());
        let launch = launch.env("REMUDA_MASTER_ADDR", format!("{NAME}-0.{NAME}"));
        launch.env("REMUDA_KEY_FILE", self.file("key"))
    }

    /// Starts it as process 1 of a container of this pod, after a line of `sh` as root.
    pub(crate) fn contain(&self, rank: usize, launch: Launch, line: &str) -> Launch {
        let [nsenter, net] = self.network.host(rank).enter();
        let launch =
            launch.through(&[&nsenter, &net, "unshare", "--pid", "--fork", "--kill-child"]);
        let launch = launch.through(&["--mount-proc", "--uts", "--ipc"]);
        let hosts = self.file("hosts");
        let hosts = hosts.display();
        let (base, _) = self.names;
        let name = format!("hostname {base}-{rank} && mount --bind '{hosts}' /etc/hosts");
        launch.under(&format!("set -e; {name}; {line}"))
    }

    /// A command on the network that belongs to no pod.
    pub(crate) fn stranger(&self) -> &Namespace {
        &self.network.head
    }
}

/// Process 1 of a container: the child of the process that made its namespaces.
pub(crate) fn init(pod: &Running) -> Process {
    pod.the(Role::Agent)
}

/// As the kubelet ends it when there is no time left: its namespace dies with process 1.
pub(crate) fn kill(pod: Running) {
    init(&pod).signal(Signal::KILL);
    drop(pod.end());
}

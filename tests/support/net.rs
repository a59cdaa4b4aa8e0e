//! A test network: one network namespace for the head, one for each host, and a bridge between
//! them. A namespace has no name: it exists while its holder process runs, and this process runs
//! while the test keeps a pipe to it open.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};

use rustix::process::{Pid, Signal};

use super::launch::command;
use super::process::signal_to;
use super::wait_for;

/// A network namespace and the process that holds it.
pub(crate) struct Namespace {
    holder: Child,
    /// The standard input of the holder, which exits when it is closed.
    pipe: Option<ChildStdin>,
}

impl Namespace {
    fn new() -> Self {
        let mut holder = command("unshare");
        holder.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut holder = holder.spawn().expect("unshare starts");
        let pipe = holder.stdin.take();
        let namespace = Self { holder, pipe };
        let own = fs::read_link("/proc/self/ns/net").expect("every process has one");
        wait_for("a namespace", || (namespace.link()? != own).then_some(()));
        namespace
    }

    /// The path of the namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    fn link(&self) -> Option<PathBuf> {
        fs::read_link(self.path()).ok()
    }

    /// The command that starts a program in the namespace.
    pub(crate) fn enter(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--net={}", self.path())]
    }

    /// Runs `ip`, `tc` or `nft` in the namespace; returns its output.
    #[track_caller]
    pub(crate) fn run(&self, words: &str) -> String {
        let [nsenter, net] = self.enter();
        let mut tool = command(nsenter);
        tool.arg(net).args(words.split(' ')).stdin(Stdio::null());
        let output = tool.output().expect("nsenter starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{words}`: {stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The processes in the namespace, except its holder.
    fn processes(&self) -> Vec<Pid> {
        let Some(link) = self.link() else {
            return Vec::new();
        };
        let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_here = |pid: &i32| {
            *pid != self.holder.id() as i32
                && fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|other| other == link)
        };
        pids.filter(is_here).filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // An sshd does not exit when its connection is cut.
        for pid in self.processes() {
            signal_to(pid, Signal::KILL);
        }
        drop(self.pipe.take());
        let _ = self.holder.wait();
    }
}

/// A test network of a head and several hosts.
pub(crate) struct Network {
    pub(crate) head: Namespace,
    hosts: Vec<Namespace>,
}

impl Network {
    /// Creates a network with that many hosts.
    pub(crate) fn new(hosts: usize) -> Self {
        let head = Namespace::new();
        head.run("ip link set lo up");
        head.run("ip link add br0 type bridge");
        head.run("ip addr add 10.77.0.1/24 dev br0");
        head.run("ip link set br0 up");
        let hosts = (0..hosts).map(|host| plug_in(&head, host)).collect();
        Self { head, hosts }
    }

    /// The namespace of a host.
    pub(crate) fn host(&self, host: usize) -> &Namespace {
        &self.hosts[host]
    }

    /// The address of a host.
    pub(crate) fn address(host: usize) -> String {
        format!("10.77.0.{}", host + 2)
    }

    /// Adds a second interface, `net1`, to every host, on a separate network: 10.78.0.0/24.
    pub(crate) fn add_second(&self) {
        self.head.run("ip link add br1 type bridge");
        self.head.run("ip link set br1 up");
        for (host, namespace) in self.hosts.iter().enumerate() {
            let path = namespace.path();
            self.head.run(&format!("ip link add w{host} type veth peer name net1 netns {path}"));
            self.head.run(&format!("ip link set w{host} master br1"));
            self.head.run(&format!("ip link set w{host} up"));
            namespace.run(&format!("ip addr add 10.78.0.{}/24 dev net1", host + 2));
            namespace.run("ip link set net1 up");
        }
    }

    /// Disconnects a host.
    pub(crate) fn disconnect(&self, host: usize) {
        self.head.run(&format!("ip link set v{host} down"));
    }

    /// Connects a host again.
    pub(crate) fn reconnect(&self, host: usize) {
        self.head.run(&format!("ip link set v{host} up"));
    }

    /// Drops all packets that a host sends to the head.
    pub(crate) fn drop_packets_from(&self, host: usize) {
        self.hosts[host].run("ip route add blackhole 10.77.0.1/32");
    }

    /// Drops all packets that the head sends to a host.
    pub(crate) fn drop_packets_to(&self, host: usize) {
        self.head.run(&format!("ip route add blackhole {}/32", Self::address(host)));
    }

    /// Drops that percentage of the packets to a host, and of those from it.
    pub(crate) fn lose_packets(&self, host: usize, percent: u32) {
        let own = &self.hosts[host];
        // Packets are sent one by one: the kernel would otherwise drop dozens together or none of
        // them.
        own.run("ip link set dev eth0 gso_max_segs 1");
        for (namespace, device) in [(&self.head, format!("v{host}")), (own, "eth0".to_owned())] {
            let hook = format!("{{ type filter hook ingress device {device} priority 0; }}");
            namespace.run(&format!("nft add table netdev {device}"));
            namespace.run(&format!("nft add chain netdev {device} lossy {hook}"));
            let rule = format!("numgen random mod 100 < {percent} counter drop");
            namespace.run(&format!("nft add rule netdev {device} lossy {rule}"));
        }
    }

    /// The number of packets to a host that were dropped.
    pub(crate) fn lost_packets(&self, host: usize) -> usize {
        let rules = self.hosts[host].run("nft list chain netdev eth0 lossy");
        let count = rules.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.and_then(|count| count.parse().ok()).expect("a counter")
    }

    /// Drops all packets from one host to another.
    pub(crate) fn drop_packets_between(&self, from: usize, to: usize) {
        self.hosts[from].run(&format!("ip route add blackhole {}/32", Self::address(to)));
    }

    /// Limits the rate at which a host sends.
    pub(crate) fn slow_down(&self, host: usize, rate: &str) {
        let shape = format!("tc qdisc add dev eth0 root tbf rate {rate} burst 16kb latency 400ms");
        self.hosts[host].run(&shape);
    }
}

fn plug_in(head: &Namespace, host: usize) -> Namespace {
    let namespace = Namespace::new();
    let path = namespace.path();
    head.run(&format!("ip link add v{host} type veth peer name eth0 netns {path}"));
    head.run(&format!("ip link set v{host} master br0"));
    head.run(&format!("ip link set v{host} up"));
    namespace.run("ip link set lo up");
    namespace.run(&format!("ip addr add {}/24 dev eth0", Network::address(host)));
    namespace.run("ip link set eth0 up");
    namespace
}

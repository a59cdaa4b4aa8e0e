//! A network of the test's own: a namespace for the head, one for each host, a bridge in the middle.
//! A namespace has no name: it lives as long as a process that was started for it, and that process as
//! long as a pipe of ours.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};

use rustix::process::{Pid, Signal};

use super::launch::command;
use super::process::signal_to;
use super::wait_for;

/// A namespace, and who holds it.
pub(crate) struct Namespace {
    holder: Child,
    /// The holder ends with it.
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

    /// What leads into it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    fn link(&self) -> Option<PathBuf> {
        fs::read_link(self.path()).ok()
    }

    /// What starts a program in it.
    pub(crate) fn enter(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--net={}", self.path())]
    }

    /// Runs `ip`, `tc` or `nft` in it; what it prints.
    #[track_caller]
    pub(crate) fn run(&self, words: &str) -> String {
        let [nsenter, net] = self.enter();
        let mut tool = command(nsenter);
        tool.arg(net).args(words.split(' ')).stdin(Stdio::null());
        let output = tool.output().expect("nsenter starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{words}`: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Everybody in it but its holder.
    fn inhabitants(&self) -> Vec<Pid> {
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
        // An sshd whose connection was cut waits for ever.
        for pid in self.inhabitants() {
            signal_to(pid, Signal::KILL);
        }
        drop(self.pipe.take());
        let _ = self.holder.wait();
    }
}

/// See the module.
pub(crate) struct Network {
    pub(crate) head: Namespace,
    hosts: Vec<Namespace>,
}

impl Network {
    /// With so many hosts.
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

    /// Its address.
    pub(crate) fn address(host: usize) -> String {
        format!("10.77.0.{}", host + 2)
    }

    /// Every host has a second interface, `net1`, on a network of its own: 10.78.0.0/24.
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

    /// Pulls the cable of a host.
    pub(crate) fn pull(&self, host: usize) {
        self.head.run(&format!("ip link set v{host} down"));
    }

    /// Plugs it in again.
    pub(crate) fn plug(&self, host: usize) {
        self.head.run(&format!("ip link set v{host} up"));
    }

    /// Nothing that a host sends arrives.
    pub(crate) fn mute(&self, host: usize) {
        self.hosts[host].run("ip route add blackhole 10.77.0.1/32");
    }

    /// Nothing arrives at a host.
    pub(crate) fn deafen(&self, host: usize) {
        self.head.run(&format!("ip route add blackhole {}/32", Self::address(host)));
    }

    /// So many packets in a hundred are lost, of those to a host and of those from it.
    pub(crate) fn lose_packets(&self, host: usize, percent: u32) {
        let own = &self.hosts[host];
        // As on a wire, and not dozens at once that are lost together or not at all.
        own.run("ip link set dev eth0 gso_max_segs 1");
        for (namespace, device) in [(&self.head, format!("v{host}")), (own, "eth0".to_owned())] {
            let hook = format!("{{ type filter hook ingress device {device} priority 0; }}");
            namespace.run(&format!("nft add table netdev {device}"));
            namespace.run(&format!("nft add chain netdev {device} lossy {hook}"));
            let rule = format!("numgen random mod 100 < {percent} counter drop");
            namespace.run(&format!("nft add rule netdev {device} lossy {rule}"));
        }
    }

    /// How many were, of those to a host.
    pub(crate) fn lost_packets(&self, host: usize) -> usize {
        let rules = self.hosts[host].run("nft list chain netdev eth0 lossy");
        let count = rules.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.and_then(|count| count.parse().ok()).expect("a counter")
    }

    /// Nothing that one host sends to another arrives.
    pub(crate) fn sever(&self, from: usize, to: usize) {
        self.hosts[from].run(&format!("ip route add blackhole {}/32", Self::address(to)));
    }

    /// What a host sends goes at this rate.
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

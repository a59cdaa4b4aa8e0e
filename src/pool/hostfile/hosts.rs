//! Hosts and their slots, as values that are always valid.

use std::collections::HashMap;
use std::fmt;

use crate::base::{HostName, Slot, Span, UserName};

/// Limit of the slots of a host; no machine has nearly as many, and a typing error exceeds it.
pub const SLOTS_MAX: u32 = 1024;

/// How many slots a host has: `1..=SLOTS_MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotCount(u32);

impl SlotCount {
    /// `None` when the number is zero or above [`SLOTS_MAX`].
    pub fn new(count: u32) -> Option<Self> {
        (1..=SLOTS_MAX).contains(&count).then_some(Self(count))
    }

    /// The number of slots.
    pub fn get(self) -> u32 {
        self.0
    }

    /// `0..count`.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        (0..self.0).map(Slot)
    }
}

/// Name of the option for hosts without a number of slots, as advice shows it: other launchers have an option
/// of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsOption(pub &'static str);

impl Default for SlotsOption {
    fn default() -> Self {
        Self("--slots")
    }
}

impl fmt::Display for SlotsOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A host of a hostfile with its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name, as it is written.
    pub name: HostName,
    /// The login user (`user@host`); `None`: the user of ssh's configuration.
    pub user: Option<UserName>,
    /// Number of slots.
    pub slots: SlotCount,
    /// Open MPI's limit for the host, which no other tool has and jobs of remuda ignore.
    pub max_slots: Option<SlotCount>,
    /// The line of its first occurrence, counted from 1.
    pub line: usize,
    /// The position of the name in the text.
    pub span: Span,
}

/// The hosts of a hostfile in the order of the text, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hostfile {
    hosts: Vec<Host>,
}

impl Hostfile {
    /// Creates a hostfile; the caller has checked that no name is repeated.
    pub(crate) fn new(hosts: Vec<Host>) -> Self {
        Self { hosts }
    }

    /// The hosts, in the order of the file.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Slots of all hosts.
    pub fn slot_count(&self) -> u64 {
        self.hosts.iter().map(|host| u64::from(host.slots.get())).sum()
    }

    /// The pool of all hosts and slots.
    pub fn pool(&self) -> Pool {
        let nodes = self.hosts.iter();
        let users =
            self.hosts.iter().filter_map(|host| Some((host.name.clone(), host.user.clone()?)));
        Pool {
            nodes: nodes.map(|host| (host.name.clone(), host.slots.slots().collect())).collect(),
            users: users.collect(),
        }
    }
}

/// Login users of hosts; ssh's configuration decides for the hosts that are not listed.
pub type Users = HashMap<HostName, UserName>;

/// Hosts with their slots, in rank order: each name once, each host with at least one slot, each
/// slot once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    nodes: Vec<(HostName, Vec<Slot>)>,
    users: Users,
}

impl Pool {
    /// A pool of one host, with devices in the order in which workers take them; a device named
    /// twice counts once.
    pub fn single(host: HostName, slots: impl IntoIterator<Item = Slot>) -> Self {
        Self::from_nodes([(host, slots.into_iter().collect())], Users::new())
    }

    /// A pool of hosts with all of their slots; of hosts with the same name the first is kept.
    pub fn of(hosts: impl IntoIterator<Item = (HostName, SlotCount)>) -> Self {
        let nodes = hosts.into_iter().map(|(host, count)| (host, count.slots().collect()));
        Self::from_nodes(nodes, Users::new())
    }

    /// The same pool with these login users.
    #[must_use]
    pub fn with_users(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// Creates a pool and keeps its invariants: hosts without slots are removed, and
    /// of repeated hosts and slots the first is kept.
    pub(crate) fn from_nodes(
        nodes: impl IntoIterator<Item = (HostName, Vec<Slot>)>,
        users: Users,
    ) -> Self {
        let mut unique = Vec::new();
        let mut names = std::collections::HashSet::new();
        for (host, slots) in nodes {
            let slots = dedup_slots(slots);
            if !slots.is_empty() && names.insert(host.clone()) {
                unique.push((host, slots));
            }
        }
        Self { nodes: unique, users }
    }

    /// The hosts with their slots, in rank order.
    pub fn nodes(&self) -> &[(HostName, Vec<Slot>)] {
        &self.nodes
    }

    /// The login users; they may also include hosts that were not selected.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The nodes for [`JobSpec`](crate::plan::JobSpec), and the login users for ssh.
    pub fn into_parts(self) -> (Vec<(HostName, Vec<Slot>)>, Users) {
        (self.nodes, self.users)
    }

    /// Slots of all hosts.
    pub fn slot_count(&self) -> usize {
        self.nodes.iter().map(|(_, slots)| slots.len()).sum()
    }
}

fn dedup_slots(slots: Vec<Slot>) -> Vec<Slot> {
    if slots.is_sorted_by(|left, right| left < right) {
        return slots;
    }
    let mut seen = std::collections::BTreeSet::new();
    slots.into_iter().filter(|slot| seen.insert(*slot)).collect()
}

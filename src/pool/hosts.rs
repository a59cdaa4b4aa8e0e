//! Hosts and their slots, as values that cannot be wrong.

use std::collections::HashMap;

use crate::base::{HostName, Slot, Span, UserName};

/// Slots that a host may have at most; no machine comes near, and a typing error goes beyond.
pub const SLOTS_MAX: u32 = 1024;

/// How many slots a host has: `1..=SLOTS_MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotCount(u32);

impl SlotCount {
    /// `None` when the number is zero or above [`SLOTS_MAX`].
    pub fn new(count: u32) -> Option<Self> {
        (1..=SLOTS_MAX).contains(&count).then_some(Self(count))
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// `0..count`.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        (0..self.0).map(Slot)
    }
}

/// One line of a hostfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name, as it was written.
    pub name: HostName,
    /// As whom it is reached (`user@host`); `None`: as ssh's configuration says.
    pub user: Option<UserName>,
    /// How many slots it has.
    pub slots: SlotCount,
    /// Open MPI's limit for it, which no other tool has and no job of ours heeds.
    pub max_slots: Option<SlotCount>,
    /// Its line, counted from 1.
    pub line: usize,
    /// Where the name stands in the text.
    pub span: Span,
}

/// The hosts of a file, in its order, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hostfile {
    hosts: Vec<Host>,
}

impl Hostfile {
    /// The caller has seen to it that no name comes twice.
    pub(super) fn new(hosts: Vec<Host>) -> Self {
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

    /// What there is to select from.
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

/// As whom hosts are reached; about the others ssh's configuration decides.
pub type Users = HashMap<HostName, UserName>;

/// Hosts with their slots, in rank order: each name once, each host with at least one slot, each
/// slot once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    nodes: Vec<(HostName, Vec<Slot>)>,
    users: Users,
}

impl Pool {
    /// One host, with devices in the order in which workers take them; a device named twice counts
    /// once.
    pub fn single(host: HostName, slots: impl IntoIterator<Item = Slot>) -> Self {
        Self::from_nodes([(host, slots.into_iter().collect())], Users::new())
    }

    /// Hosts with all of their slots; of a name that comes twice the first stays.
    pub fn of(hosts: impl IntoIterator<Item = (HostName, SlotCount)>) -> Self {
        let nodes = hosts.into_iter().map(|(host, count)| (host, count.slots().collect()));
        Self::from_nodes(nodes, Users::new())
    }

    /// The same, reached as these users.
    #[must_use]
    pub fn reached_as(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// Keeps the invariants: hosts without slots vanish, and of what comes twice the first stays.
    pub(super) fn from_nodes(
        nodes: impl IntoIterator<Item = (HostName, Vec<Slot>)>,
        users: Users,
    ) -> Self {
        let mut kept = Vec::new();
        let mut names = std::collections::HashSet::new();
        for (host, slots) in nodes {
            let slots = without_repeats(slots);
            if !slots.is_empty() && names.insert(host.clone()) {
                kept.push((host, slots));
            }
        }
        Self { nodes: kept, users }
    }

    /// The hosts with their slots, in rank order.
    pub fn nodes(&self) -> &[(HostName, Vec<Slot>)] {
        &self.nodes
    }

    /// As whom they are reached; may also name hosts that were not selected.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The same, to keep: what [`JobSpec`](crate::plan::JobSpec) wants, and what ssh wants.
    pub fn into_parts(self) -> (Vec<(HostName, Vec<Slot>)>, Users) {
        (self.nodes, self.users)
    }

    /// Slots of all hosts.
    pub fn slot_count(&self) -> usize {
        self.nodes.iter().map(|(_, slots)| slots.len()).sum()
    }
}

fn without_repeats(slots: Vec<Slot>) -> Vec<Slot> {
    if slots.is_sorted_by(|left, right| left < right) {
        return slots;
    }
    let mut seen = std::collections::BTreeSet::new();
    slots.into_iter().filter(|slot| seen.insert(*slot)).collect()
}

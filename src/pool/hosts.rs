//! Hosts and their slots, as values that cannot be wrong.

use crate::base::{HostName, Slot, Span};

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
    /// How many slots it has.
    pub slots: SlotCount,
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
        Pool(
            self.hosts
                .iter()
                .map(|host| (host.name.clone(), host.slots.slots().collect()))
                .collect(),
        )
    }
}

/// Hosts with their slots, in rank order: each name once, each host with at least one slot, each
/// slot once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool(Vec<(HostName, Vec<Slot>)>);

impl Pool {
    /// One host, with devices in the order in which workers take them; a device named twice counts
    /// once.
    pub fn single(host: HostName, slots: impl IntoIterator<Item = Slot>) -> Self {
        Self::from_nodes([(host, slots.into_iter().collect())])
    }

    /// Hosts with all of their slots; of a name that comes twice the first stays.
    pub fn of(hosts: impl IntoIterator<Item = (HostName, SlotCount)>) -> Self {
        Self::from_nodes(hosts.into_iter().map(|(host, count)| (host, count.slots().collect())))
    }

    /// Keeps the invariants: hosts without slots vanish, and of what comes twice the first stays.
    pub(super) fn from_nodes(nodes: impl IntoIterator<Item = (HostName, Vec<Slot>)>) -> Self {
        let mut kept = Vec::new();
        let mut names = std::collections::HashSet::new();
        for (host, slots) in nodes {
            let mut seen = std::collections::BTreeSet::new();
            let slots: Vec<Slot> = slots.into_iter().filter(|slot| seen.insert(*slot)).collect();
            if !slots.is_empty() && names.insert(host.clone()) {
                kept.push((host, slots));
            }
        }
        Self(kept)
    }

    /// The hosts with their slots, in rank order.
    pub fn nodes(&self) -> &[(HostName, Vec<Slot>)] {
        &self.0
    }

    /// The same, to keep: what [`JobSpec`](crate::plan::JobSpec) wants.
    pub fn into_nodes(self) -> Vec<(HostName, Vec<Slot>)> {
        self.0
    }

    /// Slots of all hosts.
    pub fn slot_count(&self) -> usize {
        self.0.iter().map(|(_, slots)| slots.len()).sum()
    }
}

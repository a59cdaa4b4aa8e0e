//! Writer of hosts as a text in a dialect.

use std::fmt::Write as _;

use super::slurm;
use crate::pool::dialect::kind::Dialect;
use crate::pool::hostfile::hosts::Host;
use crate::pool::nodeset::{fold, fold_without_suffix};

/// A format in which hosts can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostfileFormat {
    /// A dialect with hosts and slots.
    Dialect(Dialect),
    /// The names alone, folded: `n[01-16],login`.
    Nodeset,
}

/// The text, and the properties of the hosts that it cannot express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The text, which ends with a newline.
    pub text: String,
    /// One sentence for each loss, lower case, no full stop.
    pub losses: Vec<String>,
}

/// Writes the hosts in their order.
pub fn write(hosts: &[Host], target: HostfileFormat) -> Written {
    let HostfileFormat::Dialect(dialect) = target else {
        let text = fold(names(hosts)) + "\n";
        let no_slots = "a list of names has no slots".to_owned();
        let losses = lost_limits(hosts).into_iter().chain([no_slots]).collect();
        return Written { text, losses };
    };
    let text = match dialect {
        Dialect::DeepSpeed => lines(hosts, with_slots),
        Dialect::OpenMpi => lines(hosts, |host| {
            let limit = host.max_slots;
            let limit = limit.map_or(String::new(), |limit| format!(" max_slots={}", limit.get()));
            with_slots(host) + &limit
        }),
        Dialect::Hydra => lines(hosts, |host| {
            let user = host.user.as_ref().map_or(String::new(), |user| format!(" user={user}"));
            format!("{}:{}{user}", host.name, host.slots.get())
        }),
        Dialect::Pbs => {
            let every_slot =
                |host: &Host| vec![host.name.to_string(); host.slots.get() as usize].join("\n");
            lines(hosts, every_slot)
        }
        Dialect::Lsf => lines(hosts, |host| format!("{} {}", host.name, host.slots.get())),
        Dialect::Sge => lines(hosts, |host| {
            let (name, slots) = (&host.name, host.slots.get());
            format!("{name} {slots} all.q@{name} UNDEFINED")
        }),
        Dialect::Horovod => {
            let pairs = hosts.iter().map(|host| format!("{}:{}", host.name, host.slots.get()));
            pairs.collect::<Vec<_>>().join(",") + "\n"
        }
        Dialect::Slurm => {
            let counts: Vec<u32> = hosts.iter().map(|host| host.slots.get()).collect();
            let (list, counts) = (fold_without_suffix(names(hosts)), slurm::show_counts(&counts));
            format!("SLURM_JOB_NODELIST={list}\nSLURM_TASKS_PER_NODE={counts}\n")
        }
        Dialect::Ranges => ranges(hosts),
    };
    let limits = if dialect == Dialect::OpenMpi { None } else { lost_limits(hosts) };
    Written { text, losses: lost_users(hosts, dialect).into_iter().chain(limits).collect() }
}

/// The loss message for Open MPI's limits in a dialect that cannot express them.
pub fn lost_limits(hosts: &[Host]) -> Option<String> {
    let limits = hosts.iter().filter(|host| host.max_slots.is_some()).count();
    let hosts = if limits == 1 { "host" } else { "hosts" };
    (0 < limits).then(|| format!("`max_slots` of {limits} {hosts} not taken over"))
}

fn with_slots(host: &Host) -> String {
    format!("{}{} slots={}", login(host), host.name, host.slots.get())
}

/// The prefix `ada@` of a host that has a login user.
fn login(host: &Host) -> String {
    host.user.as_ref().map_or(String::new(), |user| format!("{user}@"))
}

fn lost_users(hosts: &[Host], dialect: Dialect) -> Option<String> {
    let has_users = matches!(dialect, Dialect::DeepSpeed | Dialect::OpenMpi | Dialect::Hydra);
    let users = hosts.iter().filter(|host| host.user.is_some()).count();
    (!has_users && 0 < users)
        .then(|| format!("{dialect} has no users: those of {users} hosts not taken over"))
}

fn names(hosts: &[Host]) -> impl Iterator<Item = &str> {
    hosts.iter().map(|host| host.name.as_str())
}

fn lines(hosts: &[Host], show: impl Fn(&Host) -> String) -> String {
    hosts.iter().map(|host| show(host) + "\n").collect()
}

/// Writes one line for each run of adjacent hosts with the same number of slots.
fn ranges(hosts: &[Host]) -> String {
    let mut out = String::new();
    for group in hosts.chunk_by(|left, right| left.slots == right.slots) {
        writeln!(out, "{} slots={}", fold(names(group)), group[0].slots.get())
            .expect("writing to a String does not fail");
    }
    out
}

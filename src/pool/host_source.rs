//! Source of the hosts of a pool, as messages about a selection name it.

use crate::base::show_typed;

/// Source of the hosts of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSource {
    /// A hostfile, by its name.
    Hostfile(String),
    /// Another source, as a noun with its article: `the list of hosts`.
    Named(String),
    /// An allocation of a scheduler, as a noun with its article: `the allocation of Slurm job 7`.
    Allocation(String),
    /// No source was given: the only host is this machine.
    ThisMachine,
}

impl HostSource {
    /// A list of hosts that was typed in place of a hostfile.
    pub fn typed_list() -> Self {
        Self::Named("the list of hosts".to_owned())
    }

    /// The sentence that a host is missing: ``host `n9` is not in hostfile `hosts` ``.
    pub(super) fn show_missing(&self, host: &str) -> String {
        match self {
            Self::Hostfile(_) | Self::Named(_) | Self::Allocation(_) => {
                format!("host `{host}` is not in {}", self.noun())
            }
            Self::ThisMachine => format!("host `{host}` is not this machine"),
        }
    }

    /// The sentence that the source has these hosts: ``hostfile `hosts` has 4 hosts``.
    pub(super) fn show_content(&self, hosts: &str) -> String {
        match self {
            Self::Hostfile(_) | Self::Named(_) | Self::Allocation(_) => {
                format!("{} has {hosts}", self.noun())
            }
            Self::ThisMachine => format!("without -H, the job has {hosts}"),
        }
    }

    fn noun(&self) -> String {
        match self {
            Self::Hostfile(name) => format!("hostfile `{}`", show_typed(name)),
            Self::Named(noun) | Self::Allocation(noun) => noun.clone(),
            Self::ThisMachine => "this machine".to_owned(),
        }
    }
}

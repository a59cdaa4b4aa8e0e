//! The name of this machine.

use crate::base::env_vars;

/// The name of this machine; empty on a system without `/proc`.
pub fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The name that users know: that of the node of Slurm, which may differ from the machine's, else the machine's.
pub fn node_name() -> String {
    env_vars::get_text(env_vars::SLURMD_NODENAME).unwrap_or_else(machine_name)
}

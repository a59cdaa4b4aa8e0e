//! The name of this machine, and what its processes share.

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

/// Returns a text that processes share exactly if they are on one boot of one machine, in one network namespace, with
/// one user: then they can pass descriptors to each other. `None` on a system without `/proc`.
pub fn neighbourhood() -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::metadata("/proc/self/ns/net").ok()?.ino();
    let user = rustix::process::geteuid().as_raw();
    Some(format!("{}-{network}-{user}", boot.trim()))
}

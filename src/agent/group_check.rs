//! Reads from `/proc` whether workers have imported torch, and whether they have a connection.

use rustix::process::Pid;

use super::state::GroupCheck;
use crate::os::procfs;

/// Prefix of the file names of torch's own libraries.
const TORCH: &str = "libtorch";

/// Checks sockets and processes; the files of a process can be slow to read. If a connection exists,
/// the processes are not checked.
pub(super) fn check_group(pids: &[u32], port: u16) -> GroupCheck {
    let has_socket = procfs::has_tcp_socket(port).unwrap_or(true);
    let maps_torch = |pid: &&u32| {
        let pid = Pid::from_raw(**pid as i32);
        pid.is_some_and(|pid| procfs::maps_library(pid, TORCH).unwrap_or(false))
    };
    let with_torch = if has_socket { 0 } else { pids.iter().filter(maps_torch).count() };
    GroupCheck { workers: pids.len(), with_torch, has_socket }
}

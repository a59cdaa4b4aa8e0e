//! Reads from `/proc` whether workers have imported torch, and whether they have a connection.

use std::time::Duration;

use rustix::process::Pid;

use super::state::GroupCheck;
use crate::os::procfs;

/// Prefix of the file names of torch's own libraries.
const TORCH: &str = "libtorch";

/// Checks sockets and processes; the files of a process can be slow to read. If a connection exists,
/// or was closed within this time, the processes are not checked. Workers that found each other in
/// another way, such as a shared file, each accept connections from the others.
pub(super) fn check_group(pids: &[u32], port: u16, closed_within: Duration) -> GroupCheck {
    let workers: Vec<Pid> = pids.iter().filter_map(|pid| Pid::from_raw(*pid as i32)).collect();
    let has_socket = procfs::has_tcp_socket(port, closed_within).unwrap_or(true)
        || procfs::all_listen(&workers).unwrap_or(false);
    let maps_torch = |pid: &&Pid| procfs::maps_library(**pid, TORCH).unwrap_or(false);
    let with_torch = if has_socket { 0 } else { workers.iter().filter(maps_torch).count() };
    GroupCheck { workers: pids.len(), with_torch, has_socket }
}

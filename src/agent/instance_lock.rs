//! Lock that admits one agent per job and node. An agent that lost its launcher stops its workers
//! within its own time limits; a replacement agent of a later epoch waits for the lock meanwhile.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::base::{JobId, NodeRank, Status, clock};
use crate::os::net::name_lock;
use crate::report::text::show_duration;
use crate::wire::{Prepare, Problem};

/// Interval between attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(20);
/// Time allowed for the exit of the other agent, in addition to the lease and the grace period.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(5);

/// The lock of a node, held until agent and shim have both released it.
pub(super) type InstanceLock = OwnedFd;

/// Takes the lock as soon as no other agent holds it. Blocks.
pub(super) fn acquire(
    job: &JobId,
    node: NodeRank,
    prepare: &Prepare,
) -> Result<InstanceLock, Problem> {
    let name = format!("agent/{job}/{node}");
    let millis = u64::from(prepare.lease_ms) + u64::from(prepare.grace_ms);
    let limit = Duration::from_millis(millis) + SHUTDOWN_MARGIN;
    let deadline = clock::now() + limit;
    loop {
        match name_lock::claim(&name) {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                let message = format!("cannot lock the name of this node's agent: {error}");
                return Err(Problem::new(Status::OsLimit, message));
            }
            Err(_) if deadline < clock::now() => {
                let limit = show_duration(limit);
                let message = format!("another agent of this job is still running after {limit}");
                let help =
                    "wait until it exits, or kill it: `pgrep -a remuda-agent` on its host lists it";
                return Err(Problem::new(Status::LeaseLost, message).help(help));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

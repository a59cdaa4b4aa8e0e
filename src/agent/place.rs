//! One agent for each node of a job at a time. An agent that lost its launcher stops its workers in
//! its own time; one that comes in its place in a later epoch waits for it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::base::{JobId, NodeRank, Status, clock};
use crate::os::names;
use crate::report::summary::duration;
use crate::wire::{Prepare, Problem};

/// How often we look whether the one before is gone.
const PAUSE: Duration = Duration::from_millis(20);
/// What ending takes beside the lease and the grace.
const ENDING: Duration = Duration::from_secs(5);

/// The place of the agent of a node, until agent and shim have both let it go.
pub(super) type InstanceLock = OwnedFd;

/// Takes it, as soon as nobody else has it. Blocks.
pub(super) fn take(
    job: &JobId,
    node: NodeRank,
    prepare: &Prepare,
) -> Result<InstanceLock, Problem> {
    let name = format!("agent/{job}/{node}");
    let millis = u64::from(prepare.lease_ms) + u64::from(prepare.grace_ms);
    let limit = Duration::from_millis(millis) + ENDING;
    let deadline = clock::now() + limit;
    loop {
        match names::claim(&name) {
            Ok(place) => return Ok(place),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                let message = format!("no name can be claimed: {error}");
                return Err(Problem::new(Status::OsLimit, message));
            }
            Err(_) if deadline < clock::now() => {
                let limit = duration(limit);
                let message = format!("another agent of this job is still here after {limit}");
                return Err(Problem::new(Status::LeaseLost, message));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

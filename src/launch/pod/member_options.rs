//! Options of a node that joins node 0, and its connecting side.

use std::time::Duration;

use crate::base::{Epoch, NodeRank, Status};
use crate::launch::options::{DialOptions, Options, SupervisorOptions};
use crate::launch::pod::termination_log::write_termination_message;
use crate::plan::LaunchPlan;
use crate::report::diagnostic::Paint;
use crate::transport::dial::Dialer;

/// What a node tells node 0 about its part in the job so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlierPart {
    /// Which node this is; `None`: node 0 gives it a number.
    pub(super) node: Option<NodeRank>,
    /// First epoch in which the node has not taken part.
    pub(super) next_epoch: Epoch,
    /// Number of restarts that do not count against `--max_restarts`: no failure caused them.
    pub(super) free_restarts: u32,
}

/// Options of a member, beside its plan.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// How nodes connect to each other.
    pub dial: DialOptions,
    /// Which node this is; `None`: node 0 gives it a number.
    pub node: Option<NodeRank>,
    /// Whether the number of nodes may vary.
    pub is_elastic: bool,
    /// What this node executes if the nodes have no secret in common; `None`: what node 0 sends.
    pub own_line: Option<Options>,
    /// Time between the request to stop and SIGKILL.
    pub grace: Duration,
    /// Time without a heartbeat after which a link counts as lost.
    pub lease: Duration,
    /// Maximum number of restarts after a failure.
    pub restarts_max: u32,
    /// Options for the supervisor of a pod.
    pub supervisor: SupervisorOptions,
    /// Whether events are reported.
    pub shows_progress: bool,
    /// Colors of the lines that remuda prints.
    pub paint: Paint,
}

/// Number of workers that the line of a node starts; a node without a number has as many as all others.
fn own_workers(plan: &LaunchPlan, node: Option<NodeRank>) -> u32 {
    plan.nodes[node.unwrap_or_default().index()].workers.len() as u32
}

impl MemberOptions {
    /// Writes how the part of this node in the job ended, for the supervisor of a pod.
    pub(super) fn leave_message(
        &self,
        node: Option<NodeRank>,
        status: Status,
        (text, cause): (&str, Option<NodeRank>),
    ) {
        let Some(node) = node else { return };
        let file = self.supervisor.termination_log.as_ref();
        write_termination_message(file, (&self.dial.job, node), status, (text, cause));
    }

    /// The connecting side of this node.
    pub(super) fn dialer(&self, plan: &LaunchPlan, part: EarlierPart) -> Dialer {
        let (dial, EarlierPart { node, next_epoch, free_restarts }) = (&self.dial, part);
        Dialer {
            addresses: vec![dial.address.clone()],
            port: dial.port,
            typed_port: dial.typed_port(),
            name_start: dial.name_start,
            local_addr: dial.local_addr,
            node,
            key: dial.key.clone(),
            key_origin: dial.key_origin.clone(),
            lease: self.lease,
            job: dial.job.clone(),
            build: env!("CARGO_PKG_VERSION"),
            digest: dial.digest(plan),
            outline: dial.outline(plan),
            own_workers: dial.has_own_lines().then(|| own_workers(plan, node)),
            next_epoch,
            free_restarts,
            problems: dial.problems.clone(),
        }
    }
}

//! The start of a launch: its parts, made from a plan and options.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::event_loop::{Dispatcher, Inbox};
use crate::base::{NodeRank, Rank, clock};
use crate::job::{JobState, OnEarlyLoss, OnFailure, Policy};
use crate::launch::history::History;
use crate::launch::node::handle::{ConnectContext, Connector};
use crate::launch::node::machine_names::MachineNames;
use crate::launch::node::nodes::Nodes;
use crate::launch::node::orphan_reaper::OrphanReaper;
use crate::launch::node::table::NodeLimits;
use crate::launch::options::{DialOptions, LaunchError, Options, Transport};
use crate::launch::pod::probes::HealthState;
use crate::launch::run_record::RunRecorder;
use crate::launch::startup::requests;
use crate::launch::startup::state::Startup;
use crate::launch::user::allocation_timer::AllocationTimer;
use crate::launch::user::requests::UserRequests;
use crate::os::machine::node_name;
use crate::plan::{LaunchPlan, NodePlan, WorkerPlan};
use crate::report::{Reporter, WorkerLabel};

/// Maximum number of node events that wait for the loop; at this bound, links wait.
const EVENTS_MAX: usize = 1024;

impl<'a> Dispatcher<'a> {
    /// Begins to connect to the nodes.
    pub(in crate::launch) fn start(
        plan: &'a LaunchPlan,
        options: &'a Options,
        (connector, health): (&'a Connector, Arc<HealthState>),
        (stdout, stderr): (OwnedFd, OwnedFd),
    ) -> Result<Self, LaunchError> {
        let reaper = OrphanReaper::new(&options.job);
        let mut user = UserRequests::listen()?;
        user.allocation = AllocationTimer::new(options.limits.allocation.as_ref());
        let (node_sender, nodes) = mpsc::channel(EVENTS_MAX);
        // The windows of the agents limit the output in transit, and so its acknowledgements; evidence is
        // requested at most once in an epoch.
        let (consumed_sender, consumed) = mpsc::unbounded_channel();
        let (evidence_sender, evidence) = mpsc::unbounded_channel();
        let reporter =
            Reporter::start(&labels(plan), &options.output.style, stdout, stderr, move |bytes| {
                let _ = consumed_sender.send(bytes);
            })?;
        let mut context =
            ConnectContext::new(connector, &options.job, node_sender, reporter.sender());
        context.waits_for_ever = options.elastic.is_some();
        let limits = NodeLimits {
            lease: options.limits.lease,
            heartbeat_interval: options.limits.heartbeat_interval,
            preflight: options.limits.preflight,
        };
        Ok(Self {
            plan: Cow::Borrowed(plan),
            epoch_plan: Cow::Borrowed(plan),
            machines: machine_names(options),
            options,
            job: JobState::new(policy(options, connector), requests::node_of_rank(plan)),
            timer_at: None,
            nodes: Nodes::connect(plan, limits, context)?,
            startup: Startup::new(options, clock::now()),
            history: History::new(plan),
            recorder: RunRecorder::new(clock::now(), clock::wall()),
            reporter,
            user,
            reaper,
            inbox: Inbox { nodes, consumed, evidence, evidence_sender },
            health,
        })
    }
}

/// The names of machines, with that of this one, which is node 0; `None`: the lines of all nodes have names of hosts.
fn machine_names(options: &Options) -> Option<MachineNames> {
    let Transport::Dial(DialOptions { has_host_names: false, .. }) = &options.transport else {
        return None;
    };
    let mut names = MachineNames::default();
    names.set(NodeRank(0), &node_name());
    Some(names)
}

/// The policy of a job, by its options and the way to its nodes.
fn policy(options: &Options, connector: &Connector) -> Policy {
    Policy {
        grace: options.limits.grace,
        failure: if options.failure.lets_others_run {
            OnFailure::LetRun
        } else {
            OnFailure::StopAll
        },
        silence_max: options.limits.lease + 2 * options.limits.heartbeat_interval,
        restarts_max: options.failure.restarts_max,
        first_pause: options.failure.first_pause,
        warning: options.failure.warning,
        on_term: options.supervisor.on_term,
        early_loss: match connector {
            Connector::Dial(..) => OnEarlyLoss::AwaitReplacement,
            Connector::Local | Connector::Ssh(_) | Connector::Managed(..) => OnEarlyLoss::EndJob,
            #[cfg(test)]
            Connector::Simulated(_) => OnEarlyLoss::EndJob,
        },
        has_evidence: true,
        elastic: options.elastic,
    }
}

/// The names of all workers, by rank, as prefixes of their output show them.
pub(super) fn labels(plan: &LaunchPlan) -> Vec<WorkerLabel> {
    let mut ranks = (0..).map(Rank);
    let of_node = |node: &NodePlan| {
        let host = node.host.clone();
        let node_rank = node.node_rank;
        let label = |worker: &WorkerPlan| WorkerLabel {
            rank: ranks.next().expect("ranks do not run out"),
            job_rank: worker.rank,
            local_rank: worker.local_rank,
            node: node_rank,
            host: host.clone(),
        };
        node.workers.iter().map(label).collect::<Vec<_>>()
    };
    plan.nodes.iter().flat_map(of_node).collect()
}

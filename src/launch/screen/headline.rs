//! The first line about the cause of a failure.

use crate::base::{NodeRank, WorkerExit};
use crate::job::{AgentExitReason, FailureCause, NodeLoss};
use crate::launch::screen::job_report::{JobReport, after};
use crate::launch::screen::shown_text::first_line;
use crate::report::text::show_duration;
use crate::transport::ssh::AGENT_KILLED;

impl JobReport<'_> {
    /// The cause, in a few words.
    pub(in crate::launch) fn headline(&self, cause: &FailureCause) -> String {
        if let Some(headline) = self.exception_headline(cause) {
            return headline;
        }
        match cause {
            FailureCause::Worker(end) => {
                let worker = self.worker(end.rank);
                let exit = worker.outcome.as_ref().map_or(WorkerExit::Lost, |ended| ended.exit);
                format!("rank {} ({}) {exit}{}", worker.rank, worker.host, after(worker))
            }
            FailureCause::GaveUp { rank, .. } => {
                let worker = self.worker(*rank);
                let what = match worker.gave_up {
                    Some(_) => "aborted the collectives of all ranks",
                    None => "stopped taking part in collectives",
                };
                format!("rank {} ({}) {what}{}", worker.rank, worker.host, after(worker))
            }
            FailureCause::Exiting { rank, .. } => {
                let worker = self.worker(*rank);
                format!("rank {} ({}) reported a failure", worker.rank, worker.host)
            }
            FailureCause::MissingRanks { ranks, reported_class: reported, .. } => {
                self.show_missing(ranks, *reported)
            }
            FailureCause::NotStarted { rank, .. } => {
                let worker = self.worker(*rank);
                format!("rank {} ({}) could not start", worker.rank, worker.host)
            }
            FailureCause::Node { node, loss } => self.node_loss_headline(*node, loss),
        }
    }

    /// What happened to a node; users of every launcher know nodes, and not which processes of remuda run there.
    fn node_loss_headline(&self, node: NodeRank, loss: &NodeLoss) -> String {
        let host = &self.host(node);
        let lease = show_duration(self.options.limits.lease);
        let option = if self.has_option("--lease") { " (--lease)" } else { "" };
        let why = match loss {
            NodeLoss::Evicted => return format!("{host} received SIGTERM"),
            NodeLoss::LinkClosed(Some(exit)) => match AgentExitReason::of(*exit) {
                AgentExitReason::InternalError => {
                    "its remuda process crashed (internal error, see above); please report it"
                        .to_owned()
                }
                AgentExitReason::LeaseExpired => format!(
                    "it received no heartbeat from the launcher for {lease}{option} and stopped its workers"
                ),
                AgentExitReason::InvalidData | AgentExitReason::Unknown => {
                    format!("its remuda process {exit}")
                }
            },
            NodeLoss::LinkClosed(None) => match self.closed_link(node) {
                Some(AGENT_KILLED) => "its remuda process was killed by a signal".to_owned(),
                Some(why) => {
                    let why = first_line(why);
                    let why = why.trim_end_matches('.');
                    format!("the connection to its remuda process closed: {why}")
                }
                None => "the connection to its remuda process closed".to_owned(),
            },
            NodeLoss::LeaseExpired => {
                format!("the launcher received no heartbeat from it for {lease}{option}")
            }
            NodeLoss::ShimExited => {
                let ranks = self.ranks_of(node);
                format!(
                    "its `remuda-shim`, which starts the workers, was killed or crashed; {ranks} exited with it"
                )
            }
            NodeLoss::ShimNotResponding => format!(
                "its `remuda-shim`, which starts the workers, did not answer for {lease}{option}; remuda killed it \
                 and its workers"
            ),
            NodeLoss::InvalidData(why) => format!("its remuda process sent invalid data: {why}"),
        };
        format!("node {host} was lost: {why}")
    }
}

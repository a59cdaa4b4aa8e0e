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

    fn node_loss_headline(&self, node: NodeRank, loss: &NodeLoss) -> String {
        let host = &self.host(node);
        match loss {
            NodeLoss::LinkClosed(Some(exit)) => self.agent_exit_headline(host, *exit),
            NodeLoss::LinkClosed(None) => match self.closed_link(node) {
                Some(AGENT_KILLED) => format!("the agent on {host} was killed by a signal"),
                Some(why) => {
                    format!(
                        "the connection to the agent on {host} closed: {}",
                        first_line(why).trim_end_matches('.')
                    )
                }
                None => format!("the connection to the agent on {host} closed"),
            },
            NodeLoss::LeaseExpired => {
                let lease = show_duration(self.options.limits.lease);
                format!("the launcher received no heartbeat from {host} for {lease} (--lease)")
            }
            NodeLoss::ShimExited => {
                let ranks = self.ranks_of(node);
                format!(
                    "`remuda-shim` on {host}, which starts the workers, was killed or crashed; {ranks} \
                     exited with it"
                )
            }
            NodeLoss::ShimNotResponding => format!(
                "`remuda-shim` on {host}, which starts the workers, did not answer for {} (--lease); \
                 remuda killed it and its workers",
                show_duration(self.options.limits.lease)
            ),
            NodeLoss::InvalidData(why) => format!("the agent on {host} sent invalid data: {why}"),
            NodeLoss::Evicted => format!("{host} received SIGTERM"),
        }
    }

    fn agent_exit_headline(&self, host: &str, exit: WorkerExit) -> String {
        match AgentExitReason::of(exit) {
            AgentExitReason::InternalError => {
                format!("the agent on {host} crashed (internal error, see above); please report it")
            }
            AgentExitReason::LeaseExpired => {
                let lease = show_duration(self.options.limits.lease);
                format!(
                    "{host} received no heartbeat from the launcher for {lease} (--lease) and stopped its \
                     workers"
                )
            }
            AgentExitReason::InvalidData | AgentExitReason::Unknown => {
                format!("the agent on {host} {exit}")
            }
        }
    }
}

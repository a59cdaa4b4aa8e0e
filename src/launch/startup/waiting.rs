//! Nodes that are not ready before the start, by progress.

use crate::base::NodeRank;
use crate::launch::dispatcher::Dispatcher;
use crate::launch::node::handle::StartStage;
use crate::launch::options::Transport;
use crate::launch::startup::pending::PendingNodes;
use crate::plan::NodePlan;

impl Dispatcher<'_> {
    /// The nodes that delay the start, and the progress of each.
    pub(in crate::launch) fn pending_nodes(&self) -> PendingNodes {
        let by_ssh = matches!(self.options.transport, Transport::Ssh(_));
        let mut awaited = PendingNodes { by_ssh, ..PendingNodes::default() };
        for (place, node) in self.unanswered_nodes() {
            let hosts = match self.nodes[place.index()].stage {
                StartStage::Connecting => &mut awaited.connecting,
                StartStage::LoggedIn => &mut awaited.logged_in,
                StartStage::Preparing(_) => &mut awaited.preparing,
            };
            hosts.push(node.host.clone());
        }
        awaited
    }

    /// Nodes that have not answered whether they can start.
    pub(in crate::launch) fn unanswered_nodes(
        &self,
    ) -> impl Iterator<Item = (NodeRank, &NodePlan)> {
        (0..).map(NodeRank).zip(&self.plan.nodes).filter(|(place, _)| {
            let is_answered = self.prepared_nodes[place.index()].is_some()
                || self.nodes[place.index()].is_lost
                || self.faults.iter().any(|(faulty, _)| faulty == place)
                || self.problems.iter().any(|(refusing, _)| refusing == place);
            !is_answered
        })
    }
}

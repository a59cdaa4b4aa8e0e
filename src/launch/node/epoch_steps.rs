//! What is done with each node when an epoch begins or is skipped, and when a node cannot take part. Pure: the
//! dispatcher performs the steps over its links, the simulation over simulated ones.

use super::table::NodeTable;
use crate::base::NodeRank;
use crate::job::{ElasticNodes, JobState};

/// How the link to a node gets to an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkStep {
    /// A new link is made; the node is asked once it has introduced itself.
    Reconnect,
    /// Workers ran in the epoch before: the agent begins the next one.
    Begin,
    /// Nothing was started in the epoch before: the agent skips it.
    Skip {
        /// Whether the launcher greets the node once more: the answer to its greeting would be of an earlier
        /// epoch, which is discarded.
        greets_again: bool,
    },
}

/// What follows for the answer of a node, which says whether it can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerStep {
    /// The node is asked now.
    Ask,
    /// The node cannot take part, and is not asked.
    Refuse,
    /// The node is asked later, or its number is vacant.
    Wait,
}

/// What is done with one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeStep {
    pub(crate) node: NodeRank,
    pub(crate) link: LinkStep,
    pub(crate) answer: AnswerStep,
}

/// What decides about the nodes of a job.
#[derive(Clone, Copy)]
pub(crate) struct NodeSituation<'a> {
    pub(crate) job: &'a JobState,
    pub(crate) table: &'a NodeTable,
    /// Whether, and how, the number of nodes may vary.
    pub(crate) elastic: Option<ElasticNodes>,
}

impl NodeSituation<'_> {
    /// The steps with which an epoch begins after one whose links to some nodes are lost.
    pub(crate) fn begin_epoch(
        self,
        disconnected: &[NodeRank],
        had_workers: impl Fn(NodeRank) -> bool,
    ) -> Vec<NodeStep> {
        let step = |node| {
            let link = match (disconnected.contains(&node), had_workers(node)) {
                (true, _) => LinkStep::Reconnect,
                (false, true) => LinkStep::Begin,
                (false, false) => self.skip(node),
            };
            let is_later = link == LinkStep::Reconnect || self.job.is_vacant(node);
            let answer = if is_later { AnswerStep::Wait } else { AnswerStep::Ask };
            NodeStep { node, link, answer }
        };
        self.table.all().map(step).collect()
    }

    /// The steps to an epoch that some nodes know from earlier ones, under a node 0 that this one replaces.
    pub(crate) fn skip_epochs(self) -> Vec<NodeStep> {
        let step = |node| {
            let answer = match (self.job.is_asked(node), self.job.is_vacant(node)) {
                (true, _) => AnswerStep::Ask,
                (false, false) => AnswerStep::Refuse,
                (false, true) => AnswerStep::Wait,
            };
            NodeStep { node, link: self.skip(node), answer }
        };
        self.table.all().map(step).collect()
    }

    fn skip(self, node: NodeRank) -> LinkStep {
        LinkStep::Skip { greets_again: self.elastic.is_some() && !self.table.was_greeted(node) }
    }

    /// The nodes that are no longer waited for if another one cannot take part, where nodes join by themselves.
    pub(crate) fn given_up_with(self, refused: NodeRank) -> Vec<NodeRank> {
        let is_awaited = |node: &NodeRank| {
            *node != refused && !self.table.is_connected(*node) && self.job.may_answer(*node)
        };
        self.table.all().filter(is_awaited).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;
    use crate::job::Event;
    use crate::job::MeetingPoint;
    use crate::launch::node::elastic::tests::{elastic, job};
    use crate::launch::node::table::tests::table;

    fn step(node: u32, link: LinkStep, answer: AnswerStep) -> NodeStep {
        NodeStep { node: NodeRank(node), link, answer }
    }

    #[test]
    fn lost_node_is_asked_over_its_new_link() {
        let (elastic, table) = (elastic(MeetingPoint::Node0), table(clock::now()));
        let mut job = job(elastic);
        job.step(clock::now(), Event::Arrived(NodeRank(1)));
        let facts = NodeSituation { job: &job, table: &table, elastic: Some(elastic) };
        let steps = facts.begin_epoch(&[NodeRank(1)], |node| node == NodeRank(0));
        let skip = LinkStep::Skip { greets_again: true };
        let expected = [
            step(0, LinkStep::Begin, AnswerStep::Ask),
            step(1, LinkStep::Reconnect, AnswerStep::Wait),
            step(2, skip, AnswerStep::Wait),
        ];
        assert_eq!(steps, expected, "number 2 is vacant");
    }

    #[test]
    fn node_that_is_not_asked_is_refused_unless_it_is_vacant() {
        let (elastic, mut table) = (elastic(MeetingPoint::Node0), table(clock::now()));
        table.on_hello(NodeRank(0));
        let job = job(elastic);
        let facts = NodeSituation { job: &job, table: &table, elastic: Some(elastic) };
        let skip = |greets_again| LinkStep::Skip { greets_again };
        let expected = [
            step(0, skip(false), AnswerStep::Ask),
            step(1, skip(true), AnswerStep::Wait),
            step(2, skip(true), AnswerStep::Wait),
        ];
        assert_eq!(facts.skip_epochs(), expected);
        let fixed = NodeSituation { elastic: None, ..facts };
        assert!(fixed.skip_epochs().iter().all(|step| step.link == skip(false)));
    }

    #[test]
    fn nodes_that_have_joined_are_not_given_up_with_another() {
        let (elastic, mut table) = (elastic(MeetingPoint::Node0), table(clock::now()));
        let mut job = job(elastic);
        let given_up = |job: &JobState, table: &NodeTable| {
            NodeSituation { job, table, elastic: Some(elastic) }.given_up_with(NodeRank(0))
        };
        assert_eq!(given_up(&job, &table), [], "vacant numbers are not waited for");
        job.step(clock::now(), Event::Arrived(NodeRank(1)));
        assert_eq!(given_up(&job, &table), [NodeRank(1)]);
        table.on_message(NodeRank(1), clock::now());
        assert_eq!(given_up(&job, &table), []);
    }
}

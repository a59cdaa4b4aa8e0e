//! What the launcher knows of its nodes: links, progress before the start, losses. Pure.

use std::time::{Duration, Instant};

use crate::base::NodeRank;
use crate::wire::PreparedNode;

/// Bounds of the pause between two attempts to connect to a node that a job can do without.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(2);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Time limits of nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeLimits {
    /// Time without a message after which a node is lost.
    pub(crate) lease: Duration,
    /// Interval of the heartbeats that the launcher sends.
    pub(crate) heartbeat_interval: Duration,
    /// Time limit of the checks before the start.
    pub(crate) preflight: Duration,
}

/// The progress of a node that has not answered whether it can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStage {
    /// A connection is being made, or the node will connect by itself.
    Connecting,
    /// The ssh login succeeded, and there is no agent yet.
    LoggedIn,
    /// The agent was asked at this instant and runs its checks.
    Preparing(Instant),
}

/// Whether a node can start workers.
#[derive(Debug)]
enum Answer {
    Awaited,
    Ready(PreparedNode),
    /// It cannot, or cannot be reached.
    Refused,
}

/// A time without a message that was longer than usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedSilence {
    /// Time of the last message before it.
    pub(super) since: Instant,
    /// Time of the first message after it.
    pub(super) until: Instant,
}

/// What the launcher knows of a node.
#[derive(Debug)]
pub(super) struct NodeEntry {
    /// Number of the link to the node, counted from 0.
    link: u32,
    stage: StartStage,
    answer: Answer,
    /// When the last message was received, without the times in which the launcher did not run; `None` until
    /// there is a link.
    pub(super) last_message_at: Option<Instant>,
    /// The same, with those times.
    pub(super) silent_since: Option<Instant>,
    /// The last silence that has ended.
    pub(super) last_silence: Option<EndedSilence>,
    /// When the link ended.
    pub(super) link_ended_at: Option<Instant>,
    /// Whether the node is lost: its later messages and the end of its link are ignored.
    is_lost: bool,
    /// Number of attempts in a row to connect to it that failed.
    absences: u32,
    /// Whether its agent has introduced itself over this link.
    was_greeted: bool,
}

impl NodeEntry {
    /// A node without a link.
    fn new(link: u32) -> Self {
        Self {
            link,
            stage: StartStage::Connecting,
            answer: Answer::Awaited,
            last_message_at: None,
            silent_since: None,
            last_silence: None,
            link_ended_at: None,
            is_lost: false,
            absences: 0,
            was_greeted: false,
        }
    }

    /// Excludes time in which the launcher did not run from the time limit of the checks.
    pub(super) fn postpone_deadline(&mut self, time: Duration) {
        if let StartStage::Preparing(since) = &mut self.stage {
            *since += time;
        }
    }
}

/// Whether lost nodes may be connected to again.
#[derive(Debug)]
enum Reconnects {
    Allowed,
    /// Processes that lost nodes left on this machine are being ended. When that is done, an epoch
    /// begins if nodes to connect to are listed.
    Held(Option<Vec<NodeRank>>),
}

/// All nodes of a job, as its launcher knows them.
#[derive(Debug)]
pub(crate) struct NodeTable {
    pub(super) limits: NodeLimits,
    pub(super) nodes: Vec<NodeEntry>,
    /// When the next heartbeat is due.
    pub(super) heartbeat_at: Instant,
    /// When the nodes were asked whether they can start: all have the same deadline.
    asked_at: Instant,
    reconnects: Reconnects,
    /// Replaced nodes of this machine that are connected to once that is allowed.
    held_back: Vec<NodeRank>,
}

impl NodeTable {
    /// Nodes without links, which are asked from now on.
    pub(crate) fn new(count: usize, limits: NodeLimits, now: Instant) -> Self {
        Self {
            limits,
            nodes: (0..count).map(|_| NodeEntry::new(0)).collect(),
            heartbeat_at: now + limits.heartbeat_interval,
            asked_at: now,
            reconnects: Reconnects::Allowed,
            held_back: Vec::new(),
        }
    }

    /// The numbers of all nodes.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = NodeRank> + use<> {
        (0..self.nodes.len() as u32).map(NodeRank)
    }

    fn node(&mut self, node: NodeRank) -> &mut NodeEntry {
        &mut self.nodes[node.index()]
    }

    /// Whether this is the link to the node; messages of an earlier one, which was replaced, are
    /// ignored.
    pub(crate) fn is_current(&self, node: NodeRank, link: u32) -> bool {
        self.nodes[node.index()].link == link
    }

    /// Number of the link to the node.
    pub(crate) fn link(&self, node: NodeRank) -> u32 {
        self.nodes[node.index()].link
    }

    /// Whether there is a link to the node, or was one.
    pub(crate) fn is_connected(&self, node: NodeRank) -> bool {
        self.nodes[node.index()].last_message_at.is_some()
    }

    pub(crate) fn is_lost(&self, node: NodeRank) -> bool {
        self.nodes[node.index()].is_lost
    }

    /// When the last message of the node was received; `None` if it is lost or has no link.
    pub(crate) fn last_message_at(&self, node: NodeRank) -> Option<Instant> {
        let node = &self.nodes[node.index()];
        node.last_message_at.filter(|_| !node.is_lost)
    }

    /// The ssh login succeeded.
    pub(crate) fn on_logged_in(&mut self, node: NodeRank) {
        self.node(node).stage = StartStage::LoggedIn;
    }

    /// The link was made, or a message was received over it.
    pub(crate) fn on_message(&mut self, node: NodeRank, now: Instant) {
        let silent_since = self.silent_since(node, now);
        let entry = self.node(node);
        if let Some(since) = silent_since {
            entry.last_silence = Some(EndedSilence { since, until: now });
        }
        (entry.last_message_at, entry.silent_since) = (Some(now), Some(now));
    }

    /// The link has ended.
    pub(crate) fn on_link_ended(&mut self, node: NodeRank, at: Instant) {
        self.node(node).link_ended_at = Some(at);
    }

    /// The node was asked whether it can start.
    pub(crate) fn on_asked(&mut self, node: NodeRank, now: Instant) {
        self.node(node).stage = StartStage::Preparing(now);
    }

    /// Whether the node was asked over its current link whether it can start.
    pub(crate) fn was_asked(&self, node: NodeRank) -> bool {
        matches!(self.nodes[node.index()].stage, StartStage::Preparing(_))
    }

    /// The node can start workers.
    pub(crate) fn on_ready(&mut self, node: NodeRank, found: PreparedNode) {
        self.node(node).answer = Answer::Ready(found);
    }

    /// The node cannot take part.
    pub(crate) fn on_refused(&mut self, node: NodeRank) {
        self.node(node).answer = Answer::Refused;
    }

    /// Whether the node has answered that it cannot take part, or was not asked because it cannot.
    pub(super) fn is_refused(&self, node: NodeRank) -> bool {
        matches!(self.nodes[node.index()].answer, Answer::Refused)
    }

    /// The answer of a node that is ready.
    pub(crate) fn prepared(&self, node: NodeRank) -> Option<&PreparedNode> {
        match &self.nodes[node.index()].answer {
            Answer::Ready(found) => Some(found),
            Answer::Awaited | Answer::Refused => None,
        }
    }

    /// Marks a node as lost; false if it was already.
    pub(crate) fn mark_lost(&mut self, node: NodeRank) -> bool {
        !std::mem::replace(&mut self.node(node).is_lost, true)
    }

    /// Another link takes the place of the one to this node. Returns its number.
    pub(crate) fn replace_link(&mut self, node: NodeRank) -> u32 {
        let (link, absences) = (self.link(node) + 1, self.nodes[node.index()].absences);
        *self.node(node) = NodeEntry { absences, ..NodeEntry::new(link) };
        link
    }

    /// An attempt to connect to the node has failed. Returns whether the one before it had not.
    pub(crate) fn on_absent(&mut self, node: NodeRank) -> bool {
        let absences = &mut self.node(node).absences;
        *absences = absences.saturating_add(1);
        *absences == 1
    }

    /// Time until the next attempt to connect to a node: it doubles with every one that failed.
    pub(crate) fn retry_pause(&self, node: NodeRank) -> Duration {
        match self.nodes[node.index()].absences {
            0 => Duration::ZERO,
            count => RETRY_PAUSE_MIN
                .saturating_mul(1_u32.checked_shl(count - 1).unwrap_or(u32::MAX))
                .min(RETRY_PAUSE_MAX),
        }
    }

    /// The agent of the node has introduced itself.
    pub(crate) fn on_hello(&mut self, node: NodeRank) {
        let entry = self.node(node);
        (entry.absences, entry.was_greeted) = (0, true);
    }

    /// Whether the agent of the node has introduced itself over its current link.
    pub(crate) fn was_greeted(&self, node: NodeRank) -> bool {
        self.nodes[node.index()].was_greeted
    }

    /// Asks all nodes again: their answers are awaited from now on.
    pub(crate) fn begin_preparation(&mut self, now: Instant) {
        self.asked_at = now;
        for node in &mut self.nodes {
            node.answer = Answer::Awaited;
        }
    }

    /// When the nodes were asked whether they can start.
    pub(crate) fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// Nodes that have not answered whether they can start, with their progress.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (NodeRank, StartStage)> {
        let nodes = (0..).map(NodeRank).zip(&self.nodes);
        let waiting =
            nodes.filter(|(_, node)| matches!(node.answer, Answer::Awaited) && !node.is_lost);
        waiting.map(|(place, node)| (place, node.stage))
    }

    /// Nodes whose checks exceed the time limit.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<NodeRank> {
        let is_overdue = |stage| match stage {
            StartStage::Preparing(since) => {
                self.limits.preflight < now.saturating_duration_since(since)
            }
            StartStage::Connecting | StartStage::LoggedIn => false,
        };
        let overdue = self.unanswered().filter(|(_, stage)| is_overdue(*stage));
        overdue.map(|(node, _)| node).collect()
    }

    /// Processes that lost nodes left on this machine are being ended.
    pub(crate) fn hold_reconnects(&mut self) {
        if let Reconnects::Allowed = self.reconnects {
            self.reconnects = Reconnects::Held(None);
        }
    }

    /// The next epoch is to begin, and these nodes are to be connected to first. Returns them unless
    /// that must wait.
    pub(crate) fn defer_epoch(&mut self, disconnected: Vec<NodeRank>) -> Option<Vec<NodeRank>> {
        match &mut self.reconnects {
            Reconnects::Allowed => Some(disconnected),
            Reconnects::Held(deferred) => {
                *deferred = Some(disconnected);
                None
            }
        }
    }

    /// Whether an epoch waits until what lost nodes left is gone.
    pub(crate) fn is_epoch_deferred(&self) -> bool {
        matches!(self.reconnects, Reconnects::Held(Some(_)))
    }

    /// These nodes are to be replaced before anything was started. Returns those that are connected to now; the
    /// others are with the epoch that waits, or once what they left on this machine is gone.
    pub(crate) fn await_replacements(
        &mut self,
        lost: &[NodeRank],
        is_local: impl Fn(NodeRank) -> bool,
    ) -> Vec<NodeRank> {
        for node in lost {
            self.node(*node).answer = Answer::Awaited;
        }
        match &mut self.reconnects {
            Reconnects::Held(Some(disconnected)) => {
                disconnected.extend(lost);
                Vec::new()
            }
            Reconnects::Held(None) => {
                let (held_back, now): (Vec<_>, Vec<_>) =
                    lost.iter().copied().partition(|node| is_local(*node));
                for node in held_back {
                    if !self.held_back.contains(&node) {
                        self.held_back.push(node);
                    }
                }
                now
            }
            Reconnects::Allowed => lost.to_vec(),
        }
    }

    /// The nodes that were held back, once reconnects are allowed.
    pub(crate) fn take_held_back(&mut self) -> Vec<NodeRank> {
        std::mem::take(&mut self.held_back)
    }

    /// What lost nodes left is gone. Returns the nodes to connect to for an epoch that has waited
    /// for this.
    pub(crate) fn allow_reconnects(&mut self) -> Option<Vec<NodeRank>> {
        match std::mem::replace(&mut self.reconnects, Reconnects::Allowed) {
            Reconnects::Allowed => None,
            Reconnects::Held(deferred) => deferred,
        }
    }
}

#[cfg(test)]
pub(in crate::launch::node) mod tests {
    use super::*;
    use crate::base::clock;

    pub(in crate::launch::node) const SECOND: Duration = Duration::from_secs(1);

    pub(in crate::launch::node) fn table(now: Instant) -> NodeTable {
        let limits = NodeLimits {
            lease: 30 * SECOND,
            heartbeat_interval: 3 * SECOND,
            preflight: 60 * SECOND,
        };
        NodeTable::new(3, limits, now)
    }

    pub(in crate::launch::node) fn places(nodes: &[u32]) -> Vec<NodeRank> {
        nodes.iter().copied().map(NodeRank).collect()
    }

    #[test]
    fn answers_end_the_wait_until_nodes_are_asked_again() {
        let start = clock::now();
        let mut table = table(start);
        table.on_logged_in(NodeRank(1));
        table.on_refused(NodeRank(0));
        table.on_asked(NodeRank(2), start);
        let waiting = |table: &NodeTable| table.unanswered().collect::<Vec<_>>();
        let asked = (NodeRank(2), StartStage::Preparing(start));
        assert_eq!(waiting(&table), [(NodeRank(1), StartStage::LoggedIn), asked]);
        let found = PreparedNode { master: None, store: None, cpus: 1, notes: Vec::new() };
        table.on_ready(NodeRank(2), found);
        assert!(table.prepared(NodeRank(2)).is_some() && table.prepared(NodeRank(0)).is_none());
        table.mark_lost(NodeRank(1));
        assert_eq!(waiting(&table), []);
        table.begin_preparation(start + SECOND);
        assert_eq!(table.asked_at(), start + SECOND);
        assert_eq!(waiting(&table).len(), 2, "the lost node is not asked");
    }

    #[test]
    fn messages_of_a_replaced_link_are_not_current() {
        let start = clock::now();
        let mut table = table(start);
        table.on_message(NodeRank(1), start);
        table.mark_lost(NodeRank(1));
        assert!(table.is_current(NodeRank(1), 0));
        assert_eq!(table.replace_link(NodeRank(1)), 1);
        assert!(!table.is_current(NodeRank(1), 0) && table.is_current(NodeRank(1), 1));
        assert!(!table.is_lost(NodeRank(1)) && !table.is_connected(NodeRank(1)));
    }

    #[test]
    fn local_node_is_replaced_once_what_lost_nodes_left_is_gone() {
        let mut table = table(clock::now());
        let is_local = |node: NodeRank| node == NodeRank(1);
        assert_eq!(table.await_replacements(&places(&[1, 2]), is_local), places(&[1, 2]));
        assert_eq!(table.take_held_back(), []);
        table.hold_reconnects();
        assert_eq!(table.await_replacements(&places(&[1, 2]), is_local), places(&[2]));
        assert_eq!(table.await_replacements(&places(&[1]), is_local), [], "it is named once");
        table.allow_reconnects();
        assert_eq!(table.take_held_back(), places(&[1]));
        assert_eq!(table.take_held_back(), []);
    }

    #[test]
    fn next_epoch_waits_until_what_lost_nodes_left_is_gone() {
        let mut table = table(clock::now());
        assert_eq!(table.defer_epoch(places(&[1])), Some(places(&[1])));
        table.hold_reconnects();
        assert_eq!(table.await_replacements(&places(&[0]), |_| false), places(&[0]));
        assert_eq!(table.defer_epoch(places(&[1])), None);
        table.hold_reconnects();
        assert_eq!(table.await_replacements(&places(&[2]), |_| false), [], "an epoch waits");
        assert_eq!(table.allow_reconnects(), Some(places(&[1, 2])));
        assert_eq!(table.allow_reconnects(), None);
        assert_eq!(table.defer_epoch(places(&[0])), Some(places(&[0])));
    }
}

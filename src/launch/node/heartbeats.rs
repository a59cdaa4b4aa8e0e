//! Heartbeats of nodes: when the next one is due, and which nodes have sent nothing for so long that they are
//! lost. Pure.

use std::time::{Duration, Instant};

use super::table::{EndedSilence, NodeTable};
use crate::base::NodeRank;
use crate::job::SilentNode;

/// Time without a message of a node after which that is reported.
pub(crate) const NO_MESSAGE_WARNING: Duration = Duration::from_secs(10);

/// Nodes that have sent nothing for a while.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Silence {
    /// To be reported, with the time since their last messages.
    pub(crate) late: Vec<(NodeRank, Duration)>,
    /// Their leases have expired; the node that has been silent longest is the first.
    pub(crate) expired: Vec<SilentNode>,
}

impl NodeTable {
    /// When the next heartbeat is due.
    pub(crate) fn heartbeat_at(&self) -> Instant {
        self.heartbeat_at
    }

    /// The time of a heartbeat has come. If the launcher was suspended, no node counts as silent for
    /// that time: messages received meanwhile have not been read, and no heartbeats were sent.
    /// Returns the length of a suspension that exceeds the lease.
    pub(crate) fn on_heartbeat_timer(&mut self, now: Instant) -> Option<Duration> {
        let suspended = now.saturating_duration_since(self.heartbeat_at);
        for node in &mut self.nodes {
            node.last_message_at =
                node.last_message_at.map(|received_at| now.min(received_at + suspended));
            node.postpone_deadline(suspended);
        }
        self.heartbeat_at = now + self.limits.heartbeat_interval;
        (self.limits.lease < suspended).then_some(suspended)
    }

    /// The launcher was suspended with its workers and is continued: all leases restart.
    pub(crate) fn on_resumed(&mut self, now: Instant, suspended: Duration) {
        for node in &mut self.nodes {
            node.last_message_at = node.last_message_at.map(|_| now);
            node.postpone_deadline(suspended);
        }
        self.heartbeat_at = now + self.limits.heartbeat_interval;
    }

    /// Time of the last message of a node, if it has sent nothing for longer than two heartbeats take.
    pub(super) fn silent_since(&self, node: NodeRank, now: Instant) -> Option<Instant> {
        let since = self.nodes[node.index()].silent_since?;
        let is_long = 2 * self.limits.heartbeat_interval < now.saturating_duration_since(since);
        is_long.then_some(since)
    }

    /// Time of the last message of a node before the silence in which it may have been lost, if its loss is
    /// noticed now: a suspended agent, for example, reports what it missed once it is continued.
    pub(crate) fn silence_before_loss(&self, node: NodeRank, now: Instant) -> Option<Instant> {
        let has_just_ended = |silence: &EndedSilence| {
            now.saturating_duration_since(silence.until) <= self.limits.heartbeat_interval
        };
        let ended = self.nodes[node.index()].last_silence.filter(has_just_ended);
        self.silent_since(node, now).or(ended.map(|silence| silence.since))
    }

    /// Nodes that have sent nothing for a while.
    pub(crate) fn silence(&self, now: Instant) -> Silence {
        let mut silence = Silence::default();
        for node in self.all() {
            let Some(received_at) = self.last_message_at(node) else { continue };
            let time = now.saturating_duration_since(received_at);
            if self.limits.lease < time {
                let since = self.nodes[node.index()].silent_since.unwrap_or(received_at);
                silence.expired.push(SilentNode { node, since });
            } else if NO_MESSAGE_WARNING < time {
                silence.late.push((node, time));
            }
        }
        silence.expired.sort_by_key(|silent| silent.since);
        silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;
    use crate::launch::node::table::tests::{SECOND, places, table};

    fn silent(nodes: &[(u32, Instant)]) -> Vec<SilentNode> {
        let silent =
            |(node, since): &(u32, Instant)| SilentNode { node: NodeRank(*node), since: *since };
        nodes.iter().map(silent).collect()
    }

    #[test]
    fn silent_nodes_are_reported_and_lost_after_their_leases() {
        let start = clock::now();
        let mut table = table(start);
        table.on_message(NodeRank(0), start);
        table.on_message(NodeRank(1), start + 15 * SECOND);
        assert_eq!(table.silence(start + 10 * SECOND), Silence::default());
        let late = |node, seconds| vec![(NodeRank(node), seconds * SECOND)];
        let silence = table.silence(start + 20 * SECOND);
        assert_eq!(silence, Silence { late: late(0, 20), expired: Vec::new() });
        // A node without a link has no lease.
        let silence = table.silence(start + 31 * SECOND);
        assert_eq!(silence, Silence { late: late(1, 16), expired: silent(&[(0, start)]) });
        assert!(table.mark_lost(NodeRank(0)) && !table.mark_lost(NodeRank(0)));
        assert_eq!(table.silence(start + 31 * SECOND).expired, []);
    }

    #[test]
    fn node_that_was_silent_before_a_suspension_is_lost_first() {
        let start = clock::now();
        let mut table = table(start);
        table.on_message(NodeRank(1), start);
        table.on_message(NodeRank(0), start + 5 * SECOND);
        // Both leases restart and expire together.
        table.on_resumed(start + 100 * SECOND, 90 * SECOND);
        let expired = silent(&[(1, start), (0, start + 5 * SECOND)]);
        assert_eq!(table.silence(start + 131 * SECOND).expired, expired);
    }

    #[test]
    fn loss_reported_after_a_silence_may_have_begun_with_it() {
        let start = clock::now();
        let mut table = table(start);
        let (node, at) = (NodeRank(0), |seconds| start + seconds * SECOND);
        assert_eq!(table.silence_before_loss(node, at(20)), None, "there was no link");
        for second in [0, 3, 9] {
            table.on_message(node, at(second));
            assert_eq!(
                table.silence_before_loss(node, at(second)),
                None,
                "two heartbeats take 6 s"
            );
        }
        assert_eq!(table.silence_before_loss(node, at(16)), Some(at(9)), "it is silent still");
        table.on_message(node, at(16));
        table.on_message(node, at(17));
        assert_eq!(table.silence_before_loss(node, at(19)), Some(at(9)));
        table.on_message(node, at(20));
        assert_eq!(table.silence_before_loss(node, at(20)), None);
    }

    #[test]
    fn no_node_counts_as_silent_while_the_launcher_was_suspended() {
        let start = clock::now();
        let mut table = table(start);
        table.on_message(NodeRank(0), start);
        table.on_asked(NodeRank(0), start);
        assert_eq!(table.on_heartbeat_timer(start + 4 * SECOND), None, "1 s late");
        assert_eq!(table.heartbeat_at(), start + 7 * SECOND);
        let resumed = start + 107 * SECOND;
        assert_eq!(table.on_heartbeat_timer(resumed), Some(100 * SECOND));
        assert_eq!(table.silence(resumed), Silence::default());
        // 101 s do not count.
        assert_eq!(table.overdue(start + 160 * SECOND), []);
        assert_eq!(table.overdue(start + 162 * SECOND), places(&[0]));
        table.on_resumed(resumed + 50 * SECOND, 50 * SECOND);
        assert_eq!(table.last_message_at(NodeRank(0)), Some(resumed + 50 * SECOND));
        assert_eq!(table.last_message_at(NodeRank(1)), None, "it has no link");
        assert_eq!(table.overdue(start + 212 * SECOND), places(&[0]));
    }
}

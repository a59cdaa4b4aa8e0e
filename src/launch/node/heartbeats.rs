//! Heartbeats of nodes: when the next one is due, and which nodes have sent nothing for so long that they are
//! lost. Pure.

use std::time::{Duration, Instant};

use super::table::{EndedSilence, NodeTable};
use crate::base::NodeRank;
use crate::base::order;
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
    /// Returns the length of such a suspension.
    pub(crate) fn on_heartbeat_timer(&mut self, now: Instant) -> Option<Duration> {
        let was_suspended = self.was_suspended(now);
        let suspended = now.saturating_duration_since(self.heartbeat_at);
        for node in &mut self.nodes {
            node.last_message_at =
                node.last_message_at.map(|received_at| now.min(received_at + suspended));
            node.postpone_deadline(suspended);
        }
        self.heartbeat_at = now + self.limits.heartbeat_interval;
        was_suspended.then_some(suspended)
    }

    /// Whether the launcher was suspended, and [`Self::on_heartbeat_timer`] has not taken it into account yet.
    pub(crate) fn was_suspended(&self, now: Instant) -> bool {
        self.heartbeat_at + self.limits.heartbeat_interval < now
    }

    /// The launcher was suspended with its workers and is continued: all leases restart.
    pub(crate) fn on_resumed(&mut self, now: Instant, suspended: Duration) {
        for node in &mut self.nodes {
            node.last_message_at = node.last_message_at.map(|_| now);
            node.postpone_deadline(suspended);
        }
        self.heartbeat_at = now + self.limits.heartbeat_interval;
    }

    /// Time of the last message of a node, if it has sent nothing for longer than two heartbeats take. Time in
    /// which the launcher was suspended is no silence.
    pub(super) fn silent_since(&self, node: NodeRank, now: Instant) -> Option<Instant> {
        let entry = &self.nodes[node.index()];
        let suspended = now.saturating_duration_since(self.heartbeat_at);
        let silence = now.saturating_duration_since(entry.last_message_at?);
        let is_long = 2 * self.limits.heartbeat_interval < silence.saturating_sub(suspended);
        entry.silent_since.filter(|_| is_long)
    }

    /// When a node was lost at the earliest whose loss is noticed now: when its link ended, or when a silence began
    /// that has just ended. A suspended agent, for example, reports what it missed once it is continued.
    pub(crate) fn begin_of_loss(&self, node: NodeRank, now: Instant) -> Instant {
        let entry = &self.nodes[node.index()];
        let until = entry.link_ended_at.unwrap_or(now);
        let has_just_ended = |silence: &EndedSilence| {
            until.saturating_duration_since(silence.until) <= self.limits.heartbeat_interval
        };
        let ended = entry.last_silence.filter(has_just_ended).map(|silence| silence.since);
        self.silent_since(node, until).or(ended).unwrap_or(until)
    }

    /// Nodes that have sent nothing for a while. One that cannot take part is not missed: its link may be closed, and
    /// its refusal is what the job must name.
    pub(crate) fn silence(&self, now: Instant) -> Silence {
        let mut silence = Silence::default();
        for node in self.all().filter(|node| !self.is_refused(*node)) {
            let Some(received_at) = self.last_message_at(node) else { continue };
            let time = now.saturating_duration_since(received_at);
            if self.limits.lease < time {
                let since = self.nodes[node.index()].silent_since.unwrap_or(received_at);
                silence.expired.push(SilentNode { node, since });
            } else if NO_MESSAGE_WARNING < time {
                silence.late.push((node, time));
            }
        }
        order::sort_by_key(&mut silence.expired, |silent| silent.since);
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
    fn node_that_cannot_take_part_is_not_missed() {
        let start = clock::now();
        let mut table = table(start);
        table.on_message(NodeRank(0), start);
        table.on_message(NodeRank(1), start);
        table.on_refused(NodeRank(0));
        let silence = table.silence(start + 31 * SECOND);
        assert_eq!(silence.expired, silent(&[(1, start)]));
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
    fn loss_noticed_after_a_silence_may_have_begun_with_it() {
        let start = clock::now();
        let mut table = table(start);
        let (node, at) = (NodeRank(0), |seconds| start + seconds * SECOND);
        let message = |table: &mut NodeTable, second| {
            table.on_message(node, at(second));
            table.heartbeat_at = at(second + 3);
        };
        for second in [0, 3, 9] {
            message(&mut table, second);
            assert_eq!(
                table.begin_of_loss(node, at(second)),
                at(second),
                "two heartbeats take 6 s"
            );
        }
        table.heartbeat_at = at(18);
        assert_eq!(table.begin_of_loss(node, at(16)), at(9), "it is silent still");
        message(&mut table, 16);
        message(&mut table, 17);
        assert_eq!(table.begin_of_loss(node, at(19)), at(9));
        message(&mut table, 20);
        assert_eq!(table.begin_of_loss(node, at(21)), at(21));
        assert_eq!(
            table.begin_of_loss(node, at(33)),
            at(33),
            "the launcher was suspended from 23 s on"
        );
        table.on_link_ended(node, at(22));
        assert_eq!(table.begin_of_loss(node, at(23)), at(22), "the exit of its agent was awaited");
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

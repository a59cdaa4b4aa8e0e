//! What was reported about nodes before the start.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::pending::{PendingNodes, pause_after};
use crate::base::NodeRank;
use crate::base::order;
use crate::launch::node::heartbeats::NO_MESSAGE_WARNING;
use crate::launch::options::{Options, Transport};
use crate::transport::{Fault, FaultKind};
use crate::wire::Problem;

/// Time without any line before the start after which the launcher reports the nodes that it waits
/// for.
const FIRST_WAITING_REPORT: Duration = Duration::from_millis(2500);

/// Reasons not to start, and what was printed while nodes were waited for.
pub(in crate::launch) struct Startup {
    /// Why nodes refused to start.
    pub(in crate::launch) problems: Vec<(NodeRank, Problem)>,
    /// Why nodes could not be reached.
    pub(in crate::launch) faults: Vec<(NodeRank, Fault)>,
    /// The nodes that delayed a start until the time limit.
    pub(in crate::launch) pending_at_timeout: Option<PendingNodes>,
    /// Notes of nodes that were printed, each once.
    printed_notes: BTreeSet<String>,
    /// When to report the nodes that the launcher waits for.
    waiting_report_at: Instant,
}

impl Startup {
    /// Nodes are waited for from now on. Those that connect by themselves have been announced, so
    /// the first report about them comes later.
    pub(in crate::launch) fn new(options: &Options, now: Instant) -> Self {
        let first_report = match options.transport {
            Transport::Dial(_) => NO_MESSAGE_WARNING,
            _ if !options.output.shows_progress => NO_MESSAGE_WARNING,
            Transport::Local | Transport::Ssh(_) | Transport::Managed(_) => FIRST_WAITING_REPORT,
        };
        Self {
            problems: Vec::new(),
            faults: Vec::new(),
            pending_at_timeout: None,
            printed_notes: BTreeSet::new(),
            waiting_report_at: now + first_report,
        }
    }

    /// Nodes are asked again.
    pub(in crate::launch) fn begin_again(&mut self, now: Instant) {
        self.waiting_report_at = now + NO_MESSAGE_WARNING;
    }

    /// Whether a report of the nodes that are waited for since then is due; the reports become rare.
    pub(in crate::launch) fn is_report_due(&mut self, now: Instant, asked_at: Instant) -> bool {
        let is_due = self.waiting_report_at <= now;
        if is_due {
            self.waiting_report_at = now + pause_after(now - asked_at);
        }
        is_due
    }

    /// Whether a note has not been printed yet: similar nodes have the same notes.
    pub(in crate::launch) fn is_new_note(&mut self, note: &str) -> bool {
        self.printed_notes.insert(note.to_owned())
    }

    /// Adds the problem of a node with checks that did not finish. All such nodes get the problem of
    /// the first one: its command is an example for all.
    pub(in crate::launch) fn add_timeout(&mut self, node: NodeRank, problem: Problem) {
        let first = self.problems.iter().find(|(_, other)| other.message == problem.message);
        let problem = first.map_or(problem, |(_, first)| first.clone());
        self.problems.push((node, problem));
    }

    /// Whether a node has connected that cannot take part, so that the other ones were not waited for.
    pub(in crate::launch) fn was_refused(&self) -> bool {
        let is_other =
            |fault: &Fault| matches!(fault.kind, FaultKind::OtherPlan | FaultKind::OtherBuild);
        !self.problems.is_empty() || self.faults.iter().any(|(_, fault)| is_other(fault))
    }

    /// The node is there again, or has another fault.
    pub(in crate::launch) fn forget(&mut self, node: NodeRank) {
        self.faults.retain(|(other, _)| *other != node);
        self.problems.retain(|(other, _)| *other != node);
    }

    /// Sorts problems and faults for the final report.
    pub(in crate::launch) fn sort(&mut self) {
        order::sort_by_key(&mut self.problems, |(node, _)| *node);
        order::sort_by_key(&mut self.faults, |(node, fault)| (fault.kind, *node));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::{Status, clock};
    use crate::launch::scale;

    const SECOND: Duration = Duration::from_secs(1);

    fn startup(now: Instant) -> Startup {
        Startup::new(&scale::options(), now)
    }

    #[test]
    fn first_report_of_a_wait_is_early_where_progress_is_shown() {
        let now = clock::now();
        let first_report = |shows_progress: bool| {
            let mut options = scale::options();
            options.output.shows_progress = shows_progress;
            Startup::new(&options, now).waiting_report_at - now
        };
        assert_eq!(first_report(true), FIRST_WAITING_REPORT);
        assert_eq!(first_report(false), NO_MESSAGE_WARNING);
    }

    #[test]
    fn wait_that_begins_again_is_reported_as_a_new_one() {
        let now = clock::now();
        let mut startup = startup(now);
        assert!(!startup.is_report_due(now + 9 * SECOND, now));
        assert!(startup.is_report_due(now + 10 * SECOND, now));
        assert!(!startup.is_report_due(now + 19 * SECOND, now), "10 s later at the earliest");
        assert!(startup.is_report_due(now + 100 * SECOND, now));
        startup.begin_again(now + 110 * SECOND);
        assert!(!startup.is_report_due(now + 119 * SECOND, now + 110 * SECOND));
        assert!(startup.is_report_due(now + 120 * SECOND, now + 110 * SECOND));
    }

    #[test]
    fn note_of_similar_nodes_is_printed_once() {
        let mut startup = startup(clock::now());
        assert!(startup.is_new_note("no InfiniBand"));
        assert!(!startup.is_new_note("no InfiniBand"));
        assert!(startup.is_new_note("another note"));
    }

    #[test]
    fn nodes_with_slow_checks_share_the_advice_of_the_first() {
        let mut startup = startup(clock::now());
        let slow = |host: &str| {
            Problem::new(Status::Unreachable, "checks did not finish").help(format!("ssh {host}"))
        };
        startup.problems.push((NodeRank(0), Problem::new(Status::Config, "no such directory")));
        startup.add_timeout(NodeRank(2), slow("n2"));
        startup.add_timeout(NodeRank(1), slow("n1"));
        let help = |index: usize| startup.problems[index].1.help.as_deref();
        assert_eq!((help(0), help(1), help(2)), (None, Some("ssh n2"), Some("ssh n2")));
    }

    proptest! {
        /// However often it is asked, a wait is reported at most every 10 s, and ever more rarely.
        #[test]
        fn reports_of_a_wait_are_never_close(pauses in prop::collection::vec(1_u64..400, 1..60)) {
            let start = clock::now();
            let mut startup = startup(start);
            let (mut now, mut reports) = (start, Vec::new());
            for seconds in pauses {
                now += Duration::from_secs(seconds);
                if startup.is_report_due(now, start) {
                    reports.push(now - start);
                    prop_assert!(!startup.is_report_due(now, start), "twice at the same time");
                }
            }
            for pair in reports.windows(2) {
                prop_assert!(pair[0] + pause_after(pair[0]) <= pair[1]);
            }
        }

        /// The final report lists problems by node, and faults by kind and node; none is lost.
        #[test]
        fn sorted_reasons_are_those_that_were_added(nodes in prop::collection::vec(0_u32..9, 0..20)) {
            let mut startup = startup(clock::now());
            let kinds = [FaultKind::Refused, FaultKind::NoProgram, FaultKind::NotJoined];
            for node in &nodes {
                let kind = kinds[*node as usize % kinds.len()];
                startup.faults.push((NodeRank(*node), Fault::new(kind, "")));
                let problem = Problem::new(Status::Config, "no");
                startup.problems.push((NodeRank(*node), problem));
            }
            startup.sort();
            let mut expected = nodes.clone();
            expected.sort_unstable();
            let sorted: Vec<u32> = startup.problems.iter().map(|(node, _)| node.0).collect();
            prop_assert_eq!(&sorted, &expected);
            let keys = startup.faults.iter().map(|(node, fault)| (fault.kind, *node));
            prop_assert!(keys.is_sorted());
            let mut of_faults: Vec<u32> = startup.faults.iter().map(|(node, _)| node.0).collect();
            of_faults.sort_unstable();
            prop_assert_eq!(of_faults, expected);
        }
    }
}

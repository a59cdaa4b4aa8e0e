//! What was reported about nodes before the start.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::pending::{PendingNodes, pause_after};
use crate::base::NodeRank;
use crate::launch::node::table::NO_MESSAGE_WARNING;
use crate::launch::options::{Options, Transport};
use crate::transport::Fault;
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

    /// Sorts problems and faults for the final report.
    pub(in crate::launch) fn sort(&mut self) {
        self.problems.sort_by_key(|(node, _)| *node);
        self.faults.sort_by_key(|(node, fault)| (fault.kind, *node));
    }
}

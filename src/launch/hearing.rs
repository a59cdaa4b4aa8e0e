//! Handling of messages of nodes, which become events of the job.

use super::dispatcher::Dispatcher;
use super::history::{ErrorFileCopy, WorkerOutcome};
use super::node::{self, Connector, NodeEvent, NodeMessage, StartStage};
use super::pause::PauseScope;
use super::signals::UserRequest;
use super::{orders, voice};
use crate::base::exit::signal_name;
use crate::base::{NodeRank, Rank, clock};
use crate::job::{Event, NodeLoss, StartFailure, StartStep, WorkerEnd};
use crate::report::neutral;
use crate::report::summary::step;
use crate::transport::{AgentEnd, FaultKind};
use crate::wire::{self, FromAgent, OpenFailure, PreparedNode, ToAgent, WorkerNote};

impl Dispatcher<'_> {
    /// Converts a message of a node to an event of the job.
    pub(super) fn hear(&mut self, event: NodeEvent) -> Option<Event> {
        let NodeEvent { node, link, what } = event;
        if link != self.nodes[node.index()].link {
            // A message of a previous link, which was replaced.
            return None;
        }
        match what {
            NodeMessage::Said(message) => {
                if let Some(why) = self.objection(node, &message) {
                    return self.lose(node, NodeLoss::Garbled(why));
                }
                self.nodes[node.index()].heard = Some(clock::now());
                self.hear_agent(node, message)
            }
            NodeMessage::LetIn => {
                self.nodes[node.index()].stage = StartStage::LetIn;
                None
            }
            NodeMessage::Connected => {
                self.nodes[node.index()].connected();
                None
            }
            NodeMessage::Fresh { epoch, uncharged } => Some(Event::Fresh { epoch, uncharged }),
            NodeMessage::Unreachable(fault) => {
                // All missing nodes have one deadline, and each is to be named.
                let is_late = matches!(fault.kind, FaultKind::Absent | FaultKind::OtherKey);
                self.faults.push((node, fault));
                if is_late { self.refusal(node) } else { self.refused(node) }
            }
            NodeMessage::Closed(AgentEnd { exit, words }) => {
                if let Some(words) = words {
                    let host = &self.plan.nodes[node.index()].host;
                    self.reporter.say(step("Lost", &format!("{host}: {}", neutral(&words))));
                }
                self.lose(node, NodeLoss::LinkClosed(exit))
            }
            NodeMessage::Garbled(why) => self.lose(node, NodeLoss::Garbled(why)),
            NodeMessage::Signalled(signal) => self.signalled(node, signal),
        }
    }

    /// Handles a signal that a process of remuda on a node received like one to the launcher.
    fn signalled(&mut self, node: NodeRank, signal: i32) -> Option<Event> {
        let request = UserRequest::of(signal)?;
        let host = &self.plan.nodes[node.index()].host;
        self.reporter.say(step("Signal", &format!("{host} received {}", signal_name(signal))));
        self.wish(request, Some(node))
    }

    /// Handles a node that cannot take part. Where another system starts the nodes, the launcher
    /// then stops waiting for those that have not joined.
    fn refused(&mut self, node: NodeRank) -> Option<Event> {
        if matches!(self.caller.way, Connector::Dial(..)) {
            for place in (0..self.nodes.len() as u32).map(NodeRank).filter(|place| *place != node) {
                let absent = &self.nodes[place.index()];
                if absent.heard.is_none() && self.job.may_answer(place) {
                    absent.hang_up();
                    self.step(Event::Refused(place));
                }
            }
        }
        self.refusal(node)
    }

    pub(super) fn refusal(&self, node: NodeRank) -> Option<Event> {
        self.job.may_answer(node).then_some(Event::Refused(node))
    }

    /// Why this message is invalid now. Later code relies on messages that pass: an invalid one
    /// ends only the part of the node that sent it.
    fn objection(&self, node: NodeRank, message: &FromAgent) -> Option<String> {
        let check_rank = |rank: &Rank| {
            let worker = self.history.workers.get(rank.index());
            let is_foreign = worker.is_none_or(|worker| worker.node != node);
            is_foreign.then(|| node::foreign(*rank))
        };
        let before_start = || {
            (!self.job.has_started(node))
                .then(|| "protocol error: report about workers that were not started".to_owned())
        };
        match message {
            FromAgent::Ready(_) | FromAgent::Refused(_) if !self.job.may_answer(node) => {
                Some("protocol error: unexpected answer".to_owned())
            }
            FromAgent::Ready(found) => self.lacks(node, found),
            FromAgent::Refused(problems) => {
                problems.is_empty().then(|| "protocol error: refused without a reason".to_owned())
            }
            FromAgent::StartFailed(failed) => check_rank(&failed.rank).or_else(before_start),
            FromAgent::Started { rank, .. } | FromAgent::Exited { rank, .. } => {
                check_rank(rank).or_else(before_start)
            }
            FromAgent::ErrorFile { rank, bytes, .. } => {
                let is_long = wire::ERROR_FILE_BYTES_MAX < bytes.len();
                let too_long = || is_long.then(|| "protocol error: error file too long".to_owned());
                check_rank(rank).or_else(before_start).or_else(too_long)
            }
            FromAgent::Leftovers { rank, .. }
            | FromAgent::StdinTaken { rank, .. }
            | FromAgent::Note { rank, .. } => check_rank(rank),
            FromAgent::Suspended(ranks) => ranks.iter().find_map(check_rank),
            FromAgent::Idle { .. } => before_start(),
            FromAgent::Examined(_) | FromAgent::Dialed(_) => {
                Some("protocol error: unexpected answer".to_owned())
            }
            // The task that reads the link checks messages of output.
            FromAgent::Output { .. }
            | FromAgent::OutputEnd { .. }
            | FromAgent::Hello(_)
            | FromAgent::ShimDied
            | FromAgent::ShimFrozen
            | FromAgent::Beat
            | FromAgent::Paused
            | FromAgent::Ungrouped { .. }
            | FromAgent::Clock { .. } => None,
        }
    }

    /// What is missing in the answer of node 0, which determines the values that all others
    /// receive.
    fn lacks(&self, node: NodeRank, found: &PreparedNode) -> Option<String> {
        let listen =
            orders::listen(self.plan, &self.options.transport, &self.plan.nodes[node.index()])?;
        if found.master.is_none() {
            return Some("protocol error: node 0 sent no master port".to_owned());
        }
        (listen.store && found.store.is_none())
            .then(|| "protocol error: node 0 sent no store address".to_owned())
    }

    fn hear_agent(&mut self, node: NodeRank, message: FromAgent) -> Option<Event> {
        match message {
            FromAgent::Hello(hello) if hello.version != wire::VERSION => {
                let (agent_version, own_version) = (hello.version, wire::VERSION);
                let why = format!(
                    "its protocol version is {agent_version} (build {}), that of this launcher is \
                     {own_version}",
                    hello.build
                );
                self.lose(node, NodeLoss::Garbled(why))
            }
            FromAgent::Hello(hello) => {
                self.nodes[node.index()].greeted(hello.clock_us);
                self.prepare(node);
                None
            }
            FromAgent::Ready(found) => {
                self.say_notes(node, &found.notes);
                self.found[node.index()] = Some(found);
                Some(Event::Ready(node))
            }
            FromAgent::Refused(problems) => {
                self.problems.extend(problems.into_iter().map(|problem| (node, problem)));
                self.refused(node)
            }
            FromAgent::Started { rank, pid, at_us } => {
                let at = self.nodes[node.index()].instant(at_us);
                self.history.worker(rank).started = Some((pid, at));
                Some(Event::Started(rank))
            }
            FromAgent::StartFailed(failed) => {
                let failure = StartFailure { step: start_step(failed.step), errno: failed.errno };
                Some(Event::NotStarted { rank: failed.rank, failure })
            }
            FromAgent::Exited { rank, exit, at_us, sent, oom_kills } => {
                let at = self.nodes[node.index()].instant(at_us);
                let stopped = !sent.is_empty();
                self.stdin.gone(rank);
                self.history.worker(rank).ended =
                    Some(WorkerOutcome { exit, at, stopped, oom_kills, told: false });
                if !exit.is_success() && !self.job.is_stopping() {
                    self.tell_all(&ToAgent::PeerGone(rank));
                }
                Some(Event::Exited(WorkerEnd { rank, exit, at, sent }))
            }
            FromAgent::ErrorFile { rank, at_us, bytes } => {
                let at = self.nodes[node.index()].instant(at_us);
                self.history.worker(rank).error_file = Some(ErrorFileCopy { bytes, at });
                None
            }
            FromAgent::StdinTaken { rank, bytes } => {
                self.stdin.taken(rank, bytes);
                None
            }
            FromAgent::Leftovers { rank, processes } => {
                self.say_leftovers(rank, &processes);
                None
            }
            FromAgent::ShimDied => Some(Event::NodeLost { node, loss: NodeLoss::ShimDied }),
            FromAgent::ShimFrozen => Some(Event::NodeLost { node, loss: NodeLoss::ShimFrozen }),
            FromAgent::Idle { undead } => {
                let is_clean = undead.is_empty();
                self.history.undead.extend(undead.into_iter().map(|process| (node, process)));
                Some(Event::Idle { node, is_clean })
            }
            FromAgent::Suspended(ranks) => {
                for rank in ranks {
                    self.reporter.say(voice::suspended(self.history.worker(rank)));
                }
                None
            }
            FromAgent::Ungrouped { master, seconds } => {
                let workers = self.history.workers.len();
                let warning = voice::ungrouped(workers, &master, seconds);
                if self.noted.insert(warning.clone()) {
                    self.reporter.say(warning);
                }
                None
            }
            FromAgent::Paused => {
                self.pause.stopped(PauseScope::Node(node));
                None
            }
            FromAgent::Clock { asked_us, clock_us } => {
                self.nodes[node.index()].set_clock(asked_us, clock_us);
                None
            }
            FromAgent::Note { rank, note: WorkerNote::PeerLost(peer) } => {
                self.history.worker(rank).lost_peer = true;
                Some(Event::PeerLost { rank, peer })
            }
            FromAgent::Note { note: WorkerNote::Ready | WorkerNote::Step { .. }, .. }
            | FromAgent::Beat
            // Only `doctor` requests these.
            | FromAgent::Examined(_)
            | FromAgent::Dialed(_)
            | FromAgent::Output { .. }
            | FromAgent::OutputEnd { .. } => None,
        }
    }

    /// Reports processes that a worker left behind, except while a job is being stopped: then
    /// children that exit a little later than their parents are expected.
    fn say_leftovers(&self, rank: Rank, processes: &[crate::wire::Leftover]) {
        if self.job.is_stopping() || processes.is_empty() {
            return;
        }
        self.reporter.say(voice::leftovers(rank, processes));
    }
}

/// Converts the step: the wire protocol and the job are versioned separately.
fn start_step(step: OpenFailure) -> StartStep {
    match step {
        OpenFailure::Fork => StartStep::Fork,
        OpenFailure::Setup => StartStep::Setup,
        OpenFailure::Chdir => StartStep::Chdir,
        OpenFailure::Exec => StartStep::Exec,
    }
}

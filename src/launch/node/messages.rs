//! Handling of messages of nodes, which become events of the job.

use crate::base::exit::signal_name;
use crate::base::{NodeRank, Rank, clock};
use crate::job::{Event, NodeLoss, StartFailure, StartStep, WorkerEnd};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::history::{ErrorFileCopy, WorkerOutcome};
use crate::launch::node::handle::{self, Connector, NodeEvent, NodeMessage, StartStage};
use crate::launch::pause::PauseScope;
use crate::launch::screen::messages;
use crate::launch::signals::UserRequest;
use crate::launch::startup::requests;
use crate::report::escape_control;
use crate::report::text::show_step;
use crate::transport::{AgentEnd, FaultKind};
use crate::wire::{
    self, AgentHello, FromAgent, PreparedNode, ToAgent, WorkerNote, WorkerStartStep,
};

impl Dispatcher<'_> {
    /// Converts a message of a node to an event of the job.
    pub(in crate::launch) fn on_node_event(&mut self, event: NodeEvent) -> Option<Event> {
        let NodeEvent { node, link, message: what } = event;
        if link != self.nodes[node.index()].link {
            // A message of a previous link, which was replaced.
            return None;
        }
        match what {
            NodeMessage::Message(message) => {
                if let Some(why) = self.find_protocol_error(node, &message) {
                    return self.mark_node_lost(node, NodeLoss::InvalidData(why));
                }
                self.nodes[node.index()].last_message_at = Some(clock::now());
                self.on_agent_message(node, message)
            }
            NodeMessage::LoggedIn => {
                self.nodes[node.index()].stage = StartStage::LoggedIn;
                None
            }
            NodeMessage::Connected => {
                self.nodes[node.index()].on_connected();
                None
            }
            NodeMessage::EarlierEpochs { epoch, uncharged } => {
                Some(Event::EarlierEpochs { epoch, uncharged })
            }
            NodeMessage::Unreachable(fault) => {
                // All missing nodes have one deadline, and each is to be named.
                let is_late = matches!(fault.kind, FaultKind::NotJoined | FaultKind::OtherKey);
                self.faults.push((node, fault));
                if is_late { self.refusal_event(node) } else { self.on_node_refused(node) }
            }
            NodeMessage::Closed(AgentEnd { exit, output: words }) => {
                if let Some(words) = words {
                    let host = &self.plan.nodes[node.index()].host;
                    self.reporter.print_message(show_step(
                        "Lost",
                        &format!("{host}: {}", escape_control(&words)),
                    ));
                    self.history.closed_links.insert(node, words);
                }
                self.mark_node_lost(node, NodeLoss::LinkClosed(exit))
            }
            NodeMessage::InvalidData(why) => self.mark_node_lost(node, NodeLoss::InvalidData(why)),
            NodeMessage::Signal(signal) => self.on_node_signal(node, signal),
        }
    }

    /// Handles a signal that a process of remuda on a node received like one to the launcher.
    fn on_node_signal(&mut self, node: NodeRank, signal: i32) -> Option<Event> {
        let request = UserRequest::from_signal(signal)?;
        let host = &self.plan.nodes[node.index()].host;
        self.reporter.print_message(show_step(
            "Signal",
            &format!("{host} received {}", signal_name(signal)),
        ));
        self.on_user_request(request, Some(node))
    }

    /// Handles a node that cannot take part. Where another system starts the nodes, the launcher
    /// then stops waiting for those that have not joined.
    fn on_node_refused(&mut self, node: NodeRank) -> Option<Event> {
        if matches!(self.connect_context.connector, Connector::Dial(..)) {
            for place in (0..self.nodes.len() as u32).map(NodeRank).filter(|place| *place != node) {
                let absent = &self.nodes[place.index()];
                if absent.last_message_at.is_none() && self.job.may_answer(place) {
                    absent.close();
                    self.step(Event::Refused(place));
                }
            }
        }
        self.refusal_event(node)
    }

    pub(in crate::launch) fn refusal_event(&self, node: NodeRank) -> Option<Event> {
        self.job.may_answer(node).then_some(Event::Refused(node))
    }

    /// Why this message is invalid now. Later code relies on messages that pass: an invalid one
    /// ends only the part of the node that sent it.
    fn find_protocol_error(&self, node: NodeRank, message: &FromAgent) -> Option<String> {
        let check_rank = |rank: &Rank| {
            let worker = self.history.workers.get(rank.index());
            let is_foreign = worker.is_none_or(|worker| worker.node != node);
            is_foreign.then(|| handle::foreign_rank_error(*rank))
        };
        let before_start = || {
            (!self.job.has_started(node))
                .then(|| "protocol error: report about workers that were not started".to_owned())
        };
        match message {
            FromAgent::Ready(_) | FromAgent::Refused(_) if !self.job.may_answer(node) => {
                Some("protocol error: unexpected answer".to_owned())
            }
            FromAgent::Ready(found) => self.find_missing_of_node0(node, found),
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
            | FromAgent::StdinConsumed { rank, .. }
            | FromAgent::Note { rank, .. } => check_rank(rank),
            FromAgent::Suspended(ranks) => ranks.iter().find_map(check_rank),
            FromAgent::Idle { .. } => before_start(),
            FromAgent::Examined(_) | FromAgent::Probed(_) => {
                Some("protocol error: unexpected answer".to_owned())
            }
            // The task that reads the link checks messages of output.
            FromAgent::Output { .. }
            | FromAgent::OutputEnd { .. }
            | FromAgent::Hello(_)
            | FromAgent::ShimExited
            | FromAgent::ShimHung
            | FromAgent::Heartbeat
            | FromAgent::Paused
            | FromAgent::Ungrouped { .. }
            | FromAgent::Clock { .. } => None,
        }
    }

    /// What is missing in the answer of node 0, which determines the values that all others
    /// receive.
    fn find_missing_of_node0(&self, node: NodeRank, found: &PreparedNode) -> Option<String> {
        let listen = requests::listen_request(
            self.plan,
            &self.options.transport,
            &self.plan.nodes[node.index()],
        )?;
        if found.master.is_none() {
            return Some("protocol error: node 0 sent no master port".to_owned());
        }
        (listen.store && found.store.is_none())
            .then(|| "protocol error: node 0 sent no store address".to_owned())
    }

    fn on_agent_message(&mut self, node: NodeRank, message: FromAgent) -> Option<Event> {
        match message {
            FromAgent::Hello(hello) => self.on_hello(node, &hello),
            FromAgent::Ready(found) => {
                self.print_notes(node, &found.notes);
                self.prepared_nodes[node.index()] = Some(found);
                Some(Event::Ready(node))
            }
            FromAgent::Refused(problems) => {
                self.problems.extend(problems.into_iter().map(|problem| (node, problem)));
                self.on_node_refused(node)
            }
            FromAgent::Started { rank, pid, at_us } => {
                let at = self.nodes[node.index()].to_instant(at_us);
                self.history.worker(rank).started = Some((pid, at));
                Some(Event::Started(rank))
            }
            FromAgent::StartFailed(failed) => {
                let failure = StartFailure { step: start_step(failed.step), errno: failed.errno };
                Some(Event::NotStarted { rank: failed.rank, failure })
            }
            FromAgent::Exited { rank, exit, at_us, signals_sent, oom_kills } => {
                let at = self.nodes[node.index()].to_instant(at_us);
                Some(self.on_worker_exited(WorkerEnd { rank, exit, at, signals_sent }, oom_kills))
            }
            FromAgent::ShimExited => Some(Event::NodeLost { node, loss: NodeLoss::ShimExited }),
            FromAgent::ShimHung => Some(Event::NodeLost { node, loss: NodeLoss::ShimNotResponding }),
            FromAgent::Idle { unkillable: undead } => {
                let is_clean = undead.is_empty();
                self.history.unkillable.extend(undead.into_iter().map(|process| (node, process)));
                Some(Event::Idle { node, is_clean })
            }
            FromAgent::ErrorFile { .. }
            | FromAgent::StdinConsumed { .. }
            | FromAgent::Leftovers { .. }
            | FromAgent::Suspended(_)
            | FromAgent::Ungrouped { .. }
            | FromAgent::Paused
            | FromAgent::Clock { .. } => {
                self.on_report(node, message);
                None
            }
            FromAgent::Note { rank, note: WorkerNote::PeerLost(peer) } => {
                self.history.worker(rank).lost_peer = true;
                Some(Event::PeerLost { rank, peer })
            }
            FromAgent::Note { note: WorkerNote::Ready | WorkerNote::Step { .. }, .. }
            | FromAgent::Heartbeat
            // Only `doctor` requests these.
            | FromAgent::Examined(_)
            | FromAgent::Probed(_)
            | FromAgent::Output { .. }
            | FromAgent::OutputEnd { .. } => None,
        }
    }

    /// Messages that are no event of the job: facts for the screens, answers, flow of standard input.
    fn on_report(&mut self, node: NodeRank, message: FromAgent) {
        match message {
            FromAgent::ErrorFile { rank, at_us, bytes } => {
                let at = self.nodes[node.index()].to_instant(at_us);
                self.history.worker(rank).error_file = Some(ErrorFileCopy { bytes, at });
            }
            FromAgent::StdinConsumed { rank, bytes } => {
                self.stdin.on_consumed(rank, bytes);
            }
            FromAgent::Leftovers { rank, processes } => {
                self.report_leftovers(rank, &processes);
            }
            FromAgent::Suspended(ranks) => {
                for rank in ranks {
                    self.reporter.print_answer(messages::suspended(self.history.worker(rank)));
                }
            }
            FromAgent::Ungrouped { master, seconds } => {
                self.warn_ungrouped(&master, seconds);
            }
            FromAgent::Paused => {
                self.pause.on_stopped(PauseScope::Node(node));
            }
            FromAgent::Clock { sent_us: asked_us, clock_us } => {
                self.nodes[node.index()].on_clock(asked_us, clock_us);
            }
            _ => {}
        }
    }

    fn on_hello(&mut self, node: NodeRank, hello: &AgentHello) -> Option<Event> {
        if hello.version != wire::VERSION {
            let (agent_version, own_version) = (hello.version, wire::VERSION);
            let why = format!(
                "its protocol version is {agent_version} (build {}), that of this launcher is \
                 {own_version}",
                hello.build
            );
            return self.mark_node_lost(node, NodeLoss::InvalidData(why));
        }
        self.nodes[node.index()].on_hello(hello.clock_us);
        self.send_prepare(node);
        None
    }

    fn on_worker_exited(&mut self, end: WorkerEnd, oom_kills: u64) -> Event {
        let WorkerEnd { rank, exit, at, .. } = end;
        let stopped = !end.signals_sent.is_empty();
        self.stdin.remove_reader(rank);
        self.history.worker(rank).outcome =
            Some(WorkerOutcome { exit, at, stopped, oom_kills, is_early_exit_reported: false });
        if !exit.is_success() && !self.job.is_stopping() {
            self.send_to_all(&ToAgent::PeerGone(rank));
        }
        Event::Exited(end)
    }

    fn warn_ungrouped(&mut self, master: &str, seconds: u32) {
        let warning = messages::ungrouped(self.history.workers.len(), master, seconds);
        if self.printed_notes.insert(warning.clone()) {
            self.reporter.print_message(warning);
        }
    }

    /// Reports processes that a worker left behind, except while a job is being stopped: then
    /// children that exit a little later than their parents are expected.
    fn report_leftovers(&self, rank: Rank, processes: &[crate::wire::Leftover]) {
        if self.job.is_stopping() || processes.is_empty() {
            return;
        }
        self.reporter.print_message(messages::leftovers(rank, processes));
    }
}

/// Converts the step: the wire protocol and the job are versioned separately.
fn start_step(step: WorkerStartStep) -> StartStep {
    match step {
        WorkerStartStep::Fork => StartStep::Fork,
        WorkerStartStep::Setup => StartStep::Setup,
        WorkerStartStep::Chdir => StartStep::Chdir,
        WorkerStartStep::Exec => StartStep::Exec,
    }
}

//! Handling of messages of nodes, which become events of the job.

use crate::base::exit::signal_name;
use crate::base::{NodeRank, Note, Rank, clock};
use crate::job::{Event, MeetingPoint, NodeLoss, WorkerEnd, stack_place};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::history::{ErrorFileCopy, WorkerOutcome};
use crate::launch::node::elastic::{self, Unreached};
use crate::launch::node::handle::{Connector, NodeEvent, NodeMessage};
use crate::launch::node::protocol::{self, Expected};
use crate::launch::screen::messages;
use crate::launch::startup::requests;
use crate::launch::user::pause::PauseScope;
use crate::launch::user::signals::UserRequest;
use crate::os::cpu::text_pages;
use crate::report::text::show_step;
use crate::report::{Consumed, OutputLink, escape_control};
use crate::transport::{AgentEnd, Fault, FaultKind};
use crate::wire::{self, AgentHello, FromAgent, KernelReport, Problem, ToAgent};

impl Dispatcher<'_> {
    /// Converts a message of a node to an event of the job.
    pub(super) fn on_node_event(&mut self, event: NodeEvent) -> Option<Event> {
        let NodeEvent { node, link, message: what } = event;
        if !self.nodes.table.is_current(node, link) {
            return None;
        }
        match what {
            NodeMessage::Message(message) if elastic::is_obsolete(&self.job, node, &message) => {
                None
            }
            NodeMessage::Message(message) => {
                if let Some(why) = self.find_error(node, &message) {
                    return self.mark_node_lost(node, NodeLoss::InvalidData(why));
                }
                self.nodes.table.on_message(node, clock::now());
                self.on_agent_message(node, message)
            }
            NodeMessage::LoggedIn => {
                self.nodes.table.on_logged_in(node);
                None
            }
            NodeMessage::Connected => {
                self.nodes.on_connected(node);
                self.is_elastic().then_some(Event::Arrived(node))
            }
            NodeMessage::EarlierEpochs { epoch, free_restarts } => {
                Some(Event::EarlierEpochs { epoch, free_restarts })
            }
            NodeMessage::Joined { machine, own_workers } => {
                self.on_joined(node, &machine, own_workers)
            }
            // Another host may be the reason.
            NodeMessage::FirstCommandEnded(fault)
                if 1 < self.plan.nodes.len() && self.can_retry(&fault) =>
            {
                self.reconnect(node, self.job.epoch());
                None
            }
            NodeMessage::Unreachable(fault) | NodeMessage::FirstCommandEnded(fault) => {
                self.on_unreached(node, fault)
            }
            NodeMessage::Unfit(problems) => self.on_unfit(node, problems),
            NodeMessage::Closed(AgentEnd { exit, output: words }, at) => {
                self.nodes.table.on_link_ended(node, at);
                if let Some(words) = words {
                    let line = format!("{}: {}", self.host(node), escape_control(&words));
                    self.reporter.print_message(show_step("Lost", &line));
                    self.history.closed_links.insert(node, words);
                }
                self.mark_node_lost(node, NodeLoss::LinkClosed(exit))
            }
            NodeMessage::InvalidData(why) => self.mark_node_lost(node, NodeLoss::InvalidData(why)),
            NodeMessage::Signal(signal) => self.on_node_signal(node, signal),
        }
    }

    /// Tells a node that its output was shown and stored. If another agent has replaced the one that
    /// sent it, no message is sent.
    pub(super) fn acknowledge(&self, Consumed { from, bytes }: Consumed) {
        let OutputLink { node, link } = from;
        if self.nodes.table.is_current(node, link) {
            self.nodes.send(node, &ToAgent::Consumed(bytes));
        }
    }

    /// Handles a node that has joined: its machine has a name, and its own line may decide how many workers it
    /// starts.
    fn on_joined(
        &mut self,
        node: NodeRank,
        machine: &str,
        own_workers: Option<u32>,
    ) -> Option<Event> {
        if let Some(machines) = &mut self.machines {
            machines.set(node, machine);
        }
        own_workers.map(|workers| Event::OwnWorkers { node, workers: workers as usize })
    }

    /// Handles a signal that a process of remuda on a node received like one to the launcher.
    fn on_node_signal(&mut self, node: NodeRank, signal: i32) -> Option<Event> {
        let request = UserRequest::from_signal(signal)?;
        let line = format!("{} received {}", self.host(node), signal_name(signal));
        self.reporter.print_message(show_step("Signal", &line));
        self.on_user_request(request, Some(node))
    }

    /// Whether a node with this fault is connected to again.
    fn can_retry(&self, fault: &Fault) -> bool {
        // A program that this machine does not have is missing later too.
        elastic::unreached(self.options.elastic) == Unreached::Retried
            && fault.kind != FaultKind::NoProgram
    }

    /// Handles a node to which no link could be made.
    fn on_unreached(&mut self, node: NodeRank, fault: Fault) -> Option<Event> {
        match elastic::unreached(self.options.elastic) {
            Unreached::Replaced => {
                self.reject_joiner(node, &fault);
                None
            }
            Unreached::Retried if self.can_retry(&fault) => Some(self.on_absent(node, fault)),
            Unreached::Retried | Unreached::Refused => self.on_unreachable(node, fault),
        }
    }

    /// Handles a node that cannot be reached and without which the job does not start.
    fn on_unreachable(&mut self, node: NodeRank, fault: Fault) -> Option<Event> {
        // All missing nodes have one deadline, and each is to be named.
        let is_late = matches!(
            fault.kind,
            FaultKind::NotJoined | FaultKind::ManagerTimeout | FaultKind::OtherKey
        );
        self.startup.faults.push((node, fault));
        if is_late { self.refuse(node) } else { self.on_node_refused(node) }
    }

    /// Handles a node that cannot take part. Where another system starts the nodes, the launcher
    /// then stops waiting for those that have not joined.
    fn on_node_refused(&mut self, node: NodeRank) -> Option<Event> {
        if matches!(self.nodes.connector(), Connector::Dial(..)) {
            for other in self.node_situation().given_up_with(node) {
                self.nodes.close(other);
                if let Some(refusal) = self.refuse(other) {
                    self.step(refusal);
                }
            }
        }
        self.refuse(node)
    }

    /// A node cannot take part.
    pub(super) fn refuse(&mut self, node: NodeRank) -> Option<Event> {
        self.nodes.table.on_refused(node);
        self.job.may_answer(node).then_some(Event::Refused(node))
    }

    /// Whether the number of nodes may vary.
    fn is_elastic(&self) -> bool {
        self.options.elastic.is_some()
    }

    /// Reports a node that cannot join; another one may take its number.
    fn reject_joiner(&mut self, node: NodeRank, fault: &Fault) {
        let lines: Vec<_> = fault.detail.lines().map(escape_control).collect();
        let text = format!("warning: {} cannot join: {}\n", self.host(node), lines.join("\n  "));
        self.reporter.print_message(text);
        self.reconnect(node, self.job.epoch());
    }

    /// Handles a node that cannot be reached, in a job that can do without it: connects to it again later.
    fn on_absent(&mut self, node: NodeRank, fault: Fault) -> Event {
        let is_news = self.nodes.table.on_absent(node);
        if self.job.is_preparing() {
            self.startup.forget(node);
            self.startup.faults.push((node, fault));
        } else if is_news {
            self.reporter.print_message(messages::absent(self.host(node), &fault));
        }
        self.reconnect(node, self.job.epoch());
        Event::Absent(node)
    }

    /// Reports the nodes without which an epoch starts although it could use them, and why.
    pub(super) fn report_left_out(&mut self) {
        if !self.options.meets_at(MeetingPoint::Launcher) {
            return;
        }
        for (node, fault) in std::mem::take(&mut self.startup.faults) {
            self.reporter.print_message(messages::absent(self.host(node), &fault));
        }
        for (node, problem) in std::mem::take(&mut self.startup.problems) {
            self.print_problems(node, &[problem]);
        }
    }

    /// Reports why a node cannot take part in a job that can start without it.
    fn print_problems(&mut self, node: NodeRank, problems: &[Problem]) {
        for problem in problems {
            let host = self.host(node);
            let text = escape_control(&problem.message);
            self.reporter.print_message(format!("warning: {host} cannot take part: {text}\n"));
        }
    }

    /// Handles a node that has connected only to report why it cannot start its workers.
    fn on_unfit(&mut self, node: NodeRank, problems: Vec<Problem>) -> Option<Event> {
        match elastic::unreached(self.options.elastic) {
            Unreached::Replaced => {
                self.print_problems(node, &problems);
                self.reconnect(node, self.job.epoch());
                None
            }
            Unreached::Retried | Unreached::Refused => self.on_problems(node, problems),
        }
    }

    /// Handles a node that has answered that it cannot start.
    fn on_problems(&mut self, node: NodeRank, problems: Vec<Problem>) -> Option<Event> {
        if elastic::waits_for_others(self.options.elastic, node) {
            self.print_problems(node, &problems);
            return self.refuse(node);
        }
        self.startup.problems.extend(problems.into_iter().map(|problem| (node, problem)));
        self.on_node_refused(node)
    }

    /// Why a message of a node is invalid now.
    fn find_error(&self, node: NodeRank, message: &FromAgent) -> Option<String> {
        let place = &self.plan.nodes[node.index()];
        let listen = requests::listen_request(&self.plan, self.options, place);
        let node_of = |rank: Rank| self.history.workers.get(rank.index()).map(|worker| worker.node);
        Expected { node, job: &self.job, node_of: &node_of, listen }.find_error(message)
    }

    fn on_agent_message(&mut self, node: NodeRank, message: FromAgent) -> Option<Event> {
        match message {
            FromAgent::Hello(hello) => self.on_hello(node, &hello),
            FromAgent::Ready(found) => {
                self.print_notes(node, &found.notes);
                self.nodes.table.on_ready(node, found);
                Some(Event::Ready(node))
            }
            FromAgent::Refused(problems) => self.on_problems(node, problems),
            FromAgent::Started { rank, pid, at_us } => {
                let at = self.nodes.to_instant(node, at_us);
                if self.history.on_started(rank, pid, at) {
                    // Code for reading the command line, files and plans is no longer needed.
                    text_pages::unmap_text_pages();
                    self.record_workers();
                }
                Some(Event::Started(rank))
            }
            FromAgent::StartFailed(failed) => {
                let failure = protocol::start_failure(&failed);
                Some(Event::NotStarted { rank: failed.rank, failure })
            }
            FromAgent::Exited { rank, exit, at_us, signals_sent, kernel } => {
                let at = self.nodes.to_instant(node, at_us);
                Some(self.on_worker_exited(WorkerEnd { rank, exit, at, signals_sent }, kernel))
            }
            FromAgent::ShimExited => Some(self.node_lost(node, NodeLoss::ShimExited)),
            FromAgent::ShimHung => Some(self.node_lost(node, NodeLoss::ShimNotResponding)),
            FromAgent::Idle { unkillable } => {
                let is_clean = unkillable.is_empty();
                let unkillable = unkillable.into_iter().map(|process| (node, process));
                self.history.unkillable.extend(unkillable);
                Some(Event::Idle { node, is_clean })
            }
            FromAgent::ErrorFile { .. }
            | FromAgent::Stack { .. }
            | FromAgent::StdinConsumed { .. }
            | FromAgent::Leftovers { .. }
            | FromAgent::Suspended(_)
            | FromAgent::Ungrouped { .. }
            | FromAgent::Paused
            | FromAgent::Clock { .. } => {
                self.on_report(node, message);
                None
            }
            FromAgent::Note { rank, note } => self.on_note(rank, note),
            FromAgent::Heartbeat
            // Only `doctor` requests these.
            | FromAgent::Examined(_)
            | FromAgent::Probed(_)
            | FromAgent::Output { .. }
            | FromAgent::OutputEnd { .. } => None,
        }
    }

    /// Handles a note of a worker; those about its progress were handled by its link.
    fn on_note(&mut self, rank: Rank, note: Note) -> Option<Event> {
        match note {
            Note::PeerLost { rank: peer } => {
                self.history.worker(rank).lost_peer = true;
                return Some(Event::PeerLost { rank, peer });
            }
            Note::GaveUp { reason } => {
                self.history.worker(rank).gave_up = Some((reason, clock::now()));
            }
            Note::Failed { exception } => {
                self.history.worker(rank).exception = Some((exception, clock::now()));
            }
            Note::Ready | Note::Step { .. } | Note::Phase { .. } => {}
        }
        None
    }

    /// Messages that are no event of the job: facts for the screens, answers, flow of standard input.
    fn on_report(&mut self, node: NodeRank, message: FromAgent) {
        match message {
            FromAgent::ErrorFile { rank, at_us, bytes } => {
                let at = self.nodes.to_instant(node, at_us);
                self.history.worker(rank).error_file = Some(ErrorFileCopy { bytes, at });
            }
            FromAgent::Stack { rank, text } => {
                self.history.worker(rank).stopped_in = stack_place(&text);
            }
            FromAgent::StdinConsumed { rank, bytes } => {
                self.user.stdin.on_consumed(rank, bytes);
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
                self.user.pause.on_stopped(PauseScope::Node(node));
            }
            FromAgent::Clock { sent_us: asked_us, clock_us } => {
                self.nodes.on_clock(node, asked_us, clock_us);
            }
            FromAgent::Hello(_)
            | FromAgent::Ready(_)
            | FromAgent::Refused(_)
            | FromAgent::Started { .. }
            | FromAgent::StartFailed(_)
            | FromAgent::Exited { .. }
            | FromAgent::ShimExited
            | FromAgent::ShimHung
            | FromAgent::Idle { .. }
            | FromAgent::Note { .. }
            | FromAgent::Heartbeat
            | FromAgent::Examined(_)
            | FromAgent::Probed(_)
            | FromAgent::Output { .. }
            | FromAgent::OutputEnd { .. } => unreachable!("the caller has handled it"),
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
        self.nodes.on_hello(node, hello.clock_us);
        if self.options.meets_at(MeetingPoint::Launcher) {
            self.startup.forget(node);
        }
        if elastic::asks_at_hello(self.options.elastic, &self.job, &self.nodes.table, node) {
            self.send_prepare(node);
        }
        None
    }

    fn on_worker_exited(&mut self, end: WorkerEnd, kernel: KernelReport) -> Event {
        let WorkerEnd { rank, exit, at, .. } = end;
        let stopped = !end.signals_sent.is_empty();
        self.user.stdin.remove_reader(rank);
        self.history.worker(rank).outcome =
            Some(WorkerOutcome { exit, at, stopped, kernel, is_early_exit_reported: false });
        if !exit.is_success() && !self.job.is_stopping() {
            self.nodes.send_to_all(&ToAgent::PeerGone(rank));
        }
        Event::Exited(end)
    }
}

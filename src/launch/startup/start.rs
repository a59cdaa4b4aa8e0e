//! Start of an epoch: from links to running workers.

use std::time::Instant;

use crate::base::{NodeRank, Rank, Status, clock};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::node::handle::{Connector, StartStage};
use crate::launch::options::Framing;
use crate::launch::run_record;
use crate::launch::screen::messages;
use crate::launch::startup::requests;
use crate::os::cpu::text_pages;
use crate::report::text::show_duration;
use crate::wire::{Problem, ToAgent};

impl Dispatcher<'_> {
    /// Asks a node whether it can start.
    pub(in crate::launch) fn send_prepare(&mut self, place: NodeRank) {
        let (plan, epoch) = (&self.plan.nodes[place.index()], self.job.epoch());
        let prepare = requests::prepare_request(self.plan, self.options, plan, epoch);
        let node = &mut self.nodes[place.index()];
        node.stage = StartStage::Preparing(clock::now());
        node.send(&ToAgent::Prepare(Box::new(prepare)));
    }

    pub(in crate::launch) fn start_workers(&mut self) {
        self.begin_epoch();
        self.health.set_epoch(self.job.epoch().0);
        self.update_metrics();
        if let Connector::Dial(gate, ..) = self.connect_context.connector {
            gate.announce_epoch(self.job.epoch(), self.job.uncharged());
        }
        if self.first_started_at.is_none() {
            self.reporter.print_message(self.options.output.announcement.as_str());
            self.begin_record();
        }
        let port = messages::master_port_note(
            self.plan,
            self.prepared_nodes.first().and_then(Option::as_ref),
        );
        if let (true, Some(line)) = (self.options.output.shows_progress, port) {
            self.reporter.print_message(line);
        }
        let starts = requests::start_requests(
            self.plan,
            self.options,
            &self.prepared_nodes,
            self.job.epoch(),
        );
        let roster = requests::roster(self.plan, self.job.epoch());
        for (node, start) in self.nodes.iter().zip(starts) {
            if let Some(start) = start {
                node.send_encoded(&roster);
                node.send(&ToAgent::Start(start));
            }
        }
        let ranks = (0..).map(Rank).zip(&self.history.workers);
        let readers = ranks.filter(|(_, worker)| self.options.stdin.includes(worker.rank));
        self.stdin.start(readers.map(|(rank, _)| rank));
        // While the nodes start them: code for reading the command line, files and plans is no
        // longer needed.
        text_pages::unmap_text_pages();
    }

    /// Begins the files of the job: from now on they are kept.
    fn begin_record(&mut self) {
        self.first_started_at = Some(clock::now());
        if let Some(log_dir) = &self.options.output.log_dir {
            log_dir.begin();
        }
        if let Some(run_dir) = &self.options.output.run_dir {
            run_dir.begin(
                run_record::running_record(self.plan, self.options, self.started.1).to_json(),
            );
        }
        let has_start = self.options.output.framing != Framing::None;
        if let (true, Some(line)) = (has_start, messages::logs(self.options)) {
            self.reporter.print_message(line);
        }
    }

    /// Reports the nodes that delay the start, at intervals that double.
    pub(in crate::launch) fn report_waiting(&mut self, now: Instant) {
        if now < self.waiting_report_at || self.job.is_stopping() {
            return;
        }
        let waited = now - self.connect_context.prepare_started_at;
        self.waiting_report_at = now + crate::launch::startup::pending::pause_after(waited);
        for line in self.pending_nodes().show_waiting(waited) {
            self.reporter.print_message(line);
        }
    }

    /// Gives up nodes when their checks exceed the time limit.
    pub(in crate::launch) fn refuse_late_nodes(&mut self, now: Instant) {
        let limit = self.options.limits.preflight;
        let is_late = |place: &NodeRank| match self.nodes[place.index()].stage {
            StartStage::Preparing(at) => limit < now.saturating_duration_since(at),
            StartStage::Connecting | StartStage::LoggedIn => false,
        };
        let places = self.unanswered_nodes().map(|(place, _)| place);
        let late: Vec<NodeRank> = places.filter(is_late).collect();
        for place in late {
            self.problems.push((place, self.preflight_timeout_problem(place)));
            self.nodes[place.index()].close();
            if let Some(refusal) = self.refusal_event(place) {
                self.step(refusal);
            }
        }
    }

    /// The problem of a node with checks that did not finish. All such nodes get the problem of the
    /// first one: its command is an example for all.
    fn preflight_timeout_problem(&self, node: NodeRank) -> Problem {
        let message = format!(
            "preflight checks did not finish within {} (--agent_timeout)",
            show_duration(self.options.limits.preflight)
        );
        if let Some((_, first)) = self.problems.iter().find(|(_, other)| other.message == message) {
            return first.clone();
        }
        let help = crate::launch::startup::pending::help_for_preparing(
            self.options,
            &self.plan.nodes[node.index()].host,
        );
        Problem::new(Status::Unreachable, message).help(help)
    }

    /// Prints the notes of nodes, each text once, because similar nodes have the same notes.
    pub(in crate::launch) fn print_notes(&mut self, node: NodeRank, notes: &[String]) {
        for note in notes {
            if self.printed_notes.insert(note.clone()) {
                let host = &self.plan.nodes[node.index()].host;
                self.reporter.print_message(format!("note: {host}: {note}\n"));
            }
        }
    }
}

//! From links to running workers, and from a failed epoch to the next one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::base::{Epoch, NodeRank, Rank, Status, clock};
use crate::job::Event;
use crate::launch::dispatcher::Dispatcher;
use crate::launch::dispatcher::start::labels;
use crate::launch::history::History;
use crate::launch::node::epoch_steps::{AnswerStep, LinkStep, NodeSituation, NodeStep};
use crate::launch::node::handle::Connector;
use crate::launch::options::Framing;
use crate::launch::screen::messages;
use crate::launch::startup::pending::PendingNodes;
use crate::launch::startup::requests;
use crate::report::text::{show_io_error, show_step};
use crate::wire::Problem;

impl Dispatcher<'_> {
    /// The nodes that delay the start, and the progress of each.
    pub(super) fn pending_nodes(&self) -> PendingNodes {
        PendingNodes::of(&self.plan, self.options, &self.nodes.table)
    }

    /// What decides about the nodes.
    pub(super) fn node_situation(&self) -> NodeSituation<'_> {
        NodeSituation { job: &self.job, table: &self.nodes.table, elastic: self.options.elastic }
    }

    /// Asks a node whether it can start.
    pub(super) fn send_prepare(&mut self, place: NodeRank) {
        let (node, epoch) = (&self.plan.nodes[place.index()], self.job.epoch());
        self.nodes.ask(place, requests::prepare_request(&self.plan, self.options, node, epoch));
    }

    /// Starts the workers of an epoch. The history of the previous ones is kept until now: where a
    /// restart is refused, they are the reason for the end of the job.
    pub(super) fn start_workers(&mut self) {
        let epoch = self.job.epoch();
        self.plan_epoch();
        self.history = History::new(&self.epoch_plan);
        self.nodes.traffic().progress.begin_epoch();
        self.recorder.begin_epoch(epoch, clock::wall());
        self.health.set_epoch(epoch.0);
        self.update_metrics();
        if let Connector::Dial(gate, ..) = self.nodes.connector() {
            gate.announce_epoch(epoch, self.job.free_restarts());
        }
        if self.recorder.first_started_at().is_none() {
            self.begin_run();
        }
        let node0 = self.nodes.table.prepared(requests::node_of_rank_0(&self.epoch_plan));
        let port = messages::master_port_note(&self.epoch_plan, node0);
        if let (true, Some(line)) = (self.options.output.shows_progress, port) {
            self.reporter.print_message(line);
        }
        let starts =
            requests::start_requests(&self.epoch_plan, self.options, &self.nodes.table, epoch);
        let roster = requests::roster(&self.plan, &self.epoch_plan, epoch);
        for (node, start) in self.nodes.table.all().zip(starts) {
            if let Some(start) = start {
                self.nodes.start(node, &roster, start);
            }
        }
        let ranks = (0..).map(Rank).zip(&self.history.workers);
        let readers = ranks.filter(|(_, worker)| self.options.stdin.includes(worker.rank));
        self.user.stdin.start(readers.map(|(rank, _)| rank));
    }

    /// Counts ranks through the nodes of this epoch, if they may be other ones than before, and names their hosts.
    fn plan_epoch(&mut self) {
        let has_other_sizes = self.take_own_workers();
        if self.options.elastic.is_none() && self.machines.is_none() {
            return;
        }
        let mut plan = match self.options.elastic {
            Some(_) => self.plan.for_members(|node| self.job.is_member(node)),
            None => self.plan.clone().into_owned(),
        };
        if let Some(machines) = &self.machines {
            machines.name_hosts(&mut plan);
        }
        self.report_left_out();
        self.epoch_plan = Cow::Owned(plan);
        self.reporter.set_workers(labels(&self.epoch_plan));
        self.nodes.assign_ranks(&self.epoch_plan);
        let output = &self.options.output;
        let Some(elastic) = self.options.elastic else {
            if has_other_sizes && output.shows_progress {
                self.reporter.print_message(messages::workers_of_nodes(&self.epoch_plan));
            }
            return;
        };
        if output.shows_progress || output.framing != Framing::None {
            let spares = self.job.spares();
            self.reporter.print_message(messages::members(&self.epoch_plan, elastic, spares));
            let excluded = self.job.excluded();
            let hosts: Vec<_> = excluded.iter().map(|node| self.host(*node).as_str()).collect();
            if !hosts.is_empty() {
                self.reporter.print_message(messages::excluded(&hosts));
            }
        }
    }

    /// Gives the nodes of the plan the numbers of workers that their own lines start. Returns whether some are
    /// others than before.
    fn take_own_workers(&mut self) -> bool {
        let nodes = self.nodes.table.all().zip(&self.plan.nodes);
        let own = nodes.filter_map(|(place, node)| {
            let workers = self.job.workers_of(place);
            (workers != node.workers.len()).then_some((node.node_rank, workers))
        });
        let other: BTreeMap<_, _> = own.collect();
        if !other.is_empty() {
            self.plan = Cow::Owned(self.plan.with_workers(&other));
        }
        !other.is_empty()
    }

    /// Announces the job; from now on its files are kept.
    fn begin_run(&mut self) {
        self.reporter.print_message(self.options.output.announcement.as_str());
        self.recorder.begin_run(&self.plan, self.options, clock::now());
        let has_start = self.options.output.framing != Framing::None;
        if let (true, Some(line)) = (has_start, messages::logs(self.options)) {
            self.reporter.print_message(line);
        }
    }

    /// Copies the error files of the workers of this epoch to the files of the run.
    pub(super) fn keep_error_files(&mut self) {
        let (files, epoch) = (self.history.take_error_files(), self.job.epoch());
        if files.is_empty() {
            return;
        }
        if let Some(redirects) = &self.options.output.style.redirects {
            let files = files.iter().map(|file| (file.place, file.bytes.clone())).collect();
            redirects.directory.keep_error_files(epoch, files);
        }
        if let Some(run_dir) = &self.options.output.run_dir {
            let files = files.into_iter().map(|file| (file.rank, file.bytes)).collect();
            run_dir.keep_error_files(epoch, files);
        }
    }

    /// Asks all nodes again whether they can start; lost ones are connected to first.
    pub(super) fn prepare_epoch(&mut self, disconnected: Vec<NodeRank>) {
        let Some(disconnected) = self.nodes.table.defer_epoch(disconnected) else { return };
        let epoch = self.job.epoch();
        self.begin_preparation(epoch);
        let had_workers =
            |place: NodeRank| !self.epoch_plan.nodes[place.index()].workers.is_empty();
        for step in self.node_situation().begin_epoch(&disconnected, had_workers) {
            self.take_step(step, epoch);
        }
    }

    /// Asks all nodes again because some have been in earlier epochs, under a node 0 that this one
    /// replaces.
    pub(super) fn skip_to_epoch(&mut self, epoch: Epoch) {
        let attempt = messages::attempt_explained(epoch);
        let which = format!("at {attempt}, after the attempts under the previous node 0");
        self.reporter.print_message(show_step("Resuming", &which));
        self.begin_preparation(epoch);
        for step in self.node_situation().skip_epochs() {
            self.take_step(step, epoch);
        }
    }

    fn take_step(&mut self, NodeStep { node, link, answer }: NodeStep, epoch: Epoch) {
        match link {
            LinkStep::Reconnect => self.reconnect(node, epoch),
            LinkStep::Begin => self.nodes.begin_epoch(node, epoch),
            LinkStep::Skip { greets_again } => {
                self.nodes.skip_to_epoch(node, epoch);
                if greets_again {
                    self.nodes.greet(node);
                }
            }
        }
        match answer {
            AnswerStep::Ask => self.send_prepare(node),
            AnswerStep::Refuse => self.nodes.table.on_refused(node),
            AnswerStep::Wait => {}
        }
    }

    /// Waits for replacements of nodes that were lost before they started anything, as long as for
    /// nodes that have not joined yet.
    pub(super) fn await_replacements(&mut self, lost: &[NodeRank]) {
        let hosts: Vec<_> = lost.iter().map(|place| self.host(*place).as_str()).collect();
        let line = match self.options.elastic {
            Some(_) => messages::lost_without_part(&hosts),
            None => messages::lost_before_start(&hosts, self.nodes.time_to_join(clock::now())),
        };
        self.reporter.print_message(line);
        for place in self.nodes.await_replacements(lost) {
            self.reconnect(place, self.job.epoch());
        }
    }

    fn begin_preparation(&mut self, epoch: Epoch) {
        let now = clock::now();
        self.nodes.table.begin_preparation(now);
        self.startup.begin_again(now);
        self.reporter.begin_epoch(epoch);
    }

    pub(super) fn reconnect(&mut self, place: NodeRank, epoch: Epoch) {
        if let Err(error) = self.nodes.reconnect(place, epoch) {
            let message = format!("cannot start an agent: {}", show_io_error(&error));
            self.startup.problems.push((place, Problem::new(Status::OsLimit, message)));
            self.nodes.table.on_refused(place);
            self.step(Event::Refused(place));
        } else if self.options.elastic.is_some() && self.nodes.is_local(place) {
            self.step(Event::Arrived(place));
        }
    }
}

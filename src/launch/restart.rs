//! Transition from a failed epoch to the next one.

use std::time::Duration;

use crate::base::{Epoch, NodeRank, Status, clock};
use crate::job::{Event, FailureCause, NodeLoss, Verdict};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::history::History;
use crate::launch::node::handle::NodeHandle;
use crate::launch::run_record;
use crate::launch::screen::job_report::JobReport;
use crate::launch::screen::messages;
use crate::launch::startup::pending::NO_MESSAGE_WARNING;
use crate::launch::startup::requests;
use crate::report::record::EpochRecord;
use crate::report::text::{show_io_error, show_step};
use crate::wire::{Problem, ToAgent};

impl Dispatcher<'_> {
    /// Begins an epoch, immediately before workers are started. The history of the previous workers
    /// is kept until now: where a restart is refused, they are the reason for the end of the job.
    pub(in crate::launch) fn begin_epoch(&mut self) {
        self.history = History::new(self.plan);
        let start = clock::wall().as_secs_f64();
        let epoch = self.job.epoch().0;
        self.epochs.push(EpochRecord { epoch, start, end: None, cause: None });
    }

    /// Reports why an epoch ended, and that another one follows.
    pub(in crate::launch) fn report_restart(
        &mut self,
        verdict: &Verdict,
        next: Epoch,
        pause: Duration,
    ) {
        let report = JobReport {
            plan: self.plan,
            options: self.options,
            verdict,
            history: &self.history,
            problems: &self.problems,
            faults: &self.faults,
            pending_at_timeout: None,
            epochs: &[],
            started: self.started.1,
        };
        let cause = report.cause();
        let headline = verdict.cause.as_ref().map(|cause| report.headline(cause));
        let headline = headline.unwrap_or_default();
        let is_eviction = |cause: &FailureCause| {
            matches!(cause, FailureCause::Node { loss: NodeLoss::Evicted, .. })
        };
        let line = if verdict.cause.as_ref().is_some_and(is_eviction) {
            let is_first = self.job.uncharged() == 1;
            let attempt =
                if is_first { messages::attempt_explained(next) } else { messages::attempt(next) };
            messages::replacing(&headline, &attempt, pause)
        } else {
            let charged = next.0 - self.job.uncharged();
            messages::restarting(&headline, charged, self.options.failure.restarts_max, pause)
        };
        self.reporter.print_message(line);
        self.keep_error_files();
        if let Some(epoch) = self.epochs.last_mut() {
            (epoch.end, epoch.cause) = (Some(clock::wall().as_secs_f64()), cause);
        }
        if let Some(run_dir) = &self.options.output.run_dir {
            let mut record = run_record::running_record(self.plan, self.options, self.started.1);
            record.epochs.clone_from(&self.epochs);
            run_dir.update(record.to_json());
        }
    }

    /// Asks all nodes again whether they can start; lost ones are connected to first.
    pub(in crate::launch) fn prepare_epoch(&mut self, disconnected: Vec<NodeRank>) {
        if self.reaper.next_check_at().is_some() {
            self.deferred_reconnects = Some(disconnected);
            return;
        }
        let epoch = self.job.epoch();
        self.reset_preparation(epoch);
        for place in (0..self.nodes.len() as u32).map(NodeRank) {
            if disconnected.contains(&place) {
                self.reconnect(place, epoch);
            } else {
                self.nodes[place.index()].begin_epoch(epoch);
                self.send_prepare(place);
            }
        }
    }

    /// Waits for replacements of nodes that were lost before they started anything, as long as for
    /// nodes that have not joined yet.
    pub(in crate::launch) fn await_replacements(&mut self, lost: &[NodeRank]) {
        let hosts = lost.iter().map(|place| self.plan.nodes[place.index()].host.as_str());
        let hosts: Vec<_> = hosts.collect();
        let waited = clock::now() - self.connect_context.prepare_started_at;
        self.reporter.print_message(messages::lost_before_start(
            &hosts,
            self.connect_context.join_limit().saturating_sub(waited),
        ));
        for place in lost {
            self.prepared_nodes[place.index()] = None;
        }
        match &mut self.deferred_reconnects {
            // All nodes will be asked once the processes that were left here are reaped.
            Some(disconnected) => disconnected.extend(lost),
            None => lost.iter().for_each(|place| self.reconnect(*place, self.job.epoch())),
        }
    }

    /// Asks all nodes again because some have been in earlier epochs, under a node 0 that this one
    /// replaces.
    pub(in crate::launch) fn skip_to_epoch(&mut self, epoch: Epoch) {
        let attempt = messages::attempt_explained(epoch);
        let which = format!("at {attempt}, after the attempts under the previous node 0");
        self.reporter.print_message(show_step("Resuming", &which));
        self.reset_preparation(epoch);
        for place in (0..self.nodes.len() as u32).map(NodeRank) {
            self.nodes[place.index()].skip_to_epoch(epoch);
            self.send_prepare(place);
        }
    }

    fn reset_preparation(&mut self, epoch: Epoch) {
        self.prepared_nodes.fill(None);
        self.connect_context.prepare_started_at = clock::now();
        self.waiting_report_at = self.connect_context.prepare_started_at + NO_MESSAGE_WARNING;
        self.reporter.begin_epoch(epoch);
    }

    /// Makes a new link in place of one that has ended, or that leads to an agent that cannot start
    /// anything.
    fn reconnect(&mut self, place: NodeRank, epoch: Epoch) {
        let old = &self.nodes[place.index()];
        let link = old.link + 1;
        old.send(&ToAgent::Bye);
        if old.agent_pid().is_none() && old.is_lost {
            old.close();
        }
        let node = requests::nodes_to_connect(self.plan)
            .nth(place.index())
            .expect("every node was connected to before");
        match NodeHandle::connect(&self.connect_context, node, (link, epoch), &mut self.tasks) {
            Ok(handle) => self.nodes[place.index()] = handle,
            Err(error) => {
                let message = format!("cannot start an agent: {}", show_io_error(&error));
                self.problems.push((place, Problem::new(Status::OsLimit, message)));
                self.step(Event::Refused(place));
            }
        }
    }
}

//! Lines about a job that are printed while it runs, and what is known of it for a report.

use std::time::Duration;

use crate::base::{Epoch, HostName, NodeRank, Rank, clock};
use crate::job::{FailureCause, NodeLoss, StopReason, Verdict};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::final_record::worker_record;
use crate::launch::run_record::EpochEnd;
use crate::launch::screen::job_report::JobReport;
use crate::launch::screen::messages;
use crate::report::text::ReportScreen;
use crate::wire::Leftover;

impl Dispatcher<'_> {
    /// What is known about the job, for a report.
    pub(super) fn report<'b>(&'b self, verdict: &'b Verdict) -> JobReport<'b> {
        JobReport {
            plan: &self.epoch_plan,
            options: self.options,
            verdict,
            history: &self.history,
            startup: &self.startup,
            recorder: &self.recorder,
            progress: &self.nodes.traffic().progress,
            screen: ReportScreen::Node0,
        }
    }

    /// The host of a node.
    pub(super) fn host(&self, node: NodeRank) -> &HostName {
        &self.epoch_plan.nodes[node.index()].host
    }

    /// Prints the notes of nodes, each text once, because similar nodes have the same notes.
    pub(super) fn print_notes(&mut self, node: NodeRank, notes: &[String]) {
        for note in notes {
            if self.startup.is_new_note(note) {
                self.reporter.print_message(format!("note: {}: {note}\n", self.host(node)));
            }
        }
    }

    /// Warns of workers that import torch and have not connected to each other.
    pub(super) fn warn_ungrouped(&mut self, master: &str, seconds: u32) {
        let warning = messages::ungrouped(self.history.workers.len(), master, seconds);
        if self.startup.is_new_note(&warning) {
            self.reporter.print_message(warning);
        }
    }

    /// Reports processes that a worker left behind, except while a job is being stopped: then
    /// children that exit a little later than their parents are expected.
    pub(super) fn report_leftovers(&self, rank: Rank, processes: &[Leftover]) {
        if self.job.is_stopping() || processes.is_empty() {
            return;
        }
        self.reporter.print_message(messages::leftovers(rank, processes));
    }

    /// Records the processes of an epoch whose workers have all started, with what they have reported so far.
    pub(super) fn record_workers(&self) {
        let progress = &self.nodes.traffic().progress;
        let places = (0..).map(Rank).zip(&self.history.workers);
        let workers = places.map(|(place, worker)| worker_record(worker, progress.of(place)));
        self.recorder.record_workers(&self.plan, self.options, workers.collect());
    }

    /// Records the steps and phases that workers have reported since the last record.
    pub(super) fn record_progress(&mut self) {
        let now = clock::now();
        let has_workers = self.history.have_all_started() && 0 < self.job.running();
        let is_due = has_workers && self.recorder.is_progress_due(now);
        if is_due && self.nodes.traffic().progress.take_change() {
            self.record_workers();
            self.recorder.recorded_progress(now, clock::now());
        }
    }

    /// Reports why an epoch ended, and that another one follows.
    pub(super) fn report_restart(&mut self, verdict: &Verdict, next: Epoch, pause: Duration) {
        let report = self.report(verdict);
        let cause = report.cause();
        let headline = verdict.cause.as_ref().map(|cause| report.headline(cause));
        let headline = headline.unwrap_or_default();
        let is_eviction = |cause: &FailureCause| {
            matches!(cause, FailureCause::Node { loss: NodeLoss::Evicted, .. })
        };
        let is_evicted = verdict.cause.as_ref().is_some_and(is_eviction);
        let line = if verdict.cause.is_none() {
            messages::restarting_for_newcomer(&messages::attempt(next))
        } else if is_evicted {
            let is_first = self.job.free_restarts() == 1;
            let attempt =
                if is_first { messages::attempt_explained(next) } else { messages::attempt(next) };
            match self.options.elastic {
                Some(_) => messages::restarting_without(&headline, &attempt),
                None => messages::replacing(&headline, &attempt, pause),
            }
        } else {
            let counted = next.0 - self.job.free_restarts();
            messages::restarting(&headline, counted, self.options.failure.restarts_max, pause)
        };
        self.reporter.print_message(line);
        self.keep_error_files();
        let is_membership_change = verdict.cause.is_none() || is_evicted;
        let end = EpochEnd { at: clock::wall(), cause, is_membership_change };
        self.recorder.end_epoch(&self.plan, self.options, end);
    }

    /// Reports that the workers are being stopped, and why; nothing where a worker has printed its
    /// findings.
    pub(super) fn report_stopping(&mut self, reason: StopReason) {
        self.history.stop_requested_at.get_or_insert_with(clock::now);
        self.reporter.end_status();
        if reason == StopReason::Failure
            && self.history.has_reported_findings(self.options.failure.cause_rule)
        {
            return;
        }
        let noun = if self.options.failure.lets_others_run { "command" } else { "worker" };
        let line =
            messages::stopping(reason, (self.job.running(), noun), self.options.limits.grace);
        if let Some(line) = line {
            self.reporter.print_message(line);
        }
    }

    /// Reports that the workers that still run are killed.
    pub(super) fn report_killing(&self) {
        let running = self.history.workers.iter().filter(|worker| worker.is_running());
        let running: Vec<u32> = running.map(|worker| worker.rank.0).collect();
        self.reporter.print_message(messages::killing(&running));
    }
}

//! The final screen of a job that reached `--timeout`.

use crate::base::{Rank, clock};
use crate::launch::codes;
use crate::launch::history::WorkerHistory;
use crate::launch::screen::job_report::JobReport;
use crate::launch::screen::messages;
use crate::launch::startup::pending::PendingNodes;
use crate::pool::nodeset::fold_set;
use crate::report::OutputRouter;
use crate::report::text::{Failure, show_count, show_duration, show_last_output};
use crate::wire::Stream;

/// Maximum number of workers that are listed.
const WORKERS_MAX: usize = 8;

impl JobReport<'_> {
    /// Report of a timeout before all nodes were ready: no worker was started or stopped.
    pub(in crate::launch) fn not_ready(&self, awaited: &PendingNodes) -> Failure {
        let limit = show_duration(self.options.limits.job.unwrap_or_default());
        Failure {
            code: codes::TIMEOUT,
            title: format!(
                "the job was not ready to start within {limit} (--timeout); {}",
                self.show_consequence()
            ),
            facts: awaited.show().into_iter().chain(self.restarts_note()).collect(),
            help: awaited.help(self.options),
            ..Failure::default()
        }
    }

    /// Report of a timeout: the workers that still ran, and since when they wrote nothing; of a
    /// single one its last lines.
    pub(in crate::launch) fn timed_out(&self, pages: &OutputRouter) -> Failure {
        let limit = show_duration(self.options.limits.job.unwrap_or_default());
        let is_late = |(_, worker): &(Rank, &WorkerHistory)| {
            worker.outcome.as_ref().is_none_or(|ended| ended.stopped)
        };
        let places = (0..).map(Rank).zip(&self.history.workers);
        let late: Vec<(Rank, &WorkerHistory)> = places.filter(is_late).collect();
        if self.options.failure.lets_others_run {
            return command_timed_out(&limit, &late);
        }
        let only = if let [(place, _)] = late[..] { Some(place) } else { None };
        let last_lines = only.and_then(|place| pages.last_lines(place));
        let stream = last_lines.as_ref().map_or(Stream::Stderr, |(stream, _)| *stream);
        let log = match only {
            Some(place) => pages.log_path(place, stream),
            None => self.options.output.style.log_dir.clone(),
        };
        let mut help = self.early_exits_help(self.history.stop_requested_at);
        if late.iter().any(|(_, worker)| worker.stopped_in.is_none()) {
            help.push(self.see_where_it_waits("a rank", "its host"));
        }
        Failure {
            code: codes::TIMEOUT,
            title: format!(
                "the job did not end within {limit} (--timeout); {}",
                self.show_other_workers()
            ),
            facts: self.show_late(&late, pages),
            last_lines,
            lines_of: None,
            log,
            help,
        }
    }

    /// Report of a timeout in the pause before a restart, with the failure that the restart followed.
    pub(in crate::launch) fn timed_out_before_restart(&self, failure: Failure) -> Failure {
        let limit = show_duration(self.options.limits.job.unwrap_or_default());
        let mut facts = vec![format!("the last failure: {}", failure.title)];
        facts.extend(failure.facts);
        Failure {
            code: codes::TIMEOUT,
            title: format!(
                "the job did not end within {limit} (--timeout), which passed while remuda waited to \
                 restart it"
            ),
            facts,
            ..failure
        }
    }

    /// How to see where a rank waits if the job hangs again.
    pub(in crate::launch) fn see_where_it_waits(&self, rank: &str, host: &str) -> String {
        let command = messages::stack_command(self.options);
        format!(
            "if the job hangs again, press Ctrl-\\ to print the pids, then type on {host}: `{command}`; it \
             shows where {rank} waits"
        )
    }

    fn show_late(&self, late: &[(Rank, &WorkerHistory)], pages: &OutputRouter) -> Vec<String> {
        let until = self.history.stop_requested_at.unwrap_or_else(clock::now);
        let show = |(place, worker): &(Rank, &WorkerHistory)| {
            let last = pages.last_output(*place, until);
            let last = show_last_output(last.map(|at| until.saturating_duration_since(at)));
            let progress = self.progress.of(*place).show();
            let place = self.stopped_in(*place);
            let known: String = place.into_iter().chain(progress).map(|it| it + ", ").collect();
            format!("still running: rank {} ({}), {known}{last}", worker.rank, worker.host)
        };
        let mut lines: Vec<String> = late.iter().take(WORKERS_MAX).map(show).collect();
        if let more @ 1.. = late.len().saturating_sub(WORKERS_MAX) {
            lines.push(format!("still running: {}", show_count(more, "other rank")));
        }
        lines
    }
}

/// Report of `remuda ssh`, which runs a command on each host.
fn command_timed_out(limit: &str, late: &[(Rank, &WorkerHistory)]) -> Failure {
    let hosts = fold_set(late.iter().map(|(_, worker)| worker.host.as_str()));
    let place = if late.is_empty() { String::new() } else { format!(" on {hosts}") };
    let title = format!("the command did not end within {limit} (--timeout){place}");
    Failure { code: codes::TIMEOUT, title, ..Failure::default() }
}

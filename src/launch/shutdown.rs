//! End of a launch: closes the links, waits for output and reports the result.

use std::time::Duration;

use crate::base::{Status, clock};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::node::handle::NodeHandle;
use crate::launch::options::Framing;
use crate::launch::outcome::LaunchEnd;
use crate::launch::screen::{job_report, messages};
use crate::os::tasks::sleep_until;
use crate::wire::ToAgent;

/// Time limit for the exit of agents that have sent their final message; later they exit with their
/// links.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

impl Dispatcher<'_> {
    /// Copies the error files of the workers of this epoch into the run directory.
    pub(in crate::launch) fn keep_error_files(&mut self) {
        let files = self.history.take_error_files();
        if let Some(run_dir) = self.options.output.run_dir.as_ref().filter(|_| !files.is_empty()) {
            run_dir.keep_error_files(self.job.epoch(), files);
        }
    }

    /// Closes the links, waits for the output, reports the result and writes the record.
    pub(in crate::launch) async fn finish(mut self) -> LaunchEnd {
        let verdict = self.job.verdict().expect("the loop ends with a verdict").clone();
        self.nodes.iter().for_each(|node| node.send(&ToAgent::Bye));
        let limit = if verdict.unconfirmed.is_empty() { CLOSE_LIMIT } else { Duration::ZERO };
        self.nodes.iter().filter(|node| node.last_message_at.is_none()).for_each(NodeHandle::close);
        drop(std::mem::take(&mut self.nodes));
        // Later messages of nodes are ignored, and must not block the nodes.
        self.events.close();
        let _ = tokio::time::timeout(limit, self.tasks.join_all()).await;
        while let (Some(at), true) = (self.reaper.next_check_at(), verdict.unconfirmed.is_empty()) {
            sleep_until(Some(at)).await;
            self.check_orphans();
        }
        self.keep_error_files();
        let mut pages = self.reporter.finish();
        pages.finish();
        self.problems.sort_by_key(|(node, _)| *node);
        self.faults.sort_by_key(|(node, fault)| (fault.kind, *node));
        let report = job_report::JobReport {
            plan: self.plan,
            options: self.options,
            verdict: &verdict,
            history: &self.history,
            problems: &self.problems,
            faults: &self.faults,
            pending_at_timeout: self.pending_at_timeout.as_ref(),
            epochs: &self.epochs,
            started: self.started.1,
        };
        let status = match (report.status(), pages.output_failure()) {
            (Status::Success, Some(_)) => Status::Io,
            (status, _) => status,
        };
        let text = report.show(&mut pages);
        if let (Some(log_dir), false) =
            (&self.options.output.log_dir, self.first_started_at.is_some())
        {
            log_dir.discard();
        }
        let recorded = match &self.options.output.run_dir {
            Some(run_dir) if self.first_started_at.is_none() => {
                run_dir.discard();
                String::new()
            }
            _ => report.write_record(status),
        };
        pages.print_message(&text);
        pages.print_message(&recorded);
        let has_end = self.options.output.framing == Framing::StartAndEnd;
        if let (Status::Success, true, Some(begun)) = (status, has_end, self.first_started_at) {
            let restarts = self.epochs.len().saturating_sub(1);
            pages.print_message(&messages::finished(
                self.plan.local_worker_count(),
                clock::now() - begun,
                restarts,
            ));
        }
        pages.finish();
        let may_be_taken_over = self.job.may_be_taken_over();
        LaunchEnd { status, text, cause: report.node_of_cause(), may_be_taken_over }
    }
}

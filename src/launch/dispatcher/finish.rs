//! End of a launch: closes the links, waits for output and reports the result.

use std::time::Duration;

use crate::base::{Status, clock};
use crate::job::FailureCause;
use crate::launch::dispatcher::Dispatcher;
use crate::launch::options::Framing;
use crate::launch::outcome::LaunchEnd;
use crate::launch::screen::job_report::JobReport;
use crate::launch::screen::messages;
use crate::os::tasks::sleep_until;
use crate::report::text::ReportScreen;
use crate::report::write_outer_error_file;

/// Time limit for the exit of agents that have sent their final message; later they exit with their
/// links.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

impl Dispatcher<'_> {
    /// Closes the links, waits for the output, reports the result and writes the record.
    pub(in crate::launch) async fn finish(mut self) -> LaunchEnd {
        let verdict = self.job.verdict().expect("the loop ends with a verdict").clone();
        self.close_links(verdict.unconfirmed.is_empty()).await;
        self.pass_error_file_on(verdict.cause.as_ref());
        self.keep_error_files();
        let mut pages = self.reporter.finish();
        pages.finish();
        self.startup.sort();
        let report = JobReport {
            plan: &self.epoch_plan,
            options: self.options,
            verdict: &verdict,
            history: &self.history,
            startup: &self.startup,
            recorder: &self.recorder,
            progress: &self.nodes.traffic().progress,
            screen: ReportScreen::Node0,
        };
        let status = match (report.status(), pages.output_failure()) {
            (Status::Success, Some(_)) => Status::Io,
            (status, _) => status,
        };
        let lost = report.show_gathered(&mut pages);
        let on_other_nodes = JobReport { screen: ReportScreen::OtherNode, ..report };
        let text_elsewhere = lost.clone() + &on_other_nodes.show(&pages);
        let text = lost + &report.show(&pages);
        let has_begun = self.recorder.discard_unused(self.options);
        let recorded = if has_begun { report.write_final_record(status) } else { String::new() };
        pages.print_message(&text);
        pages.print_message(&recorded);
        let has_end = self.options.output.framing == Framing::StartAndEnd;
        let first_started_at = self.recorder.first_started_at();
        if let (Status::Success, true, Some(begun)) = (status, has_end, first_started_at) {
            let restarts = self.recorder.show_restarts();
            pages.print_message(&messages::finished(
                self.epoch_plan.local_worker_count(),
                clock::now() - begun,
                restarts.as_deref(),
            ));
        }
        pages.finish();
        LaunchEnd {
            status,
            text,
            text_elsewhere,
            cause: report.node_of_cause(),
            failure: verdict.cause.clone(),
            may_be_taken_over: self.job.may_be_taken_over(),
            has_late_nodes: !has_begun && self.startup.was_refused(),
        }
    }

    /// Closes the links and waits for the ends of the agents, if all of them have said that their processes are gone.
    async fn close_links(&mut self, is_confirmed: bool) {
        self.nodes.say_goodbye();
        // Later messages of nodes are ignored, and must not block the nodes.
        self.inbox.nodes.close();
        // The link of a lost agent that is suspended ends when the agent is killed.
        while let (Some(at), true) = (self.reaper.next_check_at(), is_confirmed) {
            sleep_until(Some(at)).await;
            self.check_orphans();
        }
        let limit = if is_confirmed { CLOSE_LIMIT } else { Duration::ZERO };
        self.nodes.wait_for_ends(limit).await;
    }

    /// Gives the error file of the worker that is the cause to the launcher that started this one. If it cannot
    /// be written, that launcher has only the exit status.
    fn pass_error_file_on(&self, cause: Option<&FailureCause>) {
        let rank = match cause {
            Some(FailureCause::Worker(end)) => end.rank,
            Some(FailureCause::Exiting { rank, .. }) => *rank,
            _ => return,
        };
        let bytes = self.history.error_file_with_code(rank);
        if let (Some(path), Some(bytes)) = (&self.options.output.error_file, bytes) {
            let _ = write_outer_error_file(path.clone(), bytes);
        }
    }
}

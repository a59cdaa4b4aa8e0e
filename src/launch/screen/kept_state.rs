//! The help of a failed job whose workers keep checkpoints: how a later job continues.

use crate::base::{Status, WorkerExit};
use crate::job::FailureCause;
use crate::launch::options::{KeptState, NewestStep};
use crate::launch::screen::job_report::JobReport;

impl JobReport<'_> {
    /// What to type to continue from the newest checkpoint, if there is one. A job whose workers never ran
    /// has another problem first.
    pub(in crate::launch) fn help_to_resume(&self, cause: &FailureCause) -> Option<String> {
        match cause {
            FailureCause::NotStarted { .. } => None,
            FailureCause::Worker(end) if self.refuses_input(end.exit) => None,
            FailureCause::Worker(_)
            | FailureCause::GaveUp { .. }
            | FailureCause::Exiting { .. }
            | FailureCause::MissingRanks { .. }
            | FailureCause::Node { .. } => {
                self.options.command.kept_state.as_ref().and_then(help_of)
            }
        }
    }

    /// Whether the advice would be to type the same line, and the worker refused what that line names.
    fn refuses_input(&self, exit: WorkerExit) -> bool {
        let kept = self.options.command.kept_state.as_ref();
        kept.is_some_and(|kept| kept.repeats_line) && is_input_error(exit)
    }
}

/// Whether a worker exited because of its input, which the same line would give it again.
fn is_input_error(exit: WorkerExit) -> bool {
    let codes = [Status::BadInput, Status::NoInput, Status::Config].map(Status::code);
    matches!(exit, WorkerExit::Code(code) if codes.contains(&code))
}

fn help_of(kept: &KeptState) -> Option<String> {
    let newest = match (kept.newest)(&kept.dir)? {
        NewestStep::Undamaged(step) => format!("newest undamaged checkpoint: step {step}"),
        NewestStep::NotRead(step) => {
            format!("newest checkpoint: step {step}, of which not every byte was read")
        }
    };
    Some(format!("to continue: {} ({newest})", kept.advice))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn newest_checkpoint_is_named_if_there_is_one() {
        let kept = |newest: fn(&Path) -> Option<NewestStep>| KeptState {
            dir: "kept".into(),
            is_saved_regularly: false,
            repeats_line: false,
            advice: "add `--resume auto`".to_owned(),
            newest,
        };
        let expected = "to continue: add `--resume auto` (newest undamaged checkpoint: step 30)";
        let found = help_of(&kept(|_| Some(NewestStep::Undamaged(30))));
        assert_eq!(found.as_deref(), Some(expected));
        let expected = "to continue: add `--resume auto` (newest checkpoint: step 30, of which not every byte was read)";
        let found = help_of(&kept(|_| Some(NewestStep::NotRead(30))));
        assert_eq!(found.as_deref(), Some(expected));
        assert_eq!(help_of(&kept(|_| None)), None);
    }

    #[test]
    fn same_line_does_not_help_after_an_input_error() {
        for (exit, expect) in [(65, true), (66, true), (78, true), (1, false), (70, false)] {
            assert_eq!(is_input_error(WorkerExit::Code(exit)), expect, "{exit}");
        }
        assert!(!is_input_error(WorkerExit::Lost));
    }
}

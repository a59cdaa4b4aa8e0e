//! The help of a failed job whose workers keep checkpoints: how a later job continues.

use crate::job::FailureCause;
use crate::launch::options::KeptState;
use crate::launch::screen::job_report::JobReport;

impl JobReport<'_> {
    /// What to type to continue from the newest checkpoint, if there is one. A job whose workers never ran
    /// has another problem first.
    pub(in crate::launch) fn help_to_resume(&self, cause: &FailureCause) -> Option<String> {
        match cause {
            FailureCause::NotStarted { .. } => None,
            FailureCause::Worker(_)
            | FailureCause::GaveUp { .. }
            | FailureCause::Exiting { .. }
            | FailureCause::MissingRanks { .. }
            | FailureCause::Node { .. } => {
                self.options.command.kept_state.as_ref().and_then(help_of)
            }
        }
    }
}

fn help_of(kept: &KeptState) -> Option<String> {
    let step = (kept.newest_step)(&kept.dir)?;
    Some(format!("to continue: {} (newest checkpoint: step {step})", kept.advice))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn newest_checkpoint_is_named_if_there_is_one() {
        let kept = |newest_step: fn(&Path) -> Option<u64>| KeptState {
            dir: "kept".into(),
            is_saved_regularly: false,
            advice: "add `--resume auto`".to_owned(),
            newest_step,
        };
        let expected = "to continue: add `--resume auto` (newest checkpoint: step 30)";
        assert_eq!(help_of(&kept(|_| Some(30))).as_deref(), Some(expected));
        assert_eq!(help_of(&kept(|_| None)), None);
    }
}

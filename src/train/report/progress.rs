//! Progress events of a run, and their text form.

use std::fmt;
use std::path::PathBuf;

use crate::runtime::engine::StepOutcome;

/// Event of a run; only rank 0 reports events.
#[derive(Clone, Debug, PartialEq)]
pub enum TrainEvent {
    /// The run has started.
    Started(RunStart),
    /// The run continues from a checkpoint.
    Resumed {
        /// The checkpoint.
        path: PathBuf,
        /// Number of completed steps.
        step: u64,
        /// Samples per step of the earlier run and of this run, as text, if they differ.
        changed_samples: Option<String>,
    },
    /// A checkpoint is damaged; an earlier one is tried.
    Damaged(String),
    /// A step has ended.
    Stepped(StepReport),
    /// A checkpoint was written to the disk.
    Saved {
        /// The checkpoint.
        path: PathBuf,
        /// Number of completed steps.
        step: u64,
    },
    /// An old checkpoint could not be removed.
    NotRemoved {
        /// The checkpoint.
        path: PathBuf,
        /// Error of the operating system.
        why: String,
    },
    /// The model has generated this text.
    Sampled(String),
    /// The run has ended.
    Finished(Summary),
}

/// Facts about a run that starts.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// Model and data.
    pub title: String,
    /// Number of parameters.
    pub parameters: usize,
    /// Number of workers.
    pub workers: usize,
    /// Number of micro-batches of every worker in a step.
    pub accumulate: usize,
    /// Number of samples of a micro-batch.
    pub batch_size: usize,
    /// Number of steps of the whole run.
    pub steps: u64,
}

/// Report of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Result of the step: number, loss, norm, rate, loss scale.
    pub outcome: StepOutcome,
    /// Number of steps of the whole run.
    pub steps: u64,
    /// Mean loss on the held-out part, if it was evaluated after this step.
    pub val_loss: Option<f64>,
    /// Number of steps so far that were skipped because a gradient was not finite.
    pub skipped: u64,
    /// Duration of the step in milliseconds.
    pub ms: f64,
    /// Items of all workers per second, in this step.
    pub items_per_s: f64,
    /// Plural name of the items: tokens or samples.
    pub unit: &'static str,
}

/// Summary of a run that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Number of completed steps, including earlier runs.
    pub step: u64,
    /// Reason of the end.
    pub end: RunEnd,
    /// Mean loss of the last step over all lanes; `None` if there was no step.
    pub loss: Option<f32>,
    /// Mean loss over the whole held-out part; `None` if the run was stopped.
    pub val_loss: Option<f64>,
    /// Total duration of the steps in seconds.
    pub seconds: f64,
    /// Items of all workers per second, over all steps.
    pub items_per_s: f64,
    /// Plural name of the items: tokens or samples.
    pub unit: &'static str,
    /// The last checkpoint of this run.
    pub checkpoint: Option<PathBuf>,
}

/// Reason of the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All steps are done.
    Complete,
    /// The run received a request to stop.
    Stopped,
}

impl fmt::Display for TrainEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(start) => start.fmt(f),
            Self::Resumed { path, step, changed_samples } => {
                write!(f, "resuming after step {step} from `{}`", path.display())?;
                changed_samples.iter().try_for_each(|samples| write!(f, "; {samples}"))
            }
            Self::Damaged(error) => write!(f, "warning: {error}"),
            Self::Stepped(report) => report.fmt(f),
            Self::Saved { path, step } => write!(f, "step {step} is saved in `{}`", path.display()),
            Self::NotRemoved { path, why } => {
                write!(f, "warning: cannot remove `{}`: {why}", path.display())
            }
            Self::Sampled(text) => write!(f, "sample of the model:\n{}", text.trim_end()),
            Self::Finished(summary) => summary.fmt(f),
        }
    }
}

impl fmt::Display for RunStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, parameters, workers, accumulate, batch_size, steps } = self;
        let workers = Count(*workers, "worker");
        let (parameters, steps) = (Count(*parameters, "parameter"), Count(*steps, "step"));
        let batches = Count(*accumulate, "micro-batch");
        writeln!(f, "{title}")?;
        write!(f, "{parameters}; {steps} of {workers} × {batches} × {batch_size}")
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outcome, steps, val_loss, items_per_s, unit, ms, .. } = self;
        let width = steps.to_string().len();
        write!(f, "step {:>width$}/{steps}  loss {:.4}", outcome.step, outcome.loss)?;
        if let Some(val_loss) = val_loss {
            write!(f, "  held-out {val_loss:.4}")?;
        }
        if outcome.is_applied {
            write!(f, "  norm {:.3}  lr {:.2e}", outcome.norm, outcome.rate)?;
        } else {
            write!(f, "  skipped: overflow at loss scale {}", outcome.loss_scale)?;
        }
        write!(f, "  {items_per_s:.0} {unit}/s  {ms:.1} ms")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, end, loss, val_loss, seconds, items_per_s, unit, checkpoint } = self;
        let outcome = match end {
            RunEnd::Complete => "done",
            RunEnd::Stopped => "stopped",
        };
        write!(f, "{outcome} after step {step}")?;
        if let Some(loss) = loss {
            write!(f, ": loss {loss:.4}")?;
        }
        if let Some(val_loss) = val_loss {
            write!(f, ", held-out {val_loss:.4}")?;
        }
        write!(f, "; {seconds:.1} s, {items_per_s:.0} {unit}/s")?;
        let Some(path) = checkpoint else { return Ok(()) };
        write!(f, "\nto continue: --resume {}", path.display())?;
        match end {
            // All steps are complete, so the same command line would do nothing.
            RunEnd::Complete => write!(f, " --steps {}", more_steps(*step)),
            RunEnd::Stopped => Ok(()),
        }
    }
}

/// Returns the number of steps to suggest after `done` steps.
pub fn more_steps(done: u64) -> u64 {
    done.max(1).saturating_mul(2)
}

/// A number with its noun in singular or plural.
pub(crate) struct Count<N>(pub(crate) N, pub(crate) &'static str);

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Count<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = self;
        let ending = match noun {
            _ if *count == N::from(1) => "",
            _ if noun.ends_with("ch") || noun.ends_with('s') => "es",
            _ => "s",
        };
        write!(f, "{count} {noun}{ending}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(progress: &TrainEvent, expected: &str) {
        assert_eq!(progress.to_string(), expected);
    }

    fn report(val_loss: Option<f64>) -> TrainEvent {
        TrainEvent::Stepped(StepReport {
            outcome: OUTCOME,
            steps: 1000,
            val_loss,
            skipped: 0,
            ms: 33.33,
            items_per_s: 46_080.4,
            unit: "tokens",
        })
    }

    const OUTCOME: StepOutcome = StepOutcome {
        step: 40,
        loss: 2.345_67,
        norm: 0.8125,
        rate: 1.5e-3,
        loss_scale: 1024.0,
        is_applied: true,
        wants_stop: false,
    };

    fn summary(end: RunEnd, checkpoint: Option<&str>) -> TrainEvent {
        TrainEvent::Finished(Summary {
            step: 40,
            end,
            loss: Some(2.5),
            val_loss: matches!(end, RunEnd::Complete).then_some(2.6),
            seconds: 1.26,
            items_per_s: 100.0,
            unit: "samples",
            checkpoint: checkpoint.map(PathBuf::from),
        })
    }

    #[test]
    fn progress_events_have_their_text() {
        check(
            &report(None),
            "step   40/1000  loss 2.3457  norm 0.812  lr 1.50e-3  46080 tokens/s  33.3 ms",
        );
        check(
            &report(Some(2.5)),
            "step   40/1000  loss 2.3457  held-out 2.5000  norm 0.812  lr 1.50e-3  46080 tokens/s  \
             33.3 ms",
        );
        let skipped = StepOutcome { is_applied: false, norm: f64::INFINITY, ..OUTCOME };
        let TrainEvent::Stepped(stepped) = report(None) else { panic!("a step") };
        check(
            &TrainEvent::Stepped(StepReport { outcome: skipped, ..stepped }),
            "step   40/1000  loss 2.3457  skipped: overflow at loss scale 1024  46080 tokens/s  \
             33.3 ms",
        );
        check(
            &summary(RunEnd::Complete, None),
            "done after step 40: loss 2.5000, held-out 2.6000; 1.3 s, 100 samples/s",
        );
        check(
            &summary(RunEnd::Stopped, Some("kept/step-00000040.safetensors")),
            "stopped after step 40: loss 2.5000; 1.3 s, 100 samples/s\n\
             to continue: --resume kept/step-00000040.safetensors",
        );
        check(
            &summary(RunEnd::Complete, Some("kept/step-00000040.safetensors")),
            "done after step 40: loss 2.5000, held-out 2.6000; 1.3 s, 100 samples/s\n\
             to continue: --resume kept/step-00000040.safetensors --steps 80",
        );
        let start = RunStart {
            title: "mlp".to_owned(),
            parameters: 7,
            workers: 2,
            accumulate: 4,
            batch_size: 12,
            steps: 9,
        };
        check(
            &TrainEvent::Started(start),
            "mlp\n7 parameters; 9 steps of 2 workers × 4 micro-batches × 12",
        );
        let start = RunStart {
            title: "mlp".to_owned(),
            parameters: 1,
            workers: 1,
            accumulate: 1,
            batch_size: 1,
            steps: 1,
        };
        check(
            &TrainEvent::Started(start),
            "mlp\n1 parameter; 1 step of 1 worker × 1 micro-batch × 1",
        );
    }
}

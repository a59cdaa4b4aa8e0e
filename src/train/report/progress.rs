//! Progress events of a run, and their text form.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{show_bytes, show_duration};
#[cfg(feature = "nccl")]
use crate::runtime::engine::GradientPath;
use crate::runtime::engine::StepOutcome;
use crate::train::report::skipped_steps::{SkipLevel, SkippedSteps, show_scale};
use crate::train::report::step_change::StepChange;

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
        /// What this run does otherwise in a step.
        change: StepChange,
    },
    /// The checkpoint has all steps already.
    Complete {
        /// Number of completed steps.
        step: u64,
        /// Number of steps of the whole run.
        steps: u64,
    },
    /// A checkpoint is damaged; an earlier one is tried.
    Damaged(String),
    /// The run continues from a checkpoint that `latest` does not name.
    LatestUnknown(String),
    /// The data is not the same as when the checkpoint was saved.
    OtherData,
    /// A step has ended.
    Stepped(StepReport),
    /// A checkpoint was written to the disk.
    Saved {
        /// The checkpoint.
        path: PathBuf,
        /// Number of completed steps.
        step: u64,
        /// Size of all files in bytes.
        bytes: u64,
        /// Time from the begin of the writing to the end.
        duration: Duration,
        /// Time for which the training waited.
        pause: Duration,
    },
    /// An old checkpoint could not be removed.
    NotRemoved {
        /// The checkpoint.
        path: PathBuf,
        /// Error of the operating system.
        why: String,
    },
    /// An output of scalars failed and is closed; the run continues without it.
    OutputClosed {
        /// Directory of the output.
        dir: PathBuf,
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
    /// Device of rank 0; `None`: processors.
    pub device: Option<RunDevice>,
}

/// Device of a worker, before the training has taken its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDevice {
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// Memory that the training will need, in bytes.
    pub forecast: f64,
    /// Bytes that are free, if the device knows it.
    pub free: Option<u64>,
    /// How workers exchange gradients between their devices; `None`: there is one worker.
    pub gradients: Option<String>,
}

#[cfg(feature = "nccl")]
impl RunDevice {
    /// Says how gradients are exchanged.
    pub(in crate::train) fn set_path(&mut self, path: &GradientPath) {
        self.gradients = (*path != GradientPath::Alone).then(|| path.to_string());
    }
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
    /// What rank 0 needed the time for.
    pub seconds: PhaseSeconds,
    /// Why the run ends with this step, if that is an error.
    pub error: Option<String>,
}

impl StepReport {
    /// Returns the scale of the loss, if there is one.
    pub fn scale(&self) -> Option<f64> {
        let scale = self.outcome.loss_scale;
        ((scale - 1.0).abs() > f64::EPSILON).then_some(scale)
    }
}

/// Seconds of a rank for each phase of a step. Gradients are reduced during `backward` and `step`. A device computes
/// beside them: the passes are submitted, and `step` waits for the step before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseSeconds {
    /// Making the micro-batches.
    pub data: f64,
    /// Forward passes.
    pub forward: f64,
    /// Backward passes.
    pub backward: f64,
    /// The rest of the reduction, and the update.
    pub step: f64,
    /// Evaluation on the held-out part after the step.
    pub eval: f64,
    /// Waiting for the checkpoint after the step before this one; files are written beside the training.
    pub save: f64,
}

impl PhaseSeconds {
    /// The same in whole microseconds.
    pub(in crate::train) fn rounded(self) -> Self {
        let round = |seconds: f64| (seconds * 1e6).round() / 1e6;
        let Self { data, forward, backward, step, eval, save } = self;
        Self {
            data: round(data),
            forward: round(forward),
            backward: round(backward),
            step: round(step),
            eval: round(eval),
            save: round(save),
        }
    }
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
    /// Memory of the worker that needed most, if the system tells it.
    pub memory: Option<MemoryUse>,
    /// Steps of this run that did not change the parameters; `None`: there was none.
    pub skipped: Option<SkippedSteps>,
    /// The last checkpoint of this run.
    pub checkpoint: Option<PathBuf>,
}

/// Memory of a worker, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// The most that a worker has used.
    pub peak: u64,
    /// The forecast before the run.
    pub forecast: u64,
    /// The most that a worker had mapped: with the parts of other workers that it reads in the memory that they share,
    /// which are counted there, and with the pages of files, such as its program.
    pub resident: u64,
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
            Self::Resumed { path, step, change } => {
                write!(f, "resuming after step {step} from `{}`{change}", path.display())
            }
            Self::Complete { step, steps } => {
                let (reached, more) = (show_reached(*step, *steps), more_steps(*step));
                write!(f, "nothing to do: {reached}; `--steps {more}` continues")
            }
            Self::Damaged(text) | Self::LatestUnknown(text) => write!(f, "warning: {text}"),
            Self::OtherData => f.write_str(
                "warning: `--data` is not the same as when the checkpoint was saved: the training continues with other \
                 samples",
            ),
            Self::Stepped(report) => report.fmt(f),
            Self::Saved { path, step, bytes, duration, pause } => write!(
                f,
                "step {step} is saved in `{}`: {} in {}, training paused for {}",
                path.display(),
                show_bytes(*bytes as f64),
                show_duration(*duration),
                show_duration(*pause),
            ),
            Self::NotRemoved { path, why } => {
                write!(f, "warning: cannot remove `{}`: {why}", path.display())
            }
            Self::OutputClosed { dir, why } => write!(
                f,
                "warning: cannot write in `{}`: {why}; the training continues without these files",
                dir.display()
            ),
            Self::Sampled(text) => write!(f, "sample of the model:\n{}", text.trim_end()),
            Self::Finished(summary) => summary.fmt(f),
        }
    }
}

impl fmt::Display for RunStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, parameters, workers, accumulate, batch_size, steps, device } = self;
        let workers = Count(*workers, "worker");
        let (parameters, steps) = (Count(*parameters, "parameter"), Count(*steps, "step"));
        let batches = Count(*accumulate, "micro-batch");
        writeln!(f, "{title}")?;
        write!(f, "{parameters}; {steps} of {workers} × {batches} × {batch_size}")?;
        let Some(RunDevice { name, forecast, free, gradients }) = device else { return Ok(()) };
        write!(f, "; {name}: about {} of memory", show_bytes(*forecast))?;
        if let Some(free) = free {
            write!(f, ", {} are free", show_bytes(*free as f64))?;
        }
        let Some(path) = gradients else { return Ok(()) };
        write!(f, "\ngradients between GPUs: {path}")
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
            match self.scale() {
                Some(scale) => write!(f, "  skipped: overflow at loss scale {}", show_scale(scale)),
                None => write!(f, "  skipped: the gradient is not finite"),
            }?;
        }
        write!(f, "  {items_per_s:.0} {unit}/s  {ms:.1} ms")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, end, loss, val_loss, seconds, items_per_s, unit, .. } = self;
        let outcome = match end {
            RunEnd::Complete => "done",
            RunEnd::Stopped => "stopped",
        };
        write!(f, "{outcome} after step {step}")?;
        if let Some(loss) = loss {
            write!(f, ": loss {loss:.4}")?;
        }
        if let Some(val_loss) = val_loss {
            write!(f, ", all held-out data {val_loss:.4}")?;
        }
        write!(f, "; {seconds:.1} s, {items_per_s:.0} {unit}/s")?;
        if let Some(memory) = &self.memory {
            let MemoryUse { peak, forecast, resident } = *memory;
            let [peak, forecast, resident] =
                [peak, forecast, resident].map(|bytes| show_bytes(bytes as f64));
            write!(f, "\nmemory of a worker: {peak} at most, {forecast} forecast; ")?;
            write!(f, "with pages of other workers and of files {resident}")?;
        }
        if let Some(skipped) = self.skipped.filter(|skipped| skipped.level() == SkipLevel::Note) {
            write!(f, "\n{}", skipped.message())?;
        }
        match (&self.checkpoint, end) {
            (None, _) => Ok(()),
            (Some(_), RunEnd::Stopped) => {
                write!(f, "\nto continue: the same command with `--resume auto`")
            }
            // All steps are complete, so the same command would do nothing.
            (Some(_), RunEnd::Complete) => {
                let more = more_steps(*step);
                write!(f, "\nto continue: the same command with `--resume auto --steps {more}`")
            }
        }
    }
}

/// Returns the number of steps to suggest after `done` steps.
pub fn more_steps(done: u64) -> u64 {
    done.max(1).saturating_mul(2)
}

/// Returns the words for a run whose checkpoint has all of its steps.
pub fn show_reached(step: u64, steps: u64) -> String {
    if step == steps {
        format!("step {step} of {steps} is reached")
    } else {
        format!("step {step} is reached, and `--steps` is {steps}")
    }
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

/// Report of a step with all optional numbers.
#[cfg(test)]
pub(crate) fn sample_report() -> StepReport {
    let seconds =
        PhaseSeconds { data: 0.5, forward: 1.0, backward: 2.0, step: 0.25, ..Default::default() };
    StepReport {
        outcome: StepOutcome {
            step: 40,
            loss: 2.5,
            norm: 0.8125,
            rate: 1.5e-3,
            loss_scale: 1024.0,
            is_applied: true,
            wants_stop: false,
        },
        steps: 1000,
        val_loss: Some(2.75),
        skipped: 3,
        ms: 33.33,
        items_per_s: 46_080.4,
        unit: "tokens",
        seconds,
        error: None,
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
        TrainEvent::Stepped(StepReport { val_loss, ..sample_report() })
    }

    fn summary(end: RunEnd, checkpoint: Option<&str>) -> TrainEvent {
        TrainEvent::Finished(Summary {
            step: 40,
            end,
            loss: Some(2.5),
            val_loss: matches!(end, RunEnd::Complete).then_some(2.6),
            seconds: 1.26,
            items_per_s: 100.0,
            unit: "samples",
            memory: None,
            skipped: None,
            checkpoint: checkpoint.map(PathBuf::from),
        })
    }

    #[test]
    fn saved_checkpoint_has_its_size_as_verify_shows_it() {
        check(
            &TrainEvent::Saved {
                path: "kept/step-00000040".into(),
                step: 40,
                bytes: 9_751_757,
                duration: Duration::from_millis(30),
                pause: Duration::from_millis(2),
            },
            "step 40 is saved in `kept/step-00000040`: 9.3 MiB in 30 ms, training paused for 2 ms",
        );
    }

    #[test]
    fn progress_events_have_their_text() {
        check(
            &report(None),
            "step   40/1000  loss 2.5000  norm 0.812  lr 1.50e-3  46080 tokens/s  33.3 ms",
        );
        check(
            &report(Some(2.5)),
            "step   40/1000  loss 2.5000  held-out 2.5000  norm 0.812  lr 1.50e-3  46080 tokens/s  \
             33.3 ms",
        );
        let mut skipped = StepReport { val_loss: None, ..sample_report() };
        skipped.outcome = StepOutcome { is_applied: false, norm: f64::INFINITY, ..skipped.outcome };
        check(
            &TrainEvent::Stepped(skipped),
            "step   40/1000  loss 2.5000  skipped: overflow at loss scale 1024  46080 tokens/s  \
             33.3 ms",
        );
        check(
            &TrainEvent::OutputClosed { dir: "runs".into(), why: "no space left".to_owned() },
            "warning: cannot write in `runs`: no space left; the training continues without these \
             files",
        );
        check(
            &summary(RunEnd::Complete, None),
            "done after step 40: loss 2.5000, all held-out data 2.6000; 1.3 s, 100 samples/s",
        );
        check(
            &summary(RunEnd::Stopped, Some("kept/step-00000040.safetensors")),
            "stopped after step 40: loss 2.5000; 1.3 s, 100 samples/s\n\
             to continue: the same command with `--resume auto`",
        );
        check(
            &summary(RunEnd::Complete, Some("kept/step-00000040.safetensors")),
            "done after step 40: loss 2.5000, all held-out data 2.6000; 1.3 s, 100 samples/s\n\
             to continue: the same command with `--resume auto --steps 80`",
        );
        let start = RunStart {
            title: "mlp".to_owned(),
            parameters: 7,
            workers: 2,
            accumulate: 4,
            batch_size: 12,
            steps: 9,
            device: None,
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
            device: Some(RunDevice {
                name: "NVIDIA H200".to_owned(),
                forecast: 1.5 * 1024.0 * 1024.0,
                free: Some(139 << 30),
                gradients: Some("NCCL 2.28.9, canonical order".to_owned()),
            }),
        };
        check(
            &TrainEvent::Started(start),
            "mlp\n1 parameter; 1 step of 1 worker × 1 micro-batch × 1; \
             NVIDIA H200: about 1.5 MiB of memory, 139.0 GiB are free\n\
             gradients between GPUs: NCCL 2.28.9, canonical order",
        );
    }
}

//! What rank 0 reports and writes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::train::error::{TrainError, output_error};
use crate::train::options::ScalarOutput;
use crate::train::report::metrics::Metrics;
use crate::train::report::plot::{Curve, show_svg};
use crate::train::report::progress::{StepReport, Summary, TrainEvent};
use crate::train::report::scalar_sinks::{SampleAxis, ScalarSinks};

/// Rank 0's reporter of training progress; inactive on other ranks.
pub(crate) struct Rank0Reporter<'a> {
    pub(in crate::train) is_active: bool,
    on_event: &'a mut dyn FnMut(&TrainEvent),
    metrics: Option<(PathBuf, Metrics)>,
    sinks: ScalarSinks,
    curve: Curve,
    pub(in crate::train) saved: Option<PathBuf>,
}

impl<'a> Rank0Reporter<'a> {
    pub(in crate::train) fn new(is_open: bool, on_event: &'a mut dyn FnMut(&TrainEvent)) -> Self {
        Self {
            is_active: is_open,
            on_event,
            metrics: None,
            sinks: ScalarSinks::default(),
            curve: Curve::default(),
            saved: None,
        }
    }

    pub(in crate::train) fn report(&mut self, event: impl FnOnce() -> TrainEvent) {
        if self.is_active {
            (self.on_event)(&event());
        }
    }

    pub(in crate::train) fn open_metrics(
        &mut self,
        path: Option<&Path>,
        step: u64,
    ) -> Result<(), TrainError> {
        if let (true, Some(path)) = (self.is_active, path) {
            let (metrics, curve) = Metrics::open(path, step).map_err(output_error(path))?;
            self.curve = curve;
            self.metrics = Some((path.to_owned(), metrics));
        }
        Ok(())
    }

    /// Opens the outputs of scalars; `resumed` is the number of steps of a run that this one continues.
    pub(in crate::train) fn open_scalars(
        &mut self,
        outputs: &[ScalarOutput],
        axis: SampleAxis,
        resumed: Option<u64>,
    ) -> Result<(), TrainError> {
        if self.is_active {
            self.sinks = ScalarSinks::open(outputs, axis, resumed)?;
        }
        Ok(())
    }

    pub(in crate::train) fn on_step(&mut self, report: StepReport) -> Result<(), TrainError> {
        if let Some((path, metrics)) = &mut self.metrics {
            metrics.write(&report).map_err(output_error(path))?;
        }
        let (step, loss) = (report.outcome.step, f64::from(report.outcome.loss));
        self.curve.push(step, loss, report.val_loss);
        let failed = self.sinks.write(&report);
        self.report(|| TrainEvent::Stepped(report));
        for (dir, error) in failed {
            self.report(|| TrainEvent::OutputClosed { dir, why: error.to_string() });
        }
        Ok(())
    }

    /// Writes a step that ends the run; the error itself is reported by others.
    pub(in crate::train) fn on_failed_step(
        &mut self,
        report: &StepReport,
    ) -> Result<(), TrainError> {
        if let Some((path, metrics)) = &mut self.metrics {
            metrics.write(report).map_err(output_error(path))?;
        }
        self.sinks.write(report);
        Ok(())
    }

    pub(in crate::train) fn finish(
        mut self,
        summary: &Summary,
        digest: &str,
        title: &str,
        plot: Option<&Path>,
    ) -> Result<(), TrainError> {
        if let Some((path, metrics)) = self.metrics.take() {
            metrics.finish(summary, digest).map_err(output_error(&path))?;
        }
        if let (true, Some(path)) = (self.is_active, plot) {
            fs::write(path, show_svg(title, &self.curve)).map_err(output_error(path))?;
        }
        self.report(|| TrainEvent::Finished(summary.clone()));
        Ok(())
    }
}

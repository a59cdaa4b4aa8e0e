//! [`ScalarSinks`]: the files that receive the numbers of every step.

use std::io;
use std::path::PathBuf;

use crate::train::earlier_steps::EarlierSteps;
use crate::train::error::{TrainError, output_error};
use crate::train::options::{ScalarFormat, ScalarNames, ScalarOutput};
use crate::train::report::csv::CsvFiles;
use crate::train::report::progress::StepReport;
use crate::train::report::scalar::{Scalar, scalars_of};
use crate::train::report::tensorboard::EventFile;

/// Files of one output.
#[derive(Debug)]
enum ScalarSink {
    TensorBoard(EventFile),
    Csv(CsvFiles),
}

impl ScalarSink {
    fn write(&mut self, at: u64, scalars: &[Scalar]) -> io::Result<()> {
        match self {
            Self::TensorBoard(file) => file.write(at, scalars),
            Self::Csv(files) => files.write(at, scalars),
        }
    }
}

/// Open outputs of a run. An output that fails during the run is closed, and the run continues.
#[derive(Debug, Default)]
pub(crate) struct ScalarSinks {
    sinks: Vec<(ScalarOutput, ScalarSink)>,
    axis: SampleAxis,
}

/// Position of every step, in samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleAxis {
    /// Steps of earlier runs, which may have had other batches.
    pub(crate) earlier: EarlierSteps,
    /// Number of samples of a step of this run.
    pub(crate) samples_per_step: u64,
}

impl Default for SampleAxis {
    fn default() -> Self {
        Self { earlier: EarlierSteps::NONE, samples_per_step: 0 }
    }
}

impl SampleAxis {
    /// Position of a step on the horizontal axis. If the samples of earlier runs are not known, they are
    /// counted with the batch of this run.
    fn position(self, names: ScalarNames, step: u64) -> u64 {
        let samples = self.earlier.samples_until(step, self.samples_per_step);
        match names {
            ScalarNames::Plain => step,
            ScalarNames::DeepSpeed => {
                samples.unwrap_or_else(|| step.saturating_mul(self.samples_per_step))
            }
        }
    }
}

impl ScalarSinks {
    /// Opens the outputs of a run. If it continues an earlier one, that has completed `resumed` steps; what
    /// the outputs have of later steps is removed or hidden.
    ///
    /// # Errors
    /// If an output cannot be created.
    pub(crate) fn open(
        outputs: &[ScalarOutput],
        axis: SampleAxis,
        resumed: Option<u64>,
    ) -> Result<Self, TrainError> {
        let mut sinks = Vec::new();
        for output in outputs {
            let resumed_after = resumed.map(|step| axis.position(output.names, step));
            let sink = match output.format {
                ScalarFormat::TensorBoard => {
                    let first = resumed_after.map(|done| done + 1);
                    EventFile::create(&output.dir, first).map(ScalarSink::TensorBoard)
                }
                ScalarFormat::Csv => {
                    CsvFiles::create(&output.dir, resumed_after).map(ScalarSink::Csv)
                }
            };
            sinks.push((output.clone(), sink.map_err(output_error(&output.dir))?));
        }
        Ok(Self { sinks, axis })
    }

    /// Writes the numbers of a step. Returns the directories of the outputs that failed, each with its
    /// error; they are closed.
    pub(crate) fn write(&mut self, report: &StepReport) -> Vec<(PathBuf, io::Error)> {
        let axis = self.axis;
        let mut failed = Vec::new();
        self.sinks.retain_mut(|(output, sink)| {
            let at = axis.position(output.names, report.outcome.step);
            let Err(error) = sink.write(at, &scalars_of(report, output.names)) else { return true };
            failed.push((output.dir.clone(), error));
            false
        });
        failed
    }
}

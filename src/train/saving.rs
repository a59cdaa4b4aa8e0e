//! [`Saver`]: checkpoints that are written beside the training.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use crate::runtime::Group;
use crate::runtime::checkpoint::{
    CheckpointWriter, DataPosition, SaveError, SaveReport, SavedState, WriterOptions,
};
use crate::runtime::engine::{Engine, ReplicaState};
use crate::train::earlier_steps::{EarlierSteps, RestoredState};
use crate::train::error::TrainError;
use crate::train::options::TrainOptions;
use crate::train::report::progress::TrainEvent;
use crate::train::report::rank0::Rank0Reporter;
use crate::train::task::definition::Task;

/// Samples of every step of a run.
pub(crate) fn samples_of<T: Task>(group: &Group, options: &TrainOptions, task: &T) -> DataPosition {
    let lanes = group.world_size() * options.engine.accumulate;
    DataPosition {
        lanes: lanes as u64,
        batch_size: options.batch_size.get() as u64,
        seed: options.seed,
        samples: None,
        fingerprint: task.data_fingerprint(),
    }
}

/// Writer of the checkpoints of a run.
pub(crate) struct Saver {
    writer: CheckpointWriter,
    model: String,
    data: DataPosition,
    earlier: EarlierSteps,
    /// What the checkpoint said from which the run continues.
    client: Value,
    /// Time that each save has stopped the training so far, of those that are not complete.
    pauses: VecDeque<Duration>,
    /// Outcome of a save that failed. All ranks report it at the next save, where they are equally far.
    failed: Option<SaveError>,
}

impl Saver {
    /// Creates the directory of a run, if it saves checkpoints; all ranks must share it. `data` are the samples of every
    /// step.
    pub(crate) fn open<T: Task>(
        group: &Group,
        options: &TrainOptions,
        task: &T,
        data: DataPosition,
    ) -> Result<Option<Self>, TrainError> {
        let Some(to) = &options.checkpoint else { return Ok(None) };
        let writer_options = WriterOptions {
            keep: to.keep,
            job: options.start.as_ref().map(|start| start.job.clone()),
            ..WriterOptions::default()
        };
        Ok(Some(Self {
            writer: CheckpointWriter::new(group, &to.dir, writer_options)?,
            model: task.identity().to_string(),
            data,
            earlier: EarlierSteps::NONE,
            client: Value::Null,
            pauses: VecDeque::new(),
            failed: None,
        }))
    }

    /// Adds up the samples of the following steps and of those of earlier runs, and removes checkpoints that are older
    /// than those to keep: the run could have ended because the disk was full.
    pub(crate) fn continue_after(
        &mut self,
        restored: &RestoredState,
        reporter: &mut Rank0Reporter<'_>,
    ) {
        self.earlier = restored.earlier;
        self.client.clone_from(&restored.client);
        let Some(from) = &restored.from else { return };
        for (path, why) in self.writer.prune_before(from, restored.earlier.steps) {
            reporter.report(|| TrainEvent::NotRemoved { path, why });
        }
    }

    /// Begins to save the state after a step. A save that was started before is finished first.
    pub(crate) fn start<R: ReplicaState>(
        &mut self,
        engine: &Engine<R>,
        reporter: &mut Rank0Reporter<'_>,
    ) -> Result<(), TrainError> {
        self.finish(reporter)?;
        let DataPosition { lanes, batch_size, .. } = self.data;
        let samples = self.earlier.samples_until(engine.global_steps(), lanes * batch_size);
        let own = SavedState {
            model: self.model.clone(),
            data: Some(DataPosition { samples, ..self.data }),
            client: self.client.clone(),
            ..SavedState::default()
        };
        let started = engine.save_checkpoint(&mut self.writer, own)?;
        self.pauses.push_back(started.waited + started.copied);
        Ok(())
    }

    /// Reports saves that are complete.
    pub(crate) fn poll(&mut self, reporter: &mut Rank0Reporter<'_>) {
        for outcome in self.writer.poll() {
            self.report(outcome, reporter);
        }
    }

    /// Waits for the save that was started last.
    pub(crate) fn finish(&mut self, reporter: &mut Rank0Reporter<'_>) -> Result<(), TrainError> {
        for outcome in self.writer.finish() {
            self.report(outcome, reporter);
        }
        self.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }

    fn report(&mut self, outcome: Result<SaveReport, SaveError>, reporter: &mut Rank0Reporter<'_>) {
        let pause = self.pauses.pop_front().unwrap_or_default();
        let report = match outcome {
            Ok(report) => report,
            Err(error) => {
                self.failed.get_or_insert(error);
                return;
            }
        };
        let SaveReport { path, step, bytes, not_removed, duration, .. } = report;
        reporter.saved = Some(path.clone());
        reporter.report(|| TrainEvent::Saved { path, step, bytes, duration, pause });
        for (path, why) in not_removed {
            reporter.report(|| TrainEvent::NotRemoved { path, why });
        }
    }
}

//! Saving and loading of an engine's state. A checkpoint is read by any number of ranks with any sharding.

use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};

use crate::runtime::checkpoint::{
    CheckpointReader, CheckpointWriter, Division, LoadChoice, LoadedCheckpoint, OpenError,
    SavedState, StartedSave, TensorInfo, TensorPiece, TensorRead, load_checkpoint, state_tensor,
};
use crate::runtime::dtype::element::Dtype;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::parameters::Parameter;
use crate::runtime::engine::state::{ReplicaState, Section};
use crate::runtime::engine::training::{Engine, EngineCounters};
use crate::runtime::error::Error;
use crate::runtime::optim::LrSchedule;

/// Key of the number of updates in the state of the schedule.
const UPDATES: &str = "updates";
/// Key of its settings.
const SETTINGS: &str = "settings";

impl<R: ReplicaState> Engine<R> {
    /// Completes the state that is saved besides the tensors: step, optimizer, schedule, loss scale, division.
    /// What the caller knows, such as the name of the model and the data, stays as it is.
    #[must_use]
    pub fn saved_state(&self, own: SavedState) -> SavedState {
        let counters = self.counters();
        let config = self.config();
        let optimizer = serde_json::to_value(config.optimizer).unwrap_or_default();
        let name = optimizer.as_object().and_then(|fields| fields.keys().next().cloned());
        SavedState {
            step: counters.steps,
            division: Some(Division {
                sharding: config.sharding.to_string(),
                world_size: self.group().world_size() as u64,
                accumulate: config.accumulate as u64,
                precision: config.precision.dtype().to_string(),
            }),
            optimizer: name.unwrap_or_default(),
            optimizer_settings: optimizer,
            schedule: json!({ UPDATES: counters.updates, SETTINGS: config.schedule }),
            loss_scale: serde_json::to_value(counters.loss_scale).unwrap_or_default(),
            ..own
        }
    }

    /// Copies the state of this rank, and saves it beside the training; all ranks call it between two steps.
    /// `own` is what the caller saves, for example [`SavedState::client`]. The outcome is that of
    /// [`CheckpointWriter::poll`] and [`CheckpointWriter::finish`].
    ///
    /// # Errors
    /// If the outcome of the last step was not read, or the state cannot be copied from a device.
    ///
    /// ```
    /// use remuda::runtime::checkpoint::{CheckpointWriter, LoadChoice, SavedState, WriterOptions};
    /// use remuda::runtime::engine::{Engine, ReplicaState};
    ///
    /// /// Saves a step, and continues from the newest one, with any number of ranks and any sharding.
    /// fn save_and_load<R: ReplicaState>(
    ///     engine: &mut Engine<R>,
    ///     dir: &std::path::Path,
    /// ) -> Result<u64, Box<dyn std::error::Error>> {
    ///     let mut writer = CheckpointWriter::new(engine.group(), dir, WriterOptions::default())?;
    ///     engine.save_checkpoint(&mut writer, SavedState::default())?;
    ///     for outcome in writer.finish() {
    ///         outcome?;
    ///     }
    ///     engine.load_checkpoint(dir, LoadChoice::NewestValid, |_| Ok(()))?;
    ///     Ok(engine.global_steps())
    /// }
    /// ```
    pub fn save_checkpoint(
        &self,
        writer: &mut CheckpointWriter,
        own: SavedState,
    ) -> Result<StartedSave, EngineError> {
        self.expect_outcome("save_checkpoint")?;
        let pieces = self.state_pieces()?;
        let pieces: Vec<TensorPiece<'_>> = pieces
            .iter()
            .map(|piece| {
                let name = tensor_name(piece.parameter, piece.section);
                TensorPiece::new(name, &piece.parameter.shape, piece.range.clone(), &piece.values)
            })
            .collect();
        Ok(writer.start_save(&self.saved_state(own), &pieces))
    }

    /// Replaces the state by that of a checkpoint: of the path itself, or of the directory's newest one. All
    /// ranks call it, and each reads what it holds a part of. Returns what was loaded, with
    /// [`SavedState::client`]. `check` refuses checkpoints that the caller cannot use.
    ///
    /// # Errors
    /// Equal on all ranks. If there is no checkpoint, it is damaged, or it has other tensors; the state is then
    /// as before.
    pub fn load_checkpoint(
        &mut self,
        path: &Path,
        choice: LoadChoice,
        check: impl Fn(&CheckpointReader) -> Result<(), OpenError>,
    ) -> Result<LoadedCheckpoint<()>, OpenError> {
        let expected = self.tensors();
        let named = self.needed_ranges().into_iter();
        let needed: Vec<(String, Range<usize>)> = named
            .map(|(parameter, section, range)| (tensor_name(parameter, section), range))
            .collect();
        let group = self.group().clone();
        let loaded = load_checkpoint(&group, path, choice, |reader| {
            check(reader)?;
            reader.check_tensors(&expected)?;
            read_ranges(reader, &needed)
        })?;
        let LoadedCheckpoint { reader, value: mut values, damaged, notes } = loaded;
        // The values are asked for in the same order.
        let mut next = |_: &Parameter, _: Section, _: Range<usize>, out: &mut [f32]| {
            values.take(out);
            Ok::<(), OpenError>(())
        };
        let counters = self.saved_counters(reader.state());
        self.restore(&counters, &mut next).map_err(group_error)??;
        Ok(LoadedCheckpoint { reader, value: (), damaged, notes })
    }

    /// All tensors of the state.
    fn tensors(&self) -> Vec<TensorInfo> {
        let of_section = |section| {
            self.table().iter().map(move |parameter| TensorInfo {
                name: tensor_name(parameter, section),
                dtype: Dtype::F32,
                shape: parameter.shape.clone(),
            })
        };
        self.sections().into_iter().flat_map(of_section).collect()
    }

    /// What the engine counted when the state was saved; files of earlier builds have the step only.
    fn saved_counters(&self, saved: &SavedState) -> EngineCounters {
        let updates = saved.schedule.get(UPDATES).and_then(Value::as_u64);
        let loss_scale = serde_json::from_value(saved.loss_scale.clone());
        EngineCounters {
            steps: saved.step,
            updates: updates.unwrap_or(saved.step),
            loss_scale: loss_scale.unwrap_or(self.counters().loss_scale),
        }
    }
}

/// Returns the schedule of learning rates with which a state was saved, and the number of updates until then;
/// earlier builds did not save the schedule.
pub fn saved_schedule(saved: &SavedState) -> Option<(LrSchedule, u64)> {
    let settings = serde_json::from_value(saved.schedule.get(SETTINGS)?.clone()).ok()?;
    Some((settings, saved.schedule.get(UPDATES)?.as_u64()?))
}

/// Values that were read, in one allocation from whose end they are taken: what was taken is returned to the system, so
/// that the state of the engine and the values are never in memory both as a whole.
struct ReadValues(Vec<f32>);

/// Elements that are returned to the system at once.
const RETURNED: usize = 1 << 20;

impl ReadValues {
    /// Takes the next values.
    fn take(&mut self, out: &mut [f32]) {
        let Self(values) = self;
        let start = values.len() - out.len();
        out.copy_from_slice(&values[start..]);
        values.truncate(start);
        if RETURNED <= values.capacity() - start {
            values.shrink_to_fit();
        }
    }
}

/// Reads ranges of tensors; the first one is at the end.
fn read_ranges(
    reader: &CheckpointReader,
    needed: &[(String, Range<usize>)],
) -> Result<ReadValues, OpenError> {
    let len = needed.iter().map(|(_, range)| range.len()).sum();
    let mut values = vec![0.0; len];
    let mut rest = &mut values[..];
    let mut reads = Vec::new();
    for (name, range) in needed {
        let (later, out) = rest.split_at_mut(rest.len() - range.len());
        reads.push(TensorRead { name, range: range.clone(), out });
        rest = later;
    }
    reader.read_all(reads)?;
    Ok(ReadValues(values))
}

/// Name of a tensor of the state.
fn tensor_name(parameter: &Parameter, section: Section) -> String {
    match section {
        Section::Weights => parameter.name.clone(),
        Section::Moment(name) => state_tensor(&parameter.name, name),
    }
}

/// Restoring fails only if the group does.
fn group_error(error: EngineError) -> OpenError {
    match error {
        EngineError::Collective(error) => error.into(),
        EngineError::Runtime(error) => error.into(),
        other => {
            let source = std::io::Error::other(other.to_string());
            Error::Os { action: "restore the state", source }.into()
        }
    }
}

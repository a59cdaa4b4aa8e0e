//! Writing of checkpoints.

use crate::runtime::engine::Section;
use crate::train::checkpoint::{self, SavedTensors};
use crate::train::error::TrainError;
use crate::train::options::{CheckpointOptions, TrainOptions};
use crate::train::report::progress::TrainEvent;
use crate::train::report::rank0::Rank0Reporter;
use crate::train::resume::samples_of;
use crate::train::task::definition::{Task, TaskEngine};

/// Writes the state of a run. All workers call it, rank 0 writes.
pub(crate) fn save_state<T: Task>(
    options: &TrainOptions,
    to: &CheckpointOptions,
    task: &T,
    engine: &mut TaskEngine<T>,
    reporter: &mut Rank0Reporter<'_>,
) -> Result<(), TrainError> {
    let step = engine.global_steps();
    let path = checkpoint::checkpoint_path(&to.dir, step);
    let samples = samples_of(engine.group(), options);
    let mut tensors = SavedTensors::default();
    for section in engine.sections() {
        let values = engine.gather(section)?;
        match section {
            Section::Weights => tensors.params = values,
            Section::Moment(_) => tensors.moments.push(values),
        }
    }
    if !reporter.is_active {
        return Ok(());
    }
    checkpoint::save(&path, engine.table(), &task.identity(), (step, samples), &tensors)?;
    if let Some(start) = &options.start {
        checkpoint::record_job(&path, &start.job)?;
    }
    reporter.saved = Some(path.clone());
    let failed = to.keep.map_or_else(Vec::new, |keep| checkpoint::prune(&path, keep));
    reporter.report(|| TrainEvent::Saved { path, step });
    for (path, error) in failed {
        reporter.report(|| TrainEvent::NotRemoved { path, why: error.to_string() });
    }
    Ok(())
}

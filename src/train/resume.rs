//! State before the first step: initial values or those of a checkpoint.

use std::path::{Path, PathBuf};

use crate::runtime::checkpoint::{
    CheckpointReader, DataPosition, LoadChoice, LoadedCheckpoint, OpenError, is_checkpoint,
    last_of_job,
};
use crate::runtime::engine::{Engine, ReplicaState};
use crate::train::earlier_steps::{EarlierSteps, RestoredState};
use crate::train::error::{TrainError, UndamagedCheckpoint};
use crate::train::options::TrainOptions;
use crate::train::report::progress::TrainEvent;
use crate::train::report::rank0::Rank0Reporter;
use crate::train::report::step_change::StepChange;
use crate::train::task::definition::Task;

/// Restores the state of the checkpoint from which the run resumes, if it does; `now` are the samples of its steps.
pub(crate) fn restore_state<T: Task, R: ReplicaState>(
    options: &TrainOptions,
    task: &T,
    engine: &mut Engine<R>,
    now: DataPosition,
    reporter: &mut Rank0Reporter<'_>,
) -> Result<RestoredState, TrainError> {
    let Some((path, choice)) = source(options) else { return Ok(RestoredState::NONE) };
    let model = task.identity().to_string();
    let is_same = |reader: &CheckpointReader| check_model(reader, &model);
    let loaded = match engine.load_checkpoint(&path, choice, is_same) {
        Err(error) if options.may_start_fresh && is_absent(&error) => {
            return Ok(RestoredState::NONE);
        }
        Err(error @ OpenError::Damaged { .. }) => {
            let newest = newest_undamaged(&path, options, engine, &is_same);
            return Err(TrainError::Damaged { error, newest });
        }
        loaded => loaded?,
    };
    let LoadedCheckpoint { reader, damaged, notes, .. } = loaded;
    for (path, damage) in damaged {
        let text = OpenError::Damaged { path, damage }.to_string();
        reporter.report(|| TrainEvent::Damaged(text));
    }
    for note in notes {
        reporter.report(|| TrainEvent::LatestUnknown(note));
    }
    let change = StepChange::between(reader.state(), now, engine.group().world_size());
    let fingerprint = reader.state().data.and_then(|data| data.fingerprint);
    if fingerprint.is_some() && fingerprint != now.fingerprint {
        reporter.report(|| TrainEvent::OtherData);
    }
    let (path, step, steps) = (reader.path().to_owned(), reader.state().step, options.steps);
    let from = Some(path.clone());
    reporter.report(|| TrainEvent::Resumed { path, step, change });
    if steps <= step {
        reporter.report(|| TrainEvent::Complete { step, steps });
    }
    let samples = reader.state().data.and_then(|data| data.samples);
    let client = reader.state().client.clone();
    Ok(RestoredState { earlier: EarlierSteps { steps: step, samples }, from, client })
}

/// Finds the newest checkpoint of the directory of a damaged one that the run could continue from; all ranks call it.
/// Every byte of it is read, as when a run continues from it. The state of the engine is then unspecified.
fn newest_undamaged<R: ReplicaState>(
    damaged: &Path,
    options: &TrainOptions,
    engine: &mut Engine<R>,
    is_same: &dyn Fn(&CheckpointReader) -> Result<(), OpenError>,
) -> Option<UndamagedCheckpoint> {
    let dir = if is_checkpoint(damaged) { damaged.parent()? } else { damaged };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let loaded = engine.load_checkpoint(dir, LoadChoice::NewestValid, is_same).ok()?;
    let real = |dir: &Path| dir.canonicalize().ok();
    let own = options.checkpoint.as_ref().and_then(|to| real(&to.dir));
    Some(UndamagedCheckpoint {
        path: loaded.reader.path().to_owned(),
        step: loaded.reader.state().step,
        is_found_by_auto: own.is_some() && own == real(dir),
    })
}

/// The path from which the run resumes, and what happens if the checkpoint is damaged. After a restart, the last
/// checkpoint of the same job outranks `--resume`.
fn source(options: &TrainOptions) -> Option<(PathBuf, LoadChoice)> {
    let own = match (&options.start, &options.checkpoint) {
        (Some(start), Some(saved)) if start.is_restart => last_of_job(&saved.dir, &start.job),
        _ => None,
    };
    if let Some(own) = own {
        return Some((own, LoadChoice::NewestValid));
    }
    let choice = if options.may_start_fresh { LoadChoice::NewestValid } else { LoadChoice::Exact };
    options.resume.as_deref().map(|path: &Path| (path.to_owned(), choice))
}

/// Whether there is no checkpoint, so that a run may start from the beginning.
fn is_absent(error: &OpenError) -> bool {
    match error {
        OpenError::Empty { .. } => true,
        OpenError::Read { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn check_model(reader: &CheckpointReader, model: &str) -> Result<(), OpenError> {
    let saved = &reader.state().model;
    if saved == model {
        return Ok(());
    }
    let differences = vec![format!("`{saved}` instead of `{model}`")];
    Err(OpenError::OtherModel { path: reader.path().to_owned(), differences })
}

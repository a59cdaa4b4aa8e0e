//! State before the first step: initial values or those of a checkpoint.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::runtime::Group;
use crate::runtime::engine::{EngineCounters, Parameter, Section};
use crate::train::checkpoint::{self, CheckpointError, SampleRange};
use crate::train::error::TrainError;
use crate::train::options::TrainOptions;
use crate::train::report::progress::TrainEvent;
use crate::train::report::rank0::Rank0Reporter;
use crate::train::task::definition::{Task, TaskEngine};

/// Samples that the steps of this run use.
pub(crate) fn samples_of(group: &Group, options: &TrainOptions) -> SampleRange {
    let lanes = group.world_size() * options.engine.accumulate;
    SampleRange { lanes, batch_size: options.batch_size.get(), seed: options.seed }
}

/// Restores the state of the checkpoint from which the run resumes, if it does; rank 0 reads it and
/// broadcasts it because other ranks may not have the file.
pub(crate) fn restore_state<T: Task>(
    options: &TrainOptions,
    task: &T,
    engine: &mut TaskEngine<T>,
    reporter: &mut Rank0Reporter<'_>,
) -> Result<(), TrainError> {
    let is_restart = options.start.as_ref().is_some_and(|start| start.is_restart);
    if options.resume.is_none() && !is_restart {
        return Ok(());
    }
    let table = engine.table().clone();
    let sections = engine.sections();
    let mut values = vec![vec![0.0; table.len()]; sections.len()];
    let mut step = [NO_STEP];
    if let (true, Some(paths)) = (reporter.is_active, resume_candidates(options)?) {
        let load = |path: &Path| checkpoint::load(path, &table, &task.identity());
        let damaged =
            |error: &CheckpointError| reporter.report(|| TrainEvent::Damaged(error.to_string()));
        let (path, found) = checkpoint::load_first_valid(paths, load, damaged)?;
        values = found.tensors.into_sections();
        step = [found.step as i64];
        let now = samples_of(engine.group(), options);
        let before = found.samples.filter(|before| *before != now);
        let changed_samples =
            before.map(|before| format!("steps so far: {before}; following steps: {now}"));
        reporter.report(|| TrainEvent::Resumed { path, step: found.step, changed_samples });
    }
    let group = engine.group().clone();
    group.broadcast(&mut step, 0)?;
    if step[0] == NO_STEP {
        return Ok(());
    }
    for values in &mut values {
        group.broadcast(values, 0)?;
    }
    let step = step[0] as u64;
    let counters = EngineCounters { steps: step, updates: step, scaler: engine.counters().scaler };
    let mut read =
        |parameter: &Parameter, section: Section, range: Range<usize>, out: &mut [f32]| {
            let index = sections.iter().position(|known| *known == section);
            let flat = &values[index.expect("a section of this engine")];
            out.copy_from_slice(&flat[parameter.range.clone()][range]);
            Ok::<(), TrainError>(())
        };
    engine.restore(counters, &mut read)?
}

/// Value that rank 0 broadcasts in place of a step if there is no checkpoint.
pub(crate) const NO_STEP: i64 = -1;

/// Checkpoints from which this start may resume, the preferred one first: the last one of its own job,
/// else the ones of `options.resume`. Earlier ones follow in case it is damaged, unless `options.resume`
/// is a file.
pub(crate) fn resume_candidates(
    options: &TrainOptions,
) -> Result<Option<Vec<PathBuf>>, CheckpointError> {
    let own = match (&options.start, &options.checkpoint) {
        (Some(start), Some(saved)) if start.is_restart => {
            checkpoint::last_of_job(&saved.dir, &start.job)
        }
        _ => None,
    };
    if let Some(own) = own {
        return Ok(Some(checkpoint::with_earlier(own)));
    }
    let Some(path) = options.resume.as_deref() else { return Ok(None) };
    if !options.may_start_fresh {
        return checkpoint::find(path).map(|found| Some(vec![found]));
    }
    match checkpoint::find_all(path) {
        Err(CheckpointError::Missing { .. }) => Ok(None),
        found => found.map(Some),
    }
}

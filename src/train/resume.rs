//! State before the first step: initial values or those of a checkpoint.

use std::path::{Path, PathBuf};

use crate::runtime::Group;
use crate::train::checkpoint::{self, CheckpointError, SampleRange};
use crate::train::error::TrainError;
use crate::train::nn::model::ParameterTable;
use crate::train::nn::model_id::ModelId;
use crate::train::optim::adamw::{AdamW, Moments};
use crate::train::options::TrainOptions;
use crate::train::report::progress::TrainEvent;
use crate::train::report::rank0::Rank0Reporter;

/// Samples that the steps of this run use.
pub(crate) fn samples_of(group: &Group, options: &TrainOptions) -> SampleRange {
    let lanes = group.world_size() * options.accumulate.get();
    SampleRange { lanes, batch_size: options.batch_size.get(), seed: options.seed }
}

/// Parameters and optimizer before the first step of this run: initial values, or those of a checkpoint,
/// which rank 0 reads and broadcasts because other ranks may not have the file.
pub(crate) fn initial_state(
    group: &Group,
    options: &TrainOptions,
    table: &ParameterTable,
    identity: &ModelId,
    reporter: &mut Rank0Reporter<'_>,
) -> Result<(Vec<f32>, AdamW<f32>), TrainError> {
    let fresh = || {
        let optimizer = AdamW::new(table, options.optimizer, options.threads);
        (table.init(options.seed), optimizer)
    };
    let is_restart = options.start.as_ref().is_some_and(|start| start.is_restart);
    if options.resume.is_none() && !is_restart {
        return Ok(fresh());
    }
    let zeros = || vec![0.0; table.len()];
    let (mut params, mut first, mut second, mut step) = (zeros(), zeros(), zeros(), [NO_STEP]);
    if let (true, Some(paths)) = (reporter.is_active, resume_candidates(options)?) {
        let load = |path: &Path| checkpoint::load(path, table, identity);
        let damaged =
            |error: &CheckpointError| reporter.report(|| TrainEvent::Damaged(error.to_string()));
        let (path, found) = checkpoint::load_first_valid(paths, load, damaged)?;
        (params, first, second) = (found.params, found.moments.first, found.moments.second);
        step = [found.step as i64];
        let now = samples_of(group, options);
        let before = found.samples.filter(|before| *before != now);
        let changed_samples =
            before.map(|before| format!("steps so far: {before}; following steps: {now}"));
        reporter.report(|| TrainEvent::Resumed { path, step: found.step, changed_samples });
    }
    group.broadcast(&mut step, 0)?;
    if step[0] == NO_STEP {
        return Ok(fresh());
    }
    for buffer in [&mut params, &mut first, &mut second] {
        group.broadcast(buffer, 0)?;
    }
    let moments = Moments { first, second };
    let step = step[0] as u64;
    Ok((params, AdamW::resume(table, options.optimizer, options.threads, moments, step)))
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

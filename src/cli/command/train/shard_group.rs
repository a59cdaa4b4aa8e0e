//! `--shard_group`: hybrid sharding of this number of workers.

use super::args::TrainArgs;
use super::codes::BAD_SHARD_GROUP;
use crate::base::{Diagnostic, Status};
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::runtime::engine::{EngineConfig, EngineError, is_shard_group};

/// Fails if the workers cannot be divided into shard groups of the size of the line or its file.
pub(super) fn check(args: &TrainArgs, workers: usize, typed: &CommandLine) -> Result<(), CliError> {
    let engine = args.engine(0);
    let Some(size) = engine.shard_group else { return Ok(()) };
    let Err(EngineError::Config { problem, instead }) = engine.check(workers) else {
        return Ok(());
    };
    let label = format!("asks for shard groups of {size}");
    let in_file = args.config_place(&["zero_optimization.zero_hpz_partition_size"]);
    if let (None, Some(place)) = (args.shard_group, in_file) {
        return Err(place.refuse(Status::Usage, BAD_SHARD_GROUP, problem, |found| {
            found.label(label).help(instead)
        }));
    }
    let (flag, help) = match args.shard_group {
        Some(_) => ("shard_group", option_help(&engine, size, workers)),
        None => ("deepspeed_config", None),
    };
    let refused = typed.refuse(&[typed.value_or_end(flag)], |spans| {
        Diagnostic::error(BAD_SHARD_GROUP, spans[0], problem)
            .label(label)
            .help(help.unwrap_or(instead))
    });
    Err(refused.into())
}

/// What to type instead of `--shard_group`; `None` if its number is not the problem.
fn option_help(engine: &EngineConfig, size: usize, workers: usize) -> Option<String> {
    if !engine.sharding.divides_parameters() {
        return Some("write `--stage 3`, or leave `--shard_group` out".to_owned());
    }
    if is_shard_group(size, workers) {
        return None;
    }
    let largest = 1 << workers.trailing_zeros();
    Some(if is_shard_group(largest, workers) {
        format!("write `--shard_group {largest}`")
    } else {
        format!("no size fits {workers} workers: leave `--shard_group` out")
    })
}

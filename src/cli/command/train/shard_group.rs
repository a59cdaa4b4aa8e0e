//! `--shard_group`: hybrid sharding of this number of workers.

use super::args::TrainArgs;
use super::codes::BAD_SHARD_GROUP;
use crate::base::Diagnostic;
use crate::cli::line::{CommandLine, RefusedLine};
use crate::runtime::engine::EngineError;

/// Fails if the workers cannot be divided into shard groups of the size of the line or its file.
pub(super) fn check(
    args: &TrainArgs,
    workers: usize,
    typed: &CommandLine,
) -> Result<(), RefusedLine> {
    let engine = args.engine(0);
    let Some(size) = engine.shard_group else { return Ok(()) };
    let Err(EngineError::Config { problem, instead }) = engine.check(workers) else {
        return Ok(());
    };
    let flag = if args.shard_group.is_some() { "shard_group" } else { "deepspeed_config" };
    Err(typed.refuse(&[typed.value_or_end(flag)], |spans| {
        Diagnostic::error(BAD_SHARD_GROUP, spans[0], problem)
            .label(format!("asks for shard groups of {size}"))
            .help(instead)
    }))
}

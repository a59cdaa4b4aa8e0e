//! Checks before any worker starts: sizes that do not fit each other, missing files, checkpoints of
//! another run. Errors point at the place of the command line.

use std::num::NonZeroUsize;

use crate::base::Diagnostic;
use crate::cli::command::train::args::TrainArgs;
use crate::cli::command::train::outputs::{check_outputs, check_unused};
use crate::cli::command::train::resume::{apply_samples, apply_saved, find_saved};
use crate::cli::command::train::sizes::{check_data, check_heads, check_memory};
use crate::cli::command::train::typed_line::TypedLine;
use crate::cli::command::train::values::{DeviceArg, ModelArg};
use crate::cli::error::CliError;
use crate::cli::line::codes::NEEDS_OTHER;
use crate::cli::line::{CommandLine, RefusedLine, cannot_combine, needs_other};
use crate::cli::resolve::ResolvedCluster;
use crate::inventory::available_memory;
use crate::launch::Transport;
use crate::train::{ModelId, SavedTraining, inspect, inspect_newest, newest_in};

/// Number of different bytes that is assumed for a text that was not read yet: the maximum.
const VOCABULARY_MAX: usize = 256;

/// Place and number of the workers, and so of their files and their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workers {
    /// The workers run on this machine.
    Local(usize),
    /// The workers run on other machines: the agents check the files there, and the workers report
    /// all other errors.
    Remote(usize),
}

impl Workers {
    pub(super) fn of(cluster: &ResolvedCluster) -> Self {
        match cluster.transport {
            Transport::Local => Self::Local(cluster.workers()),
            Transport::Ssh(_) | Transport::Dial(_) | Transport::Managed(_) => {
                Self::Remote(cluster.workers())
            }
        }
    }

    pub(super) fn count(self) -> usize {
        match self {
            Self::Local(count) | Self::Remote(count) => count,
        }
    }
}

/// Finds the checkpoint from which the run continues, and takes from it the options that were not typed.
pub(super) fn resumed(
    args: &mut TrainArgs,
    typed: &CommandLine,
    workers: Workers,
) -> Result<Option<SavedTraining>, CliError> {
    if args.save_every.is_some() && args.checkpoint_dir.is_none() {
        return Err(needs_other(typed, "save_every", "checkpoint_dir").into());
    }
    if args.keep.is_some() && args.checkpoint_dir.is_none() {
        return Err(needs_other(typed, "keep", "checkpoint_dir").into());
    }
    if args.is_auto() && args.checkpoint_dir.is_none() {
        return Err(auto_needs_directory(typed).into());
    }
    let line = &TypedLine(typed);
    let is_here = matches!(workers, Workers::Local(_));
    let resume = if args.is_auto() {
        args.checkpoint_dir.as_deref().filter(|dir| newest_in(dir).is_some())
    } else {
        args.resume.as_deref().filter(|path| is_here || path.exists())
    };
    let inspect = if args.is_auto() { inspect_newest } else { inspect };
    let saved = resume.map(|path| find_saved(line, path, inspect)).transpose()?;
    if let Some(saved) = &saved {
        apply_saved(line, args, saved, is_here)?;
        apply_samples(args, saved, workers.count());
    }
    Ok(saved)
}

/// Checks everything else that this machine can check. Returns the number of different tokens of a GPT, or the most
/// that is possible.
pub(super) fn run(
    args: &mut TrainArgs,
    typed: &CommandLine,
    workers: Workers,
    saved: Option<&SavedTraining>,
) -> Result<usize, CliError> {
    let line = &TypedLine(typed);
    let is_here = matches!(workers, Workers::Local(_));
    if args.model() == ModelArg::Mlp && !args.data.is_empty() {
        return Err(
            cannot_combine(typed, "model", "data", "the samples of an MLP are synthetic").into()
        );
    }
    check_heads(line, args)?;
    let data_vocabulary =
        if is_here { check_data(line, args)? } else { args.vocabulary.map(NonZeroUsize::get) };
    let data_vocabulary = data_vocabulary.unwrap_or(VOCABULARY_MAX);
    let vocabulary = saved.map_or(data_vocabulary, |saved| match saved.model {
        ModelId::Gpt { vocabulary, .. } => vocabulary,
        ModelId::Mlp { .. } => data_vocabulary,
    });
    if is_here {
        check_outputs(line, args)?;
        check_unused(line, args)?;
    }
    Ok(vocabulary)
}

/// Checks that workers on this machine have enough memory.
pub(super) fn memory(
    args: &TrainArgs,
    typed: &CommandLine,
    workers: Workers,
    vocabulary: usize,
) -> Result<(), CliError> {
    match workers {
        Workers::Local(workers) if args.device == DeviceArg::Cpu => {
            check_memory(&TypedLine(typed), args, vocabulary, workers, available_memory())
        }
        Workers::Local(_) | Workers::Remote(_) => Ok(()),
    }
}

/// Returns the error for `--resume auto` without the directory of the checkpoints.
fn auto_needs_directory(typed: &CommandLine) -> RefusedLine {
    let place = typed.value_or_end("resume");
    typed.refuse(&[place], |spans| {
        let message = "`--resume auto` needs `--checkpoint_dir`";
        Diagnostic::error(NEEDS_OTHER, spans[0], message)
            .label("reads the newest checkpoint of that directory")
            .help("add `--checkpoint_dir DIR`, or name a checkpoint: `--resume PATH`")
    })
}

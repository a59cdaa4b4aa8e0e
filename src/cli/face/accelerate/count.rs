//! The number of workers of a line of accelerate, and the GPUs for them. Starts nothing; `job` calls it.

use super::notes::line_on_cpus;
use super::settings::{Settings, refuse_setting};
use crate::base::Diagnostic;
use crate::cli::error::CliError;
use crate::cli::line::{CommandLine, codes};
use crate::config::accelerate::ConfigFile;

/// Number of all workers.
pub(super) fn processes(
    settings: &Settings,
    file: Option<&ConfigFile>,
    typed: &CommandLine,
    gpus: usize,
) -> Result<usize, CliError> {
    let is_for_one = file.is_some_and(|file| file.is_for_one);
    match settings.whole("num_processes") {
        Some(count) if 0 <= count => Ok(count as usize),
        Some(-1) | None if file.is_some() && !is_for_one => Err(no_count(typed)),
        None if file.is_some() => Ok(1),
        None => Ok(gpus),
        Some(_) => Err(no_count(typed)),
    }
}

/// Refuses `--multi_gpu` without a number of workers on a machine without a GPU: the number of GPUs would be that of
/// the workers.
pub(super) fn check_count_without_gpus(
    settings: &Settings,
    typed: &CommandLine,
) -> Result<(), CliError> {
    if settings.whole("num_processes").is_some() {
        return Ok(());
    }
    let help = format!(
        "for two workers on CPUs, type `{}`; for GPUs that remuda does not count, add `--num_processes N`",
        line_on_cpus(typed, "2")
    );
    let refused = typed.refuse(&[typed.name_or_end("multi_gpu")], |spans| {
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], "no GPU was found on this machine")
            .label("one worker for each GPU")
            .help(help)
    });
    Err(refused.into())
}

/// Refuses one GPU for a configuration of several.
pub(super) fn check_gpu_ids(
    settings: &Settings,
    file: &ConfigFile,
    typed: &CommandLine,
) -> Result<(), CliError> {
    let ids = settings.text("gpu_ids").unwrap_or_else(|| "all".to_owned());
    let is_one = ids != "all" && !ids.contains(',');
    if !is_one || settings.whole("num_machines").is_some_and(|machines| 1 < machines) {
        return Ok(());
    }
    let message = format!("`gpu_ids` is `{}`, and the job uses several GPUs", ids.escape_debug());
    let help = "name two GPUs or more, such as `0,1`, or write `all`";
    Err(refuse_setting(typed, Some(file), "gpu_ids", |span, place| {
        Diagnostic::error(place.code(), span, message).label("one GPU").help(help)
    }))
}

/// Returns the error for a line that gives no positive number of workers.
pub(super) fn no_count(typed: &CommandLine) -> CliError {
    let place = typed.value_or_end("num_processes");
    let is_typed = typed.options.iter().any(|given| given.flag == "num_processes");
    let refused = typed.refuse(&[place], |spans| {
        let (message, label) = if is_typed {
            ("the number of workers is not positive", "no worker")
        } else {
            ("the number of workers is not given", "neither here nor in a configuration file")
        };
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message).label(label).help(
            "give `--num_processes N`; without a file N is the number of GPUs of this machine",
        )
    });
    refused.into()
}

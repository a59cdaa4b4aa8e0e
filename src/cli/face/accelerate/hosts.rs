//! The hosts of `-H` in a line of accelerate: how many machines they are, and whether they have slots for
//! the workers. Starts nothing; `job` calls it.

use std::path::Path;

use super::args::AccelerateArgs;
use super::settings::Settings;
use crate::base::{Diagnostic, HostName, Slot};
use crate::cli::error::CliError;
use crate::cli::line::{CommandLine, codes};
use crate::cli::resolve::hostfile::{LoadError, load_value};
use crate::cli::resolve::trust::Trust;
use crate::os::files::input_file::is_pipe;
use crate::pool::{Pool, SLOTS_MAX, SlotCount};
use crate::report::Terminal;
use crate::report::text::show_count;

/// Returns the number of machines: that of the line or of the file, else the number of hosts of `-H`.
///
/// # Errors
/// If the workers cannot be divided among the hosts. Hosts that cannot be read are reported where they are
/// used.
pub(super) fn machines(
    args: &AccelerateArgs,
    typed: &CommandLine,
    settings: &Settings,
) -> Result<usize, CliError> {
    let given = is_given(args, settings).then(|| settings.whole("num_machines").unwrap_or(1));
    let given = given.map(|machines| machines.max(1) as usize);
    let workers = settings.whole("num_processes").and_then(|all| usize::try_from(all).ok());
    let Some(hostfile) = &args.hostfile else { return Ok(given.unwrap_or(1)) };
    let path = Path::new(hostfile);
    if std::fs::metadata(path).is_ok_and(|found| is_pipe(&found)) {
        // The hosts of a pipe are read once, by the job.
        return given.ok_or_else(|| no_machines(typed));
    }
    let Some(pool) = read(path, workers) else { return Ok(given.unwrap_or(1)) };
    let hosts = pool.nodes();
    if let Some(machines) = given.filter(|machines| hosts.len() < *machines) {
        let why = format!("`-H` names {}", show_count(hosts.len(), "host"));
        let help = format!("name more hosts, or write `--num_machines {}`", hosts.len());
        return Err(refuse(typed, "num_machines", machines, &why, &help));
    }
    let machines = given.unwrap_or(hosts.len()).max(1);
    if let Some(workers) = workers {
        check_workers(typed, workers, &hosts[..machines.min(hosts.len())], given.is_some())?;
    }
    Ok(machines)
}

/// Whether the line or the file says how many machines there are. The 1 of a file is what
/// `accelerate config` writes for a single machine, and hosts of the line outrank it.
pub(super) fn is_given(args: &AccelerateArgs, settings: &Settings) -> bool {
    let several = settings.whole("num_machines").is_some_and(|machines| 1 < machines);
    args.is_typed("num_machines") || several
}

/// Reads the hosts; those without a number of slots have as many as there are workers.
fn read(path: &Path, workers: Option<usize>) -> Option<Pool> {
    let slots = workers.unwrap_or(1).clamp(1, SLOTS_MAX as usize);
    let slots = Some(SlotCount::new(slots as u32).expect("it is within the limits"));
    let reading = load_value(path, Trust::All, slots, slots).ok()?;
    Some(reading.hostfile.pool())
}

/// Refuses hosts without a number of slots where the line gives no number of workers.
pub(super) fn check_slots(args: &AccelerateArgs, typed: &CommandLine) -> Result<(), CliError> {
    let path = args.hostfile.as_ref().map(Path::new);
    let path = path.filter(|path| !std::fs::metadata(path).is_ok_and(|found| is_pipe(&found)));
    match path.map(|path| load_value(path, Trust::All, None, None)) {
        Some(Err(error @ LoadError::Malformed(_))) => {
            let error = error.named_as(typed);
            let text = error.screen(Terminal::detect().paint);
            Err(CliError::Screen { status: error.status(), text })
        }
        _ => Ok(()),
    }
}

/// Refuses workers that the hosts have no slots for, or that make no equal shares; accelerate rounds the
/// shares of a given number of machines down.
fn check_workers(
    typed: &CommandLine,
    workers: usize,
    hosts: &[(HostName, Vec<Slot>)],
    is_rounded: bool,
) -> Result<(), CliError> {
    const WORKERS: &str = "num_processes";
    let count = hosts.len();
    if workers == 0 || count == 0 {
        return Ok(());
    }
    if !is_rounded && !workers.is_multiple_of(count) {
        let why = format!(
            "{} cannot be divided equally among the {count} hosts of `-H`",
            show_count(workers, "worker")
        );
        let help =
            format!("`--num_processes` is the number of all workers: write a multiple of {count}");
        return Err(refuse(typed, WORKERS, workers, &why, &help));
    }
    let share = (workers / count).max(1);
    let Some((host, slots)) = hosts.iter().find(|(_, slots)| slots.len() < share) else {
        return Ok(());
    };
    let fewest = hosts.iter().map(|(_, slots)| slots.len()).min().unwrap_or(1);
    let why = format!(
        "{} on each of {}, but `{host}` has {}",
        show_count(share, "worker"),
        show_count(count, "host"),
        show_count(slots.len(), "slot")
    );
    let help =
        format!("`--num_processes` is the number of all workers: write {} or less", fewest * count);
    Err(refuse(typed, WORKERS, workers, &why, &help))
}

fn refuse(typed: &CommandLine, flag: &str, value: usize, why: &str, help: &str) -> CliError {
    let refused = typed.refuse(&[typed.value_or_end(flag)], |spans| {
        let message = format!("`--{flag}` cannot be {value}: {why}");
        Diagnostic::error(codes::BAD_VALUE, spans[0], message).label("out of range").help(help)
    });
    refused.into()
}

fn no_machines(typed: &CommandLine) -> CliError {
    let refused = typed.refuse(&[typed.value_or_end("hostfile")], |spans| {
        let message = "the number of machines is not given";
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message)
            .label("a pipe, which is read once")
            .help("give `--num_machines N`, or write the hosts to a file")
    });
    refused.into()
}

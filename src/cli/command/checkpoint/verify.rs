//! `remuda checkpoint verify`.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::base::Status;
use crate::cli::command::checkpoint::codes::DAMAGED;
use crate::cli::command::checkpoint::problems::{code_of, name_undamaged, refuse};
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::report::text::{show_bytes, show_count};
use crate::report::{Terminal, print, print_message};
use crate::runtime::checkpoint::{
    CheckpointReader, Damage, OpenError, is_checkpoint, list_checkpoints, verify_checkpoint,
};

/// What the user can do about all damage that was reported.
const DAMAGED_HELP: &str = "help: restore the damaged files from a copy, or use another checkpoint; \
                            `--resume auto` continues from the newest undamaged one\n";

/// Arguments of `remuda checkpoint verify`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// Checkpoint, or directory of checkpoints, of which all are checked
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

pub(super) fn run(args: &VerifyArgs, typed: &CommandLine) -> Result<Status, CliError> {
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok());
    let threads = threads.map_or(1, NonZeroUsize::get);
    let refused = |error: &OpenError| refuse(typed, &args.dir, Some(Status::Usage), error);
    let is_one =
        fs::metadata(&args.dir).is_ok_and(|found| !found.is_dir()) || is_checkpoint(&args.dir);
    if is_one {
        let damage = verify_checkpoint(&args.dir, threads).map_err(|error| refused(&error))?;
        let status = report(&args.dir, &damage)?;
        if !damage.is_empty() {
            show_error(&help_for_one(&args.dir));
        }
        return Ok(status);
    }
    let (names, latest) = list_checkpoints(&args.dir).map_err(|error| refused(&error))?;
    let (mut worst, mut damaged, mut newest) = (Status::Success, 0, None);
    let count = names.len();
    for name in names {
        let path = args.dir.join(name);
        let status = match verify_checkpoint(&path, threads) {
            Ok(damage) => report(&path, &damage)?,
            Err(error) => {
                let code = code_of(&error);
                show_error(&format!("error[{code}]: {error}\n"));
                Status::Usage
            }
        };
        worst = worse(worst, status);
        if status == Status::Success {
            newest = Some(path);
        } else if status == Status::Findings {
            damaged += 1;
        }
    }
    let has_damage = 0 < damaged || latest.is_some();
    if 0 < damaged {
        print(&summary(damaged, count, newest.as_deref())).map_err(CliError::output)?;
    }
    if let Some(damage) = latest {
        show_damage(&args.dir, &[damage]);
        worst = worse(worst, Status::Findings);
    }
    if has_damage {
        show_error(DAMAGED_HELP);
    }
    Ok(worst)
}

/// What the user can do about the damage of the one checkpoint that was checked.
fn help_for_one(path: &Path) -> String {
    match name_undamaged(path) {
        Some(newest) => format!("help: restore the damaged files from a copy; {newest}\n"),
        None => "help: restore the damaged files from a copy\n".to_owned(),
    }
}

/// The last line about a directory with damaged checkpoints.
fn summary(damaged: usize, all: usize, newest: Option<&Path>) -> String {
    let checkpoints = show_count(all, "checkpoint");
    let verb = if damaged == 1 { "is" } else { "are" };
    let newest = match newest {
        Some(path) => format!("newest undamaged: {}", path.display()),
        None => "none is undamaged".to_owned(),
    };
    format!("{damaged} of {checkpoints} {verb} damaged; {newest}\n")
}

/// Prints the result of a checkpoint.
fn report(path: &Path, damage: &[Damage]) -> Result<Status, CliError> {
    if damage.is_empty() {
        print(&clean_line(path)).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    show_damage(path, damage);
    Ok(Status::Findings)
}

fn clean_line(path: &Path) -> String {
    let files = CheckpointReader::open(path).map(|reader| reader.files()).unwrap_or_default();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let (count, size) = (show_count(files.len(), "file"), show_bytes(bytes as f64));
    format!("{}: {count}, {size}: no damage\n", path.display())
}

fn show_damage(path: &Path, damage: &[Damage]) {
    for damage in damage {
        show_error(&format!("error[{DAMAGED}]: {}: {damage}\n", path.display()));
    }
}

fn show_error(text: &str) {
    print_message(text, Terminal::detect().paint);
}

/// The status with the larger number.
fn worse(a: Status, b: Status) -> Status {
    if a.code() < b.code() { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_what_a_run_can_continue_from() {
        let newest = Some(Path::new("run/step-00000004"));
        let expected = "1 of 3 checkpoints is damaged; newest undamaged: run/step-00000004\n";
        assert_eq!(summary(1, 3, newest), expected);
        assert_eq!(summary(2, 2, None), "2 of 2 checkpoints are damaged; none is undamaged\n");
    }
}

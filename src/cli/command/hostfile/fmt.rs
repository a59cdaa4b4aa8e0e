//! `remuda hostfile fmt`.

use std::path::{Path, PathBuf};

use crate::base::Status;
use crate::cli::command::hostfile::values::ReadArgs;
use crate::cli::command::hostfile::write;
use crate::cli::command::output::{CommandOutput, lines};
use crate::cli::resolve::hostfile::LoadError;
use crate::pool::format;
use crate::report::diagnostic::{Paint, show_findings};

/// Arguments of `remuda hostfile fmt`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FmtArgs {
    /// Files to format; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the files instead of standard output
    #[arg(short, long, conflicts_with = "check")]
    write: bool,
    /// List the files that are not formatted, and change nothing
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: &FmtArgs, paint: Paint) -> CommandOutput {
    let mut out = CommandOutput::new();
    for file in &args.files {
        if let Err(error) = format_file(file, args, &mut out, paint) {
            out.refuse(&error, paint);
        }
    }
    out
}

fn format_file(
    file: &Path,
    args: &FmtArgs,
    out: &mut CommandOutput,
    paint: Paint,
) -> Result<(), LoadError> {
    let reading = args.read.read(file)?;
    if reading.findings.has_errors() {
        out.stderr += &show_findings(&reading.findings, paint);
        out.worsen(Status::Findings);
        return Ok(());
    }
    let text = &reading.findings.source.text;
    let formatted = format(text, reading.dialect);
    let is_stdin = file.as_os_str() == "-";
    if args.check {
        if formatted != *text {
            out.stdout += &lines(std::iter::once(file.display()));
            out.worsen(Status::Findings);
        }
    } else if args.write && !is_stdin {
        if formatted != *text {
            write::replace(file, &formatted)
                .map_err(|source| LoadError::NotWritten { path: file.to_owned(), source })?;
        }
    } else {
        out.stdout += &formatted;
    }
    Ok(())
}

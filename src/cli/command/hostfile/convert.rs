//! `remuda hostfile convert`.

use std::path::PathBuf;

use crate::base::Status;
use crate::cli::command::hostfile::values::{ReadArgs, ToArg};
use crate::cli::command::output::{CommandOutput, count, lines};
use crate::pool::dialect::{lost_limits, write};
use crate::pool::{Reading, comments};
use crate::report::diagnostic::{Paint, show_findings};
use crate::report::world::world_json;

/// Arguments of `remuda hostfile convert`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ConvertArgs {
    /// Hostfile; `-` is standard input; `n1:8,n2:8` is a list of hosts
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Dialect to write
    #[arg(long, value_name = "DIALECT", value_enum)]
    to: ToArg,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: &ConvertArgs, paint: Paint) -> CommandOutput {
    let mut out = CommandOutput::new();
    let reading = match args.read.read(&args.file) {
        Ok(reading) => reading,
        Err(error) => {
            out.refuse(&error, paint);
            return out;
        }
    };
    if reading.findings.has_errors() {
        out.stderr = show_findings(&reading.findings, paint);
        out.status = Status::Findings;
        return out;
    }
    let mut losses = losses(&reading);
    match args.to {
        ToArg::Json => {
            out.stdout = world_json(&reading.hostfile.pool());
            losses.extend(lost_limits(reading.hostfile.hosts()));
        }
        ToArg::Target(target) => {
            let written = write(reading.hostfile.hosts(), target);
            out.stdout = written.text;
            losses.extend(written.losses);
        }
    }
    out.stderr = lines(losses.iter().map(|loss| format!("note: {loss}")));
    out
}

/// Returns the parts of the file that the target format cannot contain.
fn losses(reading: &Reading) -> Vec<String> {
    let source = &reading.findings.source;
    let comments = comments(&source.text, reading.dialect);
    let found = (comments, "comment");
    let unused = reading.unused.iter().map(|(what, times)| (*times, *what));
    let all = std::iter::once(found).chain(unused).filter(|(times, _)| 0 < *times);
    all.map(|(times, what)| match what {
        "comment" => format!("{} not taken over", count(times as u64, what)),
        _ => format!("`{what}` of {} not taken over", count(times as u64, "line")),
    })
    .collect()
}

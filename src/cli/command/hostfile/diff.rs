//! `remuda hostfile diff`.

use std::path::PathBuf;

use crate::base::Status;
use crate::cli::command::hostfile::values::ReadArgs;
use crate::cli::command::output::CommandOutput;
use crate::cli::resolve::hostfile::LoadError;
use crate::pool::{Difference, Reading, diff};
use crate::report::diagnostic::Paint;

/// Arguments of `remuda hostfile diff`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DiffArgs {
    /// First hostfile; `-` is standard input; `n1:8,n2:8` is a list of hosts
    #[arg(value_name = "FIRST")]
    first: PathBuf,
    /// Second hostfile
    #[arg(value_name = "SECOND")]
    second: PathBuf,
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: &DiffArgs, paint: Paint) -> CommandOutput {
    let mut out = CommandOutput::new();
    let files = [&args.first, &args.second].map(|file| {
        let reading = args.read.read(file)?;
        if reading.findings.has_errors() {
            return Err(LoadError::Malformed(reading.findings));
        }
        Ok(reading)
    });
    let [Ok(first), Ok(second)] = &files else {
        let errors = files.iter().filter_map(|file| file.as_ref().err());
        errors.for_each(|error| out.stderr += &error.screen(paint));
        // Exit status 1 would mean that the files differ.
        out.status = Status::Usage;
        return out;
    };
    out.stdout = show(first, second);
    if !out.stdout.is_empty() {
        out.status = Status::Findings;
    }
    out
}

/// Text with one line for each difference.
fn show(first: &Reading, second: &Reading) -> String {
    let found = diff(first.hostfile.hosts(), second.hostfile.hosts());
    let line = |found: &Difference<'_>| match found {
        Difference::Removed(host) => format!("- {} slots={}\n", host.name, host.slots.get()),
        Difference::Added(host) => format!("+ {} slots={}\n", host.name, host.slots.get()),
        Difference::Slots(old, new) => {
            format!("~ {} slots={} -> slots={}\n", new.name, old.slots.get(), new.slots.get())
        }
        Difference::Moved(host, from, to) => format!("~ {} node {from} -> node {to}\n", host.name),
    };
    found.iter().map(line).collect()
}

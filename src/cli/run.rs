//! `remuda run`: a program on every slot of every host.

use std::ffi::OsString;

use clap::Parser;

use super::args::{PlaceArgs, ProgramArgs, WatchArgs};
use super::error::CliError;
use super::lower::{self, Place, Speaker};
use crate::base::Status;
use crate::launch::{self, Options};
use crate::plan::{self, JobSpec, LaunchPlan, Program};
use crate::report::plan::{Secrets, plan_json, show_plan};
use crate::report::summary::{count, step};
use crate::report::{Terminal, print, print_error};

/// Run a program on every slot of every host, and tell the truth about how it ends.
///
/// Exit status: 0 if every worker of every node returned 0; else that of the worker that failed
/// first, 128 + N if signal N ended it. Our own: 2 command line, 65 bad hostfile, 66 missing input,
/// 69 host unreachable, 70 a bug of ours, 71 system limit, 73/74 output, 75 node lost, 76 protocol,
/// 77 permission, 78 configuration, 124 --timeout, 126/127 program not executable / not found,
/// 130/143 interrupted.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda run",
    bin_name = "remuda run",
    version,
    infer_long_args = true,
    args_override_self = true
)]
struct RunArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

/// Parses and runs.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let args = super::parse::<RunArgs>(words)?;
    let terminal = Terminal::look();
    let place = lower::place(&args.place, terminal)?;
    let (program, program_args, note) = lower::program(&args.program)?;
    if let Some(note) = note.filter(|_| !args.watch.quiet) {
        print_error(&format!("note: {note}\n"));
    }
    start(place, &args.watch, program, program_args, Speaker::Everybody, terminal)
}

/// Plans, and shows or launches the plan.
pub(super) fn start(
    place: Place,
    watch: &WatchArgs,
    program: Program,
    args: Vec<OsString>,
    speaker: Speaker,
    terminal: Terminal,
) -> Result<Status, CliError> {
    print_error(&place.warnings);
    let origin = place.origin.clone();
    let spec = JobSpec {
        nodes: place.nodes,
        accelerator: place.accelerator,
        program,
        args,
        master_addr: place.master_addr,
        master_port: place.master_port,
        exports: lower::exports(&watch.env)?,
    };
    let plan =
        plan::plan(&spec).map_err(|error| CliError::new(error.status(), error.to_string()))?;
    if watch.dry_run {
        show(&plan, watch).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    let (options, note) = lower::options(watch, &spec, place.transport, speaker, terminal)?;
    if !watch.quiet {
        print_error(&(note + &announcement(&plan, &options, &origin)));
    }
    let status = launch::run(&plan, &options)
        .map_err(|error| CliError::new(error.status(), error.to_string()))?;
    Ok(status)
}

/// What is about to happen, and where it is recorded.
fn announcement(plan: &LaunchPlan, options: &Options, origin: &str) -> String {
    let workers = count(plan.world_size as usize, "worker");
    let nodes = count(plan.nodes.len(), "node");
    let record = options
        .run_dir
        .as_ref()
        .map_or_else(String::new, |run_dir| step("Record", &run_dir.path().display().to_string()));
    step("Launch", &format!("{workers} on {nodes} ({origin}), job {}", options.job)) + &record
}

fn show(plan: &LaunchPlan, watch: &WatchArgs) -> std::io::Result<()> {
    let secrets = if watch.show_env { Secrets::Shown } else { Secrets::Masked };
    if watch.json { print(&plan_json(plan, secrets)) } else { print(&show_plan(plan, secrets)) }
}

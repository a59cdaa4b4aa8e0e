//! `remuda ssh`: a command on every host, its output gathered.

use std::ffi::OsString;

use clap::{Command, CommandFactory, Parser};

use super::args::{PlaceArgs, WatchArgs, WorkerArgs};
use super::check::NOT_FOR_SSH;
use super::error::CliError;
use super::lower::environment::{self, Reach};
use super::lower::{self, Speaker};
use crate::base::{Slot, Status};
use crate::launch;
use crate::plan::{self, JobSpec, Program};
use crate::report::{Terminal, print_error};

/// Run a command once on every host, and show once what several hosts say alike.
///
/// A host that fails, or cannot be reached, does not stop the others. Exit status: 0 if the command
/// returned 0 on every host, else the greatest that a host has returned, or 69 for one that cannot be
/// reached; who failed and how is listed.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda ssh", bin_name = "remuda ssh", version, args_override_self = true)]
struct SshFace {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Show output as it comes, each line with its host
    #[arg(short = 'b', long = "no_gather")]
    no_gather: bool,
    /// The command and its arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Without the options that are not for it, and with `-f`, as `ds_ssh` calls the hostfile.
pub(super) fn definition() -> Command {
    SshFace::command().mut_args(|arg| match arg.get_id().as_str() {
        "hostfile" => arg.visible_short_alias('f'),
        id if NOT_FOR_SSH.contains(&id) => arg.hide(true),
        _ => arg,
    })
}

/// Parses and runs.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (mut face, typed) = super::parse_as::<SshFace>(definition(), words)?;
    super::check::ssh(&typed)?;
    super::check::place(&face.place, &typed)?;
    super::check::watch(&face.watch, &typed)?;
    let terminal = Terminal::look();
    // A host is a host, whatever devices it has.
    face.place.devices.oversubscribe = true;
    face.watch.prefix.get_or_insert_with(|| "{host}: ".to_owned());
    let place = lower::place(&face.place, &typed, terminal)?;
    super::check::stdin(&face.watch, place.nodes.len(), &typed)?;
    let files = environment::read_files(place.trust, place.accelerator, terminal.paint)?;
    if face.watch.warns() {
        print_error(&place.warnings);
        print_error(&files.warnings);
    }
    let reach = Reach::of(place.nodes.len(), &place.transport);
    let exports = environment::exports(&face.watch.env, files, reach, place.accelerator)?;
    let (program, args) = face.command.split_first().expect("clap requires a command");
    let hosts = place.nodes.iter();
    let spec = JobSpec {
        nodes: hosts.map(|(host, _)| (host.clone(), vec![Slot(0)])).collect(),
        accelerator: place.accelerator,
        device_names: Vec::new(),
        program: Program::Exec { program: program.clone(), local_rank: false },
        args: args.to_vec(),
        master_addr: place.master_addr,
        master_port: place.master_port,
        restarts_max: 0,
        exports,
    };
    let plan = plan::plan(&spec).map_err(super::run::cannot_plan)?;
    lower::check_size(&plan)?;
    let (workers, speaker) = (WorkerArgs::default(), Speaker::Everybody);
    let (mut options, note) =
        lower::options(&face.watch, &workers, &spec, place.transport, speaker, terminal)?;
    print_error(&note);
    options.lets_run = true;
    options.style.gather = !face.no_gather;
    options.way_on = place.way_on;
    options.talks = false;
    options.tell_record = false;
    launch::run(&plan, &options).map_err(super::run::cannot_launch)
}

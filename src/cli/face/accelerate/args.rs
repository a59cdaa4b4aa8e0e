//! The line of `accelerate launch`.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::options;
use crate::cli::args::RemoteArgs;
use crate::cli::args::values::{TorchBackendArg, parse_launcher_word};

/// Name of the subcommand.
pub(in crate::cli) const LAUNCH: &str = "launch";

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Settings are those of the line, then those of the configuration file, then the defaults. `-` and `_` are the
same in the name of an option. `--tpu` and the options for SageMaker are not supported.

Exit status: that of the worker that failed first, 128 + N if signal N ended it. COMPAT.md lists the
differences.";

/// Run lines of `accelerate launch`; hand other subcommands to accelerate itself.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda accelerate", bin_name = "remuda accelerate", version)]
pub(in crate::cli) struct AccelerateCli {
    #[command(subcommand)]
    command: AccelerateCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum AccelerateCommand {
    Launch(OwnArgs),
}

/// Run a script as `accelerate launch` does, with its options and its configuration file. With `-H` one
/// command starts all machines, over ssh; without it, start each machine with its own command line.
#[derive(Args, Clone, Debug)]
#[command(
    args_override_self = true,
    after_help = HELP_FOOTER,
    next_help_heading = "Options of remuda"
)]
struct OwnArgs {
    /// Start all machines from here: a hostfile, or a list such as `n1,n2`; --num_processes is divided among
    /// them [default: with --num_machines, the hosts of an allocation]
    #[arg(short = 'H', long, value_name = "FILE")]
    hostfile: Option<OsString>,
    /// With -H: how agents are started, as for `remuda run`: `ssh`, `slurm`, `openmpi`, `local`, …
    /// [default: `slurm` inside an allocation of Slurm, else `ssh`]
    #[arg(long, value_name = "HOW", value_parser = parse_launcher_word)]
    launcher: Option<String>,
    /// Secret of at least 16 bytes, the same on every machine
    #[arg(long, value_name = "FILE")]
    key_file: Option<OsString>,
    /// Backend of the groups that accelerate makes with `gloo` [default: gloo]
    #[arg(long, value_name = "NAME", value_enum)]
    torch_backend: Option<TorchBackendArg>,
    /// Print the plan of the job and start nothing
    #[arg(long = "dry-run")]
    dry_run: bool,
    /// With --dry-run: print the plan as JSON
    #[arg(long)]
    json: bool,
    /// Script, then its own arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "SCRIPT")]
    script_and_args: Vec<OsString>,
    #[command(flatten)]
    _remote: RemoteArgs,
}

/// A parsed line of `accelerate launch`.
#[derive(Clone, Debug)]
pub(in crate::cli) struct AccelerateArgs {
    /// Options of accelerate; `flags` is their table.
    pub(super) matches: ArgMatches,
    /// Hosts on which one command starts all machines.
    pub(super) hostfile: Option<OsString>,
    /// Whether the line says how agents are started.
    pub(super) has_launcher: bool,
    /// Script, then its own arguments.
    pub(super) script_and_args: Vec<OsString>,
    /// Options of remuda that every way to start has.
    pub(super) own_words: Vec<OsString>,
}

impl AccelerateArgs {
    /// Whether the line gives an option.
    pub(super) fn is_typed(&self, name: &str) -> bool {
        self.matches.value_source(name) == Some(ValueSource::CommandLine)
    }
}

impl FromArgMatches for AccelerateArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let own = OwnArgs::from_arg_matches(matches)?;
        let mut own_words: Vec<OsString> = Vec::new();
        own_words.extend(own.dry_run.then(|| "--dry-run".into()));
        own_words.extend(own.json.then(|| "--json".into()));
        own_words.extend(own.launcher.iter().map(|name| format!("--launcher={name}").into()));
        own_words.extend(own.key_file.into_iter().flat_map(|file| ["--key-file".into(), file]));
        let backend = own.torch_backend.map(TorchBackendArg::name);
        own_words.extend(backend.map(|name| format!("--torch_backend={name}").into()));
        Ok(Self {
            matches: matches.clone(),
            hostfile: own.hostfile,
            has_launcher: own.launcher.is_some(),
            script_and_args: own.script_and_args,
            own_words,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    AccelerateCli::command()
        .mut_subcommand(LAUNCH, |launch| options::add_to(launch).version(env!("CARGO_PKG_VERSION")))
}

/// Returns the definition of `launch`, as `program`.
pub(in crate::cli) fn launch_definition(program: &str) -> clap::Command {
    let whole = definition();
    let launch = whole.find_subcommand(LAUNCH).expect("the subcommand").clone();
    launch.name(program.to_owned()).bin_name(program).version(env!("CARGO_PKG_VERSION"))
}
